"""Policies over a teacher's scores: who is suspected, what becomes of them, who takes their place.

Breaks that turn a test red: the highest positive as yardstick, an absolute margin (P35), a probability compared with
a logit (P28), a hand-picked negative dropped by its score, a label that loses against the teacher, a dropped document
drawn again, a second policy that starts from what the first one chose.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain import rows
from embedtrain.calibration import Calibration
from embedtrain.denoise import DROP, KEEP, MASK, POLICIES, PROMOTE, Rules, chosen, verdicts
from embedtrain.errors import UsageError
from embedtrain.mined import MinedRow
from embedtrain.negatives import ELIGIBLE, JUDGED, KNOWN_POSITIVE, SELECTED


def row(
    scores: list[float | None],
    positives: tuple[float, ...] = (2.0,),
    reasons: list[str] | None = None,
    selected: list[bool] | None = None,
) -> MinedRow:
    """A scored row; candidates d0, d1, ... in rank order, all selected where nothing else is said."""
    why = reasons or [SELECTED] * len(scores)
    return MinedRow(
        query_id="q",
        positive_ids=[f"p{n}" for n in range(len(positives))],
        candidate_ids=[f"d{n}" for n in range(len(scores))],
        candidate_ranks=list(range(1, len(scores) + 1)),
        candidate_retrievers=["bm25"] * len(scores),
        selected=selected or [reason in (SELECTED, JUDGED) for reason in why],
        reason=why,
        positive_teacher=list(positives),
        candidate_teacher=scores,
    )


def test_the_lowest_positive_is_the_yardstick() -> None:
    found = verdicts(row([3.0, 2.5, 1.0], positives=(4.0, 2.0)), Rules(margin=0.0), DROP)
    assert found == [DROP, DROP, KEEP]
    # A candidate on the threshold stays, and a margin moves it.
    assert verdicts(row([2.0, 1.5, 1.4]), Rules(margin=0.5), DROP) == [DROP, KEEP, KEEP]
    # 2 - (1 - 0.9) * 2 = 1.8; below zero the share is taken of the size: -2 - 0.1 * 2 = -2.2.
    assert verdicts(row([1.9, 1.7]), Rules(margin=None, ratio=0.9), DROP) == [DROP, KEEP]
    assert verdicts(row([-2.1, -2.3], positives=(-2.0,)), Rules(margin=None, ratio=0.9), DROP) == [DROP, KEEP]


@pytest.mark.parametrize(("policy", "fate"), [(KEEP, KEEP), (DROP, DROP), (PROMOTE, PROMOTE), (MASK, MASK)])
def test_the_policy_says_what_becomes_of_a_suspect(policy: str, fate: str) -> None:
    assert verdicts(row([5.0, 1.0]), Rules(), policy) == [fate, KEEP]


def test_p28_logits_are_no_probabilities() -> None:
    logits = [-4.8, 0.9, 2.0]
    chances = Calibration()(np.array(logits))
    assert chances == pytest.approx([0.0082, 0.7109, 0.8808], abs=5e-5)
    assert Calibration()(np.array([-7.0, 6.0])) == pytest.approx([0.000911, 0.99753], abs=5e-6)
    rules = Rules(margin=None, above=0.8)
    found = verdicts(row(logits), rules, PROMOTE, probabilities=chances.tolist())
    assert found == [KEEP, KEEP, PROMOTE]
    # The same limit as a logit, 1.3863, gives the same decisions.
    assert [score > 1.3863 for score in logits] == [verdict == PROMOTE for verdict in found]


def test_p35_a_margin_keeps_its_sign() -> None:
    # teacher(q, positive) = 2, teacher(q, negative) = 5: the negative is above, and is what goes.
    assert verdicts(row([5.0], positives=(2.0,)), Rules(), DROP) == [DROP]
    assert verdicts(row([2.0], positives=(5.0,)), Rules(), DROP) == [KEEP]


def test_the_grey_band_goes() -> None:
    rules = Rules(margin=None, above=0.9, below=0.1)
    chances = [0.95, 0.9, 0.5, 0.1, 0.05, None]
    scored = row([1.0] * 6)
    for policy, fate in ((DROP, DROP), (PROMOTE, PROMOTE), (MASK, MASK)):
        assert verdicts(scored, rules, policy, probabilities=chances) == [fate, fate, DROP, KEEP, KEEP, KEEP]
    assert verdicts(scored, rules, KEEP, probabilities=chances) == [KEEP] * 6


@pytest.mark.parametrize(
    ("values", "said"),
    [({"above": 1.5}, "--drop-above 1.5"), ({"below": 0.1}, "both"), ({"above": 0.1, "below": 0.9}, "both")],
)
def test_rules_that_cannot_hold(values: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Rules(**values)


def test_only_negatives_are_judged() -> None:
    reasons = [JUDGED, KNOWN_POSITIVE, ELIGIBLE, SELECTED, SELECTED]
    found = verdicts(row([9.0, 9.0, 9.0, 9.0, None], reasons=reasons), Rules(), DROP)
    assert found == [KEEP, KEEP, DROP, DROP, KEEP]


def test_a_label_beats_the_teacher() -> None:
    labels = {"d0": False, "d1": True}
    for policy in POLICIES:
        found = verdicts(row([9.0, -9.0, 9.0]), Rules(), policy, labels=labels)
        assert found == [KEEP, PROMOTE, policy]


def test_a_label_says_nothing_of_a_known_positive() -> None:
    scored = row([9.0, 1.0], reasons=[KNOWN_POSITIVE, SELECTED])
    scored.candidate_ids[0] = "p0"
    for label in (True, False):
        assert verdicts(scored, Rules(), DROP, labels={"p0": label}) == [KEEP, KEEP]


def test_a_label_that_is_taken_back_gives_the_hand_picked_negative_back() -> None:
    scored = row([9.0, 1.0], reasons=[JUDGED, SELECTED])
    found = verdicts(scored, Rules(), DROP, labels={"d0": True})
    promoted = dataclasses.replace(scored, verdict=found, selected=chosen(scored, found, None, "rank", 0))
    assert promoted.negatives == ["d1"]
    again = verdicts(promoted, Rules(), DROP, labels={"d0": False})
    kept = dataclasses.replace(promoted, verdict=again, selected=chosen(promoted, again, None, "rank", 0))
    assert kept.negatives == ["d0", "d1"]


def test_no_more_than_are_wanted() -> None:
    scored = row([9.0, None, 3.0, 0.0], reasons=[JUDGED, SELECTED, SELECTED, SELECTED])
    for policy in (DROP, MASK):
        found = verdicts(scored, Rules(), policy)
        for wanted in range(4):
            assert sum(chosen(scored, found, wanted, "rank", 0)) <= wanted
    assert chosen(scored, verdicts(scored, Rules(), MASK), 1, "rank", 0) == [True, False, False, False]


def test_a_place_that_is_free_goes_to_the_next_survivor() -> None:
    reasons = [SELECTED, SELECTED, ELIGIBLE, ELIGIBLE, ELIGIBLE]
    scored = row([5.0, 1.0, 4.0, 0.0, None], reasons=reasons)
    found = verdicts(scored, Rules(), DROP)
    assert found == [DROP, KEEP, DROP, KEEP, KEEP]
    # d2 is suspected too, d4 was never scored: d3 takes the place of d0.
    assert chosen(scored, found, None, "rank", 0) == [False, True, False, True, False]
    assert chosen(scored, found, 1, "rank", 0) == [False, True, False, False, False]
    assert chosen(scored, [KEEP] * 5, None, "rank", 0) == [True, True, False, False, False]


def test_a_second_policy_starts_from_what_was_mined() -> None:
    reasons = [SELECTED, SELECTED, ELIGIBLE, ELIGIBLE]
    scored = row([5.0, 1.0, 0.5, 0.0], reasons=reasons)
    first = chosen(scored, verdicts(scored, Rules(), DROP), None, "rank", 0)
    again = dataclasses.replace(scored, selected=first)
    assert first == [False, True, True, False]
    assert chosen(again, [KEEP] * 4, None, "rank", 0) == [True, True, False, False]


def test_a_masked_document_stays_and_is_no_negative() -> None:
    reasons = [SELECTED, SELECTED, ELIGIBLE]
    scored = row([5.0, 1.0, 0.0], reasons=reasons)
    found = verdicts(scored, Rules(), MASK)
    kept = dataclasses.replace(scored, verdict=found, selected=chosen(scored, found, None, "rank", 0))
    assert kept.selected == [True, True, False]
    assert kept.negatives == ["d1"]
    made = rows.of_mined(kept)
    assert made.negatives == ("d0", "d1")
    assert made.not_negatives == ("d0",)
    assert made.compared == ["d1"]


def test_a_promoted_document_is_a_positive() -> None:
    scored = row([5.0, 1.0])
    found = verdicts(scored, Rules(), PROMOTE)
    made = rows.of_mined(
        dataclasses.replace(scored, verdict=found, selected=chosen(scored, found, None, "rank", 0))
    )
    assert made.positives == ("p0", "d0")
    assert made.negatives == ("d1",)
    assert "d0" in made.not_negatives


def test_stratified_takes_from_every_share() -> None:
    scores: list[float | None] = [float(-n) for n in range(12)]
    scored = row(scores, reasons=[SELECTED] * 4 + [ELIGIBLE] * 8)
    seen = set()
    for seed in range(20):
        picked = [n for n, used in enumerate(chosen(scored, [KEEP] * 12, None, "stratified", seed)) if used]
        assert [n // 3 for n in picked] == [0, 1, 2, 3]
        seen |= set(picked)
    assert seen == set(range(12))
    assert chosen(scored, [DROP] * 12, None, "stratified", 0) == [False] * 12


def test_a_hand_picked_negative_keeps_its_place() -> None:
    scored = row([9.0, 1.0, 0.0], reasons=[JUDGED, SELECTED, ELIGIBLE])
    for way in ("rank", "stratified"):
        assert chosen(scored, verdicts(scored, Rules(), DROP), 1, way, 0) == [True, False, False]


numbers = st.one_of(st.none(), st.floats(-20, 20, width=32))


@given(
    scores=st.lists(numbers, min_size=1, max_size=12),
    used=st.lists(st.booleans(), min_size=12, max_size=12),
    policy=st.sampled_from(POLICIES),
    margin=st.floats(-3, 3),
    way=st.sampled_from(["rank", "stratified"]),
)
def test_nothing_suspected_is_a_negative(
    scores: list[float | None], used: list[bool], policy: str, margin: float, way: str
) -> None:
    reasons = [SELECTED if flag else ELIGIBLE for flag in used[: len(scores)]]
    scored = row(scores, reasons=reasons)
    found = verdicts(scored, Rules(margin=margin), policy)
    kept = dataclasses.replace(scored, verdict=found, selected=chosen(scored, found, None, way, 1))
    assert len(kept.shown) <= sum(reason == SELECTED for reason in reasons)
    bound = 2.0 - margin
    for document in kept.negatives:
        score = scores[int(document[1:])]
        assert policy == KEEP or score is None or score <= bound
    if policy != KEEP:
        assert {s for s, v in zip(scores, found, strict=True) if v != KEEP} == {
            s for s in scores if s is not None and s > bound
        }
