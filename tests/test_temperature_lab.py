"""The temperature lab against numbers worked by hand, the curve of training, and the tables of the literature.

Breaks that turn a test red: the positive among the weighed negatives, padding that takes a share, means over candidates
instead of queries, a band that ignores false negatives, blocks that lose rows.
"""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import one_row

from embedtrain import losses
from embedtrain.diagnose import temperature
from embedtrain.diagnose.section import HEALTHY, WATCH
from embedtrain.errors import EmbedtrainError

torch.set_num_threads(1)

SPREAD = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]


def nobody(candidates: list[list[float]]) -> list[list[bool]]:
    return [[False] * len(values) for values in candidates]


def one(
    positive: float, candidates: list[float], tau: float, suspected: list[bool] | None = None
) -> temperature.Row:
    marks = suspected or [False] * len(candidates)
    return temperature.lab([positive], [candidates], [marks], [tau])[0]


def test_the_tables_of_the_literature() -> None:
    # Fixed similarities, a tenth apart: weights fall by e^2 a step at 0.05, by e^0.5 at 0.2, by e^0.1 at 1.
    rows = temperature.lab([0.95], [SPREAD], nobody([SPREAD]), [0.05, 0.2, 1.0])
    for row, ratio in zip(rows, (math.exp(-2), math.exp(-0.5), math.exp(-0.1)), strict=True):
        assert row.hardest == pytest.approx((1 - ratio) / (1 - ratio**8), abs=1e-12)
        assert row.ceiling == pytest.approx(2.0794415, abs=1e-7)
        assert row.entropy == pytest.approx(row.ceiling * row.relative_entropy, abs=1e-12)
    assert [round(row.hardest, 4) for row in rows] == [0.8647, 0.4008, 0.1728]
    assert rows[0].entropy < rows[1].entropy < rows[2].entropy < math.log(8)
    assert one(0.95, SPREAD, 1000.0).entropy == pytest.approx(2.079, abs=5e-4)


def test_a_row_by_hand() -> None:
    # Negatives 0.3 and 0.3 + ln 3 at temperature 1: weights 1/4 and 3/4; positive 0.3 + ln 2: loss ln(1 + 4/2).
    row = one(0.3 + math.log(2), [0.3, 0.3 + math.log(3)], 1.0, [False, True])
    assert row.hardest == pytest.approx(0.75)
    assert row.suspected == pytest.approx(0.75)
    assert row.entropy == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    assert row.loss == pytest.approx(math.log(3))


def test_a_hard_negative_takes_all_of_the_push() -> None:
    assert one(0.8, [0.75, 0.3], 0.05).hardest == pytest.approx(0.99988, abs=1e-5)
    assert one(0.8, [0.75, 0.3], 1.0).hardest == pytest.approx(0.6106, abs=1e-4)
    # Positive .8, negative .2: ln(1 + e^-12) at 0.05, ln(1 + e^-0.6) at 1; twice, as one candidate alone has no spread.
    assert one(0.8, [0.2, -1000.0], 0.05).loss == pytest.approx(math.log1p(math.exp(-12)))


@pytest.mark.parametrize("tau", [0.02, 0.3, 1.0])
def test_it_is_what_the_curve_of_training_says(tau: float) -> None:
    scores = np.random.default_rng(3).uniform(-0.5, 0.9, 9).tolist()
    row, said = one(scores[0], scores[1:], tau), losses.curve(one_row(scores), losses.Settings(tau))
    assert row.hardest == pytest.approx(said["hardest_share"])
    assert row.entropy == pytest.approx(said["negative_entropy"])
    assert row.relative_entropy == pytest.approx(said["negative_entropy_relative"])
    assert row.loss == pytest.approx(math.log(9) - said["information"])


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(0, 10_000),
    st.sampled_from([0.005, 0.05, 1.0]),
    st.sampled_from([1, 5, 1 << 20]),
)
def test_lists_of_any_length_are_the_obvious_loop(queries: int, seed: int, tau: float, block: int) -> None:
    random = np.random.default_rng(seed)
    lists = [random.uniform(-1, 1, random.integers(2, 7)) for _ in range(queries)]
    marks = [random.random(len(values)) < 0.4 for values in lists]
    positives = random.uniform(-1, 1, queries)
    expected = np.zeros(5)
    for close, values, doubtful in zip(positives, lists, marks, strict=True):
        weights = [math.exp((value - max(values)) / tau) for value in values]
        shares = [weight / sum(weights) for weight in weights]
        entropy = -sum(share * math.log(share) for share in shares if share > 0)
        loss = math.log(sum(math.exp((value - close) / tau) for value in [close, *values]))
        false = sum(share for share, mark in zip(shares, doubtful, strict=True) if mark)
        expected += [max(shares), false, entropy, entropy / math.log(len(values)), loss]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temperature, "_BLOCK", block)
        row = temperature.lab(positives, lists, marks, [tau])[0]
    found = [row.hardest, row.suspected, row.entropy, row.relative_entropy, row.loss]
    assert found == pytest.approx((expected / queries).tolist(), abs=1e-9)


def test_a_higher_temperature_looks_at_more() -> None:
    rows = temperature.lab([0.95], [SPREAD], nobody([SPREAD]))
    assert [row.temperature for row in rows] == list(temperature.TEMPERATURES)
    assert rows[0].temperature == 0.005
    assert rows[-1].temperature == 1.0
    assert set(temperature.SHOWN) <= set(temperature.TEMPERATURES)
    assert all(a.hardest > b.hardest and a.entropy < b.entropy for a, b in itertools.pairwise(rows))
    assert all(a.temperature < b.temperature for a, b in itertools.pairwise(rows))


def window(false: int, queries: int = 40, seed: int = 0) -> tuple[list[float], list[np.ndarray], list[np.ndarray]]:
    """100 candidates a query about 0.25 +- 0.1, as MiniLM leaves them, and `false` near the positive at 0.6."""
    random = np.random.default_rng(seed)
    lists = [np.r_[random.normal(0.6, 0.03, false), random.normal(0.25, 0.1, 100 - false)] for _ in range(queries)]
    return [0.6] * queries, lists, [np.arange(100) < false for _ in range(queries)]


def test_the_band_of_clean_candidates_is_what_is_known_to_work() -> None:
    low, high = temperature.band(temperature.lab(*window(0))) or (0.0, 0.0)
    assert low <= 0.01
    assert 0.05 < high <= 0.11


def test_false_negatives_raise_the_low_end() -> None:
    clean, some = (temperature.band(temperature.lab(*window(false))) for false in (0, 1))
    assert clean is not None
    assert some is not None
    assert some[0] > clean[0]
    rows = {row.temperature: row for row in temperature.lab(*window(1))}
    before = max(tau for tau in rows if tau < some[0])
    assert rows[some[0]].suspected <= temperature.RULED < rows[before].suspected


def test_no_temperature_helps_where_most_candidates_are_false() -> None:
    assert temperature.band(temperature.lab(*window(60))) is None
    found = temperature.section(*window(60), 0.05)
    assert found.numbers["band"] is None
    assert "No temperature helps: 60%" in found.notes[0]
    verdicts = {measure.key: measure.verdict for measure in found.measures}
    assert verdicts["suspected_share"] == WATCH


def test_the_band_is_one_run() -> None:
    def row(tau: float, suspected: float, relative: float = 0.5) -> temperature.Row:
        return temperature.Row(tau, 0.3, suspected, 1.0, 2.0, relative, 1.0)

    rows = [row(0.01, 0.4), row(0.02, 0.6), row(0.03, 0.5), row(0.04, 0.4), row(0.05, 0.4, 0.95)]
    assert temperature.band(rows) == (0.03, 0.04)


def test_verdicts_on_the_temperature_in_use() -> None:
    known, hot = ({m.key: m for m in temperature.section(*window(0), tau).measures} for tau in (0.05, 1.0))
    assert {measure.verdict for measure in known.values()} == {HEALTHY}
    # P40: with temperature 1 on unit vectors the loss has a floor, ln(1 + 100 e^-2) = 2.676 here.
    watched = {key for key, measure in hot.items() if measure.verdict == WATCH}
    assert watched == {"negative_entropy_relative", "loss_floor"}
    assert hot["loss_floor"].value == pytest.approx(math.log1p(100 * math.exp(-2)))
    assert temperature.lab(*window(0), [0.001])[0].is_ruled, "one negative has it all"


def test_the_section_says_the_band_and_what_was_left_out() -> None:
    positives, lists, marks = window(1)
    found = temperature.section([*positives, 0.5, 0.5], [*lists, [0.1], []], [*marks, [True], []], 0.05)
    numbers = found.numbers
    low, high = numbers["band"]
    assert found.notes[0].startswith(f"From {low:g} to {high:g} the push goes to hard negatives")
    assert f"The 0.05 in use lies {'inside' if low <= 0.05 <= high else 'below it'}." in found.notes[0]
    assert "2 queries with fewer than two candidates are left out." in found.notes
    assert numbers["queries"] == 40
    assert numbers["suspected_share_of_candidates"] == 0.01
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    assert [row[0] for row in found.tables[0].rows] == [f"{tau:g}" for tau in temperature.SHOWN]


def test_without_a_known_temperature_nothing_is_judged() -> None:
    found = temperature.section(*window(0), None)
    assert found.measures == []
    assert found.numbers["in_use"] is None
    assert "No candidate is suspected" in found.notes[1]
    assert "in use" not in found.pictures[0].svg


def test_dot_products_have_no_floor() -> None:
    positives, lists, marks = window(0)
    found = temperature.section([80.0] * len(positives), [80 * values for values in lists], marks, 0.05)
    assert found.numbers["in_use"]["loss_floor"] is None
    assert "loss_floor" not in {measure.key for measure in found.measures}


def test_the_same_input_gives_the_same_bytes() -> None:
    first, again = (temperature.section(*window(2), 0.05) for _ in range(2))
    assert first == again
    assert "suspected false negatives" in first.pictures[0].svg


def test_what_is_refused() -> None:
    with pytest.raises(EmbedtrainError, match="embedtrain mine"):
        temperature.section([0.5], [[0.1]], [[False]], 0.05)
    with pytest.raises(EmbedtrainError, match="query 2 has 1 candidates"):
        temperature.lab([0.5, 0.5], [[0.1, 0.2], [0.1]], [[False, False], [False]])
    with pytest.raises(EmbedtrainError, match="a similarity of query 1 is not finite"):
        temperature.lab([0.5], [[0.1, math.nan]], [[False, False]])
    with pytest.raises(ValueError, match="marks"):
        temperature.lab([0.5], [[0.1, 0.2]], [[False]])
