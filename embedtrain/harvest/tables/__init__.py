"""Tables: JSONL, CSV, TSV, Parquet, Arrow, in the shapes of `shapes`; what is read is a stream of pairs and drops."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from embedtrain import readers
from embedtrain.collection import is_blank
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.harvest.draft import Document, Draft, refuse_clashes
from embedtrain.harvest.known import add_documents
from embedtrain.harvest.tables.cells import Text
from embedtrain.harvest.tables.classes import Classes
from embedtrain.harvest.tables.graph import citation
from embedtrain.harvest.tables.headers import headless, rows_without_header
from embedtrain.harvest.tables.lookup import Lookup
from embedtrain.harvest.tables.pairs import Drop, Found, Note, Pair, Reading
from embedtrain.harvest.tables.settings import Settings
from embedtrain.harvest.tables.shapes import Shape, shape_of
from embedtrain.readers import Row

_GROUPED = ("classes", "clusters")
_UNKNOWN = ("unknown document id", "unknown query id")


class _Shapes:
    """The shape of each row: one for all rows of the same columns, and of one family for all rows of a source."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Shape] = {}
        self._first: tuple[Shape, str] | None = None
        self.names: dict[str, None] = {}
        self.unused: dict[str, None] = {}

    def of(self, row: Row, settings: Settings, where: str) -> Shape:
        columns = tuple(row)
        shape = self._known.get(columns)
        if shape is None:
            shape = shape_of(columns, settings, where)
            first, place = self._first = self._first or (shape, where)
            if shape.family != first.family:
                raise EmbedtrainError(
                    f"{where} has the columns of {shape.name} where {place} has those of {first.name}; say with --shape "
                    "what the rows are"
                )
            self._known[columns] = shape
            self.names |= {shape.name: None}
            self.unused |= dict.fromkeys(name for name in columns if name not in shape.used())
        return shape


class _Source:
    """The rows of a table's files as a stream of pairs, drops and, at the end, notes."""

    def __init__(
        self, name: str, files: Sequence[Path], settings: Settings, lookup: Lookup | None, progress: Progress
    ) -> None:
        self._name = name
        self._files = files
        self._settings = settings
        self._lookup = lookup
        self._progress = progress
        self._of_file = settings
        self._shapes = _Shapes()
        self._readings: dict[Shape, Reading] = {}
        self._classes: Classes | None = None
        self._counts: Counter[str] = Counter()
        self._unknown: dict[str, dict[str, None]] = {reason: {} for reason in _UNKNOWN}

    def found(self) -> Iterator[Found]:
        """Everything the files hold. Raises EmbedtrainError for what cannot be read, and for files without rows."""
        for path in self._files:
            for where, row in self._rows(path):
                if isinstance(row, Drop):
                    yield row
                    continue
                self._counts["rows"] += 1
                for item in self._row(row, where):
                    if isinstance(item, Drop):
                        self._remember(item)
                    yield item
        if not self._counts["rows"]:
            raise EmbedtrainError(f"{self._name} is empty; a table needs rows")
        if self._classes is not None:
            yield from self._pairs_of_classes(self._classes)
            self._classes.close()
        yield from map(Note, self._notes())

    def _rows(self, path: Path) -> Iterator[tuple[str, Row | Drop]]:
        """Rows of a file, each with its place; blank lines and lines that are no rows as drops."""
        dropped: Counter[str] = Counter()
        bad: list[tuple[int, str]] = []
        shape, format = headless(path, self._settings), self._settings.input_format
        counted = said = good = 0

        def seen(done: int, total: int) -> None:
            self._progress("read table", done, total, path.name)

        def refuse(number: int, why: str) -> None:
            bad.append((number, why))

        if shape:
            self._counts["without header"] += 1
            self._of_file = dataclasses.replace(self._settings, shape=shape)
            rows = rows_without_header(path, shape, format, dropped, refuse, seen)
        else:
            self._of_file = self._settings
            rows = readers.rows(path, dropped, format=format, bad=refuse, seen=seen)
        first = ""

        def drops() -> Iterator[tuple[str, Drop]]:
            nonlocal counted, said, first
            for _ in range(counted, dropped["blank line"]):
                yield "", Drop("blank line", {"where": str(path)})
            counted = dropped["blank line"]
            for number, why in bad:
                first = first or why
                yield "", Drop("line that is no row", {"where": f"{path} line {number}", "why": why})
            said += len(bad)
            bad.clear()

        for number, row in rows:
            yield from drops()
            good += 1
            yield f"{path} line {number}", row
        yield from drops()
        if said > self._settings.max_bad * (good + said):
            share = (
                f"{said:,} of {good + said:,} lines are no rows, more than --max-bad {self._settings.max_bad:g}"
            )
            raise EmbedtrainError(f"{first} ({share})")

    def _row(self, row: Row, where: str) -> Iterator[Pair | Drop]:
        shape = self._shapes.of(row, self._of_file, where)
        reading = self._readings.get(shape)
        if reading is None:
            reading = self._readings[shape] = Reading(shape, self._settings, self._lookup)
        if shape.time and row.get(shape.time) in (None, ""):
            self._counts["without a time"] += 1
        if shape.name in _GROUPED:
            yield from self._member(row, shape, reading, where)
        elif shape.name == "graph" and self._lookup is not None:
            time = reading.time(row, where)
            yield from citation(row, shape, self._settings, self._lookup, time, where)
        else:
            yield from reading.pairs(row, where)

    def _member(self, row: Row, shape: Shape, reading: Reading, where: str) -> Iterator[Drop]:
        if self._classes is None:
            self._classes = Classes(self._settings.seed)
        text = reading.query(row, where)
        label = row.get(shape.label)
        if isinstance(text, Drop):
            yield text
        elif label is None or (isinstance(label, str) and is_blank(label)):
            yield Drop("text without a class", {"query": text, "where": where})
        else:
            name = readers.as_id(label, f"{where} column {shape.label}")
            if not self._classes.add(name, text, reading.time(row, where)):
                yield Drop("repeated text", {"query": text, "where": where})

    def _pairs_of_classes(self, classes: Classes) -> Iterator[Pair | Drop]:
        source = next(iter(self._shapes.names))
        for name, size in classes.sizes():
            if size == 1:
                yield Drop("only text of its class", {"query": classes.members(name)[0].text, "class": name})
            possible = size * (size - 1) // 2
            count = 0
            for left, right in classes.pairs(name, self._settings.max_pairs_per_class):
                count += 1
                # A pair is as old as the younger of its texts.
                time = None if left.time is None or right.time is None else max(left.time, right.time)
                yield Pair(left.text, Text("", right.text), source, weight=self._settings.weight, time=time)
            self._counts["classes"] += size > 1
            self._counts["pairs"] += count
            self._counts["possible"] += possible

    def _remember(self, drop: Drop) -> None:
        if drop.reason in _UNKNOWN:
            self._counts[drop.reason] += 1
            names = self._unknown[drop.reason]
            if len(names) <= 3:
                names[drop.row["query" if drop.reason == "unknown query id" else "document"]] = None

    def _notes(self) -> Iterator[str]:
        name = Path(self._name).name
        if names := [shape for shape in self._shapes.names if shape != "pairs"]:
            how = " without a header" if self._counts["without header"] else ""
            told = "read" if self._settings.shape != "auto" else "recognised"
            yield f"{name}{how} is {told} as {', '.join(names)}"
        if self._shapes.unused:
            yield f"columns of {name} that are not read: {', '.join(self._shapes.unused)}"
        if self._shapes.names.keys() & set(_GROUPED):
            counts = self._counts
            yield (
                f"{counts['pairs']:,} pairs of {counts['classes']:,} classes or clusters in {name}, of "
                f"{counts['possible']:,} that could be made (--max-pairs-per-class)"
            )
        if self._lookup is not None:
            for reason, ids in self._unknown.items():
                if ids:
                    noun = reason.removeprefix("unknown ").removesuffix(" id")
                    yield (
                        f"{self._counts[reason]:,} rows of {name} name a {noun} that is not in {self._lookup.path.name}: "
                        f"{first_three(list(ids))}"
                    )
        if count := self._counts["without a time"]:
            yield f"{count:,} of {self._counts['rows']:,} rows of {name} have no time"
        if any(shape.scores for shape in self._readings):
            yield f"scores of {name} are checked and not kept; score-teacher gives a collection its own"


def found(
    name: str, files: Sequence[Path], settings: Settings, lookup: Lookup | None, progress: Progress
) -> Iterator[Found]:
    """What the rows of a table's files say, in their order: pairs, what is left out and why, and notes at the end."""
    return _Source(name, files, settings, lookup, progress).found()


def _place(pair: Pair, draft: Draft) -> None:
    title, text, identifier = pair.document
    if identifier and draft.holds("documents", identifier):  # as one that many rows name
        if draft.document(identifier)[:2] != (title, text):
            refuse_clashes("document", pair.where, [identifier])
    elif identifier:
        draft.add_document(identifier, Document(title, text, {}))
    else:
        identifier = draft.add_weak_document(title, text, {})
    draft.add_weak_pair(pair.query, identifier, pair.source, pair.weight, pair.grade, pair.time)


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add the pairs of a table, or of all that a pattern matches, to the draft as training pairs.

    One query with several documents stays one query with several positives; the same text is one document. With
    `--texts` all of its documents come in, under their ids. Raises UsageError for flags that do not go together,
    EmbedtrainError for rows that cannot be read.
    """
    settings = Settings.of(options)
    files = readers.files(source)
    lookup = None
    if settings.collection:
        lookup = Lookup(Path(settings.collection))
        add_documents(lookup, settings.collection, draft)
    for item in draft.new(f"{source} table", found(str(source), files, settings, lookup, progress)):
        if isinstance(item, Drop):
            draft.drop(item.reason, **item.row)
        elif isinstance(item, Note):
            draft.notes.append(item.text)
        else:
            _place(item, draft)
    progress("read table", 1, 1, source.name)
    if lookup is not None:
        lookup.close()
