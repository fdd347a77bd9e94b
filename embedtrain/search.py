"""Dense top-k by exact search, and the fusion of rankings.

One tie rule everywhere: score descending, then document id ascending. Scores are compared as the float32 numbers
that are reported, so that a list can be put in order again from what it says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.console import Progress, silent
from embedtrain.errors import EmbedtrainError

# Unit roundoff of float32: a product of two vectors of length d is off by at most about d times this, times both
# norms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 3.5).
_ROUNDOFF = 2.0**-24
_RANK_BITS = np.uint64(32)
_RANK_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Hits:
    """What a search found: one array of corpus positions (int64) and one of scores (float32) a query, best first.

    Arrays are as long as there are hits, at most k; nothing is filled up.
    """

    positions: list[NDArray[np.int64]]
    scores: list[NDArray[np.float32]]

    def __len__(self) -> int:
        return len(self.positions)


class Ties:
    """Scores and documents as single numbers, whose descending order is the order of hits.

    The upper half of such a key is the float32 score, mapped so that unsigned integers order as floats do; the
    lower half is the place of the document's id among all ids, counted from the last.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
        self._place = np.empty(len(ids), dtype=np.uint64)
        self._place[self._order] = np.arange(len(ids) - 1, -1, -1, dtype=np.uint64)

    def keys(self, scores: NDArray[Any], positions: NDArray[Any]) -> NDArray[np.uint64]:
        """The keys (uint64, never 0) of finite scores of documents at `positions`, which has the same shape."""
        # Adding 0 turns -0 into 0: they are equal and must tie.
        bits = (scores.astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)
        bits = np.where(bits >= 0, bits + 0x80000000, -1 - bits)
        return (bits.astype(np.uint64) << _RANK_BITS) | self._place[positions]

    def scores(self, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The scores that went into keys."""
        bits = (keys >> _RANK_BITS).astype(np.int64)
        bits = np.where(bits >= 0x80000000, bits - 0x80000000, -1 - bits)
        return bits.astype(np.int32).view(np.float32)

    def positions(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The corpus positions that went into keys."""
        return self._order[len(self._order) - 1 - (keys & _RANK_MASK).astype(np.int64)]

    def best(self, keys: NDArray[np.uint64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and scores of the k best of a flat array of keys, best first."""
        if len(keys) > k:
            keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
        keys = np.sort(keys)[::-1]
        return self.positions(keys), self.scores(keys)


def as_float32(vectors: Any) -> NDArray[np.float32]:
    """Rows of any float type and layout, torch tensors of bfloat16 included, as float32 in C order."""
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The Euclidean length of every row, in float64."""
    return np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))


def _check_finite(lengths: NDArray[np.float64], what: str) -> None:
    bad = np.flatnonzero(~np.isfinite(lengths))
    if len(bad):
        raise EmbedtrainError(
            f"{len(bad)} {what} vectors hold NaN or infinity (the first at row {bad[0]}); "
            "the model that made them is broken, or ran in a precision too small for it"
        )


def directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1; a row of zeros has no direction and stays."""
    return _divided(vectors, _lengths(vectors))


def _divided(vectors: NDArray[np.float32], lengths: NDArray[np.float64]) -> NDArray[np.float32]:
    # A vector of zeros has no direction: it stays, and its cosine with everything is 0.
    return (vectors / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)


def pair_scores(queries: Any, documents: Any, rows: Any, columns: Any, *, similarity: str) -> NDArray[np.float32]:
    """The score of query `rows[i]` and document `columns[i]` for every i, float32 (m,).

    Every score is one sum in float64 over one pair, so it does not depend on what else is computed, nor on blocks.
    Cosine is 0 where a vector is zero, and never leaves -1..1.
    """
    rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    found = np.empty(len(rows), dtype=np.float32)
    step = max(1, (1 << 22) // max(1, queries.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        left = as_float32(queries[rows[part]]).astype(np.float64)
        right = as_float32(documents[columns[part]]).astype(np.float64)
        scores = (left * right).sum(axis=1)
        if similarity == "cosine":
            lengths = np.sqrt(np.square(left).sum(axis=1)) * np.sqrt(np.square(right).sum(axis=1))
            scores = np.clip(scores / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0)
        found[part] = scores
    return found


def dense(
    queries: Any,
    documents: Any,
    ids: Sequence[str],
    k: int,
    *,
    similarity: str = "cosine",
    progress: Progress = silent,
    block: tuple[int, int] = (256, 16_384),
) -> Hits:
    """The k nearest documents of every query, exactly: queries (n, d), documents (m, d) of any float type.

    `similarity` is "cosine" (both sides are divided by their lengths here) or "dot" (taken as they are). `block`
    is how many queries and documents are looked at together; the result does not depend on it. Memory is about
    6 bytes times their product (60 in a block where everything ties) and 20 bytes a hit. Raises EmbedtrainError for
    vectors with NaN.

    A float32 matrix product nominates: every document within its rounding error of the k-th best so far. Each of
    these is scored again on its own in float64 (`pair_scores`), and only those scores are compared and reported.
    """
    if similarity not in ("cosine", "dot"):
        raise EmbedtrainError(f"similarity {similarity!r} is not known; cosine and dot are")
    if len(ids) != len(documents):
        raise EmbedtrainError(f"{len(documents)} document vectors were given for {len(ids)} documents")
    if len(documents) and len(queries) and queries.shape[1] != documents.shape[1]:
        raise EmbedtrainError(
            f"query vectors have {queries.shape[1]} dimensions and document vectors {documents.shape[1]}; "
            "both must come from the same model"
        )
    ties = Ties(ids)
    kept = min(k, len(documents))
    best = np.zeros((len(queries), kept), dtype=np.uint64)  # 0 is below every key: a place not taken yet
    if not kept or not len(queries):
        empty = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
        return Hits([empty[0]] * len(queries), [empty[1]] * len(queries))
    query_step, document_step = max(1, block[0]), max(1, block[1])
    left = [as_float32(queries[at : at + query_step]) for at in range(0, len(queries), query_step)]
    left_lengths = [_lengths(part) for part in left]
    for lengths in left_lengths:
        _check_finite(lengths, "query")
    for start in range(0, len(documents), document_step):
        right = as_float32(documents[start : start + document_step])
        right_lengths = _lengths(right)
        _check_finite(right_lengths, "document")
        unit = _divided(right, right_lengths) if similarity == "cosine" else right
        for number, (part, lengths) in enumerate(zip(left, left_lengths, strict=True)):
            rows = slice(number * query_step, number * query_step + len(part))
            if similarity == "cosine":
                rough = _divided(part, lengths) @ unit.T
                error = np.full(len(part), 1.0)
            else:
                rough = part @ unit.T
                error = lengths * right_lengths.max(initial=0.0)
            error *= (part.shape[1] + 8) * _ROUNDOFF
            bar = _bar(ties, best[rows], rough, error)
            row, column = np.nonzero(rough >= bar[:, None])
            scores = pair_scores(part, right, row, column, similarity=similarity)
            best[rows] = _merge(best[rows], row, ties.keys(scores, start + column))
        progress("search the vectors", min(start + document_step, len(documents)), len(documents), "")
    best = np.sort(best, axis=1)[:, ::-1]
    return Hits([ties.positions(row) for row in best], [ties.scores(row) for row in best])


def _bar(
    ties: Ties, best: NDArray[np.uint64], rough: NDArray[np.float32], error: NDArray[np.float64]
) -> NDArray[np.float32]:
    """What a rough score must reach for its document to have a chance, for every row."""
    k = best.shape[1]
    worst = best.min(axis=1)
    # What is in `best` has its final score; the rough score of an equal one may be lower by its error.
    settled = ties.scores(worst).astype(np.float64) - error
    bar = np.where(worst > 0, settled, -np.inf)
    if rough.shape[1] > k and not worst.all():
        # The k-th best rough score may be too high by its error, and the document in question too low by its own.
        nth = np.partition(rough, rough.shape[1] - k, axis=1)[:, rough.shape[1] - k]
        bar = np.maximum(bar, nth.astype(np.float64) - 2 * error)
    # One step of float32 down, for the rounding of reported scores and of the bar itself.
    return np.nextafter(np.nextafter(bar.astype(np.float32), -np.inf), -np.inf, dtype=np.float32)


def _merge(best: NDArray[np.uint64], rows: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The k largest of each row of `best` (n, k) and its new keys; `rows`, ascending, says whose a new key is."""
    counts = np.bincount(rows, minlength=len(best))
    widest = int(counts.max(initial=0))
    if not widest:
        return best
    k = best.shape[1]
    both = np.zeros((len(best), k + widest), dtype=np.uint64)
    both[:, :k] = best
    first = np.cumsum(counts) - counts
    both[rows, k + np.arange(len(rows)) - first[rows]] = keys
    return np.partition(both, widest, axis=1)[:, widest:]


def fuse(runs: Sequence[Hits], ids: Sequence[str], k: int, *, constant: int = 60) -> Hits:
    """Reciprocal rank fusion: a document's score is the sum of 1 / (constant + rank) over the runs that have it.

    Cormack, Clarke and Buettcher, SIGIR 2009 (eq. 1, constant 60). Ranks count from 1.
    """
    if len({len(run) for run in runs}) > 1:
        raise EmbedtrainError("rankings of different numbers of queries cannot be fused")
    ties = Ties(ids)
    positions, scores = [], []
    for query in range(len(runs[0]) if runs else 0):
        lists = [run.positions[query] for run in runs]
        documents, which = np.unique(np.concatenate(lists), return_inverse=True)
        gains = np.concatenate([1.0 / (constant + 1.0 + np.arange(len(found))) for found in lists])
        sums = np.bincount(which, weights=gains, minlength=len(documents))
        found, score = ties.best(ties.keys(sums, documents), k)
        positions.append(found)
        scores.append(score)
    return Hits(positions, scores)
