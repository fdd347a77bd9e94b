"""The shape of a space of embeddings: pure functions of vectors.

Every function works on directions: vectors are brought to length 1 first, because alignment and uniformity of
raw vectors are off by orders of magnitude. All arithmetic is in float64.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import hyp0f1

from embedtrain.errors import EmbedtrainError

Vectors = npt.ArrayLike
Floats = npt.NDArray[np.float64]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_BLOCK = 1024  # rows of a similarity matrix that are in memory at once
_QUERIES = 256


def unit(vectors: Vectors) -> Floats:
    """Directions: rows (n, d) of length 1 in float64. Raises EmbedtrainError for rows without a direction."""
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise EmbedtrainError(f"vectors have the shape {rows.shape}; rows of one dimension each are needed")
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    bad = int(np.count_nonzero(~np.isfinite(length) | (length == 0)))
    if bad:
        raise EmbedtrainError(
            f"{bad} of {len(rows)} vectors are zero or not finite; the model gives no usable embedding for them"
        )
    return rows / length


def alignment(queries: Vectors, documents: Vectors) -> float:
    """Mean squared distance of positive pairs, row by row: 0 perfect, 2 unrelated, 4 opposite.

    Wang and Isola 2020 (arXiv:2005.10242), eq. 1 with alpha = 2.
    """
    return float(np.mean(np.sum((unit(queries) - unit(documents)) ** 2, axis=1)))


def uniformity(vectors: Vectors) -> float:
    """log mean exp(-2 d^2) over all distinct pairs of rows: 0 all equal, lower is more even.

    Wang and Isola 2020, eq. 2 with t = 2; see `uniformity_of_sphere` for the value to compare with.
    """
    rows = _at_least_two(vectors)
    total = 0.0
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        squared = np.maximum(2.0 - 2.0 * (block @ rows[start:].T), 0.0)
        # Only pairs above the diagonal: every distinct pair once, no row with itself.
        total += float(np.sum(np.exp(-2.0 * squared)[np.triu(np.ones(squared.shape, bool), 1)]))
    return float(np.log(total / (len(rows) * (len(rows) - 1) / 2)))


def uniformity_of_sphere(dimension: int) -> float:
    """Uniformity of infinitely many points spread evenly on the unit sphere: -4 + log 0F1(; d/2; 4).

    The cosine t of two such points has E[exp(4 t)] = 0F1(; d/2; 4), the von Mises-Fisher normaliser at kappa 4.
    """
    return float(np.log(hyp0f1(dimension / 2.0, 4.0)) - 4.0)


def pair_cosines(vectors: Vectors, most: int = 2_000_000, seed: Sequence[int] = (0,)) -> Floats:
    """Cosines of distinct pairs of rows: all of them, or `most` drawn at random where there are more."""
    rows = _at_least_two(vectors)
    count = len(rows)
    if count * (count - 1) // 2 <= most:
        return (rows @ rows.T)[np.triu_indices(count, 1)]
    generator = np.random.default_rng(list(seed))
    first = generator.integers(0, count, most)
    second = (first + generator.integers(1, count, most)) % count
    found = np.empty(most)
    for start in range(0, most, 8192):
        part = slice(start, start + 8192)
        found[part] = np.einsum("ij,ij->i", rows[first[part]], rows[second[part]])
    return found


@dataclasses.dataclass(frozen=True)
class Spread:
    """How values lie: their number, mean, standard deviation and quantiles {share: value}."""

    count: int
    mean: float
    deviation: float
    quantiles: dict[float, float]

    @classmethod
    def of(cls, values: npt.ArrayLike) -> "Spread":
        """The spread of values (n,)."""
        array = np.asarray(values, dtype=np.float64)
        found = np.quantile(array, QUANTILES)
        quantiles = {share: float(value) for share, value in zip(QUANTILES, found, strict=True)}
        return cls(len(array), float(array.mean()), float(array.std()), quantiles)


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Variances along the principal components, largest first, and what they say."""

    variances: Floats

    @classmethod
    def of(cls, vectors: Vectors) -> "Spectrum":
        """PCA of directions (n, d): min(n - 1, d) variances of the centred rows; all 0 when they are all equal."""
        rows = _at_least_two(vectors)
        values = _squared_singular(rows - rows.mean(axis=0)) / (len(rows) - 1)
        return cls(values[: min(len(rows) - 1, rows.shape[1])])

    @functools.cached_property
    def shares(self) -> Floats:
        """Share of the variance in each component; of a point (no variance) all of it in the first."""
        total = self.variances.sum()
        # Rounding leaves about 1e-31 of variance where all rows are one.
        if total <= 1e-24:
            return np.eye(1, len(self.variances))[0]
        return self.variances / total

    def components(self, share: float) -> int:
        """The least number of components that hold `share` of the variance."""
        return min(int(np.searchsorted(np.cumsum(self.shares), share - 1e-12)) + 1, len(self.variances))

    @property
    def first(self) -> float:
        """Share of the variance in the first component."""
        return float(self.shares[0])

    @property
    def participation_ratio(self) -> float:
        """(sum of variances)^2 / sum of their squares: how many directions take part."""
        return float(1.0 / np.sum(self.shares**2))


def rank_me(vectors: Vectors) -> float:
    """Effective rank: exp of the entropy of the singular values' shares, not centred.

    Garrido et al. 2023 (arXiv:2210.02885), eq. 1; 1 when all rows are one direction, at most min(n, d).
    """
    values = np.sqrt(_squared_singular(unit(vectors)))
    shares = values / values.sum()
    shares = shares[shares > 0]
    return float(np.exp(-np.sum(shares * np.log(shares))))


@dataclasses.dataclass(frozen=True)
class Contrast:
    """How positives stand out: cosines of positive pairs, of queries with random documents, and how often one
    beats the other for the same query: 0.5 chance, 1 always."""

    positive: Floats
    random: Floats
    separation: float

    @classmethod
    def of(
        cls, queries: Vectors, documents: Vectors, positives: Sequence[Sequence[int]], sample: Sequence[int]
    ) -> "Contrast":
        """Set the positives of each query (rows of `documents`) against the rows `sample`, less its positives.

        The separation is the area under the ROC curve of each query, a tie counting half, and their mean.
        """
        asked, pool = unit(queries), unit(documents)
        drawn = np.zeros(len(pool), bool)
        drawn[list(sample)] = True
        reached, beaten, areas = [], [], []
        for index, wanted in enumerate(positives):
            if index % _QUERIES == 0:
                # Differences below the precision of float32 vectors are ties, not wins.
                scores = np.round(asked[index : index + _QUERIES] @ pool.T, 7)
            row, others = scores[index % _QUERIES], drawn.copy()
            others[list(wanted)] = False
            close, far = row[list(wanted)], row[others]
            reached.append(close)
            beaten.append(far)
            if len(far):
                ordered = np.sort(far)
                below = np.searchsorted(ordered, close, "left") + np.searchsorted(ordered, close, "right")
                areas.append(float(np.mean(below)) / (2.0 * len(far)))
        if not areas:
            raise EmbedtrainError("no random documents are left to compare with; use a larger --sample")
        return cls(np.concatenate(reached), np.concatenate(beaten), float(np.mean(areas)))


def _at_least_two(vectors: Vectors) -> Floats:
    rows = unit(vectors)
    if len(rows) < 2:
        raise EmbedtrainError("one vector has no shape; at least two are needed")
    return rows


def _squared_singular(rows: Floats) -> Floats:
    """Squared singular values, largest first, from the smaller Gram matrix: far faster than an SVD of the rows."""
    gram = rows.T @ rows if rows.shape[0] > rows.shape[1] else rows @ rows.T
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    # What rounding leaves where there is nothing must not count as a direction.
    return np.where(values < 1e-14 * values[0], 0.0, values)
