"""From a teacher's raw scores to probabilities that mean what they say, by labels; the scores stay beside them."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from embedtrain.errors import UsageError

WAYS = ("temperature", "platt")
BINS = 10


@dataclasses.dataclass(frozen=True)
class Calibration:
    """probability = sigmoid(slope * score + intercept). As it stands: a cross-encoder's logit by its own sigmoid."""

    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities of scores of any shape; NaN stays."""
        return np.asarray(expit(self.slope * np.asarray(scores, dtype=np.float64) + self.intercept))


def fit(scores: NDArray[Any], right: NDArray[np.bool_], way: str) -> Calibration:
    """The calibration of least log loss for scores (n,) of pairs that are right or not.

    temperature: the slope alone (Guo et al. 2017, section 4.2, two classes). platt: slope and intercept, against targets
    a little inside 0 and 1 (Platt 1999, section 2.2). Raises UsageError for another way, ValueError without both kinds.
    """
    if way not in WAYS:
        raise UsageError(f"--calibrate {way}: {' and '.join(WAYS)} are the ways")
    positives, negatives = int(right.sum()), int((~right).sum())
    if not positives or not negatives:
        raise ValueError("a calibration needs pairs that are right and pairs that are not")
    values = np.asarray(scores, dtype=np.float64)
    targets = right.astype(np.float64)
    if way == "platt":
        targets = np.where(right, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    scale = float(values.std()) or 1.0  # so that the search starts at a slope of about one

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope, intercept = parameters[0], parameters[1] if way == "platt" else 0.0
        logits = slope * values / scale + intercept
        # log(1 + exp(z)) - t z: the log loss of a logit z, without overflow.
        errors = expit(logits) - targets
        gradient = np.array([(errors * values / scale).mean(), errors.mean()])[: len(parameters)]
        return float((np.logaddexp(0, logits) - targets * logits).mean()), gradient

    from scipy.optimize import minimize  # slow to import, and only a fit needs it

    found = minimize(loss, np.zeros(2 if way == "platt" else 1), jac=True, method="BFGS").x
    return Calibration(float(found[0]) / scale, float(found[1]) if way == "platt" else 0.0)


def curve(chances: NDArray[Any], right: NDArray[np.bool_]) -> list[dict[str, float]]:
    """For each tenth of the probabilities that has pairs: how many, their mean probability, the share that is right."""
    place = np.minimum((np.asarray(chances) * BINS).astype(int), BINS - 1)
    return [
        {
            "from": number / BINS,
            "pairs": int((place == number).sum()),
            "said": float(np.mean(chances[place == number])),
            "right": float(np.mean(right[place == number])),
        }
        for number in range(BINS)
        if (place == number).any()
    ]


def error(chances: NDArray[Any], right: NDArray[np.bool_]) -> float:
    """Expected calibration error: |said - right| of the curve, weighted by pairs (Guo et al. 2017, equation 3)."""
    found = curve(chances, right)
    return sum(part["pairs"] * abs(part["said"] - part["right"]) for part in found) / len(right)
