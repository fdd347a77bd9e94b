"""The training loop, for bi-encoders and cross-encoders alike: steps in order, checked, kept, measured, ended in time.

It owns no objective: a caller gives the number of steps and a function that leaves one step's gradient. A step depends
on (seed, epoch, step) and the weights alone; so a run that was killed ends as one that was not.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from embedtrain import console, optimizer
from embedtrain.checkpoints import Checkpoints, identity
from embedtrain.curve import Curve, Entry
from embedtrain.deadline import Deadline
from embedtrain.errors import EmbedtrainError
from embedtrain.processes import Processes
from embedtrain.scaling import LossScale
from embedtrain.schedule import Schedule, planned_steps

# Names under which attention layers keep a dropout rate.
_RATES = ("attention_dropout", "dropout_p", "dropout_prob", "dropout")
# Query ids named of a step that went wrong.
_NAMED = 5
# Weight of the past in the tokens a second that are shown.
_SMOOTHING = 0.9


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


class Tracker(Protocol):
    """Where numbers go besides the curve."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Take the numbers of one step, counted from 1."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    """What one step says of itself. Its gradients stand in `.grad`, times the scale, summed over the processes."""

    loss: Tensor  # scalar, not scaled
    numbers: Mapping[str, float]  # for the curve; "tokens" and "accuracy" are shown where they are there
    rows: list[str]  # query ids


# take_step(epoch, step of the epoch, scale): see StepResult.
TakeStep = Callable[[int, int, float], StepResult]


@dataclasses.dataclass(frozen=True)
class Dev:
    """How the model is measured while it trains, and what follows from it: the best weights are kept."""

    evaluate: Callable[[], float]  # called on the main process alone, while the others wait
    every: int = 0  # steps; 0: after each epoch. The last step is always measured
    patience: int = 0  # evaluations in a row without a gain that end training; 0: none do
    lower_is_better: bool = False
    first: bool = False  # also before the first step: training has to beat that to be kept
    after: int = 0  # evaluations the caller makes when the loop is over, for which time must be left


def run(
    model: nn.Module,
    take_step: TakeStep,
    options: LoopOptions,
    *,
    what: str,
    steps_per_epoch: int,
    workspace: Path,
    progress: console.Progress,
    key: str = "",
    processes: Processes | None = None,
    dev: Dev | None = None,
    max_minutes: float | None = None,
    started: float | None = None,
    float16: bool = False,
    tracker: Tracker | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Curve:
    """Train `model` in place for `options.epochs` passes of `steps_per_epoch` steps; with `dev`, to its best weights.

    Progress is saved in `workspace`; a run with the same `key`, options and trained weights that finds its own progress
    there goes on from it, to the same bytes on a CPU. `max_minutes` counts from `started` (a value of `clock`; None:
    now) and over restarts; the learning rates stay those of the whole plan. `float16` scales the loss.

    Raises EmbedtrainError at the first loss that is not finite, and at the first such gradient where no scale can help.
    """
    total = planned_steps(options.epochs, steps_per_epoch)
    if dev is not None and max_minutes is not None:
        # What an evaluation takes is known only after one: a run that must end in time begins with it.
        dev = dataclasses.replace(dev, first=True)
    adamw = optimizer.make(model, options.learning_rate, options.weight_decay)
    trace = optimizer.Trace(model)
    facts = {
        "key": key,
        "steps": [total, steps_per_epoch],
        "rates": [options.learning_rate, options.warmup, options.weight_decay, options.seed],
        "float16": float16,
        "dev": None if dev is None else [dev.every, dev.patience, dev.lower_is_better, dev.first],
    }
    checkpoints = Checkpoints(workspace, model, adamw, identity(model, facts))
    processes = processes or Processes()
    state = _found(checkpoints, processes)
    deadline = Deadline(max_minutes, clock=clock, started=started, spent_before=state["seconds"] if state else 0.0)
    deadline.save = checkpoints.seconds
    deadline.evaluation = state["evaluation"] if state else 0.0
    loop = _Run(
        model=model,
        take_step=take_step,
        seed=options.seed,
        what=what,
        per_epoch=steps_per_epoch,
        progress=progress,
        processes=processes,
        dev=dev,
        tracker=tracker,
        clock=clock,
        schedule=Schedule(options.learning_rate, total, options.warmup),
        scale=LossScale(**(state["scale"] if state else {})) if float16 else None,
        optimizer=adamw,
        checkpoints=checkpoints,
        deadline=deadline,
        curve=Curve.from_state(state["curve"]) if state else Curve(total),
        saved=clock(),
    )
    loop.run()
    curve = loop.curve
    if trace.unchanged() or not curve.total("gradient_norm"):
        why = "the learning rate is too small" if curve.total("gradient_norm") else "no step had a gradient"
        raise EmbedtrainError(f"{len(curve.steps):,} steps left the model as it was: {why}")
    if curve.best is not None:
        processes.wait()  # until the main process has written them
        checkpoints.load_best(curve.dev[curve.best].step)
    return curve


def _found(checkpoints: Checkpoints, processes: Processes) -> dict[str, Any] | None:
    """The state of the checkpoint that every process has put back, or None."""
    if processes.main:
        checkpoints.clean()
    processes.wait()
    state = checkpoints.load()
    step = state["step"] if state else None
    if step != processes.same(step):
        raise EmbedtrainError(
            "the processes of this run do not see the same checkpoint; --out must lie in a folder that all share"
        )
    return state


@dataclasses.dataclass
class _Run:
    """Training between its start and its end, and what changes meanwhile."""

    model: nn.Module
    take_step: TakeStep
    seed: int
    what: str
    per_epoch: int
    progress: console.Progress
    processes: Processes
    dev: Dev | None
    tracker: Tracker | None
    clock: Callable[[], float]
    schedule: Schedule
    scale: LossScale | None
    optimizer: torch.optim.Optimizer
    checkpoints: Checkpoints
    deadline: Deadline
    curve: Curve
    saved: float  # when a checkpoint was last written
    speed: float | None = None  # tokens a second

    def run(self) -> None:
        """Take the steps that are left, until they are done or something ends them."""
        curve, total = self.curve, self.schedule.total
        if self.processes.main:
            self.progress(self.what, len(curve.steps), total, "")
        if self.dev is not None and self.dev.first and not curve.dev:
            self._measure()
        while len(curve.steps) < total and not curve.stopped:
            self._step(len(curve.steps))
            done = len(curve.steps)
            if self.dev is not None and self._is_measured(done):
                self._measure()
                if 0 < self.dev.patience <= curve.since_best and done < total:
                    curve.stopped = (
                        f"stopped early after {done:,} of {total:,} steps: "
                        f"{curve.since_best} evaluations without a gain"
                    )
            if not curve.stopped and done < total and self._is_late():
                curve.stopped = f"stopped after {done:,} of {total:,} steps: the time of --max-minutes was over"
            over = done == total or bool(curve.stopped)
            if over and self.dev is not None and curve.dev[-1].step < done:
                self._measure()
            self._show()
            if self.processes.main and self.checkpoints.due(self.clock() - self.saved, last=over):
                self._save()

    def _step(self, step: int) -> None:
        begun = self.clock()
        epoch, within = divmod(step, self.per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.at(step)
        scale = self.scale.value if self.scale else 1.0
        device = next(self.model.parameters()).device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            # What is random in a step depends on (seed, step) alone, so that a resumed run draws the same.
            torch.manual_seed(self.seed * 1_000_003 + step)
            result = self.take_step(epoch, within, scale)
        loss, norm = float(result.loss), optimizer.gradient_norm(self.optimizer)
        overflowed = not math.isfinite(norm)
        # A scale changes gradients alone: a loss that is not finite, it cannot mend.
        if not math.isfinite(loss) or (overflowed and self.scale is None):
            raise EmbedtrainError(_not_finite(step, loss, norm / scale, result.rows))
        norm = optimizer.unscale_and_clip(self.optimizer, scale, norm)
        if not overflowed:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        entry: Entry = {
            "step": step + 1,
            "loss": loss,
            "gradient_norm": None if overflowed else norm,
            "lr": self.schedule.at(step),
            "rows": len(result.rows),
        }
        if self.scale is not None:
            entry |= {"scale": scale, "skipped": int(overflowed)}
            self.scale.update(overflowed)
            if self.scale.exhausted:
                raise EmbedtrainError(_not_finite(step, loss, norm, result.rows))
        entry |= {name: value if math.isfinite(value) else None for name, value in result.numbers.items()}
        self.curve.steps.append(entry)
        seconds = self.clock() - begun
        self.deadline.took(seconds)
        self._track(entry, seconds)

    def _track(self, entry: Entry, seconds: float) -> None:
        tokens = entry.get("tokens")
        if tokens and seconds > 0:
            speed = tokens / seconds
            self.speed = speed if self.speed is None else _SMOOTHING * self.speed + (1 - _SMOOTHING) * speed
        if self.tracker is not None and self.processes.main:
            known = {name: value for name, value in entry.items() if value is not None and name != "step"}
            if tokens and seconds > 0:
                known["tokens_per_second"] = tokens / seconds
            self.tracker.log(known, len(self.curve.steps))

    def _is_measured(self, done: int) -> bool:
        assert self.dev is not None
        return done == self.schedule.total or done % (self.dev.every or self.per_epoch) == 0

    def _measure(self) -> None:
        """One value on the dev split, and the weights kept where it is the best so far."""
        assert self.dev is not None
        begun, step = self.clock(), len(self.curve.steps)
        value = self.dev.evaluate() if self.processes.main else math.nan
        self.processes.wait()
        value = self.processes.same(value)
        self.deadline.evaluation = self.clock() - begun
        if math.isnan(value):
            raise EmbedtrainError(f"the dev value after step {step} is not a number; check the dev split")
        best = self.curve.add_dev(step, value, lower_is_better=self.dev.lower_is_better)
        if step:
            self.curve.steps[-1]["dev"] = value
        if not self.processes.main:
            return
        if best:
            self.checkpoints.save_best(step)
        if self.tracker is not None:
            self.tracker.log({"dev": value}, step)

    def _is_late(self) -> bool:
        if not self.deadline.set:
            return False
        evaluations = 0 if self.dev is None else 1 + self.dev.after
        # The last checkpoint and the model itself are still to be written.
        return self.processes.same(self.deadline.is_near(evaluations=evaluations, saves=2))

    def _save(self) -> None:
        begun, curve = self.clock(), self.curve
        state = {
            "curve": curve.state(),
            "best_step": None if curve.best is None else curve.dev[curve.best].step,
            "seconds": self.deadline.spent,
            "evaluation": self.deadline.evaluation,
            "scale": None if self.scale is None else dataclasses.asdict(self.scale),
        }
        self.checkpoints.save(len(curve.steps), state)
        self.saved = self.clock()
        self.checkpoints.seconds = self.deadline.save = self.saved - begun

    def _show(self) -> None:
        """The essentials on the terminal."""
        if not self.processes.main:
            return
        entry = self.curve.steps[-1]
        parts = [f"loss {entry['loss']:.4f}"]
        if (accuracy := entry.get("accuracy")) is not None:
            parts.append(f"accuracy {accuracy:.1%}")
        if self.speed is not None:
            parts.append(f"{self.speed:,.0f} tokens/s")
        if self.curve.skipped:
            parts.append(f"{self.curve.skipped} skipped")
        if self.curve.dev:
            parts.append(f"dev {self.curve.dev[-1].value:.4f}")
        self.progress(self.what, len(self.curve.steps), self.schedule.total, ", ".join(parts))


def _not_finite(step: int, loss: float, norm: float, rows: list[str]) -> str:
    named = ", ".join(rows[:_NAMED]) + (f" and {len(rows) - _NAMED:,} more" if len(rows) > _NAMED else "")
    return (
        f"step {step + 1}: the loss is {loss:g} and the gradient norm {norm:g} (queries {named}); lower "
        "--learning-rate, raise --temperature, or compute with --precision float32; the last checkpoint is kept"
    )


def set_dropout(model: nn.Module, rate: float) -> None:
    """Training mode with this dropout; 0 is evaluation mode, which lets PyTorch use its fused attention."""
    if rate == 0:
        model.eval()
        return
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
        for name in _RATES:  # attention of newer architectures keeps its rate as a number
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, rate)
    model.train()
