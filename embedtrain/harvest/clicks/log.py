"""A click log as counts: how often each query was shown each document at each rank, clicked it, and skipped it.

A log is a table of events, one row a document shown to somebody, or of counts that somebody else has added up. It
is read once and row by row; what stays in memory are the counts, 22 bytes for each distinct (query, document,
rank), 8 more with times, and about 110 at most while they are put together (measured on 4 and 18 million).
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embedtrain.errors import EmbedtrainError
from embedtrain.readers import Row

Ints = NDArray[np.int64]
Numbers = NDArray[np.uint32]

# What the columns of a log are called, the flag that names another, and the spellings that are tried in turn.
_SPELLINGS = {
    "query": ("query", "query_text", "search_query", "search_term", "keyword", "query_string", "query_id", "qid"),
    "document": (
        "document", "doc", "document_id", "doc_id", "docid", "corpus_id", "result", "result_id", "item", "item_id",
        "product_id", "page", "url",
    ),
    "clicked": ("clicked", "click", "is_clicked", "is_click", "clicks", "click_count", "num_clicks"),
    "impressions": ("impressions", "impression_count", "num_impressions", "views", "shown"),
    "position": ("position", "rank", "pos", "result_position", "slot"),
    "session": ("session", "session_id", "request_id", "search_id", "impression_id"),
    "time": ("time", "timestamp", "datetime", "date", "ts"),
}  # fmt: skip
_NEEDED = ("query", "document", "clicked")
_DEEPEST = 65_535  # a rank has two bytes
_MOST = 2**32 - 1  # and a count four
_FLUSH = 1 << 20  # rows that wait to be added up
_OPEN = 10_000  # result pages whose rows may come mixed


@dataclass(frozen=True)
class Columns:
    """Which column of a log holds what; None where there is none. `impressions` makes it a log of counts."""

    query: str
    document: str
    clicked: str
    impressions: str | None = None
    position: str | None = None
    session: str | None = None
    time: str | None = None


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def is_log(columns: Iterable[str]) -> bool:
    """Whether columns are those of a click log by their spelling: a query, a document, and whether it was clicked."""
    names = set(map(_plain, columns))
    return all(names & set(_SPELLINGS[role]) for role in _NEEDED)


def recognise_columns(rows: Iterable[Row], asked: dict[str, str], where: object) -> Columns:
    """Find the columns among those of the first rows: those asked for by a flag, else by the spellings there are.

    `asked` holds a name for some of the fields of `Columns`; an empty one asks for nothing.
    Raises EmbedtrainError where a column that was asked for or is needed is not there.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    by_spelling: dict[str, str] = {}
    for spelling in names:
        by_spelling.setdefault(_plain(spelling), spelling)
    found: dict[str, str] = {}
    for field in fields(Columns):
        role = field.name
        spelled = next((by_spelling[s] for s in _SPELLINGS[role] if s in by_spelling), None)
        name: str | None = asked.get(role) or spelled
        if name is None and role not in _NEEDED:
            continue
        if name is None or name not in names:
            missing = f"no column {name!r}" if name else f"no column that says the {role}"
            raise EmbedtrainError(
                f"{where} has {missing}; its columns are: {', '.join(names) or 'none'}; "
                f"say which to read with --{role}-column"
            )
        found[role] = name
    return Columns(**found)


def as_clicked(value: Any, where: str, column: str) -> bool:
    """Whether a value says that something was clicked: 1 or 0, true or false."""
    text = value.strip().lower() if isinstance(value, str) else value
    if text in (0, "0", "false"):  # False == 0 == 0.0
        return False
    if text in (1, "1", "true"):
        return True
    raise EmbedtrainError(
        f"{where} column {column} is {value!r}; 1 or 0, true or false is needed, or an impressions column for counts"
    )


def as_count(value: Any, where: str, column: str) -> int:
    """A number of things, 0 or more."""
    if type(value) is int and 0 <= value <= _MOST:  # as nearly all are
        return value
    try:
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not number.is_integer() or not 0 <= number <= _MOST:
        raise EmbedtrainError(
            f"{where} column {column} is {value!r}; a whole number from 0 to {_MOST:,} is needed"
        )
    return int(number)


def as_position(value: Any, where: str, column: str) -> int:
    """The position of a result on its page, counted from 0 or 1."""
    position = as_count(value, where, column)
    if position >= _DEEPEST:
        raise EmbedtrainError(
            f"{where} column {column} is {position}; positions under {_DEEPEST:,} are read, mend or remove the row"
        )
    return position


@dataclass(frozen=True)
class Counts:
    """One row for each distinct (query, document, rank), in this order. All (n,), integers without a sign.

    Ranks count from 1, and are all 1 where the log has no positions. `since` is the first time in seconds,
    infinite where there is none, and None for a log without times.
    """

    query: Numbers
    document: Numbers
    rank: NDArray[np.uint16]
    shown: Numbers
    clicked: Numbers
    skipped: Numbers
    since: NDArray[np.float64] | None

    @property
    def pair(self) -> Ints:
        """The number of the (query, document) of each row, from 0."""
        new = np.zeros(len(self.query), dtype=np.int64)
        new[1:] = (self.query[1:] != self.query[:-1]) | (self.document[1:] != self.document[:-1])
        return np.cumsum(new, out=new)


class Tally:
    """Adds up rows as they come: those of a block are sorted into what there is, and equal ones become one.

    A block is as large as a half of what there is, or a million rows, so that all sorting together is of the order
    of n log(n)**2 for n rows, and memory goes with the distinct ones.
    """

    _KINDS = (("pair", "Q", np.uint64), ("rank", "H", np.uint16), ("shown", "I", np.uint32))
    _MORE = (("clicked", "I", np.uint32), ("skipped", "I", np.uint32), ("since", "d", np.float64))

    def __init__(self, *, timed: bool) -> None:
        self._kinds = (*self._KINDS, *(self._MORE if timed else self._MORE[:-1]))
        self._waiting = [array(code) for _, code, _ in self._kinds]
        self._table: list[NDArray[Any]] = [np.empty(0, dtype=kind) for _, _, kind in self._kinds]

    def add(
        self, query: int, document: int, rank: int, shown: int, clicked: int, skipped: int, since: float
    ) -> None:
        """Add a row; the numbers of query and document have 32 bits each."""
        pairs, ranks, showns, clickeds, skippeds, *times = self._waiting
        pairs.append(query << 32 | document)
        ranks.append(rank)
        showns.append(shown)
        clickeds.append(clicked)
        skippeds.append(skipped)
        if times:
            times[0].append(since)
        if len(pairs) >= _FLUSH and len(pairs) >= len(self._table[0]) // 2:
            self._pack()

    def _pack(self) -> None:
        if not self._waiting[0]:
            return
        columns = [
            np.concatenate([old, np.frombuffer(new, dtype=kind)])
            for old, new, (_, _, kind) in zip(self._table, self._waiting, self._kinds, strict=True)
        ]
        self._waiting = [array(code) for _, code, _ in self._kinds]
        self._table = []
        order = np.lexsort((columns[1], columns[0]))
        pair, rank = columns[0][order], columns[1][order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (pair[1:] != pair[:-1]) | (rank[1:] != rank[:-1])
        starts = np.flatnonzero(new)
        table = [pair[starts], rank[starts]]
        for column, (name, _, kind) in zip(columns[2:], self._kinds[2:], strict=True):
            if name == "since":
                table.append(np.minimum.reduceat(column[order], starts))
                continue
            sums = np.add.reduceat(column[order], starts, dtype=np.int64)
            if sums.max() > _MOST:
                raise EmbedtrainError(
                    f"one query and document have more than {_MOST:,} {name} at one rank; harvest a part of the log"
                )
            table.append(sums.astype(kind))
        self._table = table

    def counts(self) -> Counts:
        """What was added up."""
        self._pack()
        pair, rank, shown, clicked, skipped, *since = self._table
        query, document = pair >> np.uint64(32), pair & np.uint64(0xFFFFFFFF)
        sides = query.astype(np.uint32), document.astype(np.uint32)
        return Counts(*sides, rank, shown, clicked, skipped, since[0] if since else None)


class Impression(NamedTuple):
    """A row of a log, its texts or ids as numbers. `position` is None where the log has none."""

    query: int
    document: int
    position: int | None
    shown: int
    clicked: int
    session: str | None = None
    time: float | None = None


def skipped(page: Mapping[int, tuple[int, bool]]) -> Iterator[tuple[int, int]]:
    """Yield (document, position) of what stands above a click of its page and was not clicked.

    It was seen and passed over ("click > skip above", Joachims et al., SIGIR 2005). `page` holds (document,
    clicked) by position, in any order.
    """
    last = max((position for position, (_, clicked) in page.items() if clicked), default=0)
    for position, (document, clicked) in page.items():
        if not clicked and position < last:
            yield document, position


class _Pages:
    """Puts the rows of one result page together: those of one session and query, with positions that differ.

    Rows of up to `_OPEN` pages may come mixed. A page whose rows lie further apart counts as several; then skips
    may be missed, and none are made up. Without sessions a page is a run of rows of one query with rising
    positions.
    """

    def __init__(self, tally: Tally, *, sessions: bool) -> None:
        self._tally = tally
        self._sessions = sessions
        self._open: dict[tuple[str | None, int], dict[int, tuple[int, bool]]] = {}

    def add(self, row: Impression, position: int) -> None:
        key = (row.session, row.query)
        page = self._open.get(key)
        if page is not None and (position in page if self._sessions else position <= next(reversed(page))):
            self._close(key)
            page = None
        if page is None:
            if len(self._open) >= (_OPEN if self._sessions else 1):
                self._close(next(iter(self._open)))
            page = self._open[key] = {}
        page[position] = (row.document, row.clicked > 0)

    def _close(self, key: tuple[str | None, int]) -> None:
        for document, position in skipped(self._open.pop(key)):
            self._tally.add(key[1], document, position, 0, 0, 1, math.inf)

    def close(self) -> None:
        for key in list(self._open):
            self._close(key)


def count(rows: Iterable[Impression], columns: Columns) -> Counts:
    """Add up the rows of a log. Positions that begin at 0, and missing ones, are ranks from 1 here."""
    tally = Tally(timed=columns.time is not None)
    pages = None
    if columns.impressions is None and columns.position is not None:
        pages = _Pages(tally, sessions=columns.session is not None)
    for row in rows:
        position = 0 if row.position is None else row.position
        time = math.inf if row.time is None else row.time
        tally.add(row.query, row.document, position, row.shown, row.clicked, 0, time)
        if pages is not None:
            pages.add(row, position)
    if pages is not None:
        pages.close()
    found = tally.counts()
    return found if found.rank.min(initial=1) else replace(found, rank=found.rank + np.uint16(1))
