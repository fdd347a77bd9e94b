"""How many steps training has, and the learning rate of each: up in a straight line, down in a straight line."""

import dataclasses
import math

from embedtrain.errors import UsageError


def planned_steps(epochs: float, steps_per_epoch: int) -> int:
    """Steps of `epochs` passes of `steps_per_epoch` steps; UsageError where that is none (P47)."""
    steps = round(epochs * steps_per_epoch)
    if steps < 1:
        raise UsageError(
            f"--epochs {epochs:g} of {steps_per_epoch} steps are no step at all; give more epochs or more rows"
        )
    return steps


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Learning rates of `total` steps, numbered from 0; no step has rate 0, the last one neither (P47).

    `warmup` below 1 is a share of the steps, from 1 on a number of steps.
    """

    rate: float
    total: int
    warmup: float

    @property
    def rising(self) -> int:
        """Steps before the highest rate; more than there are where the warm-up is longer than training."""
        return math.ceil(self.total * self.warmup) if self.warmup < 1 else round(self.warmup)

    def factor(self, step: int) -> float:
        """Share of the highest rate at a step."""
        if step < self.rising:
            return (step + 1) / (self.rising + 1)
        return (self.total - step) / max(1, self.total - self.rising)

    def at(self, step: int) -> float:
        """The learning rate of a step."""
        return self.rate * self.factor(step)

    @property
    def peak(self) -> float:
        """Largest share of the highest rate that any step has."""
        return self.factor(min(self.rising, self.total - 1))

    def doubt(self) -> str | None:
        """What to say of a warm-up that is longer than training."""
        if self.rising < self.total:
            return None
        return (
            f"the warm-up of {self.rising:,} steps is longer than training ({self.total:,} steps): the highest learning "
            f"rate reached is {self.peak:.0%} of {self.rate:g}; train longer"
        )
