"""Steps and learning rates by hand. Breaks that turn a test red: the last rate 0, a long warm-up not said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.errors import UsageError
from embedtrain.schedule import Schedule, planned_steps


def test_up_and_down_and_never_zero_p47() -> None:
    schedule = Schedule(2.0, 10, 0.2)
    assert [schedule.factor(step) for step in range(3)] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert schedule.factor(9) == pytest.approx(1 / 8)
    assert schedule.at(2) == 2.0
    assert schedule.peak == 1.0
    assert schedule.doubt() is None


def test_a_warm_up_longer_than_training_says_how_far_it_comes_p47() -> None:
    schedule = Schedule(3e-5, 200, 1_000)
    assert schedule.peak == pytest.approx(200 / 1_001)
    doubt = schedule.doubt()
    assert doubt is not None
    assert "warm-up of 1,000 steps is longer than training (200 steps)" in doubt
    assert "20% of 3e-05" in doubt


def test_a_warm_up_in_steps_is_that_of_its_share() -> None:
    assert [Schedule(1.0, 40, 4).at(n) for n in range(40)] == [Schedule(1.0, 40, 0.1).at(n) for n in range(40)]


@given(st.integers(1, 300), st.one_of(st.floats(0, 0.99), st.integers(1, 400)))
def test_no_rate_is_zero_or_above_the_highest(total: int, warmup: float) -> None:
    schedule = Schedule(1.0, total, warmup)
    factors = [schedule.factor(step) for step in range(total)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) == schedule.peak


def test_fractions_of_an_epoch_are_steps_and_none_is_refused() -> None:
    assert planned_steps(0.4, 5) == 2
    assert planned_steps(3, 3) == 9
    with pytest.raises(UsageError, match="no step"):
        planned_steps(1, 0)
