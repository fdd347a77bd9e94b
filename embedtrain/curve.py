"""What training leaves behind: a line a step, the dev values and the best of them, and why it ended."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

Entry = dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class DevValue:
    """A value on the dev split after `step` steps; step 0 is the model before training."""

    step: int
    value: float


@dataclasses.dataclass
class Curve:
    """One entry a step, with the same keys in the same order however often the run was interrupted."""

    planned: int  # steps
    steps: list[Entry] = dataclasses.field(default_factory=list)
    dev: list[DevValue] = dataclasses.field(default_factory=list)
    best: int | None = None  # position in `dev`
    stopped: str = ""  # why training ended before its last planned step

    def _mean(self, entries: list[Entry]) -> float:
        # By rows: a small last batch has an easier task and must not count as much as a full one (P42).
        counted = [(entry["loss"], entry.get("rows") or 1.0) for entry in entries]
        known = [(loss, rows) for loss, rows in counted if loss is not None]
        rows = sum(rows for _, rows in known)
        return sum(loss * rows for loss, rows in known) / rows if known else math.nan

    @property
    def last_loss(self) -> float:
        """Mean loss a row of the last tenth of the steps."""
        return self._mean(self.steps[-max(1, len(self.steps) // 10) :])

    @property
    def first_loss(self) -> float:
        """Mean loss a row of the first tenth of the steps."""
        return self._mean(self.steps[: max(1, len(self.steps) // 10)])

    @property
    def skipped(self) -> int:
        """Steps that changed nothing because their float16 gradients overflowed."""
        return sum(entry.get("skipped") == 1 for entry in self.steps)

    def total(self, part: str) -> float:
        """Sum of one number of the steps; steps without it count as 0."""
        return sum(entry.get(part) or 0.0 for entry in self.steps)

    def share(self, part: str, whole: str) -> float:
        """Sum of one number of the steps over the sum of another."""
        return self.total(part) / max(1.0, self.total(whole))

    def add_dev(self, step: int, value: float, *, lower_is_better: bool) -> bool:
        """Add a dev value; whether it is the best so far. Of equal ones the first stays the best."""
        self.dev.append(DevValue(step, value))
        if self.best is not None:
            best = self.dev[self.best].value
            if value >= best if lower_is_better else value <= best:
                return False
        self.best = len(self.dev) - 1
        return True

    @property
    def since_best(self) -> int:
        """Evaluations after the best one."""
        return 0 if self.best is None else len(self.dev) - 1 - self.best

    def notes(self) -> list[str]:
        """What a reader of the result must know, a sentence each; nothing here depends on interruptions."""
        found = [self.stopped] if self.stopped else []
        if self.skipped:
            found.append(
                f"{self.skipped:,} of {len(self.steps):,} steps were skipped: their float16 gradients overflowed"
            )
        if self.best is not None and self.dev[self.best].step == 0:
            found.append("no dev value was better than the one before training: the model is as it was")
        return found

    def write(self, path: Path) -> None:
        """Write the steps as `metrics.jsonl`: a JSON object a line, null where a number was not finite."""
        path.write_text("".join(json.dumps(entry) + "\n" for entry in self.steps), encoding="utf-8")

    def state(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Curve":
        """The curve of a checkpoint."""
        return cls(**{**state, "dev": [DevValue(**value) for value in state["dev"]]})
