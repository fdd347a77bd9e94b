"""Counts of impressions and clicks -> how much each rank is looked at, and how relevant each pair surely is.

The position-based click model: a result is clicked when it is examined and relevant, with chance theta_k * gamma,
where theta_k depends on its rank k only and gamma on its query and document only (Craswell et al., WSDM 2008, sec.
3.2).

A table of counts has one row per (pair, rank): `pair` numbers the pairs from 0 without gaps and never falls,
`rank` is 1 or more, `shown` and `clicked` are numbers of impressions and clicks. All columns are (n,), of integers
of any kind.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

LEVEL = 0.95  # of the credible intervals
TOLERANCE = 1e-6  # propensities have converged when none moves by this share of itself
_MOST_STEPS = 10_000
_FEWEST_CLICKS = 10  # of pairs seen elsewhere too, for a rank's own propensity; its standard error is a third then
_SOLID = 0.5  # share of the clicks of the best known rank from which another may be the one most looked at
_DRAWN = 10.0
_WIDEST = 600.0  # logits; beyond, exp(-x) has no place in float64
_NEGLIGIBLE = 20.0  # nats under the mode where the tails of a posterior are cut
_NODES = 32  # on each side of the mode
_AT_ONCE = 1 << 14  # rows of the table whose posteriors are integrated together


@dataclass(frozen=True)
class Propensities:
    """How much each rank is looked at: `values[k - 1]` is theta_k, at most 1, and 1 for the rank most looked at.

    `estimated`: which ranks the log itself tells of; the others lie between their neighbours. `pairs` were clicked
    and seen at several of these ranks. `steps` is None where it has not converged.
    """

    values: Floats
    estimated: NDArray[np.bool_]
    pairs: int
    steps: int | None


@dataclass(frozen=True)
class Prior:
    """What is believed of a pair before its clicks are seen: Beta(strength * mean, strength * (1 - mean)).

    `by_rank[k - 1]` is the mean relevance of what is shown at rank k, `mean` that of all pairs, `strength` the
    number of impressions at a rank everybody looks at that would say as much.
    """

    by_rank: Floats
    strength: float
    mean: float

    def means(self, pair: Ints, rank: Ints, theta: Floats, shown: Ints) -> Floats:
        """The mean of every pair, (pairs,): that of its ranks by how often it was seen there."""
        seen = shown * theta
        return np.bincount(pair, seen * self.by_rank[rank - 1]) / np.bincount(pair, seen)


@dataclass(frozen=True)
class Posterior:
    """Relevance of pairs: mean and ends of the central credible interval of `LEVEL`. All (pairs,)."""

    mean: Floats
    low: Floats
    high: Floats


def log_likelihood(theta: Floats, pair: Ints, rank: Ints, shown: Ints, clicked: Ints) -> float:
    """Of the ranks at which clicks fell, given how many a pair has: sum of c_ik * log(n_ik theta_k / S_i)."""
    weight = shown * theta[rank - 1]
    share = weight / np.bincount(pair, weight)[pair]
    there = clicked > 0
    return float(np.sum(clicked[there] * np.log(share[there])))


def improve(theta: Floats, pair: Ints, rank: Ints, shown: Ints, clicked: Ints) -> Floats:
    """One step up `log_likelihood`, which it never lowers: theta_k = C_k / sum of c_i * n_ik / S_i.

    S_i is the sum of n_ik * theta_k over the ranks of pair i, c_i its clicks, C_k the clicks at rank k. It is the
    step that maximises a tangent minorising the likelihood (Hunter, Annals of Statistics 2004, sec. 2 and 3).
    """
    expected = np.bincount(pair, shown * theta[rank - 1])
    ratio = np.bincount(pair, clicked) / expected
    ranks = len(theta)
    under = np.bincount(rank - 1, shown * ratio[pair], ranks)
    clicks = np.bincount(rank - 1, clicked, ranks)
    return np.divide(clicks, under, out=theta.copy(), where=under > 0)


def _comparable(pair: Ints, rank: Ints, clicked: Ints) -> NDArray[np.bool_]:
    """The rows that compare ranks: of clicked pairs at several ranks, among ranks with enough clicks in one net.

    The likelihood has its maximum at finite ratios only where clicks lead from every rank to every other (Hunter
    2004, assumption 1): a net is a strongly connected component of ranks.
    """
    kept = np.ones(len(pair), dtype=bool)
    ranks = int(rank.max(initial=0))
    while True:
        several = np.bincount(pair[kept], minlength=pair[-1] + 1) > 1
        hit = np.bincount(pair[kept], clicked[kept], pair[-1] + 1) > 0
        rows = kept & (several & hit)[pair]
        clicks = np.bincount(rank[rows] - 1, clicked[rows], ranks)
        shape = (pair[-1] + 1, ranks)
        places = (pair[rows], rank[rows] - 1)
        seen = csr_array((np.ones(rows.sum()), places), shape=shape)
        led = csr_array((clicked[rows].astype(float), places), shape=shape)
        led.eliminate_zeros()
        _, net = connected_components(led.T @ seen, directed=True, connection="strong")
        enough = clicks >= _FEWEST_CLICKS
        best = net[np.argmax(np.bincount(net, clicks * enough)[net])] if ranks else 0
        rows &= (enough & (net == best))[rank - 1]
        if np.array_equal(rows, kept):
            return kept
        kept = rows
        if not kept.any():
            return kept


def filled(ranks: Ints, values: Floats, count: int) -> Floats:
    """Propensities of ranks 1 to `count` from those of some: between two, straight on logarithmic axes of both.

    Beyond the first and the last they stay as they are there. theta_k = k ** -eta is such a straight line.
    """
    known = np.log(ranks.astype(np.float64))
    return np.exp(np.interp(np.log(np.arange(1, count + 1)), known, np.log(values)))


def fit_propensities(pair: Ints, rank: Ints, shown: Ints, clicked: Ints) -> Propensities | None:
    """Propensities from clicked pairs that were shown at several ranks; None where these compare no two.

    Given how many clicks a pair got, the ranks they fell at depend on the propensities alone: its relevance, one
    unknown a pair, drops out (Aslanyan and Porwal, SPIRE 2019, who take pairs of one click; any number of them:
    consistent for any distribution of clicks with these means, Wooldridge, Journal of Econometrics 1999). EM over
    propensities and relevance together (Wang et al., WSDM 2018) keeps those unknowns and errs where pairs are
    shown a few times each.
    """
    if not len(pair):
        return None
    rows = _comparable(pair, rank, clicked)
    if not rows.any():
        return None
    _, pairs = np.unique(pair[rows], return_inverse=True)
    table = (pairs.astype(np.int64), rank[rows], shown[rows], clicked[rows])
    count = int(rank.max())
    used = np.unique(rank[rows])
    theta = np.ones(count)
    steps = None
    for step in range(1, _MOST_STEPS + 1):
        better = improve(theta, *table)
        better[used - 1] /= better[used - 1].max()  # the likelihood knows ratios only
        moved = np.abs(np.log(better[used - 1] / theta[used - 1])).max()
        theta = better
        if moved < TOLERANCE:
            steps = step
            break
    clicks = np.bincount(rank[rows], clicked[rows])[used]
    values = theta[used - 1]
    # Most looked at is a rank that is well known: a rare one may be first by chance.
    values = np.minimum(values / values[clicks >= _SOLID * clicks.max()].max(), 1.0)
    estimated = np.zeros(count, dtype=bool)
    estimated[used - 1] = True
    return Propensities(filled(used, values, count), estimated, int(pairs[-1]) + 1, steps)


def fit_prior(pair: Ints, rank: Ints, theta: Floats, shown: Ints, clicked: Ints, *, by_rank: bool) -> Prior:
    """The prior whose first two moments are those of the relevance of all pairs; `theta` is that of each row.

    What a good ranker puts first is more relevant before any click is seen. `by_rank` gives every rank a mean of
    its own, which only makes sense where theta is known: else its clicks would speak twice.

    With e = sum of n theta and s = sum of n theta**2 over the ranks of a pair, its clicks c have E[c] = e m and
    E[c**2 - c] = (e**2 - s) (m**2 + rho m (1 - m)), m its mean and rho = 1 / (strength + 1). Pairs weigh as in
    Kleinman (JASA 1973, sec. 2.1), by 1 / (1 + rho (e - 1)) of their impressions: neither a few popular pairs nor
    very many rare ones decide. A rank's mean is drawn to that of all ranks as by `_DRAWN` more impressions.
    """
    clicks = np.bincount(pair, clicked)
    expected = np.bincount(pair, shown * theta)
    views = expected**2 - np.bincount(pair, shown * theta**2)
    rho = 0.5
    for _ in range(200):
        weight = 1 / (1 + rho * (expected - 1))
        mean = np.sum(weight * clicks) / np.sum(weight * expected)
        means = np.full(int(rank.max()), mean)
        if by_rank:
            got = np.bincount(rank - 1, weight[pair] * clicked)
            seen = np.bincount(rank - 1, weight[pair] * shown * theta)
            means = (got + _DRAWN * mean) / (seen + _DRAWN)
        means = np.clip(means, 1e-6, 1 - 1e-6)
        prior = Prior(means, 1 / rho - 1, 0.0)
        m = prior.means(pair, rank, theta, shown)
        spread = np.sum(weight**2 * views * m * (1 - m))
        more = np.sum(weight**2 * (clicks**2 - clicks - views * m**2))
        # From "all pairs of a rank are equally relevant" to "relevant or not": a strength of 10,000 to 0.01.
        before, rho = rho, float(np.clip(more / spread if spread > 0 else 0.5, 1e-4, 0.99))
        if abs(rho - before) < 1e-9:
            break
    return Prior(means, 1 / rho - 1, float(m.mean()))


class _Densities:
    """The posteriors of some pairs over x = logit of the relevance, up to a factor.

    log p = (a + clicks) log g + b log(1 - g) + sum over ranks of (shown - clicked) log(1 - theta g), with g = 1 /
    (1 + exp(-x)); the powers of g and 1 - g are one up because of dg/dx. It rises up to one mode and falls beyond.
    """

    def __init__(
        self, starts: Ints, theta: Floats, shown: Ints, clicked: Ints, mean: Floats, strength: float
    ) -> None:
        self._starts = starts
        self._pair = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(theta))))
        self._theta = theta[:, None]
        self._missed = (shown - clicked).astype(float)[:, None]
        self._up = (strength * mean + np.add.reduceat(clicked, starts))[:, None]
        self._down = (strength * (1 - mean))[:, None]
        seen = np.add.reduceat(np.where(theta == 1, shown - clicked, 0), starts)
        self.rates = (self._up[:, 0], self._down[:, 0] + seen)

    def log(self, x: Floats) -> Floats:
        """log p at x, (pairs, points)."""
        part = x[self._pair]
        missed = self._missed * np.log(expit(-part) + (1 - self._theta) * expit(part))
        missed = np.add.reduceat(missed, self._starts, axis=0)
        return self._up * log_expit(x) + self._down * log_expit(-x) + missed

    def rises(self, x: Floats) -> NDArray[np.bool_]:
        """Whether p rises at x, (pairs, 1)."""
        part = x[self._pair]
        up, down = expit(part), expit(-part)
        missed = self._missed * self._theta * up * down / (down + (1 - self._theta) * up)
        missed = np.add.reduceat(missed, self._starts, axis=0)
        return self._up * expit(-x) - self._down * expit(x) > missed

    def nodes(self) -> Floats:
        """Points from where p is negligible on the left to where it is on the right, densest at the mode."""
        shape = (len(self._starts), 1)
        low, high = np.full(shape, -_WIDEST), np.full(shape, _WIDEST)
        for _ in range(36):
            middle = (low + high) / 2
            rises = self.rises(middle)
            low, high = np.where(rises, middle, low), np.where(rises, high, middle)
        mode = (low + high) / 2
        floor = self.log(mode) - _NEGLIGIBLE
        ends = []
        for side in (-1.0, 1.0):
            # Distances from the mode, halved on a scale of their logarithms.
            near, far = np.full(shape, 1e-6), side * (side * _WIDEST - mode)
            for _ in range(14):
                middle = np.sqrt(near * far)
                inside = self.log(mode + side * middle) > floor
                near, far = np.where(inside, middle, near), np.where(inside, far, middle)
            ends.append(far)
        spaced = np.linspace(0, 1, _NODES + 1) ** 2
        return np.concatenate([mode - ends[0] * spaced[:0:-1], mode + ends[1] * spaced], axis=1)


def posterior(pair: Ints, theta: Floats, shown: Ints, clicked: Ints, means: Floats, strength: float) -> Posterior:
    """The relevance of every pair given its clicks and `theta` of each row, by integration over 65 points.

    `means` (pairs,) and `strength` are those of the prior, Beta(a, b). Where all theta are 1 the posterior is
    Beta(a + clicks, b + impressions - clicks). The ends are off by under a fiftieth of the
    interval's width.
    """
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    count = len(starts)
    mean, low, high = np.empty(count), np.empty(count), np.empty(count)
    first = 0
    while first < count:
        # At least one pair, and as many as have about so many rows.
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + _AT_ONCE)))
        stop = int(starts[last]) if last < count else len(pair)
        rows = slice(int(starts[first]), stop)
        table = (theta[rows], shown[rows], clicked[rows])
        densities = _Densities(starts[first:last] - starts[first], *table, means[first:last], strength)
        x = densities.nodes()
        weight = densities.log(x)
        weight = np.exp(weight - weight.max(axis=1, keepdims=True))
        g = expit(x)
        width = np.diff(x, axis=1)
        # Beyond the points p falls as exp(-rate * distance): with a prior near 0 or 1 much may lie there.
        before, after = (weight[:, end] / rate for end, rate in zip((0, -1), densities.rates, strict=True))
        steps = (weight[:, 1:] + weight[:, :-1]) / 2 * width
        moments = ((weight * g)[:, 1:] + (weight * g)[:, :-1]) / 2 * width
        whole = before + steps.sum(axis=1) + after
        mean[first:last] = (moments.sum(axis=1) + after) / whole
        mass = np.cumsum(np.column_stack([before, steps]), axis=1) / whole[:, None]
        for ends, share in ((low, (1 - LEVEL) / 2), (high, (1 + LEVEL) / 2)):
            ends[first:last] = expit(_crossing(x, mass, weight, share))
        first = last
    return Posterior(mean, low, high)


def _crossing(x: Floats, mass: Floats, weight: Floats, share: float) -> Floats:
    """Where `mass`, which grows along x, reaches `share`: between two points the density is a straight line."""
    rows = np.arange(len(x))
    right = np.clip((mass < share).sum(axis=1), 1, x.shape[1] - 1)
    left = right - 1
    wanted = (share - mass[rows, left]) / np.maximum(mass[rows, right] - mass[rows, left], 1e-300)
    wanted = np.clip(wanted, 0, 1)  # what is asked for may lie beyond the points
    start, end = weight[rows, left], weight[rows, right]
    # The part t of the step with t * start + t**2 (end - start) / 2 = wanted * (start + end) / 2.
    root = np.sqrt(start**2 + wanted * (end**2 - start**2))
    part = wanted * (start + end) / np.maximum(start + root, 1e-300)
    return x[rows, left] + part * (x[rows, right] - x[rows, left])
