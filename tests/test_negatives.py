"""Which candidate may be a negative: hand-worked rows, the cases P03-P06 and P08 as pure rules, properties.

Deliberate breaks that turn a test red: ids compared without texts, the product ratio * score for negative scores,
the highest positive taken instead of the lowest, a fill-up in `select`.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.negatives import (
    ABOVE_MAX_RATIO,
    ELIGIBLE,
    KNOWN_POSITIVE,
    NO_TEXT,
    REASONS,
    SAME_AS_POSITIVE,
    SAME_AS_QUERY,
    SELECTED,
    THE_QUERY,
    judge,
    normalised,
    ratio_threshold,
    select,
)


def judged(
    texts: dict[str, str],
    candidates: list[str],
    positives: list[str],
    *,
    scores: list[float] | None = None,
    lowest_positive: float = 1.0,
    query_id: str = "q",
    query: str = "the query",
    max_ratio: float | None = None,
) -> list[str]:
    return judge(
        candidates,
        scores,
        query_id=query_id,
        query=normalised(query),
        positives=positives,
        lowest_positive=lowest_positive,
        text_of=lambda identifier: normalised(texts[identifier]),
        max_ratio=max_ratio,
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Titan", " titan "),
        ("a\u00a0b\n\tc", "A B C"),
        ("ﬁne", "fine"),
        ("Straße", "STRASSE"),
        ("crème", "cre\u0300me"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\u200b\ufeff ", ""),
    ],
)
def test_texts_that_are_the_same(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@given(st.text(max_size=20))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


def test_same_text_under_another_id() -> None:
    """P03: c2 has the positive's text, c4 too but for case and blanks."""
    texts = {"c1": "Titan", "c2": "Titan", "c3": "Europa", "c4": " titan "}
    reasons = judged(texts, ["c1", "c2", "c3", "c4"], ["c1"], query="largest moon of Saturn?")
    assert reasons == [KNOWN_POSITIVE, SAME_AS_POSITIVE, ELIGIBLE, SAME_AS_POSITIVE]
    assert select(reasons, 2) == [KNOWN_POSITIVE, SAME_AS_POSITIVE, SELECTED, SAME_AS_POSITIVE]


def test_the_query_its_text_and_blank_texts() -> None:
    texts = {"q": "something", "d1": "THE  query", "d2": "\u200b", "d3": "else", "p": "answer"}
    reasons = judged(texts, ["q", "d1", "d2", "d3"], ["p"])
    assert reasons == [THE_QUERY, SAME_AS_QUERY, NO_TEXT, ELIGIBLE]


def test_every_positive_is_left_out_whatever_its_score() -> None:
    """P05, P08: all positives of the query are known; no score rule runs over them."""
    texts = {"d1": "red apple pie recipe", "d2": "apple pie baking time", "d3": "apple phone price"}
    for scores in (None, [0.99, 0.98, 0.1]):
        reasons = judged(texts, ["d1", "d2", "d3"], ["d1", "d2"], scores=scores, max_ratio=0.95)
        assert reasons == [KNOWN_POSITIVE, KNOWN_POSITIVE, ELIGIBLE]
    texts = {"p": "a", "n1": "b", "n2": "c"}
    reasons = judged(texts, ["p", "n1", "n2"], ["p"], scores=[0.9, 0.7, 0.4], lowest_positive=0.9, max_ratio=0.8)
    assert reasons == [KNOWN_POSITIVE, ELIGIBLE, ELIGIBLE]


def test_unlabelled_positives_are_above_the_ratio() -> None:
    """P06: the positive has .95, so the threshold is .9025."""
    texts = {f"d{number}": str(number) for number in range(1, 7)}
    scores = [0.95, 0.94, 0.93, 0.92, 0.91, 0.30]
    reasons = judged(texts, list(texts), ["d1"], scores=scores, lowest_positive=0.95, max_ratio=0.95)
    assert reasons == [KNOWN_POSITIVE, *[ABOVE_MAX_RATIO] * 4, ELIGIBLE]
    assert ratio_threshold(0.95, 0.95) == pytest.approx(0.9025)


def test_the_threshold_below_zero() -> None:
    # The product would be -0.475, above the positive itself.
    assert ratio_threshold(-0.5, 0.95) == pytest.approx(-0.525)
    assert ratio_threshold(0.5, 0.95) == pytest.approx(0.475)
    assert ratio_threshold(0.0, 0.95) == 0.0
    assert ratio_threshold(-0.5, 1.0) == -0.5
    texts = {"a": "a", "b": "b", "c": "c", "p": "p"}
    reasons = judged(
        texts, ["a", "b", "c"], ["p"], scores=[-0.48, -0.52, -0.53], lowest_positive=-0.5, max_ratio=0.95
    )
    assert reasons == [ABOVE_MAX_RATIO, ABOVE_MAX_RATIO, ELIGIBLE]


def test_a_score_on_the_threshold_stays() -> None:
    texts = {"a": "a", "b": "b", "p": "p"}
    above = math.nextafter(0.5, 1.0)
    reasons = judged(texts, ["a", "b"], ["p"], scores=[0.5, above], lowest_positive=1.0, max_ratio=0.5)
    assert reasons == [ELIGIBLE, ABOVE_MAX_RATIO]


def test_without_scores_or_without_a_ratio_no_score_is_read() -> None:
    texts = {"a": "a", "p": "p"}
    assert judged(texts, ["a"], ["p"], scores=None, max_ratio=0.95) == [ELIGIBLE]
    assert judged(texts, ["a"], ["p"], scores=[2.0], max_ratio=None) == [ELIGIBLE]


def test_nothing_is_filled_up() -> None:
    """P04: one is there, three are asked for, one is what there is."""
    assert select([KNOWN_POSITIVE, ELIGIBLE], 3) == [KNOWN_POSITIVE, SELECTED]
    assert select([ELIGIBLE, ELIGIBLE, ELIGIBLE], 2) == [SELECTED, SELECTED, ELIGIBLE]
    assert select([ELIGIBLE], 0) == [ELIGIBLE]
    assert select([], 5) == []


CANDIDATE = st.tuples(st.sampled_from(["x", "y", "z", " X", ""]), st.floats(-1, 1, width=32))


@given(
    st.lists(CANDIDATE, max_size=12),
    st.integers(0, 4),
    st.floats(-1, 1),
    st.floats(0, 1.5),
    st.floats(0, 1.5),
    st.integers(0, 12),
)
def test_properties(
    rows: list[tuple[str, float]], positives: int, lowest: float, ratio: float, other: float, count: int
) -> None:
    """A positive or its text is never selected; nothing is lost; a tighter ratio adds no eligible candidate."""
    ids = [f"d{number}" for number in range(len(rows))]
    texts = dict(zip(ids, (text for text, _ in rows), strict=True))
    scores = [score for _, score in rows]
    known = ids[:positives]

    def at(max_ratio: float | None) -> list[str]:
        return judged(
            texts, ids, known, scores=scores, lowest_positive=lowest, max_ratio=max_ratio, query="y", query_id="d3"
        )

    reasons = at(ratio)
    assert len(reasons) == len(ids)
    assert set(reasons) <= set(REASONS)
    chosen = select(reasons, count)
    assert chosen.count(SELECTED) == min(count, reasons.count(ELIGIBLE))
    assert chosen.count(SELECTED) + chosen.count(ELIGIBLE) == reasons.count(ELIGIBLE)
    taken = {normalised(texts[i]) for i, reason in zip(ids, chosen, strict=True) if reason == SELECTED}
    assert not taken & {normalised(texts[i]) for i in known}
    assert not taken & {"", "y"}
    tighter, looser = at(min(ratio, other)), at(max(ratio, other))
    unfiltered = at(None)
    for small, large, free in zip(tighter, looser, unfiltered, strict=True):
        assert large == ELIGIBLE or small != ELIGIBLE
        assert free == ELIGIBLE or large != ELIGIBLE
