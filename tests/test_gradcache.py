"""Cached and plain steps give the same loss and gradients, for any chunks, dropout included.

Deliberate breaks that turn a test here red: random state not replayed, loss taken per chunk, leaf gradients of the
wrong chunk.
"""

import pytest
import torch
from torch import Tensor, nn

from embedtrain import gradcache

torch.set_num_threads(1)
CPU = torch.device("cpu")


def test_worked_case_p43() -> None:
    """e(x) = x * w; three pairs, dot product: loss 0.644385, gradient (-0.343689, -0.061417) for any chunk size."""
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    positives = torch.tensor([[1.0, 0.2], [0.1, 1.0], [0.8, 0.9]], dtype=torch.float64)
    for cached in (False, True):
        for size in (1, 2, 3, 4):
            weight = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
            chunks = [*queries.split(size), *positives.split(size)]

            def loss(outputs: list[Tensor]) -> Tensor:
                joined = torch.cat(outputs)
                return nn.functional.cross_entropy(joined[:3] @ joined[3:].T, torch.arange(3))

            def encode(chunk: Tensor, weight: nn.Parameter = weight) -> Tensor:
                return chunk * weight

            value = gradcache.step(encode, chunks, loss, device=CPU, cached=cached)
            assert float(value) == pytest.approx(0.644385, abs=1e-6)
            assert weight.grad is not None
            assert weight.grad.tolist() == pytest.approx([-0.343689, -0.061417], abs=1e-6)


@pytest.mark.parametrize("size", [1, 3, 8, 9])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_cached_equals_plain_with_dropout(size: int, rate: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(rate), nn.Linear(16, 4)).double().train()
    texts = torch.randn(8, 6, dtype=torch.float64)
    seen: list[dict[str, Tensor]] = []
    values = []
    for cached in (False, True):
        model.zero_grad()
        torch.manual_seed(5)
        value = gradcache.step(
            model,
            list(texts.split(size)),
            lambda outputs: nn.functional.cross_entropy(
                torch.cat(outputs) @ torch.cat(outputs).T, torch.arange(8)
            ),
            device=CPU,
            cached=cached,
        )
        values.append(float(value))
        seen.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        # What comes after the step draws the same numbers too.
        values.append(float(torch.rand(1)))
    assert values[0] == pytest.approx(values[2], abs=1e-12)
    assert values[1] == values[3]
    assert seen[0].keys() == seen[1].keys()
    for name, gradient in seen[0].items():
        assert torch.allclose(gradient, seen[1][name], atol=1e-12), name
    # Dropout mattered, where there was some: other draws give another loss.
    torch.manual_seed(6)
    with torch.no_grad():
        outputs = torch.cat([model(chunk) for chunk in texts.split(size)])
        other = float(nn.functional.cross_entropy(outputs @ outputs.T, torch.arange(8)))
    assert (other != pytest.approx(values[0], abs=1e-9)) == (rate > 0)
