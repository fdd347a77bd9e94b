"""Equal items into different batches: an order is repaired by swaps, so sizes and members stay."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Places tried for an item: first anywhere, then in the batches that would take it.
_ANYWHERE, _WHERE_FREE = 32, 64
# Items of one code that found no place, after which the others are not tried: the batches are full of each other.
_FAILURES = 4
# The batches of a code with more items than this are counted once and kept, not gathered anew for each of them.
_COUNTED = 4_096


def repeats(codes: Ints, batches: Ints) -> NDArray[np.bool_]:
    """Which places hold a code that stands at an earlier place of the same batch. (n,)"""
    _, first = np.unique(batches * (int(codes.max(initial=0)) + 1) + codes, return_index=True)
    found = np.ones(len(codes), dtype=bool)
    found[first] = False
    return found


class _Property:
    """One property of the items by which they are equal or not, and how often each value stands in each batch."""

    def __init__(self, values: Ints, batches: Ints) -> None:
        """`batches` of the items as they stand at first."""
        _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
        self.codes = np.asarray(codes)
        self.counts = counts
        self.behind = repeats(self.codes, batches)
        self._batches = int(batches[-1]) + 1

    def prepare(self, batches: Ints) -> None:
        """What swaps need: only items with an equal one somewhere are looked after."""
        several = self.counts[self.codes] > 1
        self._several = several
        keys, counts = np.unique((self.codes * self._batches + batches)[several], return_counts=True)
        self._there = dict(zip(keys.tolist(), counts.tolist(), strict=True))
        self._items = np.argsort(self.codes, kind="stable")
        self._starts = np.cumsum(self.counts) - self.counts
        self._kept: dict[int, Ints] = {}
        self._failures: dict[int, int] = {}

    def holds(self, batch: int, item: int) -> int:
        """How many items equal to this one a batch holds, as far as there are several."""
        return self._there.get(self.codes.item(item) * self._batches + batch, 0)

    def hopeless(self, item: int) -> bool:
        """Whether enough of its equals were tried in vain."""
        return self._failures.get(self.codes.item(item), 0) >= _FAILURES

    def failed(self, batch: int, item: int) -> None:
        """No place was found for an item that stands beside its equal in the batch."""
        if self.holds(batch, item) > 1:
            code = self.codes.item(item)
            self._failures[code] = self._failures.get(code, 0) + 1

    def move(self, item: int, source: int, target: int) -> None:
        """The item changes its batch."""
        if not self._several.item(item):
            return
        code = self.codes.item(item)
        key = code * self._batches
        self._there[key + source] -= 1
        self._there[key + target] = self._there.get(key + target, 0) + 1
        if code in self._kept:
            self._kept[code][source] -= 1
            self._kept[code][target] += 1

    def in_batches(self, item: int, batch_of: Ints) -> NDArray[np.bool_]:
        """Which batches hold its equal, or itself; `batch_of` the items. (batches,)"""
        code = self.codes.item(item)
        if code in self._kept:
            return self._kept[code] > 0
        start = self._starts.item(code)
        there = np.bincount(batch_of[self._items[start : start + self.counts.item(code)]], minlength=self._batches)
        if self.counts.item(code) > _COUNTED:
            self._kept[code] = there
        return there > 0


def separate(properties: Sequence[Ints], sizes: Ints, rng: np.random.Generator) -> tuple[Ints, int]:
    """Order items so that no batch holds two that are equal in one of the `properties`, as far as swaps can.

    `properties` (n,) numbers of the items, which stand in batches of `sizes` from the first on. Gives (the item at
    each place, how many items stand behind an equal one of their batch all the same). The time goes with the
    number of such items in the given order, and with n log n.
    """
    batches = np.repeat(np.arange(len(sizes)), sizes)
    item_at = np.arange(len(batches))
    by = [_Property(values, batches) for values in properties]
    if not by:
        return item_at, 0
    behind = np.any([one.behind for one in by], axis=0)
    if len(sizes) < 2 or not behind.any():
        return item_at, int(behind.sum())
    for one in by:
        one.prepare(batches)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    batch_of, place_of = batches.copy(), item_at.copy()
    numbers = _numbers(rng)
    for item in np.flatnonzero(behind).tolist():
        batch = batch_of.item(item)
        if any(one.hopeless(item) for one in by) or all(one.holds(batch, item) < 2 for one in by):
            continue  # it fits nowhere else, or its equal has moved away meanwhile
        other = _partner(item, batch, by, bounds, item_at, batch_of, numbers)
        if other is None:
            for one in by:
                one.failed(batch, item)
            continue
        target = batch_of.item(other)
        for one in by:
            one.move(item, batch, target)
            one.move(other, target, batch)
        batch_of[item], batch_of[other] = target, batch
        place_of[item], place_of[other] = place_of.item(other), place_of.item(item)
        item_at[place_of[[item, other]]] = [item, other]
    return item_at, int(np.any([repeats(one.codes[item_at], batches) for one in by], axis=0).sum())


def _partner(
    item: int,
    batch: int,
    by: list[_Property],
    bounds: list[int],
    item_at: Ints,
    batch_of: Ints,
    numbers: Iterator[float],
) -> int | None:
    """An item of another batch that can change places with this one; None where none was found."""

    def tried(target: int) -> int | None:
        found = item_at.item(bounds[target] + int(next(numbers) * (bounds[target + 1] - bounds[target])))
        return None if any(one.holds(batch, found) for one in by) else found

    for _ in range(_ANYWHERE):
        target = int(next(numbers) * (len(bounds) - 1))
        if any(one.holds(target, item) for one in by):
            continue
        if (found := tried(target)) is not None:
            return found
    there = np.any([one.in_batches(item, batch_of) for one in by], axis=0)
    there[batch] = True
    free = np.flatnonzero(~there)
    if len(free):
        for _ in range(_WHERE_FREE):
            if (found := tried(free.item(int(next(numbers) * len(free))))) is not None:
                return found
    return None


def _numbers(rng: np.random.Generator) -> Iterator[float]:
    """Random numbers from 0 to below 1, drawn many at once."""
    while True:
        yield from rng.random(4_096).tolist()
