"""Which candidate may be a negative: hand-worked rows, the cases P03-P06 and P08 as pure rules, properties.

Deliberate breaks that turn a test red: ids compared without texts, the product ratio * score for negative scores,
the highest positive taken instead of the lowest, a near-duplicate rule that reads other queries' positives, an
unknown score (NaN) taken for a low one.
"""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.candidates import Candidates, Ragged
from embedtrain.collection import Texts
from embedtrain.config import MineOptions
from embedtrain.duplicates import Duplicates, fingerprint, normalised
from embedtrain.errors import UsageError
from embedtrain.negatives import (
    ABOVE_MAX_RATIO,
    ABOVE_MAX_SCORE,
    BELOW_MIN_SCORE,
    ELIGIBLE,
    JUDGED,
    KNOWN_POSITIVE,
    NEAR_POSITIVE,
    NO_TEXT,
    OUTSIDE_RANKS,
    REASONS,
    SAME_AS_POSITIVE,
    SAME_AS_QUERY,
    SIBLING,
    THE_QUERY,
    WITHIN_MAX_MARGIN,
    Labels,
    judge,
    parse_ranks,
    ratio_threshold,
)


def judged(
    texts: dict[str, str],
    queries: dict[str, tuple[str, list[str], list[str]]],
    *,
    scores: dict[str, list[list[float]]] | None = None,
    lowest: dict[str, list[float]] | None = None,
    wrong: dict[str, list[str]] | None = None,
    groups: dict[str, int] | None = None,
    **options: Any,
) -> list[list[str]]:
    """Reasons for the candidates of each query: {id: (text, candidates, positives)}; scores by retriever."""
    corpus = Texts(list(texts), None, list(texts.values()))

    def places(lists: list[list[str]]) -> Ragged:
        return Ragged.of([[corpus.position[i] for i in part] for part in lists])

    found = places([candidates for _, candidates, _ in queries.values()])
    rank = np.concatenate([np.arange(1, len(c) + 1) for _, c, _ in queries.values()]).astype(np.int32)
    given_scores = {name: np.concatenate(parts).astype(np.float32) for name, parts in (scores or {}).items()}
    positives = places([positives for _, _, positives in queries.values()])
    labels = Labels(
        list(queries),
        positives,
        positives,
        places([(wrong or {}).get(query, []) for query in queries]),
        np.array([fingerprint(text) for text, _, _ in queries.values()]),
        np.array([corpus.position.get(query, -1) for query in queries]),
    )
    of_positives = {
        name: np.array(values, dtype=np.float32)[positives.owners] for name, values in (lowest or {}).items()
    }
    codes = judge(
        Candidates(found.offsets, found.values, rank, {}, given_scores),
        labels,
        Duplicates(corpus),
        None if groups is None else np.array([groups.get(i, 0) for i in texts]),
        of_positives,
        MineOptions(**{"max_ratio": None, "near_duplicate": 0.0, **options}),
    )
    return [[REASONS[code] for code in part] for part in np.split(codes, found.offsets[1:-1])]


def one(texts: dict[str, str], candidates: list[str], positives: list[str], **more: Any) -> list[str]:
    """Reasons for the candidates of one query, "the query" called q; scores of one retriever."""
    scores, lowest = more.pop("scores", None), more.pop("lowest_positive", 1.0)
    query = more.pop("query", "the query")
    if scores is not None:
        more |= {"scores": {"dense": [scores]}, "lowest": {"dense": [lowest]}}
    return judged(texts, {more.pop("query_id", "q"): (query, candidates, positives)}, **more)[0]


def test_same_text_under_another_id() -> None:
    """P03: c2 has the positive's text, c4 too but for case and blanks."""
    texts = {"c1": "Titan", "c2": "Titan", "c3": "Europa", "c4": " titan "}
    reasons = one(texts, ["c1", "c2", "c3", "c4"], ["c1"], query="largest moon of Saturn?")
    assert reasons == [KNOWN_POSITIVE, SAME_AS_POSITIVE, ELIGIBLE, SAME_AS_POSITIVE]


def test_the_query_its_text_and_blank_texts() -> None:
    texts = {"q": "something", "d1": "THE  query", "d2": "\u200b", "d3": "else", "p": "answer"}
    assert one(texts, ["q", "d1", "d2", "d3"], ["p"]) == [THE_QUERY, SAME_AS_QUERY, NO_TEXT, ELIGIBLE]


def test_every_positive_is_left_out_whatever_its_score() -> None:
    """P05, P08: all positives of the query are known; no score rule runs over them."""
    texts = {"d1": "red apple pie recipe", "d2": "apple pie baking time", "d3": "apple phone price"}
    for scores in (None, [0.99, 0.98, 0.1]):
        reasons = one(texts, ["d1", "d2", "d3"], ["d1", "d2"], scores=scores, max_ratio=0.95)
        assert reasons == [KNOWN_POSITIVE, KNOWN_POSITIVE, ELIGIBLE]
    texts = {"p": "a", "n1": "b", "n2": "c"}
    reasons = one(texts, ["p", "n1", "n2"], ["p"], scores=[0.9, 0.7, 0.4], lowest_positive=0.9, max_ratio=0.8)
    assert reasons == [KNOWN_POSITIVE, ELIGIBLE, ELIGIBLE]


def test_unlabelled_positives_are_above_the_ratio() -> None:
    """P06: the positive has .95, so the threshold is .9025."""
    texts = {f"d{number}": str(number) for number in range(1, 7)}
    scores = [0.95, 0.94, 0.93, 0.92, 0.91, 0.30]
    reasons = one(texts, list(texts), ["d1"], scores=scores, lowest_positive=0.95, max_ratio=0.95)
    assert reasons == [KNOWN_POSITIVE, *[ABOVE_MAX_RATIO] * 4, ELIGIBLE]
    assert ratio_threshold(0.95, 0.95) == pytest.approx(0.9025)


def test_the_threshold_below_zero() -> None:
    # The product would be -0.475, above the positive itself.
    assert ratio_threshold(-0.5, 0.95) == pytest.approx(-0.525)
    assert ratio_threshold(0.5, 0.95) == pytest.approx(0.475)
    assert ratio_threshold(0.0, 0.95) == 0.0
    assert ratio_threshold(-0.5, 1.0) == -0.5
    texts = {"a": "a", "b": "b", "c": "c", "p": "p"}
    reasons = one(
        texts, ["a", "b", "c"], ["p"], scores=[-0.48, -0.52, -0.53], lowest_positive=-0.5, max_ratio=0.95
    )
    assert reasons == [ABOVE_MAX_RATIO, ABOVE_MAX_RATIO, ELIGIBLE]


def test_a_score_on_a_threshold_stays() -> None:
    texts = {"a": "a", "b": "b", "p": "p"}
    above, below = float(np.nextafter(np.float32(0.5), 1)), float(np.nextafter(np.float32(0.5), 0))
    for options, reason in (
        ({"max_ratio": 0.5}, ABOVE_MAX_RATIO),
        ({"max_score": 0.5}, ABOVE_MAX_SCORE),
        ({"max_margin": 0.5}, WITHIN_MAX_MARGIN),
    ):
        assert one(texts, ["a", "b"], ["p"], scores=[0.5, above], **options) == [ELIGIBLE, reason]
    assert one(texts, ["a", "b"], ["p"], scores=[0.5, below], min_score=0.5) == [ELIGIBLE, BELOW_MIN_SCORE]


def test_the_margin_is_taken_from_the_lowest_positive() -> None:
    texts = {"a": "a", "b": "b", "p": "p", "r": "r"}
    reasons = judged(
        texts,
        {"q": ("ask", ["a", "b"], ["p", "r"])},
        scores={"dense": [[0.35, 0.25]]},
        lowest={"dense": [0.5]},
        max_margin=0.2,
    )
    assert reasons == [[WITHIN_MAX_MARGIN, ELIGIBLE]]


def test_ranks() -> None:
    texts = {name: name for name in "abcdep"}
    assert one(texts, list("abcde"), ["p"], ranks="2:4") == [
        OUTSIDE_RANKS,
        ELIGIBLE,
        ELIGIBLE,
        ELIGIBLE,
        OUTSIDE_RANKS,
    ]
    assert parse_ranks("30:100") == (30, 100)
    assert parse_ranks("30:") == (30, 2**31 - 1)
    assert parse_ranks(":5") == (1, 5)
    assert parse_ranks("") is None
    for text in ("5", "0:4", "5:4", "a:b", "-1:3"):
        with pytest.raises(UsageError, match=f"--ranks {text}: FIRST:LAST"):
            parse_ranks(text)


def test_rules_hold_for_every_dense_retriever_and_for_no_other() -> None:
    texts = {"a": "a", "b": "b", "c": "c", "p": "p"}
    scores = {"bm25": [[99.0, 99.0, 99.0]], "dense": [[0.9, 0.2, 0.2]], "dense2": [[0.2, 0.9, math.nan]]}
    reasons = judged(
        texts,
        {"q": ("ask", ["a", "b", "c"], ["p"])},
        scores=scores,
        lowest={"dense": [0.5], "dense2": [0.5]},
        max_ratio=0.95,
        min_score=0.1,
    )
    assert reasons == [[ABOVE_MAX_RATIO, ABOVE_MAX_RATIO, ELIGIBLE]]


def test_without_scores_or_without_a_rule_no_score_is_read() -> None:
    texts = {"a": "a", "p": "p"}
    assert one(texts, ["a"], ["p"], max_ratio=0.95, max_score=0.0) == [ELIGIBLE]
    assert one(texts, ["a"], ["p"], scores=[2.0]) == [ELIGIBLE]


LONG = (
    "Vitamin D supplementation did not reduce the incidence of influenza in this randomised trial of 322 adults. "
)


def test_near_duplicates_of_a_positive() -> None:
    texts = {
        "p": LONG * 3,
        "a": LONG * 3 + "Corrected.",
        "b": LONG[:40] + " something else entirely " * 4,
        "c": "x",
    }
    assert one(texts, ["a", "b", "c"], ["p"], near_duplicate=0.8) == [NEAR_POSITIVE, ELIGIBLE, ELIGIBLE]
    assert one(texts, ["a"], ["p"], near_duplicate=0.0) == [ELIGIBLE]
    # Of this query's positives only.
    two = judged(texts, {"q": ("ask", ["a"], ["c"]), "r": ("say", ["a"], ["p"])}, near_duplicate=0.8)
    assert two == [[ELIGIBLE], [NEAR_POSITIVE]]


def test_siblings_of_a_positive() -> None:
    texts = {name: name * 3 for name in "abcpr"}
    groups = {"p": 1, "a": 1, "r": 2, "b": 2, "c": 0}
    rows = judged(texts, {"q": ("ask", ["a", "b", "c"], ["p"]), "s": ("s", ["a", "b"], ["r"])}, groups=groups)
    assert rows == [[SIBLING, ELIGIBLE, ELIGIBLE], [ELIGIBLE, SIBLING]]
    # No group is no group in common.
    assert judged(texts, {"q": ("ask", ["c"], ["p"])}, groups={}) == [[ELIGIBLE]]


def test_judged_not_relevant_outranks_suspicion_but_not_facts() -> None:
    texts = {"p": LONG, "a": LONG + "!", "b": LONG, "c": "other"}
    reasons = judged(
        texts,
        {"q": ("ask", ["a", "b", "c"], ["p"])},
        wrong={"q": ["a", "b", "c"]},
        scores={"dense": [[0.99, 0.99, 0.99]]},
        lowest={"dense": [0.5]},
        near_duplicate=0.8,
        max_ratio=0.9,
    )
    assert reasons == [[JUDGED, SAME_AS_POSITIVE, JUDGED]]


CANDIDATE = st.tuples(st.sampled_from(["x", "y", "z", " X", ""]), st.floats(-1, 1, width=32))


@given(st.lists(CANDIDATE, min_size=1, max_size=12), st.integers(1, 4), st.floats(-1, 1), st.data())
def test_properties(rows: list[tuple[str, float]], positives: int, lowest: float, data: st.DataObject) -> None:
    """A positive or its text is never eligible; nothing is lost; a tighter rule adds no eligible candidate."""
    ids = [f"d{number}" for number in range(len(rows))]
    texts = dict(zip(ids, (text for text, _ in rows), strict=True))
    known = ids[:positives]

    def at(**options: Any) -> list[str]:
        scores = [score for _, score in rows]
        return one(texts, ids, known, scores=scores, lowest_positive=lowest, query="y", query_id="d3", **options)

    free = at()
    assert len(free) == len(ids)
    taken = {normalised(texts[i]) for i, reason in zip(ids, free, strict=True) if reason == ELIGIBLE}
    assert not taken & {normalised(texts[i]) for i in known}
    assert not taken & {"", "y"}
    name, loose, tight = data.draw(
        st.sampled_from(
            [
                ("max_ratio", 0.9, 0.5),
                ("max_score", 0.5, 0.0),
                ("max_margin", 0.0, 0.4),
                ("min_score", -0.5, 0.1),
                ("ranks", "2:9", "3:5"),
                ("near_duplicate", 0.9, 0.2),
            ]
        )
    )
    for large, small in ((free, at(**{name: loose})), (at(**{name: loose}), at(**{name: tight}))):
        assert all(one_ == ELIGIBLE or other != ELIGIBLE for one_, other in zip(large, small, strict=True))
