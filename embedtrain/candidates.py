"""What retrievers found, as flat arrays: one row a candidate, cut into queries by offsets.

Candidates of a query stand in the order of the reciprocal rank fusion of its lists; those that no list has (judged
not relevant, or drawn at random) stand behind them with rank 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from embedtrain.hits import Hits, Ties, fuse

Ints = NDArray[np.int64]


def _offsets(lengths: Sequence[int] | Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


@dataclass(frozen=True)
class Ragged:
    """One list of corpus positions a query: `values` (m,) int64, those of query i at offsets[i]:offsets[i + 1]."""

    offsets: Ints
    values: Ints

    @classmethod
    def of(cls, lists: Sequence[Sequence[int] | Ints]) -> "Ragged":
        """Join lists, one a query."""
        parts = [np.asarray(part, dtype=np.int64) for part in lists]
        values = np.concatenate([*parts, np.empty(0, dtype=np.int64)])
        return cls(_offsets([len(part) for part in lists]), values)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def only(self, queries: NDArray[np.bool_]) -> "Ragged":
        """The lists of some queries."""
        return Ragged(_offsets(np.diff(self.offsets)[queries]), self.values[queries[self.owners]])

    @cached_property
    def owners(self) -> Ints:
        """The query each value belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


@dataclass(frozen=True)
class Candidates(Ragged):
    """Candidates of queries: `values` are their corpus positions, each once a query.

    `rank` (m,) int32 counts from 1 in the fused order. By retriever, `ranks` (m,) int32 have the place in its own
    list, 0 outside it, and `scores` (m,) float32 what it gives the candidate, NaN where that is not known.
    """

    rank: NDArray[np.int32]
    ranks: dict[str, NDArray[np.int32]]
    scores: dict[str, NDArray[np.float32]]

    def only(self, queries: NDArray[np.bool_]) -> "Candidates":
        """The candidates of some queries."""
        kept = queries[self.owners]
        return Candidates(
            _offsets(np.diff(self.offsets)[queries]),
            self.values[kept],
            self.rank[kept],
            {name: ranks[kept] for name, ranks in self.ranks.items()},
            {name: scores[kept] for name, scores in self.scores.items()},
        )

    def found_by(self, retriever: str) -> NDArray[np.bool_]:
        """Which candidates are in the list of a retriever."""
        return self.ranks[retriever] > 0

    def finders(self) -> tuple[list[str], Ints]:
        """Who found each candidate, as a place (m,) in a list of names joined by a plus; 0, "", is nobody."""
        bits = np.zeros(len(self.values), dtype=np.int64)
        for bit, name in enumerate(self.ranks):
            bits |= self.found_by(name).astype(np.int64) << bit
        known, place = np.unique(np.concatenate([[0], bits]), return_inverse=True)
        names = [
            "+".join(name for bit, name in enumerate(self.ranks) if mask >> bit & 1) for mask in known.tolist()
        ]
        return names, place[1:]

    def place(self, other: Ragged) -> Ints:
        """Where the values of `other`, which has the same queries, stand among these; -1 for those that do not."""
        mine, theirs = _keys(self, other)
        if not len(mine):
            return np.full(len(theirs), -1, dtype=np.int64)
        order = np.argsort(mine, kind="stable")
        at = np.minimum(np.searchsorted(mine, theirs, sorter=order), len(mine) - 1)
        found = order[at]
        return np.where(mine[found] == theirs, found, -1)


def _keys(*lists: Ragged) -> list[Ints]:
    """(query, value) of each list as one number: equal where both are."""
    width = 1 + max((int(part.values.max(initial=0)) for part in lists), default=0)
    return [part.owners * width + part.values for part in lists]


def isin(left: Ragged, right: Ragged) -> NDArray[np.bool_]:
    """Which values of `left` the same query has in `right`."""
    if not len(right.values):
        return np.zeros(len(left.values), dtype=bool)
    keys = _keys(left, right)
    return np.isin(keys[0], keys[1])


def joined(lists: Mapping[str, Hits], ties: Ties, most: int) -> Candidates:
    """The union of what retrievers found for the same queries, in fused order, `most` a query at most."""
    runs = list(lists.values())
    order = runs[0] if len(runs) == 1 else fuse(runs, ties, most)
    union = Ragged.of(order.positions)
    start = np.repeat(union.offsets[:-1], np.diff(union.offsets))
    rank = (np.arange(len(union.values)) - start + 1).astype(np.int32)
    found = Candidates(union.offsets, union.values, rank, {}, {})
    for name, hits in lists.items():
        own = Ragged.of(hits.positions)
        place = found.place(own)
        scores = np.concatenate([*hits.scores, np.empty(0, dtype=np.float32)])
        first = np.repeat(own.offsets[:-1], np.diff(own.offsets))
        within = np.arange(len(own.values)) - first + 1
        kept = place >= 0
        found.ranks[name] = np.zeros(len(union.values), dtype=np.int32)
        found.ranks[name][place[kept]] = within[kept]
        found.scores[name] = np.full(len(union.values), np.nan, dtype=np.float32)
        found.scores[name][place[kept]] = scores[kept]
    return found


def extended(found: Candidates, more: Ragged) -> Candidates:
    """`found` with further candidates behind those of each query; values that are there already are not repeated."""
    if not len(more.values):
        return found
    fresh = found.place(more) < 0
    values, owners = more.values[fresh], more.owners[fresh]
    pairs = np.stack([owners, values])
    _, first = np.unique(pairs, axis=1, return_index=True)
    keep = np.sort(first)
    values, owners = values[keep], owners[keep]
    everyone = np.concatenate([found.owners, owners])
    order = np.argsort(everyone, kind="stable")
    offsets = _offsets(np.bincount(everyone, minlength=len(found)))

    def behind(old: NDArray, filler: float) -> NDArray:
        return np.concatenate([old, np.full(len(values), filler, dtype=old.dtype)])[order]

    return replace(
        found,
        offsets=offsets,
        values=np.concatenate([found.values, values])[order],
        rank=behind(found.rank, 0),
        ranks={name: behind(old, 0) for name, old in found.ranks.items()},
        scores={name: behind(old, np.nan) for name, old in found.scores.items()},
    )


@dataclass(frozen=True)
class Block:
    """Queries with their positives and candidates; `positive_scores` by retriever are those of `positives.values`."""

    query_ids: list[str]
    positives: Ragged
    positive_scores: dict[str, NDArray[np.float32]]
    candidates: Candidates

    def only(self, queries: NDArray[np.bool_]) -> "Block":
        """The rows of some queries."""
        kept = queries[self.positives.owners]
        return Block(
            [identifier for identifier, wanted in zip(self.query_ids, queries, strict=True) if wanted],
            self.positives.only(queries),
            {name: scores[kept] for name, scores in self.positive_scores.items()},
            self.candidates.only(queries),
        )
