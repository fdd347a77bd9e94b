"""Chunks hold every item once, like lengths together, within their budget; by shape, nothing depends on neighbours.

Breaks that turn a test red: a length rounded up beyond the limit, items with and without padding in one chunk, no
padding for a length that is a multiple of 8, steps of 8 at any length.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.chunks import by_length, by_shape, padded


def test_by_hand() -> None:
    # Longest first; 5 x 2 and 4 x 2 fill a budget of 10, equal lengths keep their order.
    assert [chunk.tolist() for chunk in by_length([4, 5, 1, 5, 4], 10)] == [[1, 3], [0, 4], [2]]


def test_an_item_longer_than_the_budget_stands_alone() -> None:
    assert [chunk.tolist() for chunk in by_length([50, 3, 3], 10)] == [[0], [1, 2]]


def test_padded_lengths_by_hand() -> None:
    # One more token at least, up to a multiple of 8; of 16 beyond 512, of 32 beyond 1,024; the limit cuts.
    lengths = np.array([0, 7, 8, 9, 255, 256, 511, 512, 600, 1_023, 1_024, 1_100])
    assert padded(lengths, 4_096).tolist() == [8, 8, 16, 16, 256, 264, 512, 528, 608, 1_024, 1_056, 1_120]
    assert padded(lengths, 250).tolist() == [8, 8, 16, 16, 250, 250, 250, 250, 250, 250, 250, 250]


def test_by_shape_by_hand() -> None:
    # Limit 16: lengths 16 and 20 are full, 15 and 9 padded to 16, 3 and 7 to 8. Two of 16 tokens, four of 8 fit.
    lengths = np.array([3, 15, 20, 9, 16, 16, 7])
    assert [chunk.tolist() for chunk in by_shape(lengths, 16, 32)] == [[2, 4], [5], [1, 3], [0, 6]]


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 500), st.integers(1, 20))
def test_every_item_once_within_budget(lengths: list[int], budget: int, most: int) -> None:
    chunks = by_length(lengths, budget, most)
    assert sorted(np.concatenate(chunks).tolist() if chunks else []) == list(range(len(lengths)))
    for chunk in chunks:
        longest = max(lengths[i] for i in chunk)
        assert len(chunk) <= most
        assert len(chunk) == 1 or longest * len(chunk) <= budget


@given(st.lists(st.integers(0, 3_000), max_size=60), st.integers(1, 2_000), st.integers(1, 4_096))
def test_every_item_once_by_shape(lengths: list[int], limit: int, budget: int) -> None:
    tokens = np.array(lengths, dtype=np.int64)
    widths = padded(tokens, limit)
    chunks = by_shape(tokens, limit, budget)
    assert sorted(np.concatenate(chunks).tolist() if chunks else []) == list(range(len(lengths)))
    for chunk in chunks:
        width = widths[chunk[0]]
        assert (widths[chunk] == width).all()
        assert len(chunk) == 1 or width * len(chunk) <= budget
        cut = np.minimum(tokens[chunk], limit)
        assert (cut == width).all() or (cut < width).all()
        assert (cut <= width).all()
        # Little of it is padding: one step of 8 tokens, or of a 32nd.
        assert (width - cut <= np.maximum(8, cut / 16)).all()
