"""Dynamic loss scaling for float16: gradients below 6e-8 would become zero there, so the loss is multiplied first.

The rule is that of `torch.amp.GradScaler` (Micikevicius et al. 2018, section 3.2), with a state that goes into a
checkpoint as two numbers and with an end: a scale below 1 means that no scale helps.
"""

import dataclasses

START = 2.0**16
GROWTH_INTERVAL = 2_000


@dataclasses.dataclass
class LossScale:
    """What the loss is multiplied by, and for how many steps in a row that went well."""

    value: float = START
    good: int = 0

    def update(self, overflowed: bool) -> None:
        """Halve after a step whose gradients overflowed; double after every 2,000 good ones in a row."""
        if overflowed:
            self.value, self.good = self.value / 2, 0
            return
        self.good += 1
        if self.good == GROWTH_INTERVAL:
            self.value, self.good = self.value * 2, 0

    @property
    def exhausted(self) -> bool:
        """Whether even gradients that are not scaled overflow."""
        return self.value < 1.0
