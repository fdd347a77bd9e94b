"""Mixing weights: the two ends to the bit, the middle by hand; and the choice, under a guard, with its reason.

Breaks that turn a test red: the share counted from the other end; whole numbers averaged; the guard forgotten; a drop
of exactly the allowed half point refused; the larger share of two equal ones; the difference of two halves taken in
half precision.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.merging import SHARES, choose, interpolate

BASE = {"w": torch.tensor([0.0, 4.0]), "ids": torch.tensor([1, 2]), "mean": torch.tensor([1.0])}
TUNED = {"w": torch.tensor([1.0, 0.0]), "ids": torch.tensor([3, 4]), "mean": torch.tensor([5.0])}


def test_weights_lie_between_by_hand() -> None:
    mixed = interpolate(BASE, TUNED, 0.25, keep=["mean"])
    assert mixed["w"].tolist() == [0.25, 3.0]
    assert mixed["ids"].tolist() == [3, 4]
    assert mixed["mean"].tolist() == [5.0]
    assert list(mixed) == list(TUNED)
    assert BASE["w"].tolist() == [0, 4]


def test_the_ends_are_the_models_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    base, tuned = ({"w": torch.randn(50, generator=generator) * 1e3} for _ in range(2))
    assert torch.equal(interpolate(base, tuned, 0.0)["w"], base["w"])
    assert torch.equal(interpolate(base, tuned, 1.0)["w"], tuned["w"])
    assert interpolate(base, tuned, 1.0)["w"] is not tuned["w"]


def test_half_precision_is_mixed_in_single() -> None:
    base, tuned = ({"w": torch.tensor([v], dtype=torch.float16)} for v in (60_000.0, -60_000.0))
    mixed = interpolate(base, tuned, 0.5)["w"]
    assert mixed.dtype == torch.float16
    assert mixed.item() == 0  # the difference of the two, -120,000, is beyond float16


def test_other_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="other names before and after training: extra"):
        interpolate(BASE, {**TUNED, "extra": torch.zeros(1)}, 0.5)
    with pytest.raises(ValueError, match="shape"):
        interpolate(BASE, {**TUNED, "w": torch.zeros(3)}, 0.5)
    with pytest.raises(ValueError, match="from 0 to 1"):
        interpolate(BASE, TUNED, 1.5)


def test_the_best_on_dev_is_taken() -> None:
    choice = choose({0.0: 0.60, 0.5: 0.72, 1.0: 0.70})
    assert (choice.share, choice.value) == (0.5, 0.72)
    assert choice.why == (
        "0.5 of the tuned weights had the best dev value, 0.7200; "
        "the other shares of the tuned weights 0: 0.6000, 1: 0.7000"
    )


def test_the_guard_holds_the_best_back_and_says_so() -> None:
    dev = {0.0: 0.60, 0.25: 0.64, 0.5: 0.68, 0.75: 0.71, 1.0: 0.72}
    guard = {0.0: 0.400, 0.25: 0.402, 0.5: 0.395, 0.75: 0.3949, 1.0: 0.35}
    choice = choose(dev, guard)
    # 0.5 lost exactly the half point that is allowed.
    assert choice.share == 0.5
    assert choice.why.startswith(
        "the tuned model had the best dev value, 0.7200, but lost 0.0500 on the guard, more than 0.005; "
        "0.5 of the tuned weights was the best of those that did not, 0.6800; "
    )
    assert choice.why.endswith("; on the guard 0.3950 after 0.4000")
    assert choose(dev, guard, 0.05).share == 1.0
    assert choose(dev, guard, 0.0).share == 0.25
    assert choose(dev, {share: -share for share in SHARES}).share == 0.0


def test_of_equals_the_one_nearest_the_base_is_taken() -> None:
    assert choose({1.0: 0.7, 0.5: 0.7, 0.0: 0.6}).share == 0.5


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="every share needs a dev value"):
        choose({})
    with pytest.raises(ValueError, match="every value has to be a number"):
        choose({0.0: float("nan")})
    with pytest.raises(ValueError, match="the guard needs a value for every share"):
        choose({0.0: 0.5, 1.0: 0.6}, {0.0: 0.5})
    with pytest.raises(ValueError, match="put the base"):
        choose({1.0: 0.6}, {0.0: 0.5, 1.0: 0.4})


values = st.floats(0, 1, width=32)


@given(st.lists(st.tuples(values, values), min_size=5, max_size=5), values)
def test_the_choice_is_the_obvious_loop(pairs: list[tuple[float, float]], drop: float) -> None:
    dev = {share: pair[0] for share, pair in zip(SHARES, pairs, strict=True)}
    guard = {share: pair[1] for share, pair in zip(SHARES, pairs, strict=True)}
    best = None
    for share in SHARES:
        if guard[0.0] - guard[share] <= drop + 1e-12 and (best is None or dev[share] > dev[best]):
            best = share
    assert choose(dev, guard, drop).share == best
