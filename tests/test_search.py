"""Exact dense search and fusion, against the obvious loop, faiss and the cases P20-P27.

Deliberate breaks that turn a test red: `Ties` counting places from the first id, no second scoring of nominees
(test_equal_vectors_...), no allowance for rounding in `_bar`, one side left unnormalised (test_cosine_...), a device
that forgets what it did not send back (test_a_device_...), BLAS left with one thread (test_threads_...).
"""

import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from threadpoolctl import threadpool_info, threadpool_limits

from embedtrain import search, vectors
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits, Ties, fuse
from embedtrain.search import _together, dense
from embedtrain.vectors import pair_scores

BLOCKS = [(1, 1), (1, 2), (2, 3), (3, 4), (256, 16_384)]


def names(count: int) -> list[str]:
    return [f"d{index}" for index in range(count)]


def lists(hits: Hits) -> list[list[int]]:
    return [positions.tolist() for positions in hits.positions]


def slow(queries: np.ndarray, documents: np.ndarray, ids: Sequence[str], k: int, similarity: str) -> list:
    """The obvious loop: every pair in float64, reported as float32, sorted by score and id."""
    found = []
    for query in queries.astype(np.float64):
        scores = []
        for document in documents.astype(np.float64):
            score = float((query * document).sum())
            if similarity == "cosine":
                length = float(np.sqrt((query**2).sum()) * np.sqrt((document**2).sum()))
                score = min(1.0, max(-1.0, score / length)) if length else 0.0
            scores.append(np.float32(score))
        order = sorted(range(len(documents)), key=lambda index: (-scores[index], ids[index]))[:k]
        found.append([(index, float(scores[index])) for index in order])
    return found


def pairs(hits: Hits) -> list[list[tuple[int, float]]]:
    return [
        list(zip(p.tolist(), s.tolist(), strict=True)) for p, s in zip(hits.positions, hits.scores, strict=True)
    ]


# --- the tie rule ---------------------------------------------------------------------------------------------


def test_keys_order_as_scores_descending_then_ids_ascending() -> None:
    ids = ["10", "9", "a", "007", "7"]
    scores = np.array([0.5, 0.5, -2.0, 0.5, 3e38], dtype=np.float32)
    ties = Ties(ids)
    positions, found = ties.best(ties.keys(scores, np.arange(5)), 5)
    # By id as text: "007" < "10" < "9".
    assert [ids[position] for position in positions] == ["7", "007", "10", "9", "a"]
    assert found.tolist() == scores[[4, 3, 0, 1, 2]].tolist()
    assert positions.dtype == np.int64
    assert found.dtype == np.float32


@given(hnp.arrays(np.float32, st.integers(1, 30), elements=st.floats(-(2.0**127), 2.0**127, width=32)))
def test_keys_hold_scores_and_positions(scores: np.ndarray) -> None:
    ties = Ties([str(index) for index in range(len(scores))])
    keys = ties.keys(scores, np.arange(len(scores)))
    assert (ties.scores(keys) == scores).all()
    assert (ties.positions(keys) == np.arange(len(scores))).all()


def test_minus_zero_ties_with_zero() -> None:
    ties = Ties(["a", "b"])
    positions, _ = ties.best(ties.keys(np.array([-0.0, 0.0], dtype=np.float32), np.arange(2)), 2)
    assert positions.tolist() == [0, 1]


# --- dense ----------------------------------------------------------------------------------------------------


def test_fewer_documents_than_k_give_fewer_hits() -> None:
    """P20: faiss fills up with -1, which is the last document to Python."""
    vectors = np.eye(2, dtype=np.float32)
    hits = dense(vectors[:1], vectors, ["0", "1"], 4)
    assert pairs(hits) == [[(0, 1.0), (1, 0.0)]]
    index = faiss.IndexFlatIP(2)
    index.add(vectors)
    assert index.search(vectors[:1], 4)[1].tolist() == [[0, 1, -1, -1]]


def test_cosine_normalises_both_sides_and_dot_neither() -> None:
    """P21."""
    query, documents = np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [0.9, 0.0]])
    cosine = dense(query, documents, ["d1", "d2"], 2)
    assert lists(cosine) == [[1, 0]]
    assert cosine.scores[0].tolist() == pytest.approx([1.0, 0.7071068])
    assert pairs(dense(3 * query, documents / 7, ["d1", "d2"], 2)) == pairs(cosine)
    dot = dense(query, documents, ["d1", "d2"], 2, similarity="dot")
    assert lists(dot) == [[0, 1]]
    assert dot.scores[0].tolist() == pytest.approx([1.0, 0.9])


def test_cosine_never_exceeds_one() -> None:
    vectors = np.random.default_rng(0).normal(size=(200, 33)).astype(np.float32)
    hits = dense(vectors, vectors, names(200), 1)
    assert lists(hits) == [[index] for index in range(200)]
    assert all(scores[0] == 1.0 for scores in hits.scores)


@pytest.mark.parametrize("block", BLOCKS)
def test_list_for_k_is_a_prefix_of_the_list_for_more(block: tuple[int, int]) -> None:
    """P22: faiss gives [0], [1, 0], [2, 1, 0] here."""
    documents = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=np.float32)
    found = [lists(dense(documents[:1], documents, names(4), k, block=block))[0] for k in (1, 2, 3, 4, 5)]
    assert found == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
    reversed_names = ["d3", "d2", "d1", "d0"]
    found = [lists(dense(documents[:1], documents, reversed_names, k, block=block))[0] for k in (1, 2, 3, 4)]
    assert found == [[2], [2, 1], [2, 1, 0], [2, 1, 0, 3]]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_equal_vectors_tie_wherever_they_stand_in_a_block(similarity: str) -> None:
    # A matrix product may round the same pair differently at the edge of its tiles: 67 copies of 5 vectors.
    generator = np.random.default_rng(1)
    documents = np.tile(generator.normal(size=(5, 131)).astype(np.float32), (67, 1))
    queries = generator.normal(size=(7, 131)).astype(np.float32)
    expected = slow(queries, documents, names(335), 80, similarity)
    for block in [(7, 335), (3, 64), (1, 1), (7, 101)]:
        assert pairs(dense(queries, documents, names(335), 80, similarity=similarity, block=block)) == expected


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_documents_that_float32_cannot_tell_apart_are_told_apart(similarity: str) -> None:
    """Scores of 120 documents differ by less than a product in float32 errs; every one is summed in float64."""
    generator = np.random.default_rng(9)
    documents = generator.normal(size=384) + 1e-6 * generator.normal(size=(120, 384))
    documents = documents.astype(np.float32)
    queries = generator.normal(size=(6, 384)).astype(np.float32)
    expected = slow(queries, documents, names(120), 10, similarity)
    for block in [(6, 120), (3, 50), (1, 7)]:
        assert pairs(dense(queries, documents, names(120), 10, similarity=similarity, block=block)) == expected


def test_queries_that_are_scored_together() -> None:
    assert _together(np.array([3, 0, 2, 9, 1]), 5) == [slice(0, 3), slice(3, 4), slice(4, 5)]
    assert _together(np.array([0, 0]), 5) == [slice(0, 2)]
    assert _together(np.array([], dtype=np.int64), 5) == []


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_agrees_with_faiss(similarity: str) -> None:
    generator = np.random.default_rng(2)
    documents = generator.normal(size=(3000, 64)).astype(np.float32)
    queries = generator.normal(size=(50, 64)).astype(np.float32)
    hits = dense(queries, documents, names(3000), 20, similarity=similarity, block=(16, 700))
    if similarity == "cosine":
        faiss.normalize_L2(documents)
        faiss.normalize_L2(queries)
    index = faiss.IndexFlatIP(64)
    index.add(documents)
    scores, positions = index.search(queries, 20)
    assert np.array_equal(np.stack(hits.positions), positions)
    assert np.allclose(np.stack(hits.scores), scores, rtol=1e-5, atol=1e-5)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_same_as_the_obvious_loop(data: st.DataObject) -> None:
    """Small whole numbers make many ties; ids are shuffled so that their order is not that of positions."""
    width = data.draw(st.integers(1, 5))
    element = st.integers(-2, 2)
    queries = data.draw(hnp.arrays(np.float32, (data.draw(st.integers(1, 4)), width), elements=element))
    documents = data.draw(hnp.arrays(np.float32, (data.draw(st.integers(1, 12)), width), elements=element))
    ids = data.draw(st.permutations(names(len(documents))))
    k = data.draw(st.integers(1, 14))
    similarity = data.draw(st.sampled_from(["cosine", "dot"]))
    block = data.draw(st.sampled_from(BLOCKS))
    hits = dense(queries, documents, ids, k, similarity=similarity, block=block)
    assert pairs(hits) == slow(queries, documents, ids, k, similarity)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["cosine", "dot"]))
def test_order_of_documents_and_other_queries_change_nothing(seed: int, similarity: str) -> None:
    generator = np.random.default_rng(seed)
    documents = generator.integers(-2, 3, size=(30, 3)).astype(np.float32)
    queries = generator.normal(size=(4, 3)).astype(np.float32)
    order = generator.permutation(30)
    ids = names(30)
    hits = dense(queries, documents, ids, 10, similarity=similarity)
    shuffled = dense(
        queries[:2], documents[order], [ids[i] for i in order], 10, similarity=similarity, block=(1, 7)
    )
    for one, other in zip(pairs(hits)[:2], pairs(shuffled), strict=True):
        assert one == [(int(order[position]), score) for position, score in other]


def test_any_float_type_and_layout() -> None:
    """P25: bfloat16 tensor, float64, Fortran order and every second column."""
    wide = np.random.default_rng(3).normal(size=(4, 16)).astype(np.float32)
    vectors = np.ascontiguousarray(wide[:, ::2])
    expected = dense(vectors, vectors, names(4), 2)
    for other in (vectors.astype(np.float64), np.asfortranarray(vectors), wide[:, ::2], torch.tensor(vectors)):
        hits = dense(other, other, names(4), 2)
        assert lists(hits) == lists(expected)
        assert np.allclose(np.stack(hits.scores), np.stack(expected.scores), atol=1e-6)
    for rough in (torch.tensor(vectors, dtype=torch.bfloat16), vectors.astype(np.float16)):
        hits = dense(rough, rough, names(4), 2)
        assert lists(hits) == lists(expected)
        assert np.allclose(np.stack(hits.scores), np.stack(expected.scores), atol=1e-2)
        assert all(scores.dtype == np.float32 for scores in hits.scores)


def test_memory_is_bounded_by_the_block() -> None:
    """P26: the whole matrix of 2,000 x 2,000 scores is 16 MB; a block of 64 x 1,000 is 256 kB."""
    generator = np.random.default_rng(4)
    queries = generator.normal(size=(2000, 8)).astype(np.float32)
    documents = generator.normal(size=(2000, 8)).astype(np.float32)
    small = dense(queries, documents, names(2000), 5, block=(64, 1000))
    tracemalloc.start()
    try:
        dense(queries, documents, names(2000), 5, block=(64, 1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert pairs(small) == pairs(dense(queries, documents, names(2000), 5))


@pytest.mark.parametrize("step", [1, 2, 3, 10])
def test_k_hits_are_kept_whatever_the_number_of_blocks(step: int) -> None:
    """P27: 10 documents in blocks of 2 with k = 2 gave 10 hits."""
    documents = np.random.default_rng(5).normal(size=(10, 4)).astype(np.float32)
    hits = dense(documents[:1], documents, names(10), 2, block=(1, step))
    assert pairs(hits) == slow(documents[:1], documents, names(10), 2, "cosine")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["cosine", "dot"]), st.integers(1, 60))
def test_a_device_finds_the_same(seed: int, similarity: str, k: int) -> None:
    """Many equal scores, more of them than are held, in blocks larger and smaller than what is held."""
    generator = np.random.default_rng(seed)
    documents = generator.choice([-1, 1], size=(150, 2)).astype(np.float32)
    queries = generator.normal(size=(5, 2)).astype(np.float32)
    expected = dense(queries, documents, names(150), k, similarity=similarity)
    for block in ((2, 150), (5, 40), (1, 7)):
        found = dense(
            queries, documents, names(150), k, similarity=similarity, block=block, device=torch.device("cpu")
        )
        assert pairs(found) == pairs(expected)


def test_a_device_finds_thousands() -> None:
    """P24: the GPU index of faiss refuses more than 2,048; here k is 2,060."""
    generator = np.random.default_rng(8)
    documents = generator.normal(size=(5000, 8)).astype(np.float32)
    hits = dense(documents[:3], documents, names(5000), 2060, device=torch.device("cpu"))
    assert pairs(hits) == pairs(dense(documents[:3], documents, names(5000), 2060))


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    queries = generator.normal(size=(40, 9)).astype(np.float32)
    documents = generator.integers(-2, 3, size=(500, 9)).astype(np.float32)  # many ties
    alone = dense(queries, documents, names(500), 60, block=(7, 100))
    started = []

    def start(count: int) -> ThreadPoolExecutor:
        started.append([library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"])
        return ThreadPoolExecutor(count)

    with threadpool_limits(limits=3, user_api="blas"):
        before = threadpool_info()
        monkeypatch.setattr(search, "ThreadPoolExecutor", start)
        assert pairs(dense(queries, documents, names(500), 60, block=(7, 100))) == pairs(alone)
        assert len(started) == 1
        assert threadpool_info() == before
        with pytest.raises(KeyboardInterrupt):
            dense(queries, documents, names(500), 60, block=(7, 100), progress=_interrupt)
        assert threadpool_info() == before


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_zero_vectors_have_cosine_zero() -> None:
    documents = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    assert pairs(dense(np.array([[2.0, 0.0], [0.0, 0.0]]), documents, names(3), 3)) == [
        [(2, 1.0), (0, 0.0), (1, -1.0)],
        [(0, 0.0), (1, 0.0), (2, 0.0)],
    ]


def test_nan_is_refused() -> None:
    good, bad = np.eye(2), np.array([[1.0, 0.0], [np.nan, 0.0]])
    with pytest.raises(EmbedtrainError, match=r"1 document vectors hold NaN or infinity \(the first at row 1\)"):
        dense(good, bad, names(2), 1)
    with pytest.raises(EmbedtrainError, match="query vectors hold NaN"):
        dense(bad, good, names(2), 1)


def test_wrong_shapes_and_similarities_are_refused() -> None:
    with pytest.raises(EmbedtrainError, match="3 dimensions and document vectors 2"):
        dense(np.ones((1, 3)), np.eye(2), names(2), 1)
    with pytest.raises(EmbedtrainError, match="2 document vectors were given for 3 documents"):
        dense(np.eye(2), np.eye(2), names(3), 1)
    with pytest.raises(EmbedtrainError, match="euclidean"):
        dense(np.eye(2), np.eye(2), names(2), 1, similarity="euclidean")


def test_nothing_to_search_or_to_find() -> None:
    assert lists(dense(np.empty((0, 2)), np.eye(2), names(2), 1)) == []
    assert lists(dense(np.eye(2), np.empty((0, 2)), [], 1)) == [[], []]


def test_progress_ends_at_the_number_of_documents() -> None:
    seen = []
    documents = np.eye(5)
    dense(documents, documents, names(5), 1, block=(2, 2), progress=lambda *step: seen.append(step[1:3]))
    assert seen == [(0, 5), (2, 5), (4, 5), (5, 5)]


def test_pair_scores_are_those_of_the_search() -> None:
    generator = np.random.default_rng(6)
    queries, documents = generator.normal(size=(3, 50)), generator.normal(size=(40, 50)).astype(np.float32)
    for similarity in ("cosine", "dot"):
        hits = dense(queries, documents, names(40), 7, similarity=similarity)
        rows = np.repeat(np.arange(3), 7)
        scores = pair_scores(queries, documents, rows, np.concatenate(hits.positions), similarity=similarity)
        assert np.array_equal(scores, np.concatenate(hits.scores))


def test_pair_scores_in_any_order_and_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(10)
    queries, documents = generator.normal(size=(9, 30)), generator.normal(size=(40, 30)).astype(np.float32)
    rows, columns = generator.integers(0, 9, 200), generator.integers(0, 40, 200)
    alone = [
        pair_scores(queries, documents, [r], [c], similarity="cosine")[0]
        for r, c in zip(rows, columns, strict=True)
    ]
    monkeypatch.setattr(vectors, "_NUMBERS", 30 * 17)
    assert pair_scores(queries, documents, rows, columns, similarity="cosine").tolist() == alone


# --- fusion ---------------------------------------------------------------------------------------------------


def run(*lists: list[int]) -> Hits:
    return Hits(
        [np.array(found, dtype=np.int64) for found in lists],
        [np.arange(len(found), 0, -1, dtype=np.float32) for found in lists],
    )


def test_fusion_by_hand() -> None:
    # a: 1/61 + 1/62, b: 1/62 + 1/61 (a tie: id order), c: 1/63, d: 1/63 (a tie), e: 1/64.
    hits = fuse([run([0, 1, 2, 4]), run([1, 0, 3])], Ties(["a", "b", "d", "c", "e"]), 10)
    assert lists(hits) == [[0, 1, 3, 2, 4]]
    assert hits.scores[0].tolist() == pytest.approx([1 / 61 + 1 / 62] * 2 + [1 / 63] * 2 + [1 / 64])
    assert lists(fuse([run([0, 1, 2, 4]), run([1, 0, 3])], Ties(["a", "b", "d", "c", "e"]), 3)) == [[0, 1, 3]]


def test_fusion_constant_and_empty_lists() -> None:
    hits = fuse([run([2], []), run([], [])], Ties(names(3)), 5, constant=1)
    assert lists(hits) == [[2], []]
    assert hits.scores[0].tolist() == [0.5]


@given(st.lists(st.permutations(range(8)).map(lambda order: order[:5]), min_size=1, max_size=4))
def test_fusion_is_the_obvious_sum(rankings: list[list[int]]) -> None:
    ids = names(8)
    sums = {d: np.float32(sum(1 / (61 + r.index(d)) for r in rankings if d in r)) for r in rankings for d in r}
    expected = sorted(sums, key=lambda document: (-sums[document], ids[document]))
    assert lists(fuse([run(ranking) for ranking in rankings], Ties(ids), 100)) == [expected]


def test_runs_of_different_lengths_are_refused() -> None:
    with pytest.raises(EmbedtrainError, match="different numbers of queries"):
        fuse([run([0]), run([0], [1])], Ties(names(2)), 1)
