"""Equal items into different batches: an order is repaired by swaps, so sizes and members stay."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Batches tried for an item, and places tried in each, before it stays beside its equal.
_BATCHES, _PLACES = 8, 8


def repeats(codes: Ints, batches: Ints) -> NDArray[np.bool_]:
    """Which places hold a code that stands at an earlier place of the same batch. (n,)"""
    _, first = np.unique(batches * (int(codes.max(initial=0)) + 1) + codes, return_index=True)
    found = np.ones(len(codes), dtype=bool)
    found[first] = False
    return found


class _Property:
    """One property of the items by which they are equal or not, and where its values stand."""

    def __init__(self, values: Ints, batches: Ints) -> None:
        _, self.codes, counts = np.unique(values, return_inverse=True, return_counts=True)
        self.at = self.codes.copy()  # by place
        self.single = counts[self.codes] == 1  # by item
        self._items = np.argsort(self.codes, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._batches = batches
        self._count = int(batches[-1]) + 1
        self._held: dict[int, Ints] = {}
        self._everywhere: set[int] = set()

    def held(self, code: int, places: Ints) -> Ints:
        """How often a code stands in each batch, `places` being those of the items."""
        if code not in self._held:
            items = self._items[self._starts[code] : self._starts[code + 1]]
            self._held[code] = np.bincount(self._batches[places[items]], minlength=self._count)
        return self._held[code]

    def everywhere(self, code: int, places: Ints) -> bool:
        """Whether no batch is without the code; asked once, as a swap can only spread a code further."""
        if code not in self._everywhere and self.held(code, places).all():
            self._everywhere.add(code)
        return code in self._everywhere

    def swap(self, one: int, other: int) -> None:
        """Two places change what they hold."""
        for source, target in ((one, other), (other, one)):
            held = self._held.get(int(self.at[source]))
            if held is not None:
                held[self._batches[source]] -= 1
                held[self._batches[target]] += 1
        self.at[[one, other]] = self.at[[other, one]]


def separate(properties: Sequence[Ints], sizes: Ints, rng: np.random.Generator) -> tuple[Ints, int]:
    """Order items so that no batch holds two that are equal in one of the `properties`, as far as swaps can.

    `properties` (n,) numbers of the items, which stand in batches of `sizes` from the first on. Gives (the item at
    each place, how many items stand behind an equal one of their batch all the same). The time goes with the number
    of such items in the given order, and with n log n.
    """
    batches = np.repeat(np.arange(len(sizes)), sizes)
    item_at = np.arange(len(batches))
    if len(sizes) < 2 or not properties:
        return item_at, _clashes(properties, batches)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    place_of = item_at.copy()
    by = [_Property(values, batches) for values in properties]
    for item in np.flatnonzero(np.any([repeats(one.codes, batches) for one in by], axis=0)).tolist():
        place = int(place_of[item])
        batch = int(batches[place])
        own = [(one, int(one.codes[item])) for one in by if not one.single[item]]
        if all(one.held(code, place_of)[batch] < 2 for one, code in own):
            continue  # its equal has moved away meanwhile
        if any(one.everywhere(code, place_of) for one, code in own):
            continue
        free = np.flatnonzero(np.sum([one.held(code, place_of) for one, code in own], axis=0) == 0)
        other = _partner(free, bounds, by, item_at, batch, rng)
        if other >= 0:
            for one in by:
                one.swap(place, other)
            item_at[[place, other]] = item_at[[other, place]]
            place_of[item_at[[place, other]]] = [place, other]
    return item_at, _clashes([one.at for one in by], batches)


def _partner(
    free: Ints, bounds: list[int], by: list[_Property], item_at: Ints, batch: int, rng: np.random.Generator
) -> int:
    """A place in a batch of `free` whose item has no equal in `batch`; -1 where none was found."""
    if not len(free):
        return -1
    inside = slice(bounds[batch], bounds[batch + 1])
    for target in free[rng.integers(len(free), size=_BATCHES)].tolist():
        for place in rng.integers(bounds[target], bounds[target + 1], size=_PLACES).tolist():
            item = item_at[place]
            if all(one.single[item] or not (one.at[inside] == one.codes[item]).any() for one in by):
                return int(place)
    return -1


def _clashes(at: Sequence[Ints], batches: Ints) -> int:
    """Items with an equal one before them in their batch."""
    found = np.zeros(len(batches), dtype=bool)
    for values in at:
        _, codes = np.unique(values, return_inverse=True)
        found |= repeats(codes, batches)
    return int(found.sum())
