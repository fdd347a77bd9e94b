"""The training loop, for bi-encoders and cross-encoders alike: optimiser, schedule, checkpoints, curves.

It owns no objective: a caller gives the number of steps and a function that adds one step's gradient.
"""

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from embedtrain import atomic, console
from embedtrain.errors import EmbedtrainError

CHECKPOINT_SECONDS = 60.0
MAX_GRADIENT_NORM = 1.0


class LoopOptions(Protocol):
    """What the loop reads of a stage's options."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def epochs(self) -> float: ...
    @property
    def seed(self) -> int: ...


# take_step(epoch, step of the epoch, backward) adds the gradient and returns (loss, other numbers for the curve).
TakeStep = Callable[[int, int, Callable[[Tensor], None]], tuple[Tensor, dict[str, float]]]


@dataclasses.dataclass
class Curve:
    """What training leaves behind: one entry a step, and the dev value after each epoch where there is one."""

    steps: list[dict[str, float]]
    dev: list[float]
    best_epoch: int | None = None

    @property
    def last_loss(self) -> float:
        """Mean loss of the last tenth of the steps."""
        tail = self.steps[-max(1, len(self.steps) // 10) :]
        return sum(entry["loss"] for entry in tail) / len(tail)

    @property
    def first_loss(self) -> float:
        """Mean loss of the first tenth of the steps."""
        head = self.steps[: max(1, len(self.steps) // 10)]
        return sum(entry["loss"] for entry in head) / len(head)

    def share(self, part: str, whole: str) -> float:
        """Sum of one number of the steps over the sum of another."""
        return sum(entry[part] for entry in self.steps) / max(1.0, sum(entry[whole] for entry in self.steps))

    def write(self, path: Path) -> None:
        """Write the steps as `metrics.jsonl`."""
        path.write_text("".join(json.dumps(entry) + "\n" for entry in self.steps), encoding="utf-8")


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Share of the highest learning rate at a step from 0: linear up over `warmup` of the steps, linear down."""
    rising = math.ceil(total * warmup)
    if step < rising:
        return (step + 1) / (rising + 1)
    return (total - step) / max(1, total - rising)


def _parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    # Biases and the gains of normalisation layers are vectors; decay is for matrices.
    named = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in named if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]


class _Checkpoint:
    """Model, optimiser and position on disk, whole or absent; tensors as safetensors, never as pickle."""

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._folder = folder
        self._model = model
        self._optimizer = optimizer

    def _weights(self) -> dict[str, Tensor]:
        return {name: p.detach().contiguous() for name, p in self._model.named_parameters()}

    def save(self, state: dict[str, Any]) -> None:
        """Write everything that the next step depends on."""
        moments = {
            f"{index}.{name}": value
            for index, entry in self._optimizer.state_dict()["state"].items()
            for name, value in entry.items()
            if isinstance(value, Tensor)
        }
        with atomic.atomic_folder(self._folder) as folder:
            save_file(self._weights(), folder / "model.safetensors")
            save_file(moments, folder / "optimizer.safetensors")
            (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def load(self) -> dict[str, Any] | None:
        """Put the stored state back; None where there is none."""
        atomic.sweep(self._folder)
        if not (self._folder / "state.json").is_file():
            return None
        self.load_weights(self._folder / "model.safetensors")
        state = self._optimizer.state_dict()
        entries: dict[int, dict[str, Tensor]] = {}
        with safe_open(self._folder / "optimizer.safetensors", framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                index, _, name = key.partition(".")
                entries.setdefault(int(index), {})[name] = file.get_tensor(key)
        state["state"] = entries
        self._optimizer.load_state_dict(state)
        return json.loads((self._folder / "state.json").read_text("utf-8"))

    def load_weights(self, path: Path) -> None:
        """Put stored weights into the model."""
        stored = load_file(path)
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(stored[name].to(parameter.device))

    def save_best(self) -> None:
        """Keep the weights as the best so far."""
        with atomic.atomic_file(self._folder.parent / "best.safetensors") as path:
            save_file(self._weights(), path)

    def load_best(self) -> None:
        """Put the best weights back."""
        self.load_weights(self._folder.parent / "best.safetensors")


def run(
    model: nn.Module,
    take_step: TakeStep,
    options: LoopOptions,
    *,
    what: str,
    steps_per_epoch: int,
    workspace: Path,
    progress: console.Progress,
    after_epoch: Callable[[], float] | None = None,
) -> Curve:
    """Train `model` in place for `options.epochs` passes of `steps_per_epoch` steps.

    With `after_epoch`, a dev value is taken after each whole epoch and at the end, and the best weights are kept.
    Progress is saved in `workspace` once a minute; a run that finds its own progress there goes on from it, to the
    same bytes on a CPU. Raises EmbedtrainError at the first loss or gradient that is not finite.
    """
    accelerator = Accelerator()
    if accelerator.num_processes > 1:
        raise EmbedtrainError("training runs in one process; start it without a launcher of several processes")
    total = max(1, round(options.epochs * steps_per_epoch))
    optimizer = torch.optim.AdamW(_parameter_groups(model, options.weight_decay), lr=options.learning_rate)
    workspace.mkdir(parents=True, exist_ok=True)
    checkpoint = _Checkpoint(workspace / "checkpoint", model, optimizer)
    curve = Curve([], [])
    state = checkpoint.load()
    if state is not None:
        curve = Curve(state["steps"], state["dev"], state["best_epoch"])
    start = len(curve.steps)
    saved = time.monotonic()
    progress(what, start, total, "")
    for step in range(start, total):
        epoch, within = divmod(step, steps_per_epoch)
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * learning_rate_factor(step, total, options.warmup)
        with torch.random.fork_rng():
            # Dropout of a step depends on (seed, step) alone, so that a resumed run draws the same.
            torch.manual_seed(options.seed * 1_000_003 + step)
            loss, numbers = take_step(epoch, within, accelerator.backward)
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        value, norm_value = float(loss), float(norm)
        if not (math.isfinite(value) and math.isfinite(norm_value)):
            raise EmbedtrainError(
                f"step {step + 1}: the loss is {value} and the gradient norm {norm_value}; lower --learning-rate "
                "or raise --temperature"
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        curve.steps.append(
            {"step": step + 1, "loss": value, "gradient_norm": norm_value, "lr": optimizer.param_groups[0]["lr"]}
            | numbers
        )
        finished, improved = step + 1 == total, False
        if after_epoch is not None and (within + 1 == steps_per_epoch or finished):
            curve.dev.append(after_epoch())
            if curve.best_epoch is None or curve.dev[-1] > curve.dev[curve.best_epoch]:
                curve.best_epoch = len(curve.dev) - 1
                checkpoint.save_best()
                improved = True
        note = f"loss {value:.4f}" + (f" dev {curve.dev[-1]:.4f}" if curve.dev else "")
        progress(what, step + 1, total, note)
        if time.monotonic() - saved > CHECKPOINT_SECONDS or improved or finished:
            checkpoint.save(dataclasses.asdict(curve))
            saved = time.monotonic()
    if curve.best_epoch is not None:
        checkpoint.load_best()
    return curve


def set_dropout(model: nn.Module, rate: float) -> None:
    """Training mode with this dropout; 0 is evaluation mode, which lets PyTorch use its fused attention."""
    if rate == 0:
        model.eval()
        return
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
    model.train()


def graph_tokens(hidden: int, layers: int, device: torch.device) -> int:
    """Padded tokens whose graph may be held at once, in a quarter of the memory of the device's kind.

    About 18 hidden-size float32 values are kept a token and layer (attention in, out and projections, two norms,
    a feed-forward of four times the width before and after its activation).
    """
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory // 2
    else:
        memory = _machine_memory() // 4
    return max(1_024, int(memory // (18 * 4 * hidden * layers)))


def _machine_memory() -> int:
    """Bytes of memory of this machine, or of the container it is where that is less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        total = 8 << 30
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    except (OSError, ValueError):
        return total
