"""One batch: the ids a step needs, and who may be a negative for whom.

Texts are compared, not ids, and compared as `duplicates.normalised` has them. What stands beside a query:

    own positive            always, in column 0
    own further positives   never as negatives
    own mined negatives     used; not where labels speak against them; a rule on scores may hide them (masking.py)
    own explicit negatives  used; only the text of a positive or of the query itself speaks against them
    other rows' documents   used, positives and negatives alike; labels and rules on scores may hide them
    other rows' queries     used by the losses that compare queries, or documents with queries
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain.drawing import Chosen, Ints, Row

Flags = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """What a step needs, as ids and masks. B rows, K columns, U documents.

    documents (U,) distinct ids; columns (B, K) places in `documents`, 0 where absent: the positive in column 0,
    then negatives, then further positives; present, negative, explicit (B, K): there; one of the row's own
    negatives that the mask shows; of those the ones picked by hand. mask (B, B*K): the column may stand in the
    row's softmax, one column a text, the row's own where it has one. labels (B,) of the queries, -1 unknown, and
    teacher (B, K) float32 raw, NaN unknown: None where no row has any. offered: pairs of a row and a text it was
    compared with or not.

    The last fields are what `positives`, `query_mask` and `reverse_mask` are made of when they are asked for:
    known (rows, columns); clashes (i, j): row i may not push away the positive of row j; query_texts (B,) numbers.
    """

    queries: list[str]
    documents: list[str]
    columns: Ints
    present: Flags
    negative: Flags
    explicit: Flags
    mask: Flags
    labels: Ints | None
    teacher: NDArray[np.float32] | None
    offered: int
    known: tuple[Ints, Ints]
    clashes: tuple[Ints, Ints]
    query_texts: Ints
    in_batch: bool

    @property
    def without_negatives(self) -> int:
        """Rows whose softmax holds nothing but their positive; they train on nothing."""
        return int((self.mask.sum(1) <= 1).sum())

    @property
    def negatives_each(self) -> float:
        """Negatives that a query is compared with, documents of different texts, as a mean over the rows."""
        return (int(self.mask.sum()) - len(self.queries)) / len(self.queries)

    @property
    def masked_share(self) -> float:
        """Share of the texts offered to the rows that may not be their negatives; 0 where none were offered."""
        return 1.0 - self.negatives_each * len(self.queries) / self.offered if self.offered else 0.0

    @functools.cached_property
    def positives(self) -> Flags:
        """The column shows a known positive of row i's query, one column a text, its own where it has one. (B,
        B*K)"""
        found = np.zeros_like(self.mask)
        found[self.known] = True
        return found

    @functools.cached_property
    def query_mask(self) -> Flags:
        """Query j may be a negative of query i: another text, neither's positive known to the other. (B, B)

        Of queries with one text the first stands for all; the diagonal is False.
        """
        found = self._other_queries()
        one, other = self.clashes
        found[one, self._spokesman[other]] = False
        found[other, self._spokesman[one]] = False
        return found

    @functools.cached_property
    def reverse_mask(self) -> Flags:
        """Query j may stand in the softmax of row i's positive: it is another text and does not know that
        document.

        (B, B). Of queries with one text the first stands for all; the diagonal is True.
        """
        found = self._other_queries()
        one, other = self.clashes
        found[other, self._spokesman[one]] = False
        np.fill_diagonal(found, True)
        return found

    @functools.cached_property
    def _spokesman(self) -> Ints:
        """The first row with the query text of each row. (B,)"""
        _, first, text = np.unique(self.query_texts, return_index=True, return_inverse=True)
        return np.asarray(first[text])

    def _other_queries(self) -> Flags:
        size = len(self.queries)
        found = np.zeros((size, size), dtype=bool)
        if self.in_batch:
            found[:, np.unique(self._spokesman)] = True
            found[np.arange(size), self._spokesman] = False
        return found


def _table(chosen: Sequence[Chosen]) -> tuple[list[str], Ints, Flags, Flags, Flags]:
    """Distinct documents; columns, present, negative and explicit (B, K) as they were drawn."""
    size = len(chosen)
    width = 1 + max((len(one.negatives) + len(one.further) for one in chosen), default=0)
    columns = np.zeros((size, width), dtype=np.int64)
    present, negative, explicit = (np.zeros((size, width), dtype=bool) for _ in range(3))
    place: dict[str, int] = {}
    for number, one in enumerate(chosen):
        shown = (one.positive, *one.negatives, *one.further)
        columns[number, : len(shown)] = [place.setdefault(document, len(place)) for document in shown]
        present[number, : len(shown)] = True
        negative[number, 1 : 1 + len(one.negatives)] = True
        if one.row.explicit:
            picked = set(one.row.explicit)
            explicit[number, 1 : 1 + len(one.negatives)] = [document in picked for document in one.negatives]
    return list(place), columns, present, negative, explicit


def _teacher(chosen: Sequence[Chosen], shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """The teacher's raw scores of the documents of each row, NaN where there is none. (B, K)"""
    if all(one.row.teacher is None for one in chosen):
        return None
    found = np.full(shape, np.nan, dtype=np.float32)
    for number, one in enumerate(chosen):
        scores: Mapping[str, float] = one.row.teacher or {}
        shown = (one.positive, *one.negatives, *one.further)
        found[number, : len(shown)] = [scores.get(document, np.nan) for document in shown]
    return found


def _spoken_against(
    chosen: Sequence[Chosen],
    texts: Mapping[int, int],
    number: Callable[[str], int],
    query_numbers: Sequence[int],
    siblings: Callable[[Row], set[int]],
) -> tuple[list[set[int]], list[set[int]]]:
    """For each row the texts of the batch that are known positives of its query, and all that are no negatives."""

    def those(documents: Sequence[str]) -> set[int]:
        return {texts[found] for document in documents if (found := number(document)) in texts}

    known, excluded = [], []
    for one, query in zip(chosen, query_numbers, strict=True):
        right = those(one.row.positives)
        itself = {texts[query]} if query in texts else set()
        known.append(right)
        spared = those(one.row.explicit)
        excluded.append(right | itself | ((those(one.row.not_negatives) | siblings(one.row)) - spared))
    return known, excluded


def _pairs(sets: Sequence[set[int]]) -> tuple[Ints, Ints]:
    """(row, member) of each set, in order."""
    rows = np.repeat(np.arange(len(sets)), [len(part) for part in sets])
    return rows, np.array([member for part in sets for member in sorted(part)], dtype=np.int64)


def make_batch(
    chosen: Sequence[Chosen],
    *,
    number: Callable[[str], int],
    query_numbers: Sequence[int],
    group_of: Callable[[str], Hashable] | None = None,
    in_batch: bool = True,
) -> Batch:
    """The batch of rows as they were drawn.

    `number` of a document and `query_numbers` of the rows' queries are equal where their normalised texts are.
    `group_of` a document: documents of the group of a known positive are no negatives; an empty one groups
    nothing. Without `in_batch` a row is compared with its own documents alone.
    """
    documents, columns, present, drawn, picked = _table(chosen)
    size, width = columns.shape
    texts: dict[int, int] = {}
    text_of = np.array([texts.setdefault(number(document), len(texts)) for document in documents])
    shown = np.flatnonzero(present)
    text = text_of[columns.reshape(-1)[shown]]
    owner = shown // width

    members: dict[Hashable, set[int]] = {}
    if group_of is not None:
        for document, value in zip(documents, text_of.tolist(), strict=True):
            if group := group_of(document):
                members.setdefault(group, set()).add(value)

    def siblings(row: Row) -> set[int]:
        if group_of is None:
            return set()
        return set().union(*(members.get(group_of(document), ()) for document in row.positives))

    known, excluded = _spoken_against(chosen, texts, number, query_numbers, siblings)

    # The first column that shows a text stands for it; for a row that has the text itself, its own first one does.
    _, first = np.unique(text, return_index=True)
    representative = shown[first]
    keys, first = np.unique(owner * len(texts) + text, return_index=True)
    own_rows, own_columns, own_texts = owner[first], shown[first], text[first]

    def column(rows: Ints, wanted: Ints) -> Ints:
        found = np.searchsorted(keys, rows * len(texts) + wanted).clip(max=len(keys) - 1)
        return np.where(keys[found] == rows * len(texts) + wanted, own_columns[found], representative[wanted])

    everywhere = np.zeros(size * width, dtype=bool)
    everywhere[representative] = in_batch
    mask = np.tile(everywhere, (size, 1))
    mask[own_rows, representative[own_texts]] = False
    mask[own_rows, own_columns] = True
    rows, without = _pairs(excluded)
    mask[rows, column(rows, without)] = False
    each = np.arange(size)
    mask[each, each * width] = True
    rows_known, right = _pairs(known)

    own = mask.reshape(size, size, width)[each, each]
    labels = np.array([one.row.label for one in chosen], dtype=np.int64)
    return Batch(
        queries=[one.row.query_id for one in chosen],
        documents=documents,
        columns=columns,
        present=present,
        negative=drawn & own,
        explicit=picked & own,
        mask=mask,
        labels=labels if (labels >= 0).any() else None,
        teacher=_teacher(chosen, (size, width)),
        offered=size * (len(texts) - 1) if in_batch else len(keys) - size,
        known=(rows_known, column(rows_known, right)),
        clashes=_join(rows, without, text_of[columns[:, 0]]),
        query_texts=np.unique(np.array(query_numbers, dtype=np.int64), return_inverse=True)[1],
        in_batch=in_batch,
    )


def _join(rows: Ints, texts: Ints, positives: Ints) -> tuple[Ints, Ints]:
    """Pairs (row, j): the row has text t in (rows, texts), and t is that of the positive of row j."""
    order = np.argsort(positives, kind="stable")
    low, high = (np.searchsorted(positives[order], texts, side=side) for side in ("left", "right"))
    counts = high - low
    inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(rows, counts), order[np.repeat(low, counts) + inside]
