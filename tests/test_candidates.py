"""What retrievers found as flat arrays: the union in fused order, ranks and scores by retriever, and what comes behind.

Deliberate breaks that turn a test red: scores put to another candidate's place, ranks counted from 0, an extra that is
there already repeated, another query's lists read.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.candidates import Candidates, Ragged, extended, isin, joined
from embedtrain.hits import Hits, Ties, fuse

IDS = ["d0", "d1", "d2", "d3", "d4"]


def hits(*rows: list[tuple[int, float]]) -> Hits:
    return Hits(
        [np.array([position for position, _ in row], dtype=np.int64) for row in rows],
        [np.array([score for _, score in row], dtype=np.float32) for row in rows],
    )


def rows(found: Candidates) -> list[list[int]]:
    return [part.tolist() for part in np.split(found.values, found.offsets[1:-1])]


def test_union_of_two_lists() -> None:
    lexical, dense = hits([(1, 9.0), (0, 3.0)], []), hits([(3, 0.9), (1, 0.5)], [(2, 0.25)])
    found = joined({"bm25": lexical, "dense": dense}, Ties(IDS), 10)
    # d1: 1/61 + 1/62; then d3 (1/61), then d0 (1/62).
    assert rows(found) == [[1, 3, 0], [2]]
    assert found.rank.tolist() == [1, 2, 3, 1]
    assert found.ranks["bm25"].tolist() == [1, 0, 2, 0]
    assert found.ranks["dense"].tolist() == [2, 1, 0, 1]
    assert np.array_equal(found.scores["bm25"], np.float32([9, np.nan, 3, np.nan]), equal_nan=True)
    assert np.array_equal(found.scores["dense"], np.float32([0.5, 0.9, np.nan, 0.25]), equal_nan=True)
    assert found.owners.tolist() == [0, 0, 0, 1]
    assert found.found_by("bm25").tolist() == [True, False, True, False]


def test_one_list_is_its_own_order() -> None:
    found = joined({"dense": hits([(3, 0.9), (1, 0.5)], [], [(4, 0.1)])}, Ties(IDS), 10)
    assert rows(found) == [[3, 1], [], [4]]
    assert found.rank.tolist() == found.ranks["dense"].tolist() == [1, 2, 1]


def test_what_comes_behind() -> None:
    found = joined({"dense": hits([(3, 0.9)], [(1, 0.5)], [])}, Ties(IDS), 10)
    more = extended(found, Ragged.of([[3, 2, 2], [], [0, 4]]))
    assert rows(more) == [[3, 2], [1], [0, 4]]
    assert more.rank.tolist() == [1, 0, 1, 0, 0]
    assert np.isnan(more.scores["dense"]).tolist() == [False, True, False, True, True]
    assert extended(found, Ragged.of([[], [], []])).values.tolist() == found.values.tolist()


def test_isin_looks_at_the_same_query_only() -> None:
    left, right = Ragged.of([[1, 2], [1]]), Ragged.of([[2], [2, 1]])
    assert isin(left, right).tolist() == [False, True, True]
    assert isin(Ragged.of([[]]), Ragged.of([[1]])).tolist() == []


def test_only_some_queries() -> None:
    found = joined({"dense": hits([(3, 0.9)], [(1, 0.5), (2, 0.25)], [(0, 1.0)])}, Ties(IDS), 10)
    part = found.only(np.array([False, True, True]))
    assert rows(part) == [[1, 2], [0]]
    assert part.scores["dense"].tolist() == [0.5, 0.25, 1.0]
    assert Ragged.of([[5], [6, 7]]).only(np.array([True, False])).values.tolist() == [5]


LIST = st.lists(st.integers(0, 4), unique=True, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LIST, LIST, LIST), min_size=1, max_size=4))
def test_joined_is_fusion_and_loses_nothing(queries: list[tuple[list[int], list[int], list[int]]]) -> None:
    lists = {
        name: hits(*[[(position, 1.0 - place / 10) for place, position in enumerate(row)] for row in part])
        for name, part in zip("abc", zip(*queries, strict=True), strict=True)
    }
    found = joined(lists, Ties(IDS), 15)
    assert rows(found) == [part.tolist() for part in fuse(list(lists.values()), Ties(IDS), 15).positions]
    for name, given_list in zip("abc", zip(*queries, strict=True), strict=True):
        for query, wanted in enumerate(given_list):
            own = slice(int(found.offsets[query]), int(found.offsets[query + 1]))
            places = found.ranks[name][own]
            listed = found.values[own][places > 0]
            assert listed[np.argsort(places[places > 0])].tolist() == wanted
            scores = found.scores[name][own][places > 0]
            assert scores.tolist() == [np.float32(1.0 - (place - 1) / 10) for place in places[places > 0]]
