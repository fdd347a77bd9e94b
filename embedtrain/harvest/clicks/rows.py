"""The rows of a click log, of one file or several, as counts; and what is to be said of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

from embedtrain import readers
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError, UsageError, first_three
from embedtrain.harvest.clicks.log import (
    Columns,
    Counts,
    Impression,
    as_clicked,
    as_count,
    as_position,
    count,
    recognise_columns,
)
from embedtrain.harvest.clicks.options import ClickOptions
from embedtrain.harvest.clicks.sides import DROPPED, Drop, Sides
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.tables import cells
from embedtrain.harvest.tables.lookup import Lookup
from embedtrain.readers import Row

_FIRST = 1_000  # rows by which columns and ids are recognised


@dataclass(frozen=True)
class Log:
    """A log that was read: its counts, the texts of its queries and the ids of its documents by number."""

    columns: Columns
    counts: Counts
    texts: list[str]
    ids: list[str]
    notes: list[str]

    @property
    def events(self) -> bool:
        """Whether its rows were single impressions."""
        return self.columns.impressions is None


def _lines(
    files: Sequence[Path], options: ClickOptions, drop: Drop, progress: Progress
) -> Iterator[tuple[str, Row]]:
    """Yield (where, row) of all files; EmbedtrainError where more lines than --max-bad are no rows."""
    blank: Counter[str] = Counter()
    first = ""
    good = bad = 0
    for path in files:

        def say(number: int, why: str, path: Path = path) -> None:
            nonlocal first, bad
            first, bad = first or why, bad + 1
            drop("line that is no row", where=f"{path} line {number}", why=why)

        def seen(done: int, total: int, path: Path = path) -> None:
            progress("read click log", done, total, path.name)

        for number, row in readers.rows(path, blank, format=options.input_format, bad=say, seen=seen):
            good += 1
            yield f"{path} line {number}", row
    for _ in range(blank["blank line"]):
        drop("blank line")
    if bad > options.max_bad * (good + bad):
        raise EmbedtrainError(
            f"{first} ({bad:,} of {good + bad:,} lines are no rows, more than --max-bad {options.max_bad:g})"
        )


class _Rows:
    """The rows of a log as impressions, and what was seen on the way."""

    def __init__(self, columns: Columns, sides: Sides, drop: Drop) -> None:
        self._columns, self._sides, self._drop = columns, sides, drop
        self.rows = self.clicks = self.shown = self.clipped = 0

    def read(self, rows: Iterator[tuple[str, Row]]) -> Iterator[Impression]:
        """Yield the impressions of rows; those without a query, document or position are dropped."""
        columns, sides = self._columns, self._sides
        for where, row in rows:
            self.rows += 1
            query = sides.query(row.get(columns.query), where)
            document = sides.document(row.get(columns.document), where)
            if query == DROPPED or document == DROPPED:
                continue
            position = None
            if columns.position is not None:
                value = row.get(columns.position)
                if value is None or value == "":
                    self._drop("impression without a position", where=where)
                    continue
                position = as_position(value, where, columns.position)
            clicked = row.get(columns.clicked)
            if columns.impressions is None:
                shown, clicks = 1, int(as_clicked(clicked, where, columns.clicked))
            else:
                shown = as_count(row.get(columns.impressions), where, columns.impressions)
                clicks = as_count(clicked, where, columns.clicked)
                if not shown:
                    self._drop("row without an impression", where=where)
                    continue
                if clicks > shown:
                    self.clipped += 1
                    clicks = shown
            self.shown += shown
            self.clicks += clicks
            session = None if columns.session is None else str(row.get(columns.session))
            time = None if columns.time is None else cells.moment(row.get(columns.time), where)
            yield Impression(query, document, position, shown, clicks, session, time)


def _asked(options: ClickOptions) -> dict[str, str]:
    # The name that is the default asks for nothing: other spellings are tried where it is not there.
    asked = {}
    for field in fields(Columns):
        name = getattr(options, f"{field.name}_column")
        asked[field.name] = "" if name == getattr(ClickOptions, f"{field.name}_column") else name
    return asked


def read_log(
    source: Path, options: ClickOptions, draft: Draft, known: Lookup | None, drop: Drop, progress: Progress
) -> Log:
    """Read a log, a file or all that a pattern matches, once; documents that are texts go into the draft.

    `known`: what documents, and perhaps queries, are ids of. What is left out is told to `drop`.
    Raises EmbedtrainError for a log without rows or clicks, and for cells that are not what their column holds.
    """
    stream = _lines(readers.files(source), options, drop, progress)
    first = list(islice(stream, _FIRST))
    if not first:
        raise EmbedtrainError(f"{source} is empty; a click log needs rows")
    columns = recognise_columns((row for _, row in first), _asked(options), source)
    if options.propensities and columns.position is None:
        raise UsageError(
            f"--propensities needs positions, and {source} has none; name them with --position-column"
        )
    sides = Sides(draft, known, drop)
    sides.recognise_queries([row.get(columns.query) for _, row in first])
    rows = _Rows(columns, sides, drop)
    counts = count(rows.read(chain(first, stream)), columns)
    progress("read click log", 1, 1, source.name)
    if not rows.clicks:
        raise EmbedtrainError(
            f"{source}: no row that can be used has a click in column {columns.clicked!r} ({rows.rows:,} rows, "
            f"{rows.shown:,} impressions); name another with --clicked-column"
        )
    notes = list(_notes(source, [row for _, row in first], columns, counts, rows, sides, known))
    return Log(columns, counts, sides.texts, sides.ids, notes)


def _notes(
    source: Path,
    first: Sequence[Row],
    columns: Columns,
    counts: Counts,
    rows: _Rows,
    sides: Sides,
    known: Lookup | None,
) -> Iterator[str]:
    used = {role: name for role, name in vars(columns).items() if name is not None}
    kind = "events" if columns.impressions is None else "counts"
    yield f"{source.name} is a log of {kind}; columns: {', '.join(f'{role} {name!r}' for role, name in used.items())}"
    yield (
        f"{rows.rows:,} rows with {rows.shown:,} impressions and {rows.clicks:,} clicks of {len(sides.texts):,} queries, "
        f"{len(sides.ids):,} documents and {int(counts.pair[-1]) + 1:,} pairs of them"
    )
    if unused := [name for name in dict.fromkeys(chain.from_iterable(first)) if name not in used.values()]:
        yield f"columns of {source.name} that are not read: {', '.join(unused)}"
    if rows.clipped:
        yield f"{rows.clipped:,} rows of {source.name} have more clicks than impressions; all of these were clicked"
    if known is None:
        values: list[Any] = [row.get(columns.document) for row in first]
        if not any(len(str(value).split()) > 1 for value in values):
            yield (
                f"no document in the first {len(first):,} rows of {source.name} has two words; if they are ids, say with "
                "--texts of what"
            )
        return
    if sides.query_ids:
        yield f"column {columns.query!r} of {source.name} holds query ids of {known.path.name}"
    for noun, ids in sides.unknown.items():
        if ids:
            yield f"{source.name} names a {noun} that is not in {known.path.name}: {first_three(ids)}"
