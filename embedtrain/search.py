"""Dense top-k by exact search over vectors that may lie on disk."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from embedtrain.console import Progress, silent
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits, Ties

# Unit roundoff of float32: a product of two vectors of length d is off by at most about d times this, times both
# norms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 3.5).
_ROUNDOFF = 2.0**-24
_MORE = 32  # documents held besides the k best, for those that rounding leaves in doubt
_LOWEST = float(np.finfo(np.float32).min)  # below every score, above a place not taken
_NUMBERS = 1 << 20  # of vectors whose pairs are scored at once: 8 MB in float64

# Queries and documents that are looked at together.
BLOCK = (512, 16_384)
_COLUMNS = 4_096  # documents multiplied at once: their rough scores, 8 MB for 512 queries, stay near the processor

Item = TypeVar("Item")


def as_float32(vectors: Any) -> NDArray[np.float32]:
    """Rows of any float type and layout, torch tensors of bfloat16 included, as float32 in C order."""
    if hasattr(vectors, "detach"):
        vectors = vectors.detach().float().cpu().numpy()
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The Euclidean length of every row, in float64."""
    wide = vectors.astype(np.float64)
    return np.sqrt(np.einsum("ij,ij->i", wide, wide))


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
    return vectors / np.where(lengths > 0, lengths, 1.0).astype(np.float32)[:, None]


def _exact(
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

    It is the one `Exact` reports for them, and does not depend on what else is computed. Cosine is 0 where a vector
    is zero, and never leaves -1..1.
    """
    rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    found = np.empty(len(rows), dtype=np.float32)
    step = _pairs(documents)
    for start in range(0, len(rows), step):
        order = start + np.argsort(rows[start : start + step], kind="stable")
        named, counts = np.unique(rows[order], return_counts=True)
        left, right = as_float32(queries[named]), as_float32(documents[columns[order]])
        lengths = np.repeat(_lengths(left), counts) * _lengths(right)
        found[order] = _exact(left, counts.tolist(), right, similarity, lengths)
    return found


def _pairs(vectors: Any) -> int:
    """How many pairs are scored at once."""
    return max(16, _NUMBERS // max(1, vectors.shape[1])) if len(vectors) else 1


class Exact:
    """Documents (m, d) of any float type, in memory or on disk, for exact search.

    For `cosine` both sides are divided by their lengths here, whatever they were; `dot` is the bare inner product.
    Blocks are multiplied in float32, which is fast and depends on their shape in the last bits; whatever that error
    leaves in doubt is kept, and only what is kept is scored, compared and reported, each pair on its own in float64
    (`pair_scores`). So `block`, which bounds memory (queries and documents at a time), never changes the result.
    """

    def __init__(
        self,
        documents: Any,
        ids: Sequence[str],
        similarity: str = "cosine",
        *,
        ties: Ties | None = None,
        block: tuple[int, int] = BLOCK,
    ) -> None:
        """Look at every document once. Raises EmbedtrainError for vectors that are no numbers, and wrong shapes."""
        if similarity not in ("cosine", "dot"):
            raise EmbedtrainError(f"similarity {similarity!r} is not known; cosine and dot are")
        if len(ids) != len(documents):
            raise EmbedtrainError(f"{len(documents)} document vectors were given for {len(ids)} documents")
        self.similarity = similarity
        self._documents = documents
        self._ties = ties or Ties(ids)
        self._query_step, self._document_step = max(1, block[0]), max(1, block[1])
        self._lengths = np.empty(len(documents), dtype=np.float64)
        for start in range(0, len(documents), self._document_step):
            part = slice(start, start + self._document_step)
            self._lengths[part] = _lengths(as_float32(documents[part]))
        _check_finite(self._lengths, "document")

    def search(self, queries: Any, k: int, progress: Progress = silent) -> Hits:
        """The k nearest documents of every query (n, d)."""
        documents, count = self._documents, len(self._documents)
        if count and len(queries) and queries.shape[1] != documents.shape[1]:
            raise EmbedtrainError(
                f"query vectors have {queries.shape[1]} dimensions and document vectors {documents.shape[1]}; "
                "both must come from the same model"
            )
        if not min(k, count) or not len(queries):
            return Hits.nothing(len(queries))
        longest = 1.0 if self.similarity == "cosine" else float(self._lengths.max())
        parts = []
        for at in range(0, len(queries), self._query_step):
            vectors = as_float32(queries[at : at + self._query_step])
            lengths = _lengths(vectors)
            _check_finite(lengths, "query")
            parts.append(_Nearest(vectors, lengths, min(k, count), self.similarity, longest))
        with _Workers(len(parts)) as workers:
            for start in range(0, count, self._document_step):
                right = as_float32(documents[start : start + self._document_step])
                if self.similarity == "cosine":
                    right = _divided(right, self._lengths[start : start + self._document_step])
                workers.each(partial(_Nearest.look, documents=right, start=start), parts)
                progress("search the vectors", min(start + self._document_step, count), count, "")
            return Hits.joined(workers.each(self._best, parts))

    def _best(self, part: "_Nearest") -> Hits:
        found = []
        rows, places, counts, doubtful = part.candidates()
        at = 0
        for queries in _together(counts, _pairs(self._documents)):
            size = int(counts[queries].sum())
            own = slice(at, at + size)
            right = as_float32(self._documents[places[own]])
            lengths = part.lengths[rows[own]] * self._lengths[places[own]]
            exact = _exact(part.vectors[queries], counts[queries].tolist(), right, self.similarity, lengths)
            found.append(self._ties.best_of_each(self._ties.keys(exact, places[own]), counts[queries], part.k))
            at += size
        hits = Hits.joined(found)
        for row in doubtful.tolist():
            hits.positions[row], hits.scores[row] = self._one_by_one(part, row)
        return hits

    def _one_by_one(self, part: "_Nearest", row: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k best of all documents for a query that has more equals than are held."""
        keys, step = np.empty(0, dtype=np.uint64), _pairs(self._documents)
        for start in range(0, len(self._documents), step):
            right = as_float32(self._documents[start : start + step])
            lengths = part.lengths[row] * self._lengths[start : start + step]
            exact = _exact(part.vectors[[row]], [len(right)], right, self.similarity, lengths)
            keys = np.concatenate([keys, self._ties.keys(exact, start + np.arange(len(exact)))])
            if len(keys) > part.k:
                keys = np.partition(keys, len(keys) - part.k)[len(keys) - part.k :]
        return self._ties.best(keys, part.k)


def dense(
    queries: Any,
    documents: Any,
    ids: Sequence[str],
    k: int,
    *,
    similarity: str = "cosine",
    progress: Progress = silent,
    block: tuple[int, int] = BLOCK,
) -> Hits:
    """The k nearest documents of every query, exactly: queries (n, d), documents (m, d). See `Exact`."""
    return Exact(documents, ids, similarity, block=block).search(queries, k, progress)


def _together(counts: NDArray[np.int64], most: int) -> list[slice]:
    """Neighbouring queries whose counts add up to `most` at most, or single ones."""
    parts, start, total = [], 0, 0
    for query, count in enumerate(counts.tolist()):
        if query > start and total + count > most:
            parts.append(slice(start, query))
            start, total = query, 0
        total += count
    return [*parts, slice(start, len(counts))] if len(counts) else []


def _threads() -> int:
    """How many threads a matrix product has here (OMP_NUM_THREADS and the like bound it)."""
    return max(
        (library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"), default=1
    )


class _Workers:
    """Does the same for several parts, side by side on as many threads as matrix products use here.

    Products are given one thread each meanwhile, so that what surrounds them is shared out, too.
    """

    def __init__(self, parts: int) -> None:
        count = min(parts, _threads()) if parts > 1 else 1
        self._pool = ThreadPoolExecutor(count) if count > 1 else None
        self._limits = threadpool_limits(limits=1, user_api="blas") if self._pool else None

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        if self._limits:
            self._limits.restore_original_limits()

    def each(self, work: Callable[[Item], Any], parts: Sequence[Item]) -> list[Any]:
        """What `work` gives for every part, in their order."""
        return [work(part) for part in parts] if self._pool is None else list(self._pool.map(work, parts))


_SCRATCH = threading.local()


def _product(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """left @ right.T in memory that the next call on this thread uses again: fresh pages cost a tenth of the time."""
    size = len(left) * len(right)
    if getattr(_SCRATCH, "memory", np.empty(0)).size < size:
        _SCRATCH.memory = np.empty(size, dtype=np.float32)
    return np.matmul(left, right.T, out=_SCRATCH.memory[:size].reshape(len(left), len(right)))


def _above(rough: NDArray[np.float32], bar: NDArray[np.float32], start: int) -> tuple[NDArray[Any], ...]:
    """Row, corpus position and value of the scores that reach their row's bar, row by row."""
    places = np.flatnonzero(rough >= bar[:, None])
    rows, columns = np.divmod(places, rough.shape[1])
    return rows, start + columns, rough.ravel()[places]


class _Nearest:
    """The nearest documents so far of a block of queries, by rough scores: products in float32.

    A rough score is off by at most `error`, so of two documents the better one can be the lower by twice that. Some
    more than k are held, and the best that was ever let go of is remembered: where it might have belonged to the k,
    the query is searched again, pair by pair.
    """

    def __init__(
        self,
        vectors: NDArray[np.float32],
        lengths: NDArray[np.float64],
        k: int,
        similarity: str,
        longest: float,
    ) -> None:
        """`longest`: the length of the longest document, 1 for cosine."""
        self.vectors, self.lengths, self.k = vectors, lengths, k
        cosine = similarity == "cosine"
        self._rough = _divided(vectors, lengths) if cosine else vectors
        norms = np.ones(len(vectors)) if cosine else lengths
        self._error = norms * longest * (vectors.shape[1] + 8) * _ROUNDOFF
        self._scores = np.full((len(vectors), k + _MORE), -np.inf, dtype=np.float32)
        self._positions = np.zeros((len(vectors), k + _MORE), dtype=np.int64)
        self._let_go = np.full(len(vectors), -np.inf, dtype=np.float32)

    def _bar(self) -> NDArray[np.float32]:
        """What a rough score must reach for its document to have a chance; -inf where k are not found yet."""
        nth = np.partition(self._scores, _MORE, axis=1)[:, _MORE].astype(np.float64)
        # Steps of float32 down, for the rounding of reported scores and of the bar itself.
        bar = (nth - 2 * self._error).astype(np.float32)
        return np.nextafter(np.nextafter(bar, -np.inf), -np.inf, dtype=np.float32)

    def look(self, documents: NDArray[np.float32], start: int) -> None:
        """Take a block of documents in, the first of them at corpus position `start`."""
        bar = self._bar()
        found = []
        for at in range(0, len(documents), _COLUMNS):
            part = documents[at : at + _COLUMNS]
            rough = _product(self._rough, part)
            if not np.isfinite(bar).all():
                # The first documents: only the best of these can be held.
                if len(part) > (room := self._scores.shape[1]):
                    bar = np.maximum(bar, np.partition(rough, len(part) - room, axis=1)[:, len(part) - room])
                self._hold([_above(rough, bar, start + at)], bar, len(part))
                bar = self._bar()
            else:
                found.append(_above(rough, bar, start + at))
        if found:
            self._hold(found, bar, len(documents))

    def _hold(self, found: list[tuple[NDArray[Any], ...]], bar: NDArray[np.float32], looked_at: int) -> None:
        """Hold the best of what is held and of what was found to reach the bar among so many documents."""
        room = self._scores.shape[1]
        rows, places, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if len(found) > 1:
            order = np.argsort(rows, kind="stable")
            rows, places, values = rows[order], places[order], values[order]
        counts = np.bincount(rows, minlength=len(bar))
        # What is below the bar was let go of: at most the next number down.
        below = np.nextafter(bar, -np.inf, dtype=np.float32)
        self._let_go = np.maximum(self._let_go, np.where(counts < looked_at, below, -np.inf))
        widest = int(counts.max(initial=0))
        if not widest:
            return
        scores = np.full((len(bar), room + widest), -np.inf, dtype=np.float32)
        positions = np.zeros((len(bar), room + widest), dtype=np.int64)
        scores[:, :room], positions[:, :room] = self._scores, self._positions
        column = room + np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        scores[rows, column], positions[rows, column] = values, places
        order = np.argpartition(scores, widest - 1, axis=1)
        gone = np.take_along_axis(scores, order[:, :widest], axis=1).max(axis=1)
        self._let_go = np.maximum(self._let_go, gone)
        self._scores = np.take_along_axis(scores, order[:, widest:], axis=1)
        self._positions = np.take_along_axis(positions, order[:, widest:], axis=1)

    def candidates(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of a query's row and the position of a document that may be among its k best, ordered by both.

        Then how many each query has, and the rows of those for which that does not settle it: they have none.
        """
        bar = self._bar()
        doubtful = self._let_go >= bar
        chance = (self._scores >= np.maximum(bar, _LOWEST)[:, None]) & ~doubtful[:, None]
        rows, columns = np.nonzero(chance)
        places = self._positions[rows, columns]
        order = np.lexsort((places, rows))
        return rows, places[order], chance.sum(axis=1), np.flatnonzero(doubtful)
