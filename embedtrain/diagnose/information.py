"""What a loss certifies: log(candidates) - loss is a lower bound on the mutual information of query and document.

van den Oord et al. 2018 (arXiv:1807.03748), section 2.3. It can never be more than log(candidates), however good the
model (Poole et al. 2019, arXiv:1905.06922, section 2.3): at that ceiling more epochs certify nothing, more negatives do.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from embedtrain.curve import Entry
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH, Measure, Section
from embedtrain.diagnose.training_curves import mean, read

# Rules of thumb, as those of the spaces are.
SATURATED = 0.95  # share of the ceiling from which it is the ceiling that is measured
BLIND = 0.05  # share of the ceiling, up or down, within which the loss is that of a guess
FEW = math.log(8)  # a ceiling below which only coarse differences are learned


@dataclasses.dataclass(frozen=True)
class Bound:
    """What some steps certify, in nats, means over their rows."""

    information: float  # log(candidates) - loss
    ceiling: float  # log(candidates)
    candidates: float

    @classmethod
    def of(cls, steps: Sequence[Entry]) -> "Bound | None":
        """The bound of steps as `losses.curve` describes them, of a fresh batch too; None where they have none."""
        information, ceiling, candidates = (
            mean(steps, name) for name in ("information", "information_ceiling", "candidates")
        )
        if information is None or ceiling is None or candidates is None:
            return None
        return cls(information, ceiling, candidates)

    @property
    def share(self) -> float:
        """Information over its ceiling; 0 where nothing can be certified."""
        return self.information / self.ceiling if self.ceiling > 1e-9 else 0.0


def judge(bound: Bound) -> Measure:
    """The bound with its verdict, and what would raise it."""
    most = f"{bound.candidates:,.0f} candidates certify at most {bound.ceiling:.2f} nats"
    here = f"{most}, and training is at {bound.information:.2f}"
    verdict = WATCH
    if bound.ceiling <= 1e-9:
        verdict = COLLAPSED
        sentence = (
            "No query was compared with anything: the loss is 0 and nothing is learned. Raise the batch size."
        )
    elif abs(bound.share) <= BLIND:
        verdict = COLLAPSED
        sentence = (
            f"{here}: a blind guess. Either all texts look alike to the model, or the positives are no answers."
        )
    elif bound.information < 0:
        sentence = (
            f"{here}: worse than a blind guess. Look for false negatives, or raise the temperature, which makes the "
            "model too sure of itself."
        )
    elif bound.share >= SATURATED:
        sentence = f"{here}: more negatives, not more epochs. Raise the batch size, or mine harder negatives."
    elif bound.ceiling < FEW:
        sentence = (
            f"{here}. So few candidates teach only coarse differences: raise the batch size, or add negatives."
        )
    else:
        verdict = HEALTHY
        sentence = f"{here}: these batches still have something to teach."
    return Measure(
        "information",
        "information certified",
        bound.information,
        None,
        f"at most {bound.ceiling:.3f} nats, log(candidates)",
        verdict,
        sentence,
        0,
        max(bound.ceiling, 1e-6),
        bound.ceiling,
    )


def section(metrics_path: Path) -> Section | None:
    """The bound in the last tenth of a run's steps; None where its metrics.jsonl has none (a cross-encoder's).

    Raises EmbedtrainError with the file and line for a line that is no step.
    """
    curve = read(metrics_path)
    if curve is None:
        return None
    tenth = max(1, len(curve.steps) // 10)
    first, last = Bound.of(curve.steps[:tenth]), Bound.of(curve.steps[-tenth:])
    if first is None or last is None:
        return None
    return Section(
        "information",
        "What the loss certifies",
        "How much a document tells of its query, as far as batches of this size can show it.",
        measures=[judge(last)],
        notes=[
            "Mined negatives are harder than random ones, so that random ones of the same number would certify more; "
            "pairs seen in an earlier epoch certify what was learned by heart too."
        ],
        numbers={
            "information": rounded(last.information),
            "information_ceiling": rounded(last.ceiling),
            "share_of_ceiling": rounded(last.share),
            "candidates": rounded(last.candidates),
            "information_at_start": rounded(first.information),
        },
    )
