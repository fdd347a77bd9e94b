"""Equal items into different batches.

Deliberate breaks that turn a test here red: only one of two properties looked at, a partner that brings an equal
of its own into the batch, counts that do not follow an item into its new batch (few and many equal ones), items
lost in a swap.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.separation import repeats, separate


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_repeats_stand_behind_an_equal_of_their_batch() -> None:
    assert repeats(np.array([5, 5, 1, 5, 1, 1]), np.array([0, 0, 0, 1, 1, 1])).tolist() == [0, 1, 0, 0, 0, 1]


def test_equal_items_are_kept_apart_in_both_properties() -> None:
    # Items 0 and 1 share the first property; swapping 1 with 2 would bring two of the second together.
    one, other = np.array([7, 7, 1, 2]), np.array([1, 2, 1, 3])
    items, left = separate([one, other], np.array([2, 2]), rng())
    assert left == 0
    assert {frozenset(items[:2].tolist()), frozenset(items[2:].tolist())} == {frozenset({0, 3}), frozenset({1, 2})}


def test_what_cannot_be_kept_apart_stays_and_is_counted() -> None:
    items, left = separate([np.array([1, 1, 1, 2])], np.array([2, 2]), rng())
    assert left == 1
    assert sorted(items.tolist()) == [0, 1, 2, 3]
    items, left = separate([np.zeros(3, dtype=np.int64)], np.array([3]), rng())
    assert left == 2
    assert items.tolist() == [0, 1, 2]
    assert separate([], np.array([1, 1]), rng())[1] == 0


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60),
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
)
def test_nothing_is_lost_and_what_is_left_is_counted(values: list[tuple[int, int]], cuts: list[int]) -> None:
    sizes = [size for size, end in zip(cuts, np.cumsum(cuts), strict=True) if end <= len(values)]
    if sum(sizes) < len(values):
        sizes.append(len(values) - sum(sizes))
    one, other = (np.array(part) for part in zip(*values, strict=True))
    batches = np.repeat(np.arange(len(sizes)), sizes)
    before = int((repeats(one, batches) | repeats(other, batches)).sum())
    items, left = separate([one, other], np.array(sizes), rng())
    assert sorted(items.tolist()) == list(range(len(values)))
    counted = 0
    for part in np.split(items, np.cumsum(sizes)[:-1]):
        for place, item in enumerate(part):
            counted += any(one[item] == one[earlier] or other[item] == other[earlier] for earlier in part[:place])
    assert left == counted <= before
    again, _ = separate([one, other], np.array(sizes), rng())
    assert again.tolist() == items.tolist()


def test_pairs_of_equal_items_are_all_taken_apart() -> None:
    values = rng().permutation(np.repeat(np.arange(500), 4))
    _, left = separate([values], np.full(20, 100), rng())
    assert left == 0
    # More equal items than are looked for one by one, as many as batches.
    values = rng().permutation(np.concatenate([np.zeros(4_500, dtype=np.int64), np.arange(1, 4_501)]))
    items, left = separate([values], np.full(4_500, 2), rng())
    assert left == 0
    assert ((values[items].reshape(-1, 2) == 0).sum(1) == 1).all()
    # An item that fits into one batch only: 20 equal ones for 20 batches.
    values = np.concatenate([np.zeros(20, dtype=np.int64), np.arange(1, 181)])
    _, left = separate([values], np.full(20, 10), rng())
    assert left == 0
