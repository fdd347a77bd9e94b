"""Texts of like length side by side: the order and the chunks in which a model reads them."""

from collections.abc import Sequence

import numpy as np


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
        size = max(1, min(most, budget // max(1, int(lengths[order[start]]))))
        chunks.append(order[start : start + size])
        start += size
    return chunks
