"""Near-duplicate texts: MinHash finds the candidates, the Jaccard index of their shingles decides.

Shingles are runs of 8 bytes of the normalised text (see `duplicates.shingles`), signatures those of R-MinHash (Rensa, after
Dahlgaard, Knudsen and Thorup, Fast Similarity Sketching, FOCS 2017), cut into bands of rows (Leskovec, Rajaraman and Ullman,
Mining of Massive Datasets, section 3.4): texts that agree in all rows of one band are compared. With 21 bands of 6 rows a
pair of Jaccard index 0.8 is compared in 99.8 of 100 cases, 0.9 in all but one of 10 million.
In memory are 84 bytes a text.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from embedtrain.collection import join_title
from embedtrain.console import Progress
from embedtrain.duplicates import jaccard, shingles
from embedtrain.harvest import changes
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.ledger import Ints
from embedtrain.harvest.summary import shorten

BANDS, ROWS = 21, 6
_SEED = 1
_AT_ONCE = 2_000  # texts whose shingles are in memory together
_KEPT = 4_096  # sets of shingles that are kept while pairs are compared
# What mixes the rows of a band into one number: sums of products, modulo 2**64, of which the upper half is kept.
_MIX = np.random.default_rng(1).integers(1 << 63, dtype=np.uint64, size=ROWS) * np.uint64(2) + np.uint64(1)


def signatures(texts: Iterable[str]) -> NDArray[np.uint32]:
    """The bands of every text, each as one number. (n, BANDS)"""
    blocks = [np.empty((0, BANDS), dtype=np.uint32)]
    for part in _parts(texts, _AT_ONCE):
        sets = [shingles(text) for text in part]
        ends = np.cumsum([0, *map(len, sets)]).astype(np.uint64)
        matrix = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(sets), ends, BANDS * ROWS, _SEED)
        rows = np.array(matrix.to_rows(), dtype=np.uint64).reshape(len(part), BANDS, ROWS)
        mixed = (rows * _MIX).sum(axis=2, dtype=np.uint64)
        blocks.append((mixed >> np.uint64(32)).astype(np.uint32))
    return np.concatenate(blocks)


def _parts(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    part: list[str] = []
    for text in texts:
        part.append(text)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def candidates(bands: NDArray[np.uint32]) -> tuple[Ints, Ints]:
    """Places (first, second), first < second, of texts that share a band, each pair once.

    Of the texts of one band the first is paired with all others, and each with the next: enough to join what belongs
    together, and linear in their number.
    """
    found = [np.empty(0, dtype=np.int64)]
    count = len(bands)
    for band in bands.T:
        order = np.argsort(band, kind="stable").astype(np.int64)
        same = band[order[1:]] == band[order[:-1]]
        new = np.concatenate([[True], ~same])[: len(order)]
        leader = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
        later = ~new
        for first in (leader[later], order[np.flatnonzero(later) - 1]):
            found.append(np.unique(first * count + order[later]))
        if len(found) > BANDS:
            found = [np.unique(np.concatenate(found))]
    pairs = np.unique(np.concatenate(found))
    return (pairs // count, pairs % count) if count else (pairs, pairs)


def near_pairs(bands: NDArray[np.uint32], text: Callable[[int], str], threshold: float) -> tuple[Ints, Ints]:
    """Places of the candidates whose shingles have a Jaccard index of `threshold` or more; `text` reads one by its place."""

    @lru_cache(maxsize=_KEPT)
    def shingled(place: int) -> NDArray[np.uint64]:
        return shingles(text(place))

    first, second = candidates(bands)
    near = [
        jaccard(shingled(a), shingled(b)) >= threshold
        for a, b in zip(first.tolist(), second.tolist(), strict=True)
    ]
    chosen = np.array(near, dtype=bool)
    return first[chosen], second[chosen]


def clusters(first: Ints, second: Ints, count: int) -> Ints:
    """For each of `count` places the smallest place it is joined with, itself where it is alone."""
    graph = coo_array((np.ones(len(first), dtype=np.int8), (first, second)), shape=(count, count))
    label = connected_components(graph.tocsr(), directed=False)[1]
    leader = np.full(int(label.max(initial=-1)) + 1, count, dtype=np.int64)
    np.minimum.at(leader, label, np.arange(count))
    return leader[label]


def merge(draft: Draft, threshold: float, progress: Progress) -> None:
    """Make near-duplicates one: the first of a cluster stands for those without an id of their own, which leave.

    Documents with their own ids stay; no split parts them from what they are near to.
    """
    numbers, own = draft.keys("documents")[0], draft.own("documents")
    total = len(numbers)

    def texts() -> Iterator[str]:
        for done, (_, _, document) in enumerate(draft.documents(), start=1):
            progress("look for near-duplicates", done, total, "")
            yield join_title(document.title, document.text)

    pairs = near_pairs(signatures(texts()), lambda place: draft.text("documents", int(numbers[place])), threshold)
    leader = clusters(*pairs, total)
    # One with an id of its own stands for a cluster before those that have none.
    first_own = np.full(total, total, dtype=np.int64)
    np.minimum.at(first_own, leader[own], np.flatnonzero(own))
    leader = np.where(first_own[leader] < total, first_own[leader], leader)
    others = np.flatnonzero(leader != np.arange(total))
    for place in np.unique(leader[others[own[others]]]).tolist():
        members = np.flatnonzero((leader == place) & own)
        draft.keep_together(f"near-duplicates of {int(numbers[place])}", numbers[members])
    weak = others[~own[others]]
    into = {int(numbers[place]): int(numbers[leader[place]]) for place in weak}
    if into:
        one = min(into)
        draft.notes.append(
            f"{len(into):,} near-duplicates were made one with another document, as "
            f"{shorten(draft.text('documents', one), 60)!r} with {shorten(draft.text('documents', into[one]), 60)!r}"
        )
    changes.merge(draft, into, "near-duplicate document")
    changes.forget_unasked(draft)
