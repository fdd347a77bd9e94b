"""The tail of a step against torch's own. Breaks that turn a test red: the scale forgotten, decay on biases, 1e-6 lost."""

import math

import pytest
import torch
from torch import nn

from embedtrain import optimizer

torch.set_num_threads(1)


def model_with_gradients(size: float) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter) * size
    model[2].bias.grad = None  # a parameter that has no part in the loss
    return model


@pytest.mark.parametrize("size", [1e-3, 5.0])
@pytest.mark.parametrize("scale", [1.0, 2.0**16])
def test_clipping_is_torchs(size: float, scale: float) -> None:
    model = model_with_gradients(size)
    other = model_with_gradients(size)
    expected = float(nn.utils.clip_grad_norm_(other.parameters(), 1.0))
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad *= scale
    adamw = optimizer.make(model, 0.1, 0.01)
    norm = optimizer.unscale_and_clip(adamw, scale, optimizer.gradient_norm(adamw))
    assert norm == pytest.approx(expected, rel=1e-6)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None)
        if one.grad is not None and two.grad is not None:
            torch.testing.assert_close(one.grad, two.grad)


def test_one_gradient_that_is_not_finite_shows_in_the_norm() -> None:
    for value in (math.inf, -math.inf, math.nan):
        model = model_with_gradients(1.0)
        model[0].bias.grad[1] = value
        assert not math.isfinite(optimizer.gradient_norm(optimizer.make(model, 0.1, 0.01)))


def test_no_gradient_at_all_has_norm_zero() -> None:
    adamw = optimizer.make(nn.Linear(2, 2), 0.1, 0.01)
    assert optimizer.unscale_and_clip(adamw, 1.0, optimizer.gradient_norm(adamw)) == 0.0


def test_fused_adamw_is_adamw_with_decay_on_matrices() -> None:
    model = model_with_gradients(0.1)
    other = model_with_gradients(0.1)
    adamw = optimizer.make(model, 0.01, 0.1)
    matrices = [p for p in other.parameters() if p.ndim == 2]
    vectors = [p for p in other.parameters() if p.ndim == 1]
    plain = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.01,
        foreach=False,
        fused=False,
    )
    for _ in range(5):
        adamw.step()
        plain.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


def test_frozen_weights_are_left_alone() -> None:
    model = model_with_gradients(1.0)
    model[0].requires_grad_(False)
    before = model[0].weight.detach().clone()
    trace = optimizer.Trace(model)
    adamw = optimizer.make(model, 0.01, 0.1)
    assert trace.unchanged()
    adamw.step()
    assert torch.equal(model[0].weight, before)
    assert not trace.unchanged()
