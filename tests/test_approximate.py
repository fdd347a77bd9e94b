"""Approximate search: what it finds is scored and ordered as exact search does, its recall is measured, P20 and P23.

Deliberate breaks that turn a test red: -1 passed on, vectors not brought to length 1 for cosine, the recall of the
index against itself, scores of faiss reported.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from embedtrain import approximate, search
from embedtrain.errors import UsageError
from embedtrain.hits import Hits
from embedtrain.vectors import pair_scores


def names(count: int) -> list[str]:
    return [f"d{index:05d}" for index in range(count)]


def vectors(count: int, dimension: int = 16, seed: int = 0) -> np.ndarray:
    """Clustered directions of different lengths."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, dimension))
    found = centres[rng.integers(0, 40, count)] + 0.4 * rng.normal(size=(count, dimension))
    return (found * rng.uniform(0.5, 2.0, size=(count, 1))).astype(np.float32)


def searched(kind: str, queries: np.ndarray, documents: np.ndarray, k: int, **more: object) -> tuple[Hits, dict]:
    index, facts = approximate.open_index(kind, queries, documents, names(len(documents)), k, **more)
    return index.search(queries, k), facts


def overlap(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    return float(
        np.mean([len(set(a.tolist()) & set(b.tolist())) / len(b) for a, b in zip(one, other, strict=True)])
    )


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_recall_is_measured_against_exact_search(
    kind: str, similarity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "FEWEST", 100)
    documents, queries = vectors(3000), vectors(60, seed=1)
    hits, facts = searched(kind, queries, documents, 10, similarity=similarity)
    truth = search.dense(queries, documents, names(3000), 10, similarity=similarity)
    measured = overlap(hits.positions, truth.positions)
    assert measured >= approximate.WANTED_RECALL
    assert f"recall {measured:.4f} of exact search on 60 queries" in facts["index"]
    for found, scores in zip(hits.positions, hits.scores, strict=True):
        assert len(found) == 10
        assert (np.diff(scores) <= 0).all()
    row = np.repeat(np.arange(60), 10)
    exact = pair_scores(queries, documents, row, np.concatenate(hits.positions), similarity=similarity)
    assert np.array_equal(np.concatenate(hits.scores), exact)


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_the_same_twice(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "FEWEST", 100)
    monkeypatch.setattr(approximate, "WANTED_RECALL", 0.5)
    documents, queries = vectors(2000), vectors(20, seed=1)
    first, second = (searched(kind, queries, documents, 5, seed=7) for _ in range(2))
    assert first[1] == second[1]
    assert all(np.array_equal(a, b) for a, b in zip(first[0].positions, second[0].positions, strict=True))


def test_a_small_corpus_is_searched_exactly() -> None:
    """P23: 50 vectors, 10 wanted: 500 of 500 places are filled."""
    documents = vectors(50, 8)
    hits, facts = searched("ivf", documents, documents, 10)
    assert sum(len(found) for found in hits.positions) == 500
    assert facts == {"index": "exact: 50 documents are few"}
    assert searched("exact", documents, documents, 10)[1] == {}


def test_missing_neighbours_are_not_the_last_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """P20: a list that holds fewer than k gives -1, which is no position."""
    monkeypatch.setattr(approximate, "FEWEST", 100)
    monkeypatch.setattr(approximate, "WANTED_RECALL", 0.0)
    hits, _ = searched("ivf", vectors(20, seed=1), vectors(400), 300)
    lengths = {len(found) for found in hits.positions}
    assert max(lengths) < 300
    for found in hits.positions:
        assert found.min() >= 0
        assert len(set(found.tolist())) == len(found)


def test_recall_by_hand() -> None:
    def hits(*rows: list[int]) -> Hits:
        return Hits([np.array(row) for row in rows], [np.zeros(len(row)) for row in rows])

    assert approximate.recall(hits([1, 2], [3]), hits([2, 5], [3, 4])) == 0.5
    assert approximate.recall(hits([]), hits([])) == 0.0


def test_unknown_kinds() -> None:
    with pytest.raises(UsageError, match="--index lsh: exact, ivf, hnsw are the kinds"):
        approximate.check_index("lsh")


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_an_index_that_needs_more_memory_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "FEWEST", 100)
    with pytest.raises(UsageError, match=f"--index {kind} holds all vectors in memory"):
        searched(kind, vectors(20), vectors(400), 5, allowed=10_000)
