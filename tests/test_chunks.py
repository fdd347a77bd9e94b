"""Chunks hold every item once, like lengths together, within their budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.chunks import by_length


def test_by_hand() -> None:
    # Longest first; 5 x 2 and 4 x 2 fill a budget of 10, equal lengths keep their order.
    assert [chunk.tolist() for chunk in by_length([4, 5, 1, 5, 4], 10)] == [[1, 3], [0, 4], [2]]


def test_an_item_longer_than_the_budget_stands_alone() -> None:
    assert [chunk.tolist() for chunk in by_length([50, 3, 3], 10)] == [[0], [1, 2]]


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 500), st.integers(1, 20))
def test_every_item_once_within_budget(lengths: list[int], budget: int, most: int) -> None:
    chunks = by_length(lengths, budget, most)
    assert sorted(np.concatenate(chunks).tolist() if chunks else []) == list(range(len(lengths)))
    for chunk in chunks:
        longest = max(lengths[i] for i in chunk)
        assert len(chunk) <= most
        assert len(chunk) == 1 or longest * len(chunk) <= budget
