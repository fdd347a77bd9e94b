"""The training loop: schedule, stop at what is not finite, going on after a kill to the same bytes."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

from embedtrain import loop
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError

torch.set_num_threads(1)


@dataclasses.dataclass(frozen=True)
class Options:
    learning_rate: float = 0.05
    warmup: float = 0.1
    weight_decay: float = 0.01
    epochs: float = 3.0
    seed: int = 1


def model_and_step(dropout: float = 0.3):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 1)).train()
    data = torch.randn(5, 6, 4)

    def take_step(epoch: int, step: int, backward):
        value = (model(data[step]) - epoch).square().mean()
        backward(value)
        return value.detach(), {"rows": 6}

    return model, take_step


def train(workspace: Path, take_step, model: nn.Module, options: Options | None = None, **more):
    return loop.run(
        model,
        take_step,
        options or Options(),
        what="train",
        steps_per_epoch=5,
        workspace=workspace,
        progress=silent,
        **more,
    )


def test_schedule_rises_and_falls_and_never_is_zero_p47() -> None:
    factors = [loop.learning_rate_factor(step, 10, 0.2) for step in range(10)]
    assert factors[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert factors[-1] == pytest.approx(1 / 8)
    assert min(factors) > 0


def test_every_row_counts_and_weights_move(tmp_path: Path) -> None:
    model, step = model_and_step()
    before = model[0].weight.detach().clone()
    curve = train(tmp_path, step, model)
    assert len(curve.steps) == 15
    assert [entry["step"] for entry in curve.steps] == list(range(1, 16))
    assert (model[0].weight - before).abs().max() > 0


def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    model, step = model_and_step()
    whole = train(tmp_path / "whole", step, model)

    other, step = model_and_step()
    calls = 0

    def dies(epoch: int, number: int, backward):
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return step(epoch, number, backward)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", dies, other)

    fresh, step = model_and_step()
    seen = []

    def counted(epoch: int, number: int, backward):
        seen.append((epoch, number))
        return step(epoch, number, backward)

    resumed = train(tmp_path / "cut", counted, fresh)
    assert seen[0] == (1, 2)
    assert len(seen) == 8
    assert resumed.steps == whole.steps
    for a, b in zip(model.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_best_epoch_is_kept_p65(tmp_path: Path) -> None:
    model, step = model_and_step()
    values = iter([0.2, 0.9, 0.5])
    kept = []

    def dev() -> float:
        kept.append(model[0].weight.detach().clone())
        return next(values)

    curve = train(tmp_path, step, model, after_epoch=dev)
    assert curve.dev == [0.2, 0.9, 0.5]
    assert curve.best_epoch == 1
    assert torch.equal(model[0].weight, kept[1])
    assert not torch.equal(model[0].weight, kept[2])


def test_fractions_of_an_epoch_are_steps(tmp_path: Path) -> None:
    model, step = model_and_step()
    curve = train(tmp_path, step, model, Options(epochs=0.4), after_epoch=lambda: 1.0)
    assert len(curve.steps) == 2
    assert curve.dev == [1.0]


def test_a_loss_that_is_not_finite_stops_before_the_weights_break_p48(tmp_path: Path) -> None:
    model, step = model_and_step()

    def breaks(epoch: int, number: int, backward):
        value, numbers = step(epoch, number, backward)
        return (value * float("nan"), numbers) if (epoch, number) == (1, 1) else (value, numbers)

    with pytest.raises(EmbedtrainError, match="step 7: the loss is nan"):
        train(tmp_path, breaks, model)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_dropout_of_zero_is_evaluation_mode() -> None:
    model, _ = model_and_step()
    loop.set_dropout(model, 0.0)
    assert not model.training
    loop.set_dropout(model, 0.2)
    assert model.training
    assert model[1].p == 0.2
