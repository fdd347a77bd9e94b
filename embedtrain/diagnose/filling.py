"""How a space is filled, beyond `geometry`: its concentration, its spectrum in single numbers, its true dimension.

Everything is of directions (rows brought to length 1), but for `two_nn`, which takes points as they are.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from embedtrain.diagnose.geometry import QUANTILES, Floats, Spectrum, Vectors, unit

ALPHA_RANKS = (4, 100)  # of the components the exponent is fitted to
_FEWEST_RANKS = 8
_FEWEST_POINTS = 20
_TIGHTEST = 1e-9  # 1 - R of rows that are one: what float32 vectors can tell, and a finite kappa
_SAME = 1e-4  # of the typical distance: closer points are one text, encoded twice
_POINT = 1e-24  # the variance that rounding leaves where all rows are one
_GROUPS = 10


def resultant(vectors: Vectors) -> float:
    """Mean resultant length R: the length of the mean direction. 0 even, about 1 / sqrt(n) by chance; 1 one point.

    Mardia and Jupp 2000, Directional Statistics, section 9.2. R² is about the mean cosine of random pairs.
    """
    return min(float(np.linalg.norm(unit(vectors).mean(axis=0))), 1.0)


def kappa(length: float, dimension: int) -> float:
    """Concentration of the von Mises-Fisher distribution with this mean resultant length: R (d - R²) / (1 - R²).

    Banerjee et al. 2005 (JMLR 6), eq. 4.4. 0 even, higher is tighter; finite for R = 1, too, where it is about
    5e8 (d - 1).
    """
    length = min(length, 1.0 - _TIGHTEST)
    return length * (dimension - length**2) / (1.0 - length**2)


def centred(vectors: Vectors) -> Floats:
    """Directions (n, d) as they are seen from their mean: centred, and of length 1 again.

    Rows that are the mean itself have no direction and are left out, so that none come out of one point.
    """
    rows = unit(vectors)
    rows = rows - rows.mean(axis=0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    seen = length[:, 0] > 1e-7
    return rows[seen] / length[seen]


def even_quantiles(dimension: int) -> dict[float, float]:
    """Quantiles {share: value} of the cosine of two random points of the sphere: 2 Beta((d - 1)/2, (d - 1)/2) - 1."""
    half = (dimension - 1) / 2.0
    return {share: float(2.0 * betaincinv(half, half, share) - 1.0) for share in QUANTILES}


def effective_rank(spectrum: Spectrum) -> float:
    """exp of the entropy of the shares of the variance: how many equally strong components would be as diverse.

    Roy and Vetterli 2007 (EUSIPCO), definition 1, of the covariance matrix. `geometry.rank_me` takes the same of the
    vectors themselves: of square roots of these, and not centred.
    """
    shares = spectrum.shares[spectrum.shares > 0]
    return float(np.exp(-np.sum(shares * np.log(shares))))


def ne_sum(spectrum: Spectrum) -> float:
    """Sum of the variances over the largest one: 1 one direction, d even.

    He and Ozay 2022 (ICML, "Exploring the gap between collapsed and whitened features"), the sum of normalised
    eigenvalues. It is 1 / `Spectrum.first`.
    """
    return 1.0 / spectrum.first


def alpha(spectrum: Spectrum) -> tuple[float, float] | None:
    """Exponent a and factor c of the power law c rank^-a that the variances follow; None where too few are left.

    Agrawal et al. 2022 (alpha-ReQ, arXiv:2202.05808), as their code fits it: least squares on logarithms, weighted
    by 1 / rank (Stringer et al. 2019), from the 4th to the 100th component. The few per thousand of the variance in
    the last components are left out: they may be rounding.
    """
    last = min(ALPHA_RANKS[1], spectrum.components(0.995))
    ranks = np.arange(ALPHA_RANKS[0], last + 1)
    if len(ranks) < _FEWEST_RANKS or spectrum.variances.sum() <= _POINT:
        return None
    # numpy.polyfit squares its weights.
    fit = np.polyfit(np.log(ranks), np.log(spectrum.variances[ranks - 1]), 1, w=1.0 / np.sqrt(ranks))
    return float(-fit[0]), float(np.exp(fit[1]))


def iso_score(spectrum: Spectrum, dimension: int) -> float:
    """IsoScore: 0 all variance in one direction, (k - 1) / (d - 1) for k equal ones of d, 1 even.

    Rudman et al. 2022 (Findings of ACL, arXiv:2108.07344), algorithm 1. Its steps come down to the participation
    ratio P: (P - 1) / (d - 1).
    """
    return (spectrum.participation_ratio - 1.0) / max(dimension - 1, 1)


@dataclasses.dataclass(frozen=True)
class Intrinsic:
    """The dimension of the surface that points lie on, of so many points; `duplicates` were left out before."""

    dimension: float
    points: int
    duplicates: int

    @property
    def error(self) -> float:
        """Standard error of the dimension: that of the exponent of a Pareto distribution, d / sqrt(n)."""
        return self.dimension / self.points**0.5


def two_nn(points: Vectors, discarded: float = 0.1) -> Intrinsic | None:
    """Intrinsic dimension (TwoNN) of points (n, d) by Euclidean distance; None where under 20 different ones are.

    Facco et al. 2017 (arXiv:1803.06992): the ratio mu of the distances to the second and the first neighbour has
    -log(1 - F(mu)) = dimension log(mu). The line through 0 is fitted without the `discarded` share of largest ratios.
    Of points that are the same but for rounding the first stays: their ratios would be noise. Many neighbours beyond
    the edge are missing in high dimensions, so values above about 20 are too low.
    """
    from sklearn.neighbors import NearestNeighbors

    rows = np.asarray(points, dtype=np.float64)
    typical = float(np.sqrt(2.0 * rows.var(axis=0).sum()))
    if typical**2 <= _POINT or len(rows) < _FEWEST_POINTS:
        return None
    close = NearestNeighbors().fit(rows).radius_neighbors(rows, _SAME * typical, return_distance=False)
    gone = np.zeros(len(rows), bool)
    for row, near in enumerate(close):
        if not gone[row]:
            gone[near[near > row]] = True
    kept = rows[~gone]
    if len(kept) < _FEWEST_POINTS:
        return None
    distances, _ = NearestNeighbors(n_neighbors=2).fit(kept).kneighbors()
    ratio = np.sort(np.log(distances[:, 1] / distances[:, 0]))
    below = np.arange(1, len(kept) + 1) / len(kept)
    used = slice(0, int(len(kept) * (1.0 - discarded)))
    x, y = ratio[used], -np.log1p(-below[used])
    if not x.any():  # a lattice: all neighbours are equally far
        return None
    return Intrinsic(float(x @ y / (x @ x)), len(kept), int(gone.sum()))


def dead_dimensions(vectors: Vectors) -> float:
    """Share of the dimensions (columns) that hardly vary: a deviation under 1 % of the typical one. 0 none, 1 all.

    It hangs on the axes: a flat space that is turned has none, see `effective_rank`.
    """
    variances = unit(vectors).var(axis=0)
    typical = variances.mean()
    return float(np.mean(variances <= 1e-4 * typical)) if typical > _POINT else 1.0


def jackknife(
    rows: NDArray[Any], statistic: Callable[[NDArray[Any]], Floats], seed: Sequence[int], groups: int = _GROUPS
) -> Floats:
    """Standard errors of statistics (k,) of rows (n, ...): the delete-a-group jackknife, groups drawn at random.

    Efron and Stein 1981; Kott 2001 for groups. A bootstrap will not do: rows drawn twice flatten the space.
    """
    shuffled = np.random.default_rng(list(seed)).permutation(len(rows))
    found = []
    for part in np.array_split(shuffled, min(groups, len(rows))):
        left = np.ones(len(rows), bool)
        left[part] = False
        found.append(statistic(rows[left]))
    values = np.array(found)
    count = len(values)
    return np.sqrt((count - 1) / count * np.sum((values - values.mean(axis=0)) ** 2, axis=0))
