"""The command line: parse, call one stage, print; one module a command or two, commands in pipeline order.

Heavy packages are imported inside the functions that need them, after the check for "up to date", so that help,
refusals and finished work answer at once.
"""

import errno
import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from embedtrain import __version__, console
from embedtrain.cli.app import app
from embedtrain.errors import EmbedtrainError

# Importing a module adds its commands; help lists them in this order.
from embedtrain.cli import harvest, mine, teacher, train, evaluate, diagnose, export, look, cache  # isort: skip

__all__ = ["app", "cache", "diagnose", "evaluate", "export", "harvest", "look", "main", "mine", "teacher", "train"]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"embedtrain {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _sentence(error: BaseException) -> str:
    if isinstance(error, EmbedtrainError):
        return str(error)
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return (
                f"the disk is full or a limit on file size is reached{where}; make room and run the command again"
            )
        return f"{error.strerror or error}{where}; check the path and its permissions"
    if any(f"os error {number}" in str(error) for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)):
        return "the disk is full or a limit on file size is reached; make room and run the command again"
    if isinstance(error, MemoryError):
        return "out of memory; use a smaller --batch-size or --limit"
    return f"unexpected {type(error).__name__}: {error}; set EMBEDTRAIN_DEBUG=1 for the traceback and report it"


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 a known error, 2 wrong usage, 3 a gate not met, 130 interrupted."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="embedtrain", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader went away (`| head`); Python must not complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("EMBEDTRAIN_DEBUG") == "1":
            traceback.print_exc()
        usage = getattr(error, "format_message", None)
        console.hint(f"error: {usage() if usage else _sentence(error)}")
        code = getattr(error, "exit_code", 1)
    if code == 130:
        console.hint("interrupted; run the same command again to go on")
    sys.exit(code if isinstance(code, int) else 0)
