"""How sure one can be of a mean over queries, and of a difference between two systems on the same queries.

All of it starts from per-query values. Degenerate samples have defined answers: a sample whose values are all
equal has an interval of no width, and one query alone has no interval and no test (None).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

LEVEL = 0.95
POWER = 0.8
_EXACT = 20  # differences other than 0 up to which all sign flips are tried (2 ** 19 of them)
_MOST_QUERIES = 2**20  # beyond which nobody judges more
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
    effect: float | None  # the difference over the deviation of the differences (Cohen's d for pairs)
    detectable: float | None  # smallest true difference that such a test finds in 80 of 100 query sets
    queries_needed: int | None  # of which 80 of 100 sets would show the difference measured here
    wins: int
    ties: int
    losses: int
    p_holm: float | None = None  # p_randomization, adjusted for the other comparisons of its family


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


def _lacking(noncentrality: float, freedom: int, level: float, power: float) -> float:
    """How much power a two-sided t-test lacks (Cohen 1988, chapter 2: the noncentral t distribution)."""
    critical = float(special.stdtrit(freedom, 1 - (1 - level) / 2))
    return float(special.nctdtr(freedom, noncentrality, critical)) - (1 - power)


def detectable_difference(differences: np.ndarray, level: float = LEVEL, power: float = POWER) -> float | None:
    """The smallest true mean difference that the paired t-test finds with `power`, by the deviation measured here."""
    count = len(differences)
    if count < 2 or not _spread(differences):
        return None
    highest = float(special.stdtrit(count - 1, 1 - (1 - level) / 2)) + 10.0  # far above it the distribution is NaN
    from scipy.optimize import brentq  # half of what this module took to import

    noncentrality = brentq(_lacking, 0.0, highest, args=(count - 1, level, power))
    return float(noncentrality) * float(differences.std(ddof=1)) / math.sqrt(count)


def queries_needed(differences: np.ndarray, level: float = LEVEL, power: float = POWER) -> int | None:
    """How many queries like these the paired t-test needs to find the mean difference measured here with `power`.

    None where it is 0, or so small that more than half a million would be needed.
    """
    count = len(differences)
    if count < 2 or not _spread(differences):
        return None
    effect = abs(float(differences.mean())) / float(differences.std(ddof=1))

    def enough(queries: int) -> bool:
        return _lacking(effect * math.sqrt(queries), queries - 1, level, power) <= 0

    low, high = 2, 2
    while not enough(high):  # from below: the distribution is known badly far from where the answer lies
        low, high = high + 1, 2 * high
        if high > _MOST_QUERIES:
            return None
    while low < high:  # power grows with the number of queries
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p values adjusted for being a family (Holm 1979): none of it below its own, None stays and does not count."""
    order = sorted((p, place) for place, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for smaller, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - smaller)))
        adjusted[place] = highest
    return adjusted


def effect_size(differences: np.ndarray) -> float | None:
    """Cohen's d of paired differences: their mean over their standard deviation (Cohen 1988, section 2.3.5)."""
    if len(differences) < 2 or not _spread(differences):
        return None
    return float(differences.mean()) / float(differences.std(ddof=1))


def compare(
    first: np.ndarray,
    second: np.ndarray,
    first_means: np.ndarray,
    second_means: np.ndarray,
    seed: int,
    *,
    family: int = 1,
) -> Comparison:
    """Compare two systems by their per-query values (queries,) and their `bootstrap_means` of the same draws.

    What can be detected, and how many queries that takes, is for one of `family` comparisons: at 5 % over their number,
    the first step of Holm's procedure, so that a verdict of the family never says less than is promised here.
    """
    level = 1 - (1 - LEVEL) / family
    differences = first - second
    differences[np.abs(differences) < 1e-12] = 0.0
    return Comparison(
        difference=float(differences.mean()),
        interval=bca_interval(differences, first_means - second_means),
        p_ttest=ttest_p(differences),
        p_randomization=randomization_p(differences, len(first_means), seed),
        effect=effect_size(differences),
        detectable=detectable_difference(differences, level),
        queries_needed=queries_needed(differences, level),
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
    )
