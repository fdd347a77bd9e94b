"""Smaller vectors: prefixes, bytes and bits against sentence-transformers and the obvious computation.

Deliberate breaks that turn a test red: bytes of vectors that were not divided by their lengths, one range for all
dimensions, candidates by bits that are not ordered anew.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import RunCli
from sentence_transformers.util import quantize_embeddings

from embedtrain import compression
from embedtrain.console import silent
from embedtrain.search import dense
from embedtrain.vectors import directions


def made(count: int, dimension: int = 32, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=(count, dimension)) * np.linspace(0.2, 2, dimension)).astype(np.float32)


def names(count: int) -> list[str]:
    return [f"d{n:04}" for n in range(count)]


def test_a_prefix_is_what_a_shorter_model_would_give() -> None:
    documents, queries = made(300), made(20, seed=1)
    found = dense(compression.prefix(queries, 8), compression.prefix(documents, 8), names(300), 10)
    cut = directions(queries[:, :8].copy()) @ directions(documents[:, :8].copy()).T
    assert [row.tolist() for row in found.positions] == np.argsort(-cut, axis=1)[:, :10].tolist()


def test_bytes_are_those_of_sentence_transformers() -> None:
    """Their int8 is ours less 128; what comes back is at most half a step away, in each dimension its own."""
    documents = directions(made(400))
    held = compression.int8(documents, "cosine")[:]
    low, high = documents.min(axis=0), documents.max(axis=0)
    step = (high - low) / 255
    assert (np.abs(held - documents) <= step / 2 + 1e-6).all()
    theirs = quantize_embeddings(documents, "int8", ranges=np.vstack([low, high])).astype(np.float64)
    ours = np.rint((held - low) / step) - 128
    # They cut off where we round: a step at most.
    assert np.abs(ours - theirs).max() <= 1
    # Of vectors of any length the directions are what is held.
    assert compression.int8(documents * 7, "cosine")[:] == pytest.approx(held, abs=1e-6)
    assert compression.int8(documents * 7, "dot")[:5] == pytest.approx(held[:5] * 7, abs=1e-5)


def test_a_dimension_that_never_changes_comes_back_whole() -> None:
    documents = made(50)
    documents[:, 3] = 0.25
    assert compression.int8(documents, "dot")[:,][:, 3] == pytest.approx(0.25)


def test_bits_are_those_of_sentence_transformers_and_are_ordered_anew() -> None:
    documents, queries = made(500), made(30, seed=1)
    bits = compression.signs(documents)[:]
    theirs = quantize_embeddings(documents, "ubinary")
    assert np.packbits(bits > 0, axis=1).tolist() == theirs.tolist()
    k = 10
    found = compression.by_bits(queries, documents, names(500), k, silent)
    for row, query in enumerate(queries):
        near = ((query > 0) != (documents > 0)).sum(axis=1)
        candidates = np.lexsort((np.arange(500), near))[: compression.CANDIDATES * k]
        scores = bits[candidates] @ query
        best = candidates[np.lexsort((candidates, -scores))][:k]
        assert found.positions[row].tolist() == best.tolist()


@pytest.mark.parametrize(("kind", "count"), [("", 1_536), ("int8", 384), ("binary", 48)])
def test_bytes_of_a_vector(kind: str, count: int) -> None:
    assert compression.bytes_of(384, kind) == count


def test_rows_of_an_evaluation(run_here: RunCli, tiny: Path, tmp_path: Path) -> None:
    command = ["eval", str(tiny), "--model", "all-MiniLM-L6-v2", "--dims", "128,8", "--quantize", "int8,binary"]
    done = run_here(*command, "--out", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    systems = ["base", "base, 128 dimensions", "base, 8 dimensions", "base, int8", "base, binary"]
    assert list(printed["systems"]) == systems
    assert printed["judged_system"] == "base"
    means = {name: printed["systems"][name]["nDCG@10"]["mean"] for name in systems}
    assert means["base, int8"] == pytest.approx(means["base"], abs=0.02)
    assert means["base, 8 dimensions"] < means["base, 128 dimensions"]
    sizes = [row[printed["table"]["columns"].index("bytes/vector")] for row in printed["table"]["rows"]]
    assert sizes == ["1,536", "512", "32", "384", "48"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--dims", "384"],
            "--dims 384: the vectors of sentence-transformers/all-MiniLM-L6-v2 have 384 dimensions",
        ),
        (["--dims", "0"], "--dims 0: a vector has one dimension at least"),
        (["--dims", "half"], "--dims half: half is no number of dimensions"),
        (["--quantize", "int4"], "--quantize int4: int8 and binary are the ways"),
    ],
)
def test_wrong_flags(run_here: RunCli, tiny: Path, tmp_path: Path, flags: list[str], message: str) -> None:
    done = run_here("eval", str(tiny), "--model", "all-MiniLM-L6-v2", "--out", str(tmp_path / "out"), *flags)
    assert done.returncode == 2
    assert message in done.stderr
