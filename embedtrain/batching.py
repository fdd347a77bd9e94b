"""The batches of a run: rows, their draws and their order, one batch a step."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from embedtrain.batch import Batch, make_batch
from embedtrain.drawing import Drawing, Ints, Mix, Row, stream
from embedtrain.duplicates import fingerprint
from embedtrain.ordering import Epoch, Mixing, Ordering

__all__ = ["Batch", "Batcher", "Row", "guarded", "make_batch", "stream"]

# Fingerprints of texts that are kept, about 50 MB: those asked for last.
_REMEMBERED = 1 << 18


def guarded(rows: Sequence[Row], query_text_of: Callable[[str], str]) -> list[Row]:
    """Rows to which the positives of every other row with the same query text are no negatives."""
    asked: dict[int, dict[str, None]] = {}
    words = [fingerprint(query_text_of(row.query_id)) for row in rows]
    for text, row in zip(words, rows, strict=True):
        asked.setdefault(text, {}).update(dict.fromkeys(row.positives))
    return [
        dataclasses.replace(row, not_negatives=(*row.not_negatives, *others))
        if len(asked[text]) > len(row.positives)
        and (others := [document for document in asked[text] if document not in row.positives])
        else row
        for text, row in zip(words, rows, strict=True)
    ]


class Batcher:
    """The batches of every epoch of a run: a function of (start, epoch, step), so resuming needs no state."""

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        batch_size: int,
        negatives: int,
        start: Sequence[int],
        text_of: Callable[[str], str],
        query_text_of: Callable[[str], str] | None = None,
        positives: int = 1,
        curriculum: str = "none",
        epochs: float = 1.0,
        mix: Mix = Mix(),  # noqa: B008 - frozen
        mixing: Mixing | None = None,
        homogeneous: str = "",
        topics: Ints | None = None,
        separate: bool = False,
        group_of: Callable[[str], Hashable] | None = None,
    ) -> None:
        """`text_of` a document id, `query_text_of` a query id (None: queries are compared by id).

        `separate` keeps rows with one positive text or one query text in different batches, where that can be
        done; it reads all texts of positives and queries once. `epochs` is where a curriculum ends. The rest is
        that of `Drawing` and `Ordering`.
        """
        self._rows = rows
        self._drawing = Drawing(
            rows,
            start=start,
            negatives=negatives if mix.mined else 0,
            positives=positives,
            curriculum=curriculum,
            mined=mix.mined,
        )
        self._ordering = Ordering(
            len(rows),
            batch_size=batch_size,
            start=start,
            sources=[row.source for row in rows],
            mixing=mixing,
            homogeneous=homogeneous,
            topics=topics,
        )
        self._number = functools.lru_cache(_REMEMBERED)(lambda document: fingerprint(text_of(document)))
        self._query_text_of = query_text_of
        self._separate = separate
        self._group_of = group_of
        self._in_batch = mix.in_batch
        self._order: tuple[int, Epoch | None] = (-1, None)
        self.per_epoch = self._ordering.per_epoch
        self._steps = max(1.0, epochs * self.per_epoch - 1)

    def _query_number(self, query: str) -> int:
        if self._query_text_of is not None:
            return fingerprint(self._query_text_of(query))
        digest = hashlib.blake2b(query.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return -1 - (int.from_bytes(digest, "big") >> 1)  # below 0: no document's number

    @functools.cached_property
    def _keys(self) -> tuple[Ints, Ints, Ints]:
        """Where the positives of each row begin; numbers of the texts of all positives, and of all queries."""
        counts = np.fromiter((len(row.positives) for row in self._rows), dtype=np.int64, count=len(self._rows))
        positives = (self._number(document) for row in self._rows for document in row.positives)
        queries = (self._query_number(row.query_id) for row in self._rows)
        return (
            np.cumsum(counts) - counts,
            np.fromiter(positives, dtype=np.int64, count=int(counts.sum())),
            np.fromiter(queries, dtype=np.int64, count=len(self._rows)),
        )

    def order(self, epoch: int) -> Epoch:
        """Which rows make the batches of an epoch, and what was repeated, is waiting or was not kept apart."""
        if self._order[0] != epoch or self._order[1] is None:
            keys: list[Any] = []
            if self._separate:
                begins, positives, queries = self._keys
                everyone = np.arange(len(self._rows))
                first = self._drawing.first_positives(epoch, everyone, np.zeros_like(everyone))
                keys = [positives[begins + first], queries]
            self._order = (epoch, self._ordering.epoch(epoch, keys))
        order = self._order[1]
        assert order is not None
        return order

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of a step of an epoch."""
        order = self.order(epoch)
        progress = (epoch * self.per_epoch + step) / self._steps
        chosen = self._drawing.choose(epoch, order.batches[step], order.turns[step], progress)
        return make_batch(
            chosen,
            number=self._number,
            query_numbers=[self._query_number(one.row.query_id) for one in chosen],
            group_of=self._group_of,
            in_batch=self._in_batch,
        )
