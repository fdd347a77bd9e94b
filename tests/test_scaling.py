"""Loss scaling against torch's own. Breaks that turn a test red: growth counted over bad steps, a quarter for a half."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import scaling


@given(st.lists(st.integers(0, 2_500), max_size=6))
@settings(max_examples=20, deadline=None)
def test_it_moves_as_torchs_scaler_does(good_before_bad: list[int]) -> None:
    ours = scaling.LossScale()
    theirs = torch.amp.GradScaler("cpu")
    theirs.scale(torch.zeros(1))  # makes its state
    scale, tracker, found = theirs._scale, theirs._growth_tracker, torch.zeros(1)
    for count in good_before_bad:
        for overflowed in [False] * count + [True]:
            ours.update(overflowed)
            found.fill_(float(overflowed))
            torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2_000)
            assert ours.value == float(scale)
            assert ours.good == int(tracker)


def test_a_scale_below_one_is_the_end() -> None:
    scale = scaling.LossScale()
    for _ in range(16):
        scale.update(True)
        assert not scale.exhausted
    scale.update(True)
    assert scale.exhausted
