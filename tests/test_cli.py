"""The command line as a whole: quick, light, documented, with one meaning for each exit code."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, RunCli, write_collection
from typer.main import get_command

from embedtrain import cli, config

COMMAND = get_command(cli.app)
COMMANDS = list(COMMAND.commands)  # type: ignore[attr-defined]
HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "pyarrow",
    "polars",
    "scipy",
    "faiss",
    "matplotlib",
    "numpy",
)


def test_commands_stand_in_pipeline_order() -> None:
    assert COMMANDS == [
        *("harvest", "mine", "train-teacher", "score-teacher", "pretrain", "finetune", "eval", "diagnose"),
        "export",
        *("inspect", "doctor", "cache"),
    ]


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, embedtrain.cli; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())


@pytest.mark.parametrize("stage", ["mine", "evaluate", "score"])
def test_what_needs_no_model_loads_no_torch(stage: str) -> None:
    code = f"import sys, embedtrain.{stage}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_help_is_quick() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "embedtrain", "--help"], capture_output=True, check=True)
        return time.perf_counter() - start

    # The best of several: other tests run beside this one.
    assert min(seconds() for _ in range(7)) < 0.3


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_summary_and_an_example(name: str) -> None:
    command = COMMAND.commands[name]  # type: ignore[attr-defined]
    assert command.help.strip().endswith(".")
    assert "\n\n" not in command.help.strip()
    assert command.epilog.startswith(f"Example: embedtrain {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_flag_is_in_the_readme(name: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    section = re.search(rf"^### `{name}`$(.*?)(?=^##)", readme, re.MULTILINE | re.DOTALL)
    assert section, f"README.md has no section for {name}"
    common = re.search(r"^### Flags that mean the same everywhere$(.*?)(?=^##)", readme, re.MULTILINE | re.DOTALL)
    assert common
    shared = common[1]
    if name in ("pretrain", "finetune"):
        training = re.search(r"^### Flags of training$(.*?)(?=^###)", readme, re.MULTILINE | re.DOTALL)
        assert training
        shared += training[1]
    for parameter in COMMAND.commands[name].params:  # type: ignore[attr-defined]
        flags = [flag for flag in parameter.opts if flag.startswith("--") and flag != "--help"]
        for flag in flags:
            pattern = rf"`[^`\n]*{flag}(?![\w-])"
            assert re.search(pattern, section[1] + shared), f"README.md does not explain {flag} of {name}"


def test_flags_that_commands_share_say_the_same() -> None:
    seen: dict[str, str] = {}
    for name in COMMANDS:
        for parameter in COMMAND.commands[name].params:  # type: ignore[attr-defined]
            for flag in parameter.opts:
                text = getattr(parameter, "help", None) or ""
                if flag in (
                    "--seed",
                    "--limit",
                    "--force",
                    "--json",
                    "--quiet",
                    "--split",
                    "--collection",
                    "--negatives",
                    "--precision",
                ):
                    if (name, flag) == ("diagnose", "--collection"):
                        continue
                    if (name, flag) == ("harvest", "--split"):
                        continue
                    assert seen.setdefault(flag, text) == text, (name, flag)


def test_wrong_usage_is_two_and_one_sentence(run_cli: RunCli) -> None:
    for args in (["bogus"], ["mine"], ["mine", "x"], ["mine", "x", "--out", "y.parquet", "--top-k", "0"]):
        done = run_cli(*args)
        assert done.returncode == 2, args
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["mine", "c", "--out", "x.parquet"],
        ["eval", "c", "--bm25", "--out", "x"],
        ["diagnose", "m", "--collection", "c", "--out", "x"],
    ],
)
def test_a_precision_that_is_not_known_is_wrong_usage(run_cli: RunCli, args: list[str]) -> None:
    done = run_cli(*args, "--precision", "float16")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --precision float16: auto, float32, bfloat16 are the choices\n"


def test_every_command_that_encodes_obeys_precision_and_says_it(run_cli: RunCli, tmp_path: Path) -> None:
    """Break that turns it red: --precision of one command not passed on to its model."""
    documents = [{"_id": f"d{n}", "title": "", "text": f"text {n}"} for n in range(12)]
    queries = [{"_id": f"q{n}", "text": f"question {n}"} for n in range(3)]
    judged = [(f"q{n}", f"d{n}", 1) for n in range(3)]
    write_collection(tmp_path / "c", documents, queries, {"train": judged, "test": judged})

    def run(*args: str) -> dict[str, Any]:
        done = run_cli(*args, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    mine = ("mine", "c", "--retriever", "dense", "--out", "mined.parquet", "--precision")
    assert run(*mine, "bfloat16")["model"]["precision"] == "bfloat16"
    again = run(*mine, "float32")
    assert (again["model"]["precision"], again["up_to_date"]) == ("float32", False)
    run("eval", "c", "--model", config.MODEL, "--out", "e", "--precision", "bfloat16")
    measured = json.loads((tmp_path / "e" / "summary.json").read_text("utf-8"))
    assert '"precision": "bfloat16"' in json.dumps(measured["systems"])
    looked = run("diagnose", config.MODEL, "--collection", "c", "--out", "r", "--precision", "bfloat16")
    assert any(note.endswith(" encoded in bfloat16.") for note in looked["notes"])


def test_nothing_to_measure_and_mixtures_without_a_model(run_cli: RunCli, tiny: Path) -> None:
    for flags, words in (
        (["--hybrid"], "--model"),
        ([], "--bm25"),
        (["--rerank", "x", "--run", "y"], "candidates"),
    ):
        done = run_cli("eval", tiny, "--out", "results", *flags)
        assert done.returncode == 2
        assert words in done.stderr


def test_a_traceback_only_on_request(run_cli: RunCli) -> None:
    assert "Traceback" not in run_cli("mine", "nothere", "--out", "x.parquet").stderr
    assert "Traceback" in run_cli("mine", "nothere", "--out", "x.parquet", EMBEDTRAIN_DEBUG="1").stderr


def test_without_arguments_it_explains_itself(run_cli: RunCli) -> None:
    done = run_cli()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: embedtrain")


def test_the_current_folder_is_no_output(run_cli: RunCli, tiny: Path, tmp_path: Path) -> None:
    done = run_cli("harvest", tiny, "--out", ".")
    assert done.returncode == 2
    assert "is the current folder" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_version(run_cli: RunCli) -> None:
    assert run_cli("--version").stdout == f"embedtrain {cli.__version__}\n"


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m embedtrain doctor | head -n 0",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_interrupt_ends_with_130_and_leaves_nothing_half_written(tiny: Path, tmp_path: Path) -> None:
    """Ctrl-C while a model trains: exit 130, a line that says how to go on, no output that looks whole."""
    command = [sys.executable, "-m", "embedtrain", "pretrain", tiny, "--out", tmp_path / "out", "--epochs", "500"]
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        text=True,
        # A job started in the background of a shell would ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    work = None
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not work:
        time.sleep(0.2)
        work = next(tmp_path.glob(".out.work-*"), None)
    assert work, "training did not start"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted; run the same command again to go on"
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()
    assert {p.name for p in tmp_path.iterdir()} <= {work.name}
