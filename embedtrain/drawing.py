"""What of a row stands in a batch: which of its positives and negatives, by a seeded draw.

A draw is a function of (start, epoch, row, how often the row stood in the epoch before, progress) alone: it does
not depend on the batch that the row is in. `start` is what `stream` makes of a seed and a stage.
"""

import dataclasses
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain.errors import EmbedtrainError, UsageError

CURRICULA = ("none", "linear", "stepped")
IN_BATCH, MINED = "in-batch", "mined"

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Row:
    """One query to train on.

    `not_negatives` are documents besides its positives that it must not push away. `explicit` are those of its
    negatives that somebody picked by hand; no score and no group speaks against them. `scores`, higher is harder,
    are what a curriculum goes by. `label` is the class of the query, -1 where there is none.
    """

    query_id: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    not_negatives: tuple[str, ...] = ()
    teacher: Mapping[str, float] | None = None
    explicit: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None
    label: int = -1
    source: str = ""

    @property
    def compared(self) -> list[str]:
        """Those of its negatives that it is compared with: masked ones stay documents and are none."""
        masked = set(self.not_negatives) - set(self.explicit)
        return [document for document in self.negatives if document not in masked]

    def __post_init__(self) -> None:
        if not self.positives:
            raise ValueError(f"the row of query {self.query_id!r} has no positive")
        if self.explicit and not set(self.explicit) <= set(self.negatives):
            raise ValueError(
                f"the row of query {self.query_id!r} has an explicit negative that is none of its negatives"
            )


@dataclasses.dataclass(frozen=True)
class Mix:
    """Whether the rest of a batch is negative to a row, and which share of the rows shows its own negatives."""

    in_batch: bool = True
    mined: float = 1.0


def parse_mix(text: str) -> Mix:
    """Read `in-batch,mined` (every row has both), either alone, or `in-batch:1,mined:3`: three rows of four have
    their mined negatives beside those of the batch, one has those of the batch alone. UsageError for others."""
    weights: dict[str, float | None] = {}
    for part in text.split(","):
        name, colon, number = part.strip().partition(":")
        if name not in (IN_BATCH, MINED) or name in weights:
            raise UsageError(f"--mix {text}: name {IN_BATCH}, {MINED} or both, each once")
        try:
            weights[name] = float(number) if colon else None
        except ValueError:
            weights[name] = -1.0
    given = [weight for weight in weights.values() if weight is not None]
    if given and (len(given) < 2 or not all(0 < weight < float("inf") for weight in given)):
        raise UsageError(f"--mix {text}: give both kinds a weight above 0, as {IN_BATCH}:1,{MINED}:3, or neither")
    share = given[list(weights).index(MINED)] / sum(given) if given else float(MINED in weights)
    return Mix(IN_BATCH in weights, share)


def stream(seed: int, stage: str) -> tuple[int, int]:
    """What a stage's random draws start from, so that two stages with one seed do not draw alike."""
    return seed, zlib.crc32(stage.encode())


def generator(start: Sequence[int], purpose: str, *numbers: int) -> np.random.Generator:
    """The random numbers of one purpose; all calls for it give as many `numbers`, as numpy takes [1, 0] for [1]."""
    return np.random.default_rng([*start, zlib.crc32(purpose.encode()), *numbers])


def difficulty(curriculum: str, progress: float) -> float:
    """The share of its negatives that a row draws from its harder half at `progress`, 0 to 1, of the training.

    linear: the progress itself; stepped: 0, 1/2 and 1 in the three thirds.
    """
    if curriculum == "linear":
        return min(max(progress, 0.0), 1.0)
    return min(int(min(max(progress, 0.0), 1.0) * 3), 2) / 2


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A row as it stands in a batch: the positive it trains on, its negatives, further positives."""

    row: Row
    positive: str
    negatives: tuple[str, ...]
    further: tuple[str, ...] = ()


class Drawing:
    """The draws of every epoch of a training run."""

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        start: Sequence[int],
        negatives: int,
        positives: int = 1,
        curriculum: str = "none",
        mined: float = 1.0,
    ) -> None:
        """`positives` and `negatives`: how many a row shows at most; a row with fewer shows what it has."""
        if positives < 1 or negatives < 0 or not 0.0 <= mined <= 1.0:
            raise ValueError(f"{positives} positives, {negatives} negatives, share {mined} cannot be drawn")
        if curriculum not in CURRICULA:
            raise UsageError(f"--curriculum {curriculum}: it is one of {', '.join(CURRICULA)}")
        if curriculum != "none":
            for row in rows:
                if row.scores is None and len(row.negatives) > negatives:
                    raise EmbedtrainError(
                        f"--curriculum {curriculum} goes by the scores of the negatives and query {row.query_id!r} "
                        "has none; mine with a retriever, or leave the flag out"
                    )
        self._rows = rows
        self._start = tuple(start)
        self._negatives = negatives
        self._positives = positives
        self._curriculum = curriculum
        self._mined = mined
        self._counts = np.fromiter((len(row.positives) for row in rows), dtype=np.int64, count=len(rows))
        # The n-th number of one generator belongs to row n, however many rows there are.
        spins = generator(self._start, "first positive").random(len(rows))
        self._first = (spins * self._counts).astype(np.int64)

    def first_positives(self, epoch: int, members: Ints, turns: Ints) -> Ints:
        """Which of its positives each row of `members` trains on: places in `Row.positives`.

        A row walks around its positives from a drawn place, as many at a time as it shows; whenever it is back
        where it began it moves on by one. So in as many epochs as it has positives each is trained on exactly
        once. `turns`: how often the row stood in this epoch before.
        """
        counts = self._counts[members]
        shown = np.minimum(self._positives, counts)
        passed = epoch + turns
        return (self._first[members] + passed * shown + passed // (counts // np.gcd(counts, shown))) % counts

    def choose(self, epoch: int, members: Ints, turns: Ints, progress: float) -> list[Chosen]:
        """The rows at `members` as they stand in a batch."""
        found = []
        firsts = self.first_positives(epoch, members, turns)
        for index, turn, first in zip(members.tolist(), turns.tolist(), firsts.tolist(), strict=True):
            row = self._rows[index]
            around = row.positives[first:] + row.positives[:first]
            negatives = self._some(row, epoch, index, turn, progress)
            found.append(Chosen(row, around[0], negatives, around[1 : self._positives]))
        return found

    def _some(self, row: Row, epoch: int, index: int, turn: int, progress: float) -> tuple[str, ...]:
        """Up to as many of the row's negatives as wanted, in the order the row has them."""
        count, there = self._negatives, len(row.negatives)
        if not count or not there or not self._mined:
            return ()
        if self._mined == 1.0 and there <= count:
            return row.negatives
        rng = generator(self._start, "negatives", epoch, index, turn)
        if rng.random() >= self._mined:
            return ()
        if there <= count:
            return row.negatives
        if self._curriculum == "none":
            chosen = rng.choice(there, size=count, replace=False)
        else:
            chosen = _by_difficulty(row, count, difficulty(self._curriculum, progress), rng)
        return tuple(row.negatives[place] for place in np.sort(chosen).tolist())


def _by_difficulty(row: Row, count: int, share: float, rng: np.random.Generator) -> Ints:
    """Places of `count` negatives, fewer than there are: `share` of them, on average, from the harder half.

    A negative without a score was found by no retriever, so it counts as easy. What one half lacks comes from the
    other.
    """
    scores = row.scores or {}
    hardness = [scores.get(document, float("-inf")) for document in row.negatives]
    order = np.array(sorted(range(len(hardness)), key=lambda place: (-hardness[place], row.negatives[place])))
    harder, easier = np.split(order, [(len(order) + 1) // 2])
    wanted = int(count * share + rng.random())
    wanted = max(min(wanted, len(harder), count), count - len(easier))
    return np.concatenate(
        [
            rng.choice(harder, size=wanted, replace=False),
            rng.choice(easier, size=count - wanted, replace=False),
        ]
    )
