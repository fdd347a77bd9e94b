"""Which rows stand together: the batches of an epoch as positions of rows, a function of (start, epoch)."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from embedtrain.drawing import Ints, generator
from embedtrain.errors import UsageError
from embedtrain.separation import separate

HOMOGENEOUS = ("", "source", "topic")


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """Batches an epoch: as few as hold all rows at `batch_size` or less."""
    return -(-rows // batch_size)


def even_sizes(rows: int, batch_size: int) -> Ints:
    """Sizes of the batches of `rows` rows; they differ by one at most, so that none is a small rest."""
    count = steps_per_epoch(rows, batch_size)
    return np.full(count, rows // max(count, 1)) + (np.arange(count) < rows % max(count, 1))


@dataclasses.dataclass(frozen=True)
class Mixing:
    """How often the rows of each source are drawn: by weights, or as n ** (1 / temperature) of its n rows.

    With neither, and with temperature 1, every row is drawn once. Arivazhagan et al. 2019 (Massively Multilingual
    NMT) mix languages of unequal size by that rule.
    """

    weights: Mapping[str, float] | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        if self.weights is not None and self.temperature is not None:
            raise UsageError("sources are mixed by weights or by a temperature, not by both; leave one out")
        for name, weight in (self.weights or {}).items():
            if not 0 < weight < math.inf:
                raise UsageError(f"source {name!r} has weight {weight}; a weight above 0 is needed")
        if self.temperature is not None and not self.temperature > 0:
            raise UsageError(f"sources cannot be mixed at temperature {self.temperature}; it must be above 0")

    def quotas(self, names: Sequence[str], counts: Ints) -> Ints:
        """Rows an epoch of each source, their sum that of `counts`: largest remainders, and 1 each at least.

        UsageError where the weights and the sources do not name each other.
        """
        if self.weights is None and self.temperature is None:
            return counts
        if self.weights is None:
            # Relative to the largest, so that no power overflows.
            shares = (counts / counts.max()) ** (1.0 / (self.temperature or 1.0))
        else:
            for name in [*self.weights, *names]:
                if (name in self.weights) != (name in names):
                    where = "has no weight" if name in names else "is not there"
                    raise UsageError(f"source {name!r} {where}; the sources are {', '.join(map(repr, names))}")
            shares = np.array([self.weights[name] for name in names], dtype=np.float64)
        exact = shares / shares.sum() * counts.sum()
        quotas = np.floor(exact).astype(np.int64)
        missing = int(counts.sum() - quotas.sum())
        quotas[np.argsort(quotas - exact, kind="stable")[:missing]] += 1
        quotas = np.maximum(quotas, 1)
        while (over := int(quotas.sum() - counts.sum())) > 0:
            largest = int(quotas.argmax())
            quotas[largest] -= min(over, max(1, int(quotas[largest]) - int(np.sort(quotas)[-2])))
        return quotas


@dataclasses.dataclass(frozen=True)
class Epoch:
    """The batches of an epoch, as positions of rows, and what became of the wishes.

    `turns` says of each row of a batch how often it stood in this epoch before. `repeated` rows are drawn again
    and `waiting` ones not at all, as the mixing of sources asks; `clashes` rows stand beside one with the same
    positive or query; `mixed` batches hold rows of several sources or topics that are smaller than half a batch.
    """

    batches: list[Ints]
    turns: list[Ints]
    repeated: int
    waiting: int
    clashes: int
    mixed: int


class Ordering:
    """The order of every epoch."""

    def __init__(
        self,
        rows: int,
        *,
        batch_size: int,
        start: Sequence[int],
        sources: Sequence[str] | None = None,
        mixing: Mixing | None = None,
        homogeneous: str = "",
        topics: Ints | None = None,
    ) -> None:
        """`sources`: one a row, needed to mix them and for batches of one source; `topics` (rows,): numbers, for
        batches of one topic."""
        if batch_size < 1 or rows < 1:
            raise ValueError(f"{rows} rows in batches of {batch_size} make no epoch")
        if homogeneous not in HOMOGENEOUS:
            raise UsageError(f"--homogeneous {homogeneous}: it is one of {', '.join(HOMOGENEOUS[1:])}")
        mixing = mixing or Mixing()
        mixed = mixing != Mixing()
        if homogeneous == "topic" and mixed:
            raise UsageError("--homogeneous topic does not go with mixed sources; leave one of them out")
        self._rows = rows
        self._batch_size = batch_size
        self._start = tuple(start)
        names: list[str] = []
        codes = np.zeros(rows, dtype=np.int64)
        if homogeneous == "source" or mixed:
            if sources is None or len(sources) != rows:
                raise ValueError("a source for each row is needed")
            names = sorted(set(sources))
            code = {name: number for number, name in enumerate(names)}
            codes = np.fromiter((code[source] for source in sources), dtype=np.int64, count=rows)
        self._members = _by_code(codes)
        counts = np.array([len(members) for members in self._members])
        self._quotas = mixing.quotas(names, counts) if mixed else counts
        self._groups = np.zeros(rows, dtype=np.int64)
        if homogeneous == "topic":
            if topics is None or topics.shape != (rows,):
                raise ValueError(f"topics ({rows},) are needed")
            self._groups = np.unique(topics, return_inverse=True)[1]
        elif homogeneous == "source":
            self._groups = codes
        drawn = self._drawn(0)
        self.per_epoch = sum(len(even_sizes(len(part), batch_size)) for part, _ in self._parts(drawn))

    def _drawn(self, epoch: int) -> Ints:
        """Rows of an epoch: each source goes around its rows in one shuffled order, a quota an epoch.

        So a source with fewer rows wanted than there are repeats none in an epoch, and leaves none out in the end.
        """
        if all(len(members) == quota for members, quota in zip(self._members, self._quotas, strict=True)):
            return np.arange(self._rows)
        found = []
        for number, (members, quota) in enumerate(zip(self._members, self._quotas.tolist(), strict=True)):
            around = members[generator(self._start, "source", number).permutation(len(members))]
            found.append(around[(epoch * quota + np.arange(quota)) % len(members)])
        return np.concatenate(found)

    def _parts(self, drawn: Ints) -> list[tuple[Ints, bool]]:
        """Rows that may stand together, and whether they are of several groups.

        Groups smaller than half a batch are put together, so that no row goes without negatives for its rarity.
        """
        groups = [drawn[places] for places in _by_code(self._groups[drawn])]
        small = [group for group in groups if 2 * len(group) < self._batch_size]
        if len(small) < 2:
            return [(group, False) for group in groups]
        large = [(group, False) for group in groups if 2 * len(group) >= self._batch_size]
        return [*large, (np.concatenate(small), True)]

    def epoch(self, number: int, keys: Sequence[Ints] = ()) -> Epoch:
        """The batches of an epoch, all rows once unless sources are mixed otherwise, sizes spread evenly.

        `keys` (rows,): rows that are equal in one of them come into different batches of their group, where that
        can be done by swaps of two rows.
        """
        batches: list[Ints] = []
        clashes = mixed = 0
        drawn = self._drawn(number)
        rng = generator(self._start, "order", number)
        for part, several in self._parts(drawn):
            rows = part[rng.permutation(len(part))]
            sizes = even_sizes(len(rows), self._batch_size)
            if keys:
                places, left = separate([key[rows] for key in keys], sizes, rng)
                rows = rows[places]
                clashes += left
            mixed += len(sizes) if several else 0
            batches += np.split(rows, np.cumsum(sizes)[:-1])
        if len(batches) > 1:
            batches = [batches[place] for place in rng.permutation(len(batches)).tolist()]
        distinct = len(np.unique(drawn))
        turns = _turns(np.concatenate(batches)) if distinct < len(drawn) else np.zeros(len(drawn), dtype=np.int64)
        return Epoch(
            batches,
            np.split(turns, np.cumsum([len(batch) for batch in batches])[:-1]),
            repeated=len(drawn) - distinct,
            waiting=self._rows - distinct,
            clashes=clashes,
            mixed=mixed,
        )


def _by_code(codes: Ints) -> list[Ints]:
    """Places of each code that occurs, in the order of the codes."""
    order = np.argsort(codes, kind="stable")
    _, first = np.unique(codes[order], return_index=True)
    return np.split(order, first[1:])


def _turns(values: Ints) -> Ints:
    """How often each value stood before it."""
    order = np.argsort(values, kind="stable")
    _, first, counts = np.unique(values[order], return_index=True, return_counts=True)
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.arange(len(values)) - np.repeat(first, counts)
    return found
