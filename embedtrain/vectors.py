"""Rows of numbers: as float32, their lengths and directions, and the one score of a pair of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.errors import EmbedtrainError

_NUMBERS = 1 << 20  # of vectors whose pairs are scored at once: 8 MB in float64


def as_float32(vectors: Any) -> NDArray[np.float32]:
    """Rows of any float type and layout, torch tensors of bfloat16 included, as float32 in C order."""
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(vectors, dtype=np.float32)


def lengths_of(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The Euclidean length of every row, in float64."""
    wide = vectors.astype(np.float64)
    return np.sqrt(np.einsum("ij,ij->i", wide, wide))


def check_finite(lengths: NDArray[np.float64], what: str) -> None:
    """Raise EmbedtrainError where the length of a vector of `what` is no number."""
    bad = np.flatnonzero(~np.isfinite(lengths))
    if len(bad):
        raise EmbedtrainError(
            f"{len(bad)} {what} vectors hold NaN or infinity (the first at row {bad[0]}); "
            "the model that made them is broken, or ran in a precision too small for it"
        )


def directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1; a row of zeros has no direction and stays."""
    return divided(vectors, lengths_of(vectors))


def divided(vectors: NDArray[np.float32], lengths: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows divided by their lengths; a row of zeros stays, so that its cosine with everything is 0."""
    return vectors / np.where(lengths > 0, lengths, 1.0).astype(np.float32)[:, None]


def exact_scores(
    queries: NDArray[np.float32],
    counts: Sequence[int],
    documents: NDArray[np.float32],
    similarity: str,
    lengths: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Scores (m,) of documents (m, d), the first counts[0] for the first of the queries (n, d), the next for the next.

    `lengths` (m,) are the products of both sides' lengths. Each score is one sum in float64, in an order that depends
    on d alone: what else is computed, and where, changes no bit.
    """
    left, right = queries.astype(np.float64), documents.astype(np.float64)
    scores = np.empty(len(right), dtype=np.float64)
    start = 0
    for query, count in zip(left, counts, strict=True):
        np.einsum("ij,j->i", right[start : start + count], query, out=scores[start : start + count])
        start += count
    if similarity == "cosine":
        # A vector of zeros has no direction: its cosine with everything is 0.
        scores = np.clip(scores / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0)
    return scores.astype(np.float32)


def pair_scores(queries: Any, documents: Any, rows: Any, columns: Any, *, similarity: str) -> NDArray[np.float32]:
    """The score of query `rows[i]` and document `columns[i]` for every i, float32 (m,).

    It is the one exact search reports for them, and does not depend on what else is computed. Cosine is 0 where a vector
    is zero, and never leaves -1..1.
    """
    rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    found = np.empty(len(rows), dtype=np.float32)
    step = pairs_at_once(documents)
    for start in range(0, len(rows), step):
        order = start + np.argsort(rows[start : start + step], kind="stable")
        named, counts = np.unique(rows[order], return_counts=True)
        left, right = as_float32(queries[named]), as_float32(documents[columns[order]])
        lengths = np.repeat(lengths_of(left), counts) * lengths_of(right)
        found[order] = exact_scores(left, counts.tolist(), right, similarity, lengths)
    return found


def pairs_at_once(vectors: Any) -> int:
    """How many pairs are scored at once."""
    return max(16, _NUMBERS // max(1, vectors.shape[1])) if len(vectors) else 1
