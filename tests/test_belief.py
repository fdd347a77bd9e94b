"""What a teacher's scores say of itself, by hand-worked rows."""

import numpy as np
import pytest
from test_denoise import row

from embedtrain import belief
from embedtrain.mined import MinedRow
from embedtrain.negatives import ABOVE_MAX_RATIO, ELIGIBLE, JUDGED, KNOWN_POSITIVE, NEAR_POSITIVE, SELECTED


def test_by_hand() -> None:
    # Two pairs of three won and one tied half; the positive, which no retriever found, is last in its order.
    one = row([3.0, 2.0, -9.0], positives=(2.0,))
    found = belief.measure([one], logits=True)
    assert found is not None
    assert found.queries == 1
    assert found.auc == pytest.approx((0 + 0.5 + 1) / 3)
    assert found.positive_first == 0.0
    # By the teacher: d0, then d1 and p0 with one score, by id; by the retriever last of four.
    assert found.teacher == pytest.approx(1 / np.log2(4))
    assert found.retriever == pytest.approx(1 / np.log2(5))
    assert found.difference.interval is None
    # sigmoid(-9) is below 0.01; sigmoid(3) = 0.953 and sigmoid(2) = 0.881 are not at an end.
    assert found.saturated == pytest.approx(1 / 4)
    assert found.spread == pytest.approx(float(np.std([2.0, 3.0, 2.0, -9.0])))
    assert belief.measure([one], logits=False).saturated is None  # type: ignore[union-attr]


def test_a_positive_of_the_window_stands_where_it_was_found() -> None:
    one = row([None, 3.0], positives=(2.0,), reasons=[KNOWN_POSITIVE, SELECTED])
    one.candidate_ids[0] = "p0"
    found = belief.measure([one], logits=True)
    assert found is not None
    assert (found.retriever, found.teacher) == (1.0, pytest.approx(1 / np.log2(3)))


def test_nothing_to_measure() -> None:
    assert belief.measure([row([None, None])], logits=True) is None
    assert belief.measure([], logits=True) is None
    assert belief.doubt(None, "here") is None


def rows_of(teacher_right: bool, count: int = 30) -> list[MinedRow]:
    """Rows whose positive the retriever has first, and the teacher first or last."""
    made = []
    for number in range(count):
        one = row([1.0, 0.0, -1.0 - number / 10], positives=(3.0 if teacher_right else 0.5,), reasons=[JUDGED] * 3)
        one.candidate_ranks[:] = [2, 3, 4]
        one.candidate_ids.append("p0")
        one.candidate_ranks.append(1)
        one.reason.append(KNOWN_POSITIVE)
        one.selected.append(False)
        one.candidate_retrievers.append("bm25")
        assert one.candidate_teacher is not None
        one.candidate_teacher.append(None)
        made.append(one)
    return made


def test_a_teacher_worse_than_the_retriever_is_doubted() -> None:
    good, bad = (belief.measure(rows_of(right), logits=True) for right in (True, False))
    assert good is not None
    assert bad is not None
    assert belief.doubt(good.summary(), "on these rows") is None
    found = belief.doubt(bad.summary(), "on these rows")
    assert found is not None
    sentence, certain = found
    assert certain
    assert "worse than the retriever it is to correct on these rows (nDCG@10 0.631 against 1.000" in sentence


def test_a_difference_that_may_be_chance_is_said_and_no_more() -> None:
    few = belief.measure([*rows_of(True, 6), *rows_of(False, 1)], logits=True)
    assert few is not None
    found = belief.doubt(few.summary(), "here")
    assert found is not None
    assert not found[1]


def test_upside_down() -> None:
    found = belief.measure([row([5.0, 4.0]), row([3.0, 1.0])], logits=True)
    assert found is not None
    assert found.auc == 0.25
    sentence, certain = belief.doubt(found.summary(), "here") or ("", True)
    assert not certain  # two queries are too few to say so
    assert "more often than not here (AUC 0.25)" in sentence
    many = belief.measure([row([5.0, 4.0 + n / 10]) for n in range(20)], logits=True)
    assert many is not None
    assert belief.doubt(many.summary(), "here") == (
        "the teacher ranks negatives above positives more often than not here (AUC 0.00)",
        True,
    )


def ruled(scored: bool) -> list[MinedRow]:
    """Rows whose positive the retriever has below two candidates that score too much like it to be negatives."""
    rows = []
    for number in range(40):
        one = row([0.0, 0.5, 3.0 if number == 0 else -1.0], reasons=[ABOVE_MAX_RATIO] * 2 + [ELIGIBLE])
        one.candidate_ids.insert(2, "p0")
        one.candidate_ranks[:] = [1, 2, 3, 4]
        one.reason.insert(2, KNOWN_POSITIVE)
        one.selected.insert(2, False)
        one.candidate_retrievers.append("dense")
        assert one.candidate_teacher is not None
        one.candidate_teacher.insert(2, None)
        if not scored:
            one.candidate_teacher[:2] = [None, None]
        rows.append(one)
    return rows


def test_what_a_rule_on_scores_took_away_counts() -> None:
    found = belief.measure(ruled(scored=True), logits=True)
    assert found is not None
    assert found.unseen == 0
    # Third by the retriever; first by the teacher in all rows but one, where it is second.
    assert found.retriever == pytest.approx(1 / np.log2(4))
    assert found.teacher == pytest.approx((39 + 1 / np.log2(3)) / 40)


def test_a_retriever_that_was_judged_by_what_it_chose_is_not_certainly_better() -> None:
    found = belief.measure(ruled(scored=False), logits=True)
    assert found is not None
    assert (found.unseen, found.retriever) == (80, 1.0)
    sentence, certain = belief.doubt({**found.summary(), "low": -0.02, "high": -0.001}, "here") or ("", True)
    assert not certain
    assert "80 candidates that rules left out are not among them, which flatters the retriever" in sentence


def test_labels_and_texts_take_candidates_out_of_the_measure() -> None:
    one = row([9.0, 8.0, 1.0], reasons=[SELECTED, NEAR_POSITIVE, SELECTED])
    found = belief.measure([one], logits=True, labels={"q": {"d0": True}})
    assert found is not None
    assert (found.auc, found.positive_first) == (1.0, 1.0)


def test_an_auc_below_a_half_does_not_hide_a_sure_difference() -> None:
    # A teacher of 111 queries of Cranfield, on the 12 that were held out.
    summary = {
        "auc": 0.4749,
        "auc_high": 0.6125,
        "difference": -0.298,
        "low": -0.4953,
        "high": -0.0425,
        "unseen": 0,
    }
    summary |= {"nDCG@10_teacher": 0.2036, "nDCG@10_retriever": 0.5016}
    sentence, certain = belief.doubt(summary, "here") or ("", False)
    assert certain
    assert "worse than the retriever" in sentence
    unsure = belief.doubt({**summary, "high": 0.01}, "here")
    assert unsure == ("the teacher ranks negatives above positives more often than not here (AUC 0.47)", False)
