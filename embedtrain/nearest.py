"""The nearest documents so far of a block of queries, by rough scores; what rounding leaves in doubt is kept."""

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.vectors import divided

if TYPE_CHECKING:  # only a search on a device needs it
    import torch

# Unit roundoff of float32: a product of two vectors of length d is off by at most about d times this, times both
# norms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 3.5).
_ROUNDOFF = 2.0**-24
_MORE = 32  # documents held besides the k best, for those that rounding leaves in doubt
_LOWEST = float(np.finfo(np.float32).min)  # below every score, above a place not taken
_COLUMNS = 4_096  # documents multiplied at once: their rough scores, 8 MB for 512 queries, stay near the processor

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


class Nearest:
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
        self._rough = divided(vectors, lengths) if cosine else vectors
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

    def look(self, documents: Any, start: int) -> None:
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


def moved(vectors: NDArray[np.float32], device: "torch.device") -> "torch.Tensor":
    """Rows as a tensor on a device."""
    import torch

    return torch.from_numpy(vectors).to(device)


class OnDevice(Nearest):
    """The same with products and choice of each block by PyTorch on a device: only what may be held comes back.

    Products must be whole float32 (no TF32, which PyTorch leaves off): the bound on their error is that of float32.
    """

    _queries: "torch.Tensor | None" = None

    def look(self, documents: Any, start: int) -> None:
        """Take a block of documents in, a tensor on the device, the first of them at corpus position `start`."""
        import torch

        if self._queries is None:
            self._queries = moved(self._rough, documents.device)
        room = min(self._scores.shape[1], len(documents))
        best, columns = torch.topk(self._queries @ documents.T, room, dim=1)
        values, places = best.cpu().numpy(), start + columns.cpu().numpy()
        bar = self._bar()
        if len(documents) > room:
            # What did not come back is at most the last that did: of equal ones any may be missing.
            bar = np.maximum(bar, np.nextafter(values[:, -1], np.inf, dtype=np.float32))
        rows, kept = np.nonzero(values >= bar[:, None])
        self._hold([(rows, places[rows, kept], values[rows, kept])], bar, len(documents))
