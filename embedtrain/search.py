"""Dense top-k by exact search, and the fusion of rankings.

One tie rule everywhere: score descending, then document id ascending. Scores are compared as the float32 numbers
that are reported, so that a list can be put in order again from what it says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.console import Progress, silent
from embedtrain.errors import EmbedtrainError

# Unit roundoff of float32: a product of two vectors of length d is off by at most about d times this, times both
# norms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 3.5).
_ROUNDOFF = 2.0**-24
_MORE = 32  # documents held besides the k best, for those that rounding leaves in doubt
_LOWEST = float(np.finfo(np.float32).min)  # below every score, above a place not taken
_PAIRS = 8_192  # pairs scored at once
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


def _exact(
    query: NDArray[np.float32], documents: NDArray[np.float32], similarity: str, length: float | None = None
) -> NDArray[np.float32]:
    """Scores (m,) of one query (d,) and some documents (m, d).

    Each is one sum in float64, in an order that depends on d alone: what else is computed, and where, changes no bit.
    """
    right = documents.astype(np.float64)
    scores = np.einsum("ij,j->i", right, query.astype(np.float64))
    if similarity == "cosine":
        lengths = _lengths(documents) * (_lengths(query[None])[0] if length is None else length)
        # A vector of zeros has no direction: its cosine with everything is 0.
        scores = np.clip(scores / np.where(lengths > 0, lengths, 1.0), -1.0, 1.0)
    return scores.astype(np.float32)


def pair_scores(queries: Any, documents: Any, rows: Any, columns: Any, *, similarity: str) -> NDArray[np.float32]:
    """The score of query `rows[i]` and document `columns[i]` for every i, float32 (m,); fastest by sorted rows.

    It is the one `dense` reports for them, and does not depend on what else is computed. Cosine is 0 where a vector
    is zero, and never leaves -1..1.
    """
    rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    found = np.empty(len(rows), dtype=np.float32)
    edges = np.flatnonzero(np.diff(rows)) + 1
    for part in np.split(np.arange(len(rows)), edges) if len(rows) else []:
        for start in range(0, len(part), _PAIRS):
            some = part[start : start + _PAIRS]
            query = as_float32(queries[rows[some[:1]]])[0]
            found[some] = _exact(query, as_float32(documents[columns[some]]), similarity)
    return found


def dense(
    queries: Any,
    documents: Any,
    ids: Sequence[str],
    k: int,
    *,
    similarity: str = "cosine",
    progress: Progress = silent,
    block: tuple[int, int] = (512, 16_384),
) -> Hits:
    """The k nearest documents of every query, exactly: queries (n, d), documents (m, d) of any float type.

    For `cosine` both sides are divided by their lengths here, whatever they were; `dot` is the bare inner product.
    `block` bounds memory (queries and documents at a time) and never changes the result: blocks are multiplied in
    float32, which is fast and depends on their shape in the last bits, whatever that error leaves in doubt is kept,
    and only what is kept is scored, compared and reported, each pair on its own in float64 (`pair_scores`).
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
    kept = min(k, len(documents))
    if not kept or not len(queries):
        empty = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
        return Hits([empty[0]] * len(queries), [empty[1]] * len(queries))
    query_step, document_step = max(1, block[0]), max(1, block[1])
    parts = []
    for at in range(0, len(queries), query_step):
        vectors = as_float32(queries[at : at + query_step])
        lengths = _lengths(vectors)
        _check_finite(lengths, "query")
        parts.append(_Nearest(vectors, lengths, kept, similarity))
    for start in range(0, len(documents), document_step):
        right = as_float32(documents[start : start + document_step])
        lengths = _lengths(right)
        _check_finite(lengths, "document")
        unit = _divided(right, lengths) if similarity == "cosine" else right
        for part in parts:
            part.look(unit, float(lengths.max(initial=0.0)), start)
        progress("search the vectors", min(start + document_step, len(documents)), len(documents), "")
    ties = Ties(ids)
    found = [best for part in parts for best in part.best(documents, ties)]
    return Hits([positions for positions, _ in found], [scores for _, scores in found])


class _Nearest:
    """The nearest documents so far of a block of queries, by rough scores: products in float32.

    A rough score is off by at most `error`, so of two documents the better one can be the lower by twice that. Some
    more than k are held, and the best that was ever let go of is remembered: where it might have belonged to the k,
    the query is searched again, pair by pair.
    """

    def __init__(
        self, vectors: NDArray[np.float32], lengths: NDArray[np.float64], k: int, similarity: str
    ) -> None:
        self._vectors, self._lengths, self._similarity, self._k = vectors, lengths, similarity, k
        cosine = similarity == "cosine"
        self._rough = _divided(vectors, lengths) if cosine else vectors
        self._unit = (np.ones(len(vectors)) if cosine else lengths) * (vectors.shape[1] + 8) * _ROUNDOFF
        self._longest = 1.0 if cosine else 0.0
        self._scores = np.full((len(vectors), k + _MORE), -np.inf, dtype=np.float32)
        self._positions = np.zeros((len(vectors), k + _MORE), dtype=np.int64)
        self._let_go = np.full(len(vectors), -np.inf, dtype=np.float32)

    def _bar(self) -> NDArray[np.float32]:
        """What a rough score must reach for its document to have a chance; -inf where k are not found yet."""
        nth = np.partition(self._scores, _MORE, axis=1)[:, _MORE].astype(np.float64)
        # Steps of float32 down, for the rounding of reported scores and of the bar itself.
        bar = (nth - 2 * self._longest * self._unit).astype(np.float32)
        return np.nextafter(np.nextafter(bar, -np.inf), -np.inf, dtype=np.float32)

    def look(self, documents: NDArray[np.float32], longest: float, start: int) -> None:
        """Take a block of documents in, the first of them at corpus position `start`."""
        if self._similarity == "dot":
            self._longest = max(self._longest, longest)
        rough = self._rough @ documents.T
        width, room = rough.shape[1], self._scores.shape[1]
        bar = self._bar()
        if width > room and not np.isfinite(bar).all():
            bar = np.maximum(bar, np.partition(rough, width - room, axis=1)[:, width - room])
        places = np.flatnonzero(rough >= bar[:, None])
        rows = places // width
        counts = np.bincount(rows, minlength=len(rough))
        widest = int(counts.max(initial=0))
        # What is below the bar was let go of: at most the next number down.
        below = np.nextafter(bar, -np.inf, dtype=np.float32)
        self._let_go = np.maximum(self._let_go, np.where(counts < width, below, -np.inf))
        if not widest:
            return
        scores = np.full((len(rough), room + widest), -np.inf, dtype=np.float32)
        positions = np.zeros((len(rough), room + widest), dtype=np.int64)
        scores[:, :room], positions[:, :room] = self._scores, self._positions
        column = room + np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        scores[rows, column] = rough.ravel()[places]
        positions[rows, column] = start + places - rows * width
        order = np.argpartition(scores, widest - 1, axis=1)
        gone = np.take_along_axis(scores, order[:, :widest], axis=1).max(axis=1)
        self._let_go = np.maximum(self._let_go, gone)
        self._scores = np.take_along_axis(scores, order[:, widest:], axis=1)
        self._positions = np.take_along_axis(positions, order[:, widest:], axis=1)

    def best(self, documents: Any, ties: Ties) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Positions and exact scores of the k best of every query, best first."""
        bar = self._bar()
        for row, query in enumerate(self._vectors):
            length = float(self._lengths[row])
            if self._let_go[row] >= bar[row]:
                yield self._one_by_one(query, length, documents, ties)
                continue
            places = np.sort(self._positions[row][self._scores[row] >= max(bar[row], _LOWEST)])
            exact = _exact(query, as_float32(documents[places]), self._similarity, length)
            yield ties.best(ties.keys(exact, places), self._k)

    def _one_by_one(
        self, query: NDArray[np.float32], length: float, documents: Any, ties: Ties
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k best of all documents for a query that has more equals than are held."""
        keys = np.empty(0, dtype=np.uint64)
        for start in range(0, len(documents), _PAIRS):
            exact = _exact(query, as_float32(documents[start : start + _PAIRS]), self._similarity, length)
            keys = np.concatenate([keys, ties.keys(exact, start + np.arange(len(exact)))])
            if len(keys) > self._k:
                keys = np.partition(keys, len(keys) - self._k)[len(keys) - self._k :]
        return ties.best(keys, self._k)


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
