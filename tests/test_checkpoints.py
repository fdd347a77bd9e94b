"""Checkpoints: whole or absent, for this run or not used, one there at any moment, cheap.

Breaks that turn a test red: another run's checkpoint used; frozen weights written; the best weights that a checkpoint
names removed with the others; a save at every step.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from embedtrain import optimizer
from embedtrain.checkpoints import Checkpoints, identity

torch.set_num_threads(1)


def parts(folder: Path, key: str = "a", seed: int = 0) -> tuple[nn.Sequential, torch.optim.Optimizer, Checkpoints]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[2].weight.requires_grad_(False)
    adamw = optimizer.make(model, 0.1, 0.01)
    return model, adamw, Checkpoints(folder, model, adamw, identity(model, {"key": key}))


def learn(model: nn.Module, adamw: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        model(torch.ones(2, 3) * torch.tensor([[1.0], [step]])).square().sum().backward()
        adamw.step()
        adamw.zero_grad()


STATE = {"best_step": None}


def test_everything_comes_back_and_goes_on_the_same(tmp_path: Path) -> None:
    model, adamw, kept = parts(tmp_path)
    learn(model, adamw, 3)
    kept.save(3, {"best_step": None, "more": [1.5, None]})
    other, other_adamw, found = parts(tmp_path, seed=1)
    other[2].weight.data.copy_(model[2].weight.data)  # frozen: the base model has it
    state = found.load()
    assert state is not None
    assert (state["step"], state["more"]) == (3, [1.5, None])
    for _ in range(2):
        learn(model, adamw, 2)
        learn(other, other_adamw, 2)
        for name, value in model.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_only_what_training_changes_is_written(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model, adamw, kept = parts(tmp_path)
    learn(model, adamw, 1)
    kept.save(1, STATE)
    stored = load_file(tmp_path / "step-000000001" / "model.safetensors")
    assert set(stored) == set(model.state_dict()) - {"2.weight"}


def test_a_checkpoint_of_another_run_is_not_used(tmp_path: Path) -> None:
    model, adamw, kept = parts(tmp_path)
    learn(model, adamw, 5)
    kept.save(5, STATE)
    other, other_adamw, found = parts(tmp_path, key="b")
    before = other[0].weight.detach().clone()
    assert found.load() is None
    assert torch.equal(other[0].weight, before)
    thawed, _, _ = parts(tmp_path)
    thawed[2].weight.requires_grad_(True)
    adamw = optimizer.make(thawed, 0.1, 0.01)
    assert Checkpoints(tmp_path, thawed, adamw, identity(thawed, {"key": "a"})).load() is None
    # Its own first one takes the place of the other's, whose step is higher.
    learn(other, other_adamw, 1)
    found.save(1, STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


def test_one_that_cannot_be_read_is_said_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, adamw, kept = parts(tmp_path)
    learn(model, adamw, 2)
    kept.save(2, STATE)
    weights = tmp_path / "step-000000002" / "optimizer.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    assert parts(tmp_path)[2].load() is None
    assert "step-000000002 cannot be read and is not used" in capsys.readouterr().err


def test_the_best_weights_stay_as_long_as_a_checkpoint_names_them(tmp_path: Path) -> None:
    model, adamw, kept = parts(tmp_path)
    learn(model, adamw, 1)
    kept.save_best(1)
    best = model[0].weight.detach().clone()
    kept.save(1, {"best_step": 1})
    learn(model, adamw, 1)
    kept.save_best(2)
    assert {path.name for path in tmp_path.iterdir()} == {
        "step-000000001",
        "best-1.safetensors",
        "best-2.safetensors",
    }
    other, _, found = parts(tmp_path)  # killed here: the checkpoint still has its best
    state = found.load()
    assert state is not None
    found.load_best(state["best_step"])
    assert torch.equal(other[0].weight, best)
    kept.save(2, {"best_step": 2})
    assert {path.name for path in tmp_path.iterdir()} == {"step-000000002", "best-2.safetensors"}
    (tmp_path / "best-2.safetensors").unlink()
    assert parts(tmp_path)[2].load() is None


def test_a_save_takes_a_twentieth_of_the_time_at_most(tmp_path: Path) -> None:
    _, _, kept = parts(tmp_path)
    assert not kept.due(59)
    assert kept.due(61)
    kept.seconds = 30.0
    assert not kept.due(599)
    assert kept.due(600)
    kept.seconds = 1.0
    assert kept.due(20, last=True)
    assert not kept.due(19, last=True)
