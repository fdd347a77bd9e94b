"""A model's vectors made smaller: fewer dimensions, fewer bits each; and what that costs, as rankings to be measured."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.console import Progress
from embedtrain.errors import UsageError
from embedtrain.hits import Hits, Ties
from embedtrain.search import dense
from embedtrain.vectors import as_float32, directions, pair_scores

INT8, BINARY = "int8", "binary"
KINDS = (INT8, BINARY)

# Bits find this many times the documents that are asked for, and the query's own numbers order those (Yamada et al. 2021,
# section 3.2: candidates by Hamming distance, then the inner product of the query with the bits).
CANDIDATES = 4
_BLOCK = 16_384


class Changed:
    """Vectors (n, d) that are changed as they are read; `change` takes rows (m, d0) and gives (m, d)."""

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(
        self, vectors: Any, dimension: int, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    ) -> None:
        self._vectors, self._change = vectors, change
        self.shape = (len(vectors), dimension)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        return self._change(as_float32(self._vectors[rows]))


def check(kinds: Sequence[str], dimensions: Sequence[int]) -> None:
    """UsageError for a way to make vectors smaller that there is not."""
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--quantize {kind}: {' and '.join(KINDS)} are the ways")
    if any(dimension < 1 for dimension in dimensions):
        raise UsageError(f"--dims {min(dimensions)}: a vector has one dimension at least")


def check_dimensions(dimensions: Sequence[int], model: str, own: int) -> None:
    """UsageError for a prefix that is no shorter than a model's vectors."""
    for dimension in dimensions:
        if dimension >= own:
            raise UsageError(f"--dims {dimension}: the vectors of {model} have {own} dimensions; give fewer")


def prefix(vectors: Any, dimension: int) -> Changed:
    """The first `dimension` numbers of each vector; search gives them length 1 again where it compares by cosine."""
    return Changed(vectors, dimension, lambda rows: np.ascontiguousarray(rows[:, :dimension]))


def int8(vectors: Any, similarity: str) -> Changed:
    """Vectors as they come back from a byte a number: 256 even steps over each dimension's range in all vectors."""
    count, dimension = vectors.shape
    low, high = np.full(dimension, np.inf), np.full(dimension, -np.inf)
    for start in range(0, count, _BLOCK):
        rows = _of_length_1(as_float32(vectors[start : start + _BLOCK]), similarity)
        low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
    step = np.where(high > low, (high - low) / 255, 1.0)

    def there_and_back(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        held = np.clip(np.rint((_of_length_1(rows, similarity) - low) / step), 0, 255).astype(np.uint8)
        return np.asarray(held * step + low, dtype=np.float32)

    return Changed(vectors, dimension, there_and_back)


def _of_length_1(rows: NDArray[np.float32], similarity: str) -> NDArray[np.float32]:
    return directions(rows) if similarity == "cosine" else rows


def signs(vectors: Any) -> Changed:
    """1 where a number is above 0, else -1: a bit each."""
    return Changed(vectors, vectors.shape[1], lambda rows: np.where(rows > 0, 1.0, -1.0).astype(np.float32))


def by_bits(queries: Any, documents: Any, ids: Sequence[str], k: int, progress: Progress) -> Hits:
    """The nearest by the bits of both sides, and of those the k best by the query's numbers and the documents' bits."""
    bits = signs(documents)
    found = dense(signs(queries), bits, ids, CANDIDATES * k, similarity="cosine", progress=progress)
    counts = np.array([len(row) for row in found.positions], dtype=np.int64)
    rows, columns = np.repeat(np.arange(len(counts)), counts), np.concatenate(found.positions)
    scores = pair_scores(queries, bits, rows, columns, similarity="cosine")
    ties = Ties(ids)
    return ties.best_of_each(ties.keys(scores, columns), counts, k)


def bytes_of(dimension: int, kind: str = "") -> int:
    """Bytes of a vector: float32, or as a `kind` has it."""
    return {INT8: dimension, BINARY: -(-dimension // 8)}.get(kind, 4 * dimension)
