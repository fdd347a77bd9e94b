"""How sure one can be of a mean over queries, and of a difference between two systems on the same queries.

All of it starts from per-query values. Degenerate samples have defined answers: a sample whose values are all
equal has an interval of no width, and one query alone has no interval and no test (None).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.optimize import brentq

LEVEL = 0.95
POWER = 0.8
_EXACT = 20  # differences other than 0 up to which all sign flips are tried (2 ** 19 of them)
_CHUNK = 2**21  # random numbers held at a time


@dataclass(frozen=True)
class Interval:
    """The ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One system against another on the same queries: `difference` is first less second."""

    difference: float
    interval: Interval | None
    p_ttest: float | None
    p_randomization: float | None
    detectable: float | None  # smallest true difference that such a test finds in 80 of 100 query sets
    wins: int
    ties: int
    losses: int


def bootstrap_means(values: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of samples drawn with replacement: values (queries, columns) -> (resamples, columns).

    All columns see the same draws of queries, so that the difference of two columns of the result is the bootstrap
    of the paired difference.
    """
    count, columns = values.shape
    random = np.random.default_rng([seed, 1])
    means = np.empty((resamples, columns))
    step = max(1, _CHUNK // count)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        drawn = random.integers(0, count, size=(stop - start, count))
        for column in range(columns):
            means[start:stop, column] = values[drawn, column].mean(axis=1)
    return means


def bca_interval(values: np.ndarray, means: np.ndarray, level: float = LEVEL) -> Interval | None:
    """Bias-corrected and accelerated interval of the mean (Efron 1987, section 6): values (queries,), bootstrap
    means (resamples,).
    """
    count = len(values)
    if count < 2:
        return None
    mean = float(values.mean())
    deviations = values - mean
    squares = float((deviations**2).sum())
    if not _spread(values):
        return Interval(mean, mean)
    below = ((means < mean).mean() + (means <= mean).mean()) / 2
    bias = float(special.ndtri(np.clip(below, 1 / (2 * len(means)), 1 - 1 / (2 * len(means)))))
    # The jackknife of a mean in closed form.
    acceleration = float((deviations**3).sum()) / (6 * squares**1.5)
    tail = (1 - level) / 2
    ends = []
    for quantile in (special.ndtri(tail), special.ndtri(1 - tail)):
        shifted = bias + quantile
        ends.append(float(special.ndtr(bias + shifted / (1 - acceleration * shifted))))
    low, high = np.quantile(means, ends)
    return Interval(float(low), float(high))


def _spread(values: np.ndarray) -> bool:
    """Whether the values differ by more than rounding."""
    return bool(np.ptp(values) > 1e-12 * max(1.0, float(np.abs(values).max())))


def ttest_p(differences: np.ndarray) -> float | None:
    """Two-sided p of Student's paired t-test that the mean of the differences is 0."""
    count = len(differences)
    if count < 2:
        return None
    mean = float(differences.mean())
    if not _spread(differences):
        return 1.0 if abs(mean) < 1e-12 else 0.0
    statistic = mean / (float(differences.std(ddof=1)) / math.sqrt(count))
    return float(2 * special.stdtr(count - 1, -abs(statistic)))


def randomization_p(differences: np.ndarray, resamples: int, seed: int) -> float | None:
    """Two-sided p of the sign-flip test (Fisher 1935): how often random signs move the sum as far from 0.

    Exact up to 20 differences other than 0; above that from `resamples` seeded draws, the observed one counted in
    (Phipson and Smyth 2010), so that it is never 0.
    """
    if len(differences) < 2:
        return None
    moved = differences[differences != 0]
    # Sums that are equal on paper differ by rounding.
    reach = abs(float(moved.sum())) - 1e-12 * float(np.abs(moved).sum())
    if len(moved) == 0:
        return 1.0
    if len(moved) <= _EXACT:
        sums = moved[:1]
        for value in moved[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= reach).mean())
    random = np.random.default_rng([seed, 2])
    further = 0
    step = max(1, _CHUNK // len(moved))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        flips = random.integers(0, 2, size=(rows, len(moved)), dtype=np.int8)
        # Signs +-1 are 1 - 2 * flip; the sum with them is the whole less twice the flipped part.
        sums = moved.sum() - 2 * (flips @ moved)
        further += int((np.abs(sums) >= reach).sum())
    return (further + 1) / (resamples + 1)


def detectable_difference(differences: np.ndarray, level: float = LEVEL, power: float = POWER) -> float | None:
    """The smallest true mean difference that the paired t-test finds with `power`.

    The deviation is the one measured here; the power of the two-sided test comes from the noncentral t
    distribution (Cohen 1988, chapter 2) and is solved for the difference.
    """
    count = len(differences)
    if count < 2 or not _spread(differences):
        return None
    freedom = count - 1
    critical = float(special.stdtrit(freedom, 1 - (1 - level) / 2))

    def lacking(noncentrality: float) -> float:
        return float(special.nctdtr(freedom, noncentrality, critical)) - (1 - power)

    noncentrality = brentq(lacking, 0.0, critical + 10.0)
    return float(noncentrality) * float(differences.std(ddof=1)) / math.sqrt(count)


def compare(
    first: np.ndarray, second: np.ndarray, first_means: np.ndarray, second_means: np.ndarray, seed: int
) -> Comparison:
    """Compare two systems by their per-query values (queries,) and their `bootstrap_means` of the same draws."""
    differences = first - second
    differences[np.abs(differences) < 1e-12] = 0.0
    return Comparison(
        difference=float(differences.mean()),
        interval=bca_interval(differences, first_means - second_means),
        p_ttest=ttest_p(differences),
        p_randomization=randomization_p(differences, len(first_means), seed),
        detectable=detectable_difference(differences),
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )
