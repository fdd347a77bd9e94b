"""Trackers: refused before training where absent, told the settings, beside the output, ended however it ends.

Breaks that turn a test red: an absent package found out at the first step; files in the output folder; no `finish`.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from embedtrain import tracking
from embedtrain.errors import UsageError


class Fake(GeneralTracker):
    """A tracker that writes down what it is told."""

    name = "wandb"
    requires_logging_directory = False
    said: list[Any]

    def __init__(self, project: str, **settings: Any) -> None:
        super().__init__()
        Fake.said = [("init", project, settings)]

    @property
    def tracker(self) -> None:
        return None

    def start(self) -> None:
        Fake.said.append("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        Fake.said.append(values)

    def log(self, values: dict[str, float], step: int | None = None, **settings: Any) -> None:
        Fake.said.append((step, values))

    def finish(self) -> None:
        Fake.said.append("finish")


def test_names_are_known_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == "tensorboardX" else None)
    assert tracking.parse("") == ()
    assert tracking.parse(" tensorboard, tensorboard") == ("tensorboard",)
    with pytest.raises(UsageError, match="--track comet: tensorboard, wandb, trackio, mlflow are the choices"):
        tracking.parse("comet")
    with pytest.raises(UsageError, match="pip install wandb"):
        tracking.parse("tensorboard,wandb")


def test_a_tracker_hears_settings_numbers_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Fake)
    config = {"stage": "finetune", "options": {"epochs": 3.0, "dims": [1, 2], "limit": None}}

    def run() -> None:
        with tracking.tracked(["wandb"], tmp_path / "tuned", config) as trackers:
            assert trackers is not None
            trackers.log({"loss": 0.5}, 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert Fake.said == [
        ("init", "embedtrain", {"name": "tuned", "dir": str(tmp_path / "tuned-logs")}),
        "start",
        {"stage": "finetune", "options.epochs": 3.0, "options.dims": "[1, 2]", "options.limit": "None"},
        (1, {"loss": 0.5}),
        "finish",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["tuned-logs"]


def test_none_named_none_started(tmp_path: Path) -> None:
    with tracking.tracked([], tmp_path / "tuned", {}) as trackers:
        assert trackers is None


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed; pip install tensorboard"
)
def test_tensorboard_has_the_numbers_beside_the_output(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tracking.tracked(["tensorboard"], tmp_path / "tuned", {"options": {"seed": 1}}) as trackers:
        assert trackers is not None
        for step in (1, 2):
            trackers.log({"loss": 1 / step, "tokens_per_second": 100}, step)
    assert [path.name for path in tmp_path.iterdir()] == ["tuned-logs"]
    events = EventAccumulator(str(tmp_path / "tuned-logs" / "tuned"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 0.5)]
    assert "seed" in json.dumps([path.read_text() for path in tmp_path.rglob("hparams.yml")])
