"""Outputs that are whole or absent: written under a temporary name beside the target, flushed, renamed."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from embedtrain.errors import EmbedtrainError

_PARTIAL = re.compile(r"^\.(?P<name>.+)\.(?P<pid>\d+)\.(partial|old)$")


def _temporary(target: Path, ending: str = "partial") -> Path:
    return target.parent / f".{target.name}.{os.getpid()}.{ending}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove(path: Path) -> None:
    """Remove a file or a folder; nothing happens when it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sweep(target: Path) -> None:
    """Clean up beside `target` what writers that died left there; a finished old copy is put back first."""
    if not target.parent.is_dir():
        return
    for entry in target.parent.iterdir():
        match = _PARTIAL.match(entry.name)
        if match is None or match["name"] != target.name or _alive(int(match["pid"])):
            continue
        if entry.name.endswith(".old") and not target.exists():
            entry.rename(target)
        else:
            remove(entry)


def _sync_folder(path: Path) -> None:
    # A rename is durable once its folder is flushed; some file systems refuse to open folders.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or absent."""
    ensure_writable(path)
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as they come into a text file, whole or absent."""
    ensure_writable(path)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def ensure_writable(target: Path) -> list[Path]:
    """Create the folder that will hold `target` and prove that it can be written, before any work is done.

    Returns the folders that were created, outermost first, for `remove_empty`.
    """
    created = [folder for folder in reversed(target.parents) if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        probe = _temporary(target, "partial")
        probe.touch()
        probe.unlink()
    except OSError as error:
        remove_empty(created)
        blocked = next((folder for folder in target.parents if folder.exists() and not folder.is_dir()), None)
        why = f"{blocked} is a file" if blocked else error.strerror
        raise EmbedtrainError(f"cannot write to {target.parent}: {why}; choose another --out") from error
    return created


def remove_empty(folders: list[Path]) -> None:
    """Remove folders that hold nothing, innermost (last) first."""
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `target` when the block ends well, remove it otherwise."""
    temporary = _temporary(target)
    try:
        yield temporary
        _sync_file(temporary)
        temporary.replace(target)
        _sync_folder(target.parent)
    except BaseException:
        remove(temporary)
        raise


@contextlib.contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it takes the place of `target` when the block ends well.

    A folder cannot be renamed over a full one, so the old one steps aside first; `sweep` puts it back if the
    process dies between the two renames.
    """
    temporary = _temporary(target)
    remove(temporary)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                _sync_file(path)
        old = _temporary(target, "old")
        try:
            if target.exists():
                target.rename(old)
            temporary.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
        remove(old)
        _sync_folder(target.parent)
    except BaseException:
        remove(temporary)
        raise
