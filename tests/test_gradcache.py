"""Cached, plain and shared among processes: the same loss and gradients, for any chunks, dropout included.

Deliberate breaks that turn a test here red: random state not replayed, loss taken per chunk, leaf gradients of the
wrong chunk, the scale forgotten at the loss.
"""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from embedtrain import gradcache
from embedtrain.workers import Workers

torch.set_num_threads(1)


def contrast(outputs: list[Tensor]) -> Tensor:
    joined = torch.cat(outputs)
    return nn.functional.cross_entropy(joined @ joined.T, torch.arange(len(joined)))


def gradients(
    model: nn.Module, texts: Tensor, size: int, *, cached: bool, loss: Callable[[list[Tensor]], Tensor] = contrast
) -> tuple[float, dict[str, Tensor]]:
    model.zero_grad()
    parts = list(texts.split(size))
    value = gradcache.step(
        model,
        parts,
        [len(part) for part in parts],
        loss,
        parameters=model.parameters(),
        seed=(5, 0, 0),
        cached=cached,
    )
    return float(value), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_worked_case_p43(cached: bool, size: int) -> None:
    """e(x) = x * w; three pairs, dot product: loss 0.644385, gradient (-0.343689, -0.061417) for any chunk size."""
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    positives = torch.tensor([[1.0, 0.2], [0.1, 1.0], [0.8, 0.9]], dtype=torch.float64)
    weight = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    cut = [*queries.split(size), *positives.split(size)]

    def loss(outputs: list[Tensor]) -> Tensor:
        joined = torch.cat(outputs)
        return nn.functional.cross_entropy(joined[:3] @ joined[3:].T, torch.arange(3))

    value = gradcache.step(
        lambda chunk: chunk * weight,
        cut,
        [len(chunk) for chunk in cut],
        loss,
        parameters=[weight],
        seed=(0,),
        cached=cached,
    )
    assert float(value) == pytest.approx(0.644385, abs=1e-6)
    assert weight.grad is not None
    assert weight.grad.tolist() == pytest.approx([-0.343689, -0.061417], abs=1e-6)


@pytest.mark.parametrize("size", [1, 3, 8, 9])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_cached_equals_plain_with_dropout(size: int, rate: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(rate), nn.Linear(16, 4)).double().train()
    texts = torch.randn(8, 6, dtype=torch.float64)
    torch.manual_seed(3)
    before = torch.rand(1)
    torch.manual_seed(3)
    plain, expected = gradients(model, texts, size, cached=False)
    cached, found = gradients(model, texts, size, cached=True)
    assert torch.rand(1) == before  # what comes after a step draws as if there had been none
    assert cached == pytest.approx(plain, abs=1e-12)
    assert found.keys() == expected.keys()
    assert len(found) == 4
    for name, gradient in found.items():
        assert torch.allclose(gradient, expected[name], atol=1e-12), name
    # Dropout mattered, where there was some: without it the loss is another.
    model.eval()
    other, _ = gradients(model, texts, size, cached=False)
    assert (other != pytest.approx(plain, abs=1e-9)) == (rate > 0)


@pytest.mark.parametrize("cached", [False, True])
def test_chunk_size_changes_nothing_without_dropout(cached: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    texts = torch.randn(8, 6, dtype=torch.float64)
    whole = gradients(model, texts, 8, cached=False)
    for size in (1, 3, 9):
        value, found = gradients(model, texts, size, cached=cached)
        assert value == pytest.approx(whole[0], abs=1e-12)
        for name, gradient in found.items():
            assert torch.allclose(gradient, whole[1][name], atol=1e-12), name


@pytest.mark.parametrize("cached", [False, True])
def test_workers_side_by_side_change_no_bit(cached: bool) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(50, 6, sparse=True)
    model = nn.Sequential(table, nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    texts = torch.randint(0, 50, (23,))
    found = []
    for count in (1, 3):
        model.zero_grad()
        parts = list(texts.split(2))
        value = gradcache.step(
            model,
            parts,
            [len(part) for part in parts],
            contrast,
            parameters=model.parameters(),
            seed=(1,),
            cached=cached,
            workers=Workers(count),
        )
        dense = [
            p.grad.to_dense() if p.grad.is_sparse else p.grad for p in model.parameters() if p.grad is not None
        ]
        found.append([value, *dense])
    assert len(found[0]) == 6
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("cached", [False, True])
def test_gradients_are_scaled_and_the_loss_is_not(cached: bool) -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    texts = torch.tensor([[1.0, 0.5], [0.2, 1.0]], dtype=torch.float64)
    found = []
    for scale in (1.0, 1024.0):
        weight.grad = None
        value = gradcache.step(
            lambda chunk: chunk * weight,
            [texts],
            [2],
            contrast,
            parameters=[weight],
            seed=(0,),
            cached=cached,
            scale=scale,
        )
        assert weight.grad is not None
        found.append((float(value), weight.grad.clone()))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1] * 1024, found[1][1])


def test_a_quarter_of_the_memory_holds_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    # 18 values of 4 bytes, 384 wide, 6 layers: 165,888 bytes a token; a quarter of 4 GiB holds 6,472 of them.
    monkeypatch.setattr(gradcache.memory, "machine", lambda: 4 << 30)
    assert gradcache.graph_tokens(384, 6, torch.device("cpu")) == 6_472
    # However little there is, one chunk has to fit.
    monkeypatch.setattr(gradcache.memory, "machine", lambda: 1 << 20)
    assert gradcache.graph_tokens(384, 6, torch.device("cpu")) == 1_024


def test_parameters_of_the_loss_get_their_gradient_once() -> None:
    scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
    texts = torch.tensor([[1.0, 0.5], [0.2, 1.0]], dtype=torch.float64)

    def loss(outputs: list[Tensor]) -> Tensor:
        return scale * torch.cat(outputs).sum()

    for cached in (False, True):
        scale.grad = None
        gradcache.step(
            lambda chunk: chunk * weight,
            [texts[:1], texts[1:]],
            [1, 1],
            loss,
            parameters=[weight],
            seed=(0,),
            cached=cached,
        )
        assert scale.grad is not None
        assert float(scale.grad) == pytest.approx(2.7)


def test_threads_are_given_back_when_an_item_fails() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:

        def fail(item: int) -> int:
            if item == 3:
                raise ValueError("no")
            return item

        with pytest.raises(ValueError, match="no"):
            list(Workers(2).map(fail, range(20)))
        found: list[int] = []
        later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert found == [2]
    finally:
        torch.set_num_threads(before)
