"""What a search gives: the best documents of every query, in the one order there is, and the fusion of such lists.

One tie rule everywhere: score descending, then document id ascending. Scores are compared as the float32 numbers
that are reported, so that a list can be put in order again from what it says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.errors import EmbedtrainError

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

    @classmethod
    def nothing(cls, queries: int) -> "Hits":
        """No hits for any of so many queries."""
        return cls([np.empty(0, dtype=np.int64)] * queries, [np.empty(0, dtype=np.float32)] * queries)

    @classmethod
    def joined(cls, parts: "Iterable[Hits]") -> "Hits":
        """The hits of some queries, then those of the next."""
        found = cls([], [])
        for part in parts:
            found.positions.extend(part.positions)
            found.scores.extend(part.scores)
        return found


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

    def best_of_each(self, keys: NDArray[np.uint64], counts: NDArray[np.int64], k: int) -> Hits:
        """The k best of every query; `keys` are flat, the first counts[0] of them those of the first query."""
        if not len(keys):
            return Hits.nothing(len(counts))
        table = np.zeros((len(counts), int(counts.max())), dtype=np.uint64)  # 0 is below every key
        table[np.arange(table.shape[1]) < counts[:, None]] = keys
        table.sort(axis=1)
        kept = np.minimum(counts, k)
        flat = table[:, ::-1][np.arange(table.shape[1]) < kept[:, None]]
        positions, scores, ends = self.positions(flat), self.scores(flat), np.cumsum(kept)
        parts = [slice(end - size, end) for end, size in zip(ends.tolist(), kept.tolist(), strict=True)]
        return Hits([positions[part] for part in parts], [scores[part] for part in parts])

    def best(self, keys: NDArray[np.uint64], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and scores of the k best of a flat array of keys, best first."""
        if len(keys) > k:
            keys = np.partition(keys, len(keys) - k)[len(keys) - k :]
        keys = np.sort(keys)[::-1]
        return self.positions(keys), self.scores(keys)


def fuse(runs: Sequence[Hits], ties: Ties, k: int, *, constant: int = 60) -> Hits:
    """Reciprocal rank fusion: a document's score is the sum of 1 / (constant + rank) over the runs that have it.

    Cormack, Clarke and Buettcher, SIGIR 2009 (eq. 1, constant 60). Ranks count from 1.
    """
    if len({len(run) for run in runs}) > 1:
        raise EmbedtrainError("rankings of different numbers of queries cannot be fused")
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
