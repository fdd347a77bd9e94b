"""Which eligible candidates become negatives: worked draws, frequencies, and what a draw may depend on.

Deliberate breaks that turn a test red: one generator for all queries, a share of a mix filled from another, a judged
document counted on top of the wanted, candidates of the union taken for a retriever's own list.
"""

from collections import Counter

import numpy as np
import pytest

from embedtrain.candidates import Candidates, Ragged, joined
from embedtrain.errors import UsageError
from embedtrain.hits import Hits, Ties
from embedtrain.negatives import CODE, ELIGIBLE, JUDGED, KNOWN_POSITIVE, REASONS, SELECTED, Labels
from embedtrain.sampling import SAMPLERS, draw, generator, parse_mix, select, softmax, stratified, top, uniform

RNG = np.random.default_rng


def labels(*ids: str) -> Labels:
    nothing = Ragged.of([[] for _ in ids])
    zeros = np.zeros(len(ids), dtype=np.int64)
    return Labels(list(ids), nothing, nothing, nothing, zeros, zeros)


def found(**lists: list[list[tuple[int, float]]]) -> Candidates:
    hits = {
        name: Hits(
            [np.array([position for position, _ in row], dtype=np.int64) for row in rows],
            [np.array([score for _, score in row], dtype=np.float32) for row in rows],
        )
        for name, rows in lists.items()
    }
    return joined(hits, Ties([f"d{number}" for number in range(100)]), 1000)


def chosen(
    candidates: Candidates, reasons: list[str] | None = None, ids: tuple[str, ...] = ("q",), **more: object
) -> list[list[int]]:
    """Positions chosen for each query."""
    codes = np.array([CODE[r] for r in reasons or [ELIGIBLE] * len(candidates.values)], dtype=np.uint8)
    options = {"negatives": 2, "mix": {}, "main": next(iter(candidates.scores)), "way": "top", "seed": 0, **more}
    lowest = {name: np.full(len(ids), 0.9, dtype=np.float32) for name in candidates.scores}
    after, taken = select(candidates, codes, labels(*ids), lowest, **options)
    assert ((after == CODE[SELECTED]) == (taken & (codes == CODE[ELIGIBLE]))).all()
    assert ((after != codes) == (after == CODE[SELECTED])).all()
    return [
        candidates.values[rows][taken[rows]].tolist()
        for rows in np.split(np.arange(len(codes)), candidates.offsets[1:-1])
    ]


LINE = [[(position, 1.0 - position / 10) for position in range(6)]]


def test_the_first_eligible_ones() -> None:
    reasons = [KNOWN_POSITIVE, ELIGIBLE, KNOWN_POSITIVE, ELIGIBLE, ELIGIBLE, ELIGIBLE]
    assert chosen(found(dense=LINE), reasons) == [[1, 3]]
    assert chosen(found(dense=LINE), reasons, negatives=0) == [[]]


def test_nothing_is_filled_up() -> None:
    """P04."""
    reasons = [KNOWN_POSITIVE] * 5 + [ELIGIBLE]
    for way in SAMPLERS:
        assert chosen(found(dense=LINE), reasons, negatives=3, way=way) == [[5]]
        assert chosen(found(dense=[[]]), negatives=3, way=way) == [[]]


def test_judged_documents_come_first_and_count() -> None:
    reasons = [ELIGIBLE] * 4 + [JUDGED] * 2
    assert chosen(found(dense=LINE), reasons, negatives=3) == [[0, 4, 5]]
    assert chosen(found(dense=LINE), reasons, negatives=1) == [[4]]


def test_a_mix_takes_each_share_from_its_own_list() -> None:
    candidates = found(bm25=[[(7, 9.0), (1, 8.0), (0, 7.0)]], dense=[[(0, 0.9), (1, 0.8), (2, 0.7)]])
    assert chosen(candidates, mix={"dense": 1, "bm25": 2}) == [[0, 1, 7]]
    # d0 went to dense, so BM25 has d7 and d1 left; nobody else fills its third place.
    assert chosen(candidates, mix={"dense": 1, "bm25": 3}) == [[0, 1, 7]]
    assert chosen(candidates, mix={"bm25": 3, "dense": 3}) == [[0, 1, 7, 2]]


def test_random_documents_are_those_that_no_list_has() -> None:
    candidates = found(dense=[[(0, 0.9), (1, 0.8)]])
    from embedtrain.candidates import extended

    more = extended(candidates, Ragged.of([[5, 6, 7]]))
    assert chosen(more, mix={"dense": 1, "random": 2}) == [[0, 5, 6]]
    assert chosen(more, negatives=9) == [[0, 1]], "without a mix only what was found"


def test_parse_mix() -> None:
    assert parse_mix("dense=2, bm25=1,random=3", ["bm25", "dense"]) == {"dense": 2, "bm25": 1, "random": 3}
    assert parse_mix("", ["bm25"]) == {}
    with pytest.raises(UsageError, match="--mix dense=1: 'dense' is none of bm25, random"):
        parse_mix("dense=1", ["bm25"])
    for text in ("bm25", "bm25=0", "bm25=-1", "bm25=x", "bm25=1,bm25=2"):
        with pytest.raises(UsageError, match="NAME=COUNT"):
            parse_mix(text, ["bm25"])


def test_every_way_chooses_once_and_in_order() -> None:
    scores = np.linspace(1, 0, 30)
    for sampler in SAMPLERS.values():
        for count in (1, 7, 30, 40):
            taken = sampler(scores, 0.5, count, RNG(3)).tolist()
            assert taken == sorted(set(taken))
            assert len(taken) == min(count, 30)


def test_strata_are_equal_shares_of_the_scores() -> None:
    scores = np.arange(12.0)  # ascending: the best stands last
    for seed in range(20):
        taken = stratified(scores, 0.0, 3, RNG(seed)).tolist()
        assert [place // 4 for place in taken] == [0, 1, 2]


def frequencies(sampler: object, scores: list[float], count: int, positive: float = 0.0) -> Counter[int]:
    times: Counter[int] = Counter()
    for seed in range(2000):
        times.update(sampler(np.array(scores), positive, count, RNG(seed)).tolist())
    return times


def test_uniform_draws_each_as_often() -> None:
    times = frequencies(uniform, [4.0, 3.0, 2.0, 1.0], 1)
    assert all(abs(times[place] - 500) < 80 for place in range(4)), times


def test_softmax_prefers_scores_near_the_positive() -> None:
    # Scores 2, 1, 0 have the deviation sqrt(2/3); near 1 the weights are e^-1.5, 1, e^-1.5: 0.154, 0.691, 0.154.
    times = frequencies(softmax, [2.0, 1.0, 0.0], 1, positive=1.0)
    assert abs(times[1] / 2000 - 0.691) < 0.03
    assert abs(times[0] / 2000 - 0.154) < 0.03
    # Equal scores have no deviation, and equal chances.
    assert abs(frequencies(softmax, [1.0, 1.0], 1)[0] - 1000) < 100


def test_the_scores_are_those_of_the_retriever_that_is_named() -> None:
    both = found(
        bm25=[[(position, 9.0 - position) for position in range(4)]],
        dense=[[(position, 0.9 - position / 10) for position in range(4)]],
    )
    # The positive has 0.9: by dense scores d0 is nearest, by those of BM25 d3.
    for main, nearest in (("dense", 0), ("bm25", 3)):
        times = Counter(
            chosen(both, main=main, negatives=1, way="softmax", seed=seed)[0][0] for seed in range(200)
        )
        assert times.most_common(1)[0][0] == nearest


def test_top_reads_no_scores() -> None:
    assert top(np.array([np.nan, np.nan]), np.nan, 1, RNG(0)).tolist() == [0]


@pytest.mark.parametrize("way", ["random", "stratified", "softmax"])
def test_a_draw_depends_on_seed_and_query_alone(way: str) -> None:
    many = [(position, 1.0 - position / 100) for position in range(40)]
    both = found(dense=[many, many])
    first, second = chosen(both, ids=("q", "r"), negatives=5, way=way)
    assert chosen(found(dense=[many]), ids=("r",), negatives=5, way=way) == [second]
    assert chosen(both, ids=("r", "q"), negatives=5, way=way) == [second, first]
    assert chosen(found(dense=[many]), ids=("q",), negatives=5, way=way, seed=1) != [first]
    assert first != second


def test_drawn_documents() -> None:
    for size in (3, 30, 100_000):
        places = draw(size, 5, 0, "q").tolist()
        assert len(places) == len(set(places)) == min(size, 25)
        assert max(places) < size
        assert places == draw(size, 5, 0, "q").tolist()
    assert draw(100_000, 5, 0, "q").tolist() != draw(100_000, 5, 0, "r").tolist()
    assert generator(0, "q", "a").random() != generator(0, "q", "b").random()


def test_reasons_have_room_in_a_byte() -> None:
    assert len(REASONS) < 256
    assert REASONS[0] == SELECTED
