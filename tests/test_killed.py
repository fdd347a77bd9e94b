"""`kill -9` in the middle of a command, then the same command again: the bytes of a run that nobody disturbed.

Breaks that turn a test red: vectors written when all are computed, vectors kept under a key that changes from run to
run, a checkpoint without the optimiser's moments.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import write_collection

from embedtrain.inference import CPU_WINDOW
from embedtrain.models import MINILM, find_model
from embedtrain.reranker import Reranker

WORDS = [
    "alpha",
    "beta",
    "cell",
    "gene",
    "virus",
    "heart",
    "lung",
    "bone",
    "blood",
    "skin",
    "liver",
    "kidney",
    "muscle",
    "nerve",
    "brain",
    "eye",
]
MORE = 500
WINDOW_BYTES = CPU_WINDOW * 384 * 4


pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Runs:
    """Runs of one `mine` command, each with a cache folder and an output of its own or of another's."""

    collection: Path
    folder: Path

    def start(self, cache: str, out: str) -> "subprocess.Popen[str]":
        flags = [
            "--retriever",
            "dense",
            "--top-k",
            "20",
            "--precision",
            "float32",
            "--out",
            str(self.folder / out),
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "embedtrain", "mine", str(self.collection), *flags],
            env={**os.environ, "EMBEDTRAIN_CACHE": str(self.folder / cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, cache: str, out: str) -> tuple[bytes, str]:
        """The output of a run that is left alone, and what it said on standard error."""
        run = self.start(cache, out)
        _, said = run.communicate(timeout=300)
        assert run.returncode == 0, said
        return (self.folder / out).read_bytes(), said


def kill(run: "subprocess.Popen[str]") -> None:
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert run.returncode == -signal.SIGKILL  # it had not ended before


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Short documents, more than one window of them, and 40 queries."""
    corpus = []
    for number in range(CPU_WINDOW + MORE):
        words = [WORDS[number >> shift & 15] for shift in (0, 4, 8, 12)]
        corpus.append({"_id": f"d{number:05d}", "text": " ".join(words[: 3 + (number > 4095)])})
    queries = [{"_id": f"q{n}", "text": corpus[101 * n]["text"].replace(" ", " of ", 1)} for n in range(40)]
    judged = [(f"q{n}", f"d{101 * n:05d}", 1) for n in range(40)]
    folder = tmp_path_factory.mktemp("killed")
    return Runs(write_collection(folder / "many", corpus, queries, {"train": judged}), folder)


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> bytes:
    return runs.finish("whole", "whole.parquet")[0]


def test_killed_while_it_encodes_it_goes_on_to_the_same_bytes(runs: Runs, undisturbed: bytes) -> None:
    run = runs.start("encoding", "encoding.parquet")
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(
            path.stat().st_size > WINDOW_BYTES for path in (runs.folder / "encoding").rglob("[0-9]*.safetensors")
        ):
            break
        time.sleep(0.005)
    kill(run)
    assert not (runs.folder / "encoding.parquet").exists()
    again, said = runs.finish("encoding", "encoding.parquet")
    assert again == undisturbed
    assert f"/{MORE} in" in said
    assert f"({CPU_WINDOW:,} more were in the cache)" in said
    assert "encode queries" not in said


def test_killed_after_its_search_it_ends_with_the_same_bytes(runs: Runs, undisturbed: bytes) -> None:
    run = runs.start("whole", "searched.parquet")
    assert run.stderr is not None
    while "search the vectors" not in run.stderr.readline():
        assert run.poll() is None
    kill(run)
    assert not (runs.folder / "searched.parquet").exists()
    again, said = runs.finish("whole", "searched.parquet")
    assert again == undisturbed
    assert "encode" not in said


# A checkpoint is due after each step, not after a minute.
AT_ONCE = (
    "import runpy, sys; from embedtrain import checkpoints; checkpoints.SECONDS = 0.0; checkpoints.SHARE = 1e9; "
    "sys.argv = ['embedtrain', *sys.argv[1:]]; runpy.run_module('embedtrain', run_name='__main__')"
)
KILLS = 3


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_while_it_trains_it_ends_with_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    env = {**os.environ, "EMBEDTRAIN_CACHE": str(tmp_path / "cache")}

    def start(out: str) -> "subprocess.Popen[str]":
        flags = ["mined.parquet", "--collection", str(tiny), "--out", out, "--epochs", "2", "--limit", "32"]
        return subprocess.Popen(
            [sys.executable, "-c", AT_ONCE, "train-teacher", *flags, "--max-length", "32", "--negatives", "2"],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    mine = [sys.executable, "-m", "embedtrain", "mine", str(tiny), "--retriever", "bm25", "--out", "mined.parquet"]
    subprocess.run([*mine, "--quiet"], cwd=tmp_path, env=env, check=True, stdout=subprocess.DEVNULL)
    for out in ("whole", "cut"):
        kills = 0
        while True:
            run = start(out)
            before = {path.name for path in tmp_path.glob(".cut.work-*/round-*/step-*")}
            while out == "cut" and kills < KILLS and run.poll() is None:
                if {path.name for path in tmp_path.glob(".cut.work-*/round-*/step-*")} - before:
                    time.sleep(0.1 * kills)  # in a step, in a save, between them
                    run.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.002)
            _, said = run.communicate(timeout=300)
            if run.returncode == 0:
                break
            assert run.returncode == -signal.SIGKILL, said
            assert not (tmp_path / "cut").exists()
            kills += 1
        assert kills == (KILLS if out == "cut" else 0)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert len((tmp_path / "cut" / "metrics.jsonl").read_text("utf-8").splitlines()) == 8


# What is scored is put on disk after each chunk, not after half a minute.
CHUNK_BY_CHUNK = (
    "import runpy, sys; from embedtrain import inference; inference.SECONDS = 0.0; inference.CPU_TOKENS = 256; "
    "sys.argv = ['embedtrain', *sys.argv[1:]]; runpy.run_module('embedtrain', run_name='__main__')"
)


def test_killed_while_it_scores_it_ends_with_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    def start(cache: str, out: str, *flags: str) -> "subprocess.Popen[str]":
        command = ["score-teacher", "mined.parquet", "--collection", str(tiny), "--teacher", "teacher", "--trust"]
        return subprocess.Popen(
            [sys.executable, "-c", CHUNK_BY_CHUNK, *command, "--candidates", "5", "--out", out, *flags],
            cwd=tmp_path,
            env={**os.environ, "EMBEDTRAIN_CACHE": str(tmp_path / cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    mine = [sys.executable, "-m", "embedtrain", "mine", str(tiny), "--retriever", "bm25", "--out", "mined.parquet"]
    subprocess.run([*mine, "--quiet"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    Reranker.from_encoder(find_model(MINILM), seed=0, max_length=48).save(tmp_path / "teacher")
    run = start("whole", "whole.parquet")
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    for _ in range(KILLS):
        run = start("cut", "cut.parquet")
        before = set((tmp_path / "cut").rglob("[0-9]*.safetensors"))
        while not set((tmp_path / "cut").rglob("[0-9]*.safetensors")) - before:
            assert run.poll() is None
            time.sleep(0.002)
        kill(run)
        assert not (tmp_path / "cut.parquet").exists()
    run = start("cut", "cut.parquet")
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert "more were in the cache" in said
    assert (tmp_path / "cut.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
