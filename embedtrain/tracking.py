"""Numbers of a run in tensorboard, wandb, trackio or mlflow, through accelerate's trackers.

They hold clocks and names of machines: what they write lies beside the output, never in it.
"""

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embedtrain.errors import UsageError

# Names that can be given, and the packages of which one must be there; the first is the one to install.
PACKAGES: dict[str, tuple[str, ...]] = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "mlflow": ("mlflow",),
}
PROJECT = "embedtrain"


def parse(text: str) -> tuple[str, ...]:
    """Read `tensorboard,wandb`; UsageError for a name that is not known, and for one whose package is not there."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in PACKAGES:
            raise UsageError(f"--track {name}: {', '.join(PACKAGES)} are the choices")
        if not any(importlib.util.find_spec(package) for package in PACKAGES[name]):
            raise UsageError(f"--track {name} needs its package; install it with: pip install {PACKAGES[name][0]}")
    return names


def logs_folder(out: Path) -> Path:
    """Where the files of a tracker that writes some lie: beside the output, which has the same bytes each time."""
    return out.parent / f"{out.name}-logs"


class Trackers:
    """Every tracker of a run at once."""

    def __init__(self, trackers: Sequence[Any]) -> None:
        self._trackers = list(trackers)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step, counted from 1; 0 is before training."""
        for tracker in self._trackers:
            tracker.log(dict(values), step=step)


@contextlib.contextmanager
def tracked(names: Sequence[str], out: Path, config: Mapping[str, Any]) -> Iterator[Trackers | None]:
    """Start the trackers named, tell them `config`, end them however the run ends; None where none is named.

    For the main process alone. The run is called as `out` is, in the project `embedtrain`.
    """
    if not names:
        yield None
        return
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # accelerate's trackers log through it
    logs = logs_folder(out)
    with contextlib.ExitStack() as stack:
        started = []
        for name in names:
            kind = LOGGER_TYPE_TO_CLASS[name]
            if kind.requires_logging_directory:
                tracker = kind(out.name, str(logs))  # a folder a run
            elif name == "mlflow":
                tracker = kind(PROJECT, run_name=out.name)  # projects are called experiments there
            elif name == "wandb":
                logs.mkdir(parents=True, exist_ok=True)
                tracker = kind(PROJECT, name=out.name, dir=str(logs))
            else:
                tracker = kind(PROJECT, name=out.name)
            tracker.start()
            stack.callback(tracker.finish)
            tracker.store_init_configuration(flat(config))
            started.append(tracker)
        yield Trackers(started)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """A nested configuration as `a.b: value`, with values that every tracker takes; lists and None as text."""
    found: dict[str, bool | int | float | str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value if isinstance(value, bool | int | float | str) else str(value)
    return found
