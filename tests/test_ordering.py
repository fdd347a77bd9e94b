"""Which rows stand together.

Deliberate breaks that turn a test here red: a last batch that holds the rest, an order that is the same in every
epoch, batches in the order of the sources, a quota that is rounded alone, a source that begins anew every epoch,
small groups left as small batches.
"""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.errors import UsageError
from embedtrain.ordering import Mixing, Ordering, even_sizes

START = (3, 4)


def ordering(rows: int, batch_size: int = 4, **options) -> Ordering:
    return Ordering(rows, batch_size=batch_size, start=START, **options)


@pytest.mark.parametrize(
    ("rows", "size", "sizes"),
    [
        (33, 32, [17, 16]),
        (64, 32, [32, 32]),
        (5, 8, [5]),  # P47 (a): fewer rows than a batch still make one step
        (10, 4, [4, 3, 3]),  # P47 (b): 3 epochs are 9 steps
        (5, 2, [2, 2, 1]),  # P46: no row left out, none twice
    ],
)
def test_no_batch_is_a_small_rest_p46_p47(rows: int, size: int, sizes: list[int]) -> None:
    assert even_sizes(rows, size).tolist() == sizes
    made = ordering(rows, size)
    epoch = made.epoch(0)
    assert made.per_epoch == len(sizes)
    assert sorted(map(len, epoch.batches), reverse=True) == sizes
    assert sorted(np.concatenate(epoch.batches).tolist()) == list(range(rows))


@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_every_row_stands_once_in_an_epoch(rows: int, size: int, data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows)))
    keys = [np.array(data.draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))) for _ in range(2)]
    kind = data.draw(st.sampled_from(["", "source", "topic"]))
    made = ordering(rows, size, homogeneous=kind, topics=labels, sources=[str(n) for n in labels])
    orders = []
    for number in range(3):
        epoch = made.epoch(number, keys)
        assert len(epoch.batches) == made.per_epoch
        assert all(0 < len(batch) <= size for batch in epoch.batches)
        flat = np.concatenate(epoch.batches)
        assert sorted(flat.tolist()) == list(range(rows))
        assert (epoch.repeated, epoch.waiting) == (0, 0)
        assert not np.concatenate(epoch.turns).any()
        behind = 0
        for batch in epoch.batches:
            seen: list[set[int]] = [set(), set()]
            for row in batch:
                behind += any(int(key[row]) in there for key, there in zip(keys, seen, strict=True))
                for key, there in zip(keys, seen, strict=True):
                    there.add(int(key[row]))
        assert behind == epoch.clashes
        orders.append(flat.tolist())
        again = made.epoch(number, keys)
        assert [batch.tolist() for batch in again.batches] == [batch.tolist() for batch in epoch.batches]
    if rows > 20:
        assert orders[0] != orders[1]


def test_two_starts_do_not_order_alike() -> None:
    one, other = (Ordering(50, batch_size=8, start=(0, n)).epoch(0).batches for n in (1, 2))
    assert np.concatenate(one).tolist() != np.concatenate(other).tolist()


@pytest.mark.parametrize("kind", ["source", "topic"])
def test_batches_of_one_source_or_topic_are_shuffled_and_small_groups_share(kind: str) -> None:
    # Half a batch is 4: groups a and b make batches of their own, c, d and e (2, 1 and 3 rows) share one.
    labels = np.array([0] * 40 + [1] * 4 + [2] * 2 + [3] + [4] * 3)
    made = ordering(50, 8, homogeneous=kind, topics=labels, sources=["abcde"[n] for n in labels])
    epoch = made.epoch(0)
    groups = [sorted(set(labels[batch].tolist())) for batch in epoch.batches]
    assert Counter(map(tuple, groups)) == {(0,): 5, (1,): 1, (2, 3, 4): 1}
    assert made.per_epoch == 7
    assert epoch.mixed == 1
    places = {tuple(sorted(set(labels[made.epoch(number).batches[0]].tolist()))) for number in range(20)}
    assert len(places) > 1
    plain = ordering(50, 8).epoch(0)
    assert max(len(set(labels[batch].tolist())) for batch in plain.batches) > 1
    assert plain.mixed == 0


def test_one_small_group_stays_as_it_is() -> None:
    epoch = ordering(9, 8, homogeneous="source", sources=["a"] * 8 + ["b"]).epoch(0)
    assert sorted(map(len, epoch.batches)) == [1, 8]
    assert epoch.mixed == 0


def test_quotas_by_weights_and_temperature() -> None:
    counts = np.array([90, 10])
    assert Mixing().quotas(["a", "b"], counts).tolist() == [90, 10]
    assert Mixing(temperature=1.0).quotas(["a", "b"], counts).tolist() == [90, 10]
    # 90 ** 0.5 = 9.487 and 10 ** 0.5 = 3.162: 75 and 25 of 100.
    assert Mixing(temperature=2.0).quotas(["a", "b"], counts).tolist() == [75, 25]
    assert Mixing(temperature=1e9).quotas(["a", "b"], counts).tolist() == [50, 50]
    assert Mixing(weights={"b": 1.0, "a": 4.0}).quotas(["a", "b"], counts).tolist() == [80, 20]
    # 10 in three equal parts: 3.33 each, the first gets the rest.
    assert Mixing(weights=dict.fromkeys("abc", 1.0)).quotas(list("abc"), np.array([6, 2, 2])).tolist() == [4, 3, 3]
    assert Mixing(weights={"a": 1e9, "b": 1.0}).quotas(["a", "b"], counts).tolist() == [99, 1]


def test_a_source_drawn_less_leaves_no_row_out_in_the_end_and_one_drawn_more_repeats_as_little_as_can_be() -> None:
    sources = ["big"] * 30 + ["small"] * 10
    made = ordering(40, 8, sources=sources, mixing=Mixing(weights={"big": 1.0, "small": 1.0}))
    seen: Counter[int] = Counter()
    for number in range(3):
        epoch = made.epoch(number)
        flat = np.concatenate(epoch.batches)
        once = Counter(flat.tolist())
        assert sum(once[row] for row in range(30)) == 20
        assert {once[row] for row in range(30)} == {0, 1}
        assert [once[row] for row in range(30, 40)] == [2] * 10
        assert (epoch.repeated, epoch.waiting) == (10, 10)
        turns = np.concatenate(epoch.turns)
        assert sorted(turns[flat >= 30].tolist()) == [0] * 10 + [1] * 10
        assert not turns[flat < 30].any()
        seen += once
    # 3 epochs of 20 are 2 rounds of 30.
    assert {seen[row] for row in range(30)} == {2}


def test_a_row_that_is_drawn_twice_is_told_apart() -> None:
    made = ordering(4, 4, sources=["a", "a", "a", "b"], mixing=Mixing(weights={"a": 1.0, "b": 1.0}))
    epoch = made.epoch(0)
    pairs = list(zip(np.concatenate(epoch.batches).tolist(), np.concatenate(epoch.turns).tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) == 4
    assert {(3, 0), (3, 1)} <= set(pairs)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.floats(0.2, 50))
def test_quotas_add_up_and_leave_no_source_out(counts: list[int], temperature: float) -> None:
    found = Mixing(temperature=temperature).quotas([str(n) for n in range(len(counts))], np.array(counts))
    assert found.sum() == sum(counts)
    assert found.min() >= 1


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="not by both"):
        Mixing(weights={"a": 1.0}, temperature=2.0)
    for weight in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="above 0"):
            Mixing(weights={"a": weight})
    with pytest.raises(UsageError, match="above 0"):
        Mixing(temperature=0.0)
    with pytest.raises(UsageError, match="'c' is not there"):
        ordering(2, sources=["a", "b"], mixing=Mixing(weights={"a": 1.0, "b": 1.0, "c": 1.0}))
    with pytest.raises(UsageError, match="'b' has no weight"):
        ordering(2, sources=["a", "b"], mixing=Mixing(weights={"a": 1.0}))
    with pytest.raises(UsageError, match="source, topic"):
        ordering(2, homogeneous="colour")
    with pytest.raises(UsageError, match="does not go with"):
        ordering(2, sources=["a", "b"], homogeneous="topic", topics=np.zeros(2), mixing=Mixing(temperature=2.0))
    with pytest.raises(ValueError, match="topics"):
        ordering(2, homogeneous="topic")
    with pytest.raises(ValueError, match="a source for each row"):
        ordering(2, homogeneous="source", sources=["a"])
    with pytest.raises(ValueError, match="no epoch"):
        ordering(0)
