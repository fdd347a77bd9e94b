"""Texts of like length side by side: the order and the chunks in which a model reads them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def by_length(lengths: Sequence[int] | np.ndarray, budget: int, most: int = 256) -> list[np.ndarray]:
    """Cut items of the given lengths (tokens) into chunks of positions, longest first.

    A chunk's padded size (items x its longest) stays within `budget` tokens and it holds at most `most` items; an
    item longer than the budget is a chunk of its own. Equal lengths keep their order.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    chunks: list[np.ndarray] = []
    start = 0
    while start < len(order):
        size = items_of(int(lengths[order[start]]), budget, most)
        chunks.append(order[start : start + size])
        start += size
    return chunks


def cheapest(
    lengths: Sequence[int] | NDArray[np.int64], budget: int, overhead: int, most: int = 256
) -> list[NDArray[np.int64]]:
    """Cut items as `by_length` does, but so that padded tokens and `overhead` tokens a chunk are fewest in all.

    `overhead` is what a chunk costs besides its tokens: where lengths differ a lot a chunk ends early, where they are
    alike it is full. By dynamic programming over the items from the shortest on; of equal cuts the larger first chunk.
    """
    lengths = np.maximum(np.asarray(lengths, dtype=np.int64), 1)
    order = np.argsort(-lengths, kind="stable")
    along = lengths[order]
    rest = np.zeros(len(along) + 1, dtype=np.int64)  # cost of the items from a place on
    sizes = np.zeros(len(along), dtype=np.int64)
    for place in range(len(along) - 1, -1, -1):
        fits = min(items_of(int(along[place]), budget, most), len(along) - place)
        costs = along[place] * np.arange(fits, 0, -1) + rest[place + fits : place : -1]
        found = int(costs.argmin())
        sizes[place], rest[place] = fits - found, costs[found] + overhead
    cut: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        cut.append(order[start : start + int(sizes[start])])
        start += int(sizes[start])
    return cut


def items_of(length: int, budget: int, most: int = 256) -> int:
    """How many items of a length make a full chunk; 1 at least."""
    return max(1, min(most, budget // max(1, length)))


def padded(lengths: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The length to which each item is padded, which depends on its own length alone. (n,)

    At least one more than it has, up to a multiple of 8 (beyond 512 of a 32nd or less of the length), so that
    all items of one padded length do have padding; never beyond `limit`, where items that were cut have none.
    """
    lengths = np.minimum(lengths, limit)
    step = 1 << np.maximum(3, np.ceil(np.log2(lengths + 1)).astype(np.int64) - 6)
    return np.minimum((lengths + step) // step * step, limit)


def by_shape(lengths: NDArray[np.int64], limit: int, budget: int, most: int = 256) -> list[NDArray[np.int64]]:
    """Cut items into chunks of positions that are padded alike, longest first; all of a chunk are full, or none.

    What a model computes for an item can then be a function of that item: neither the width of its padding nor
    whether the chunk needs a mask depends on what stands beside it.
    """
    lengths = np.minimum(np.asarray(lengths, dtype=np.int64), limit)
    shapes = 2 * padded(lengths, limit) + (lengths == limit)
    order = np.argsort(-shapes, kind="stable")
    chunks: list[NDArray[np.int64]] = []
    for same in np.split(order, np.flatnonzero(np.diff(shapes[order])) + 1):
        size = items_of(int(shapes[same[0]]) // 2, budget, most) if len(same) else 1
        chunks += [same[start : start + size] for start in range(0, len(same), size)]
    return chunks
