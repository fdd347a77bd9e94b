"""Rows to batches: which rows stand together, which negatives each has, who may be a negative for whom."""

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from embedtrain.duplicates import normalised


@dataclasses.dataclass(frozen=True)
class Row:
    """One query to train on; `not_negatives` are documents besides its positives that it must not push away."""

    query_id: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()
    not_negatives: tuple[str, ...] = ()
    teacher: Mapping[str, float] | None = None


@dataclasses.dataclass(frozen=True)
class Batch:
    """What a step needs, as ids and masks.

    documents (U,) distinct ids; columns (B, 1+N) positions in `documents`, the positive in column 0, 0 where
    absent; present (B, 1+N) boolean; mask (B, B*(1+N)) boolean; teacher (B, 1+N) float32, or None.
    """

    queries: list[str]
    documents: list[str]
    columns: np.ndarray
    present: np.ndarray
    mask: np.ndarray
    teacher: np.ndarray | None

    @property
    def without_negatives(self) -> int:
        """Rows whose softmax holds nothing but their positive; they train on nothing."""
        return int((self.mask.sum(1) <= 1).sum())


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """Batches an epoch: as few as hold all rows at `batch_size` or less."""
    return -(-rows // batch_size)


def stream(seed: int, stage: str) -> tuple[int, int]:
    """What a stage's random draws start from, so that two stages with one seed do not draw alike."""
    return seed, zlib.crc32(stage.encode())


def epoch_order(rows: int, batch_size: int, start: Sequence[int], epoch: int) -> list[np.ndarray]:
    """Row positions of each batch of an epoch, shuffled by (start, epoch).

    The rows are spread evenly, sizes differing by one at most, so that no batch is a small rest.
    """
    order = np.random.default_rng([*start, epoch]).permutation(rows)
    return np.array_split(order, steps_per_epoch(rows, batch_size))


def _choose(row: Row, negatives: int, rng: np.random.Generator) -> tuple[str, list[str]]:
    """A positive and up to `negatives` of the row's negatives, in the order the row has them."""
    positive = row.positives[int(rng.integers(len(row.positives)))]
    if len(row.negatives) <= negatives:
        return positive, list(row.negatives)
    chosen = np.sort(rng.choice(len(row.negatives), size=negatives, replace=False))
    return positive, [row.negatives[int(index)] for index in chosen]


def make_batch(
    rows: Sequence[Row],
    members: Sequence[int] | np.ndarray,
    *,
    negatives: int,
    start: Sequence[int],
    epoch: int,
    group: Callable[[str], int],
) -> Batch:
    """Build the batch of the rows at `members`, drawing positives and negatives by (start, epoch, row).

    `group` numbers documents by normalised text: two ids with one text are one document here. For a row, a column
    is masked when it is absent, when its text is that of any positive or of a `not_negatives` document of the
    query (the row's own positive in column 0 stays), or when the same text stood in an earlier column.
    """
    chosen = [
        _choose(rows[int(index)], negatives, np.random.default_rng([*start, epoch, int(index)]))
        for index in members
    ]
    width = 1 + max((len(drawn) for _, drawn in chosen), default=0)
    size = len(chosen)
    position: dict[str, int] = {}
    columns = np.zeros((size, width), dtype=np.int64)
    present = np.zeros((size, width), dtype=bool)
    taught = all(rows[int(index)].teacher is not None for index in members)
    teacher = np.zeros((size, width), dtype=np.float32) if taught else None
    for number, ((positive, drawn), index) in enumerate(zip(chosen, members, strict=True)):
        scores = rows[int(index)].teacher
        for column, document in enumerate([positive, *drawn]):
            columns[number, column] = position.setdefault(document, len(position))
            present[number, column] = True
            if teacher is not None and scores is not None:
                teacher[number, column] = scores[document]
    documents = list(position)
    groups = np.asarray([group(document) for document in documents], dtype=np.int64)[columns].reshape(-1)
    shown = present.reshape(-1)
    mask = np.zeros((size, size * width), dtype=bool)
    # The first of the columns that show a text stands for all of them; a row's own positive stands for its text.
    _, first = np.unique(np.where(shown, groups, -1), return_index=True)
    representative = np.zeros(size * width, dtype=bool)
    representative[first] = True
    representative &= shown
    for number, index in enumerate(members):
        row = rows[int(index)]
        excluded = [group(document) for document in (*row.positives, *row.not_negatives)]
        mask[number] = representative & ~np.isin(groups, excluded)
        mask[number, number * width] = True
    return Batch([rows[int(index)].query_id for index in members], documents, columns, present, mask, teacher)


class Batcher:
    """The batches of every epoch of a training run; documents are compared by normalised text."""

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        batch_size: int,
        negatives: int,
        start: Sequence[int],
        text_of: Callable[[str], str],
    ) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self._negatives = negatives
        self._start = tuple(start)
        self._text_of = text_of
        self._numbers: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._order: tuple[int, list[np.ndarray]] = (-1, [])
        self.per_epoch = steps_per_epoch(len(rows), batch_size)

    def _group(self, document: str) -> int:
        if document not in self._groups:
            text = normalised(self._text_of(document))
            self._groups[document] = self._numbers.setdefault(text, len(self._numbers))
        return self._groups[document]

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of a step of an epoch."""
        if self._order[0] != epoch:
            self._order = (epoch, epoch_order(len(self._rows), self._batch_size, self._start, epoch))
        return make_batch(
            self._rows,
            self._order[1][step],
            negatives=self._negatives,
            start=self._start,
            epoch=epoch,
            group=self._group,
        )
