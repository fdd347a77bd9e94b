"""Fixtures shared by all tests: one torch thread each, a cache of their own, a small real collection."""

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCIFACT = ROOT / "recipes" / "data" / "scifact"
SHARED = ROOT.parent / "shared" / "data"

# Tests run side by side: a thread pool each would only make them wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors computed by a test stay within its process and away from the user's."""
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def write_collection(
    folder: Path,
    corpus: list[dict[str, str]],
    queries: list[dict[str, str]],
    qrels: dict[str, list[tuple[str, str, int]]],
) -> Path:
    """Write a collection in BEIR's JSONL and TSV spelling."""
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    for split, judged in qrels.items():
        text = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in judged)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + text, encoding="utf-8")
    return folder


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 training and 15 test claims of SciFact, their abstracts and 40 others; texts cut to 400 characters."""
    queries = {row["_id"]: row for row in _rows(SCIFACT / "queries.jsonl.gz")}
    corpus = {row["_id"]: row for row in _rows(SCIFACT / "corpus.jsonl.gz")}
    qrels: dict[str, list[tuple[str, str, int]]] = {}
    used_queries: dict[str, None] = {}
    used_documents: dict[str, None] = {}
    for split, count in (("train", 40), ("test", 15)):
        lines = (SCIFACT / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]
        seen: dict[str, None] = {}
        for line in lines:
            query, document, grade = line.split("\t")
            if query not in seen and len(seen) == count:
                break
            seen[query] = None
            qrels.setdefault(split, []).append((query, document, int(grade)))
            used_documents[document] = None
        used_queries |= seen
    for identifier in list(corpus)[:40]:
        used_documents[identifier] = None
    return write_collection(
        tmp_path_factory.mktemp("tiny") / "tiny",
        [{"_id": i, "title": corpus[i]["title"], "text": corpus[i]["text"][:400]} for i in sorted(used_documents)],
        [{"_id": i, "text": queries[i]["text"]} for i in used_queries],
        qrels,
    )


def call_here(*args: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """The same in this process, for the many calls for which another start of the libraries shows nothing new."""
    from embedtrain import cli

    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["embedtrain", *map(str, args)])
        os.chdir(cwd)
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        finally:
            os.chdir(before)
    return subprocess.CompletedProcess(list(map(str, args)), code, out.getvalue(), err.getvalue())


RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


def call(*args: str | Path, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run `embedtrain ARGS...` as a real process in `cwd`; a fixture wider than a test gives it a cache."""
    return subprocess.run(
        [sys.executable, "-m", "embedtrain", *map(str, args)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """Run `embedtrain ARGS...` as a real process, in `tmp_path` unless told otherwise."""

    def run(*args: str | Path, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
        return call(*args, cwd=cwd or tmp_path, **env)

    return run


@pytest.fixture
def run_here(tmp_path: Path) -> RunCli:
    """Run `embedtrain ARGS...` in this process, in `tmp_path` unless told otherwise."""

    def run(*args: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        return call_here(*args, cwd=cwd or tmp_path)

    return run
