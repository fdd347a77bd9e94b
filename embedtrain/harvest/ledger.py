"""A draft's file: a SQLite database, what was done of it already, and the count of what did not get in.

A killed run goes on from the last commit.
"""

import json
import sqlite3
import time as clock
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Ints = NDArray[np.int64]

_TABLES = """
CREATE TABLE IF NOT EXISTS marks (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (kind, id));
CREATE TABLE IF NOT EXISTS dropped (n INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (name TEXT PRIMARY KEY, items INTEGER NOT NULL, whole INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TEMP TABLE chosen (n INTEGER PRIMARY KEY, value INTEGER);
"""
_CACHE_KIB = 256 << 10
_SECONDS = 5.0  # between two commits: what a kill loses
_LOOK = 256  # items between two looks at the clock
_AT_ONCE = 50_000  # rows that are made columns together


class Ledger:
    """The database at `path`, or in a temporary file, with these tables in it besides its own."""

    def __init__(self, path: Path | None, tables: str, *, keep_dropped: bool) -> None:
        self._path = path
        self.db = sqlite3.connect("" if path is None else path, isolation_level=None)
        # Nothing that was committed is lost with the process. What is lost with the machine's power is made again.
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self.db.executescript(_TABLES + tables)
        self.keep_dropped = keep_dropped
        self.changed: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []
        self._load_state()
        self.db.execute("BEGIN")

    def close(self) -> None:
        """Keep what is there and let go of the file."""
        self.commit()
        self.db.close()

    def leave(self) -> None:
        """Let go of the file as it was at the last commit."""
        self.db.close()

    def discard(self) -> None:
        """Let go of the file and remove it."""
        self.db.close()
        if self._path is not None:
            for ending in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def _load_state(self) -> None:
        stored = dict(self.db.execute("SELECT name, value FROM state"))
        # In place: whoever counts into them goes on doing so.
        for counter, name in ((self.dropped, "dropped"), (self.changed, "changed")):
            counter.clear()
            counter.update(json.loads(stored.get(name, "{}")))
        self.notes[:] = json.loads(stored.get("notes", "[]"))

    def commit(self) -> None:
        """Keep everything up to here, whatever happens to the process."""
        state = [("dropped", json.dumps(self.dropped)), ("notes", json.dumps(self.notes))]
        state.append(("changed", json.dumps(self.changed)))
        self.db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state)
        if self.db.in_transaction:
            self.db.execute("COMMIT")
        self.db.execute("BEGIN")

    def finished(self, name: str) -> bool:
        """Whether the loop or step of this name came to its end, in this run or before it was killed."""
        return bool(self.db.execute("SELECT 1 FROM done WHERE name = ? AND whole", (name,)).fetchone())

    def finish(self, name: str) -> None:
        """Say that a step came to its end, and keep it."""
        self._done(name, 0, whole=True)

    def _done(self, name: str, items: int, *, whole: bool) -> None:
        self.db.execute("INSERT OR REPLACE INTO done VALUES (?, ?, ?)", (name, items, whole))
        self.commit()

    def new(self, name: str, items: Iterable[Item]) -> Iterator[Item]:
        """Those of `items` that are not in the draft yet; every few seconds it is kept how far they went.

        `name` is the loop's own. The same items come in the same order each time; what is read of those already done is
        counted once.
        """
        if self.finished(name):
            return
        before = self.items(name)
        kept = clock.monotonic()
        count = 0
        for count, item in enumerate(items, start=1):
            if count <= before:
                if count == before:
                    self._load_state()
                continue
            yield item
            if count % _LOOK == 0 and clock.monotonic() - kept > _SECONDS:
                self._done(name, count, whole=False)
                kept = clock.monotonic()
        self._done(name, count, whole=True)

    def items(self, name: str) -> int:
        """How many items the loop of this name has done."""
        row = self.db.execute("SELECT items FROM done WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def mark(self, kind: str, identifier: str) -> None:
        """Remember an id under a word."""
        self.db.execute("INSERT OR IGNORE INTO marks (kind, id) VALUES (?, ?)", (kind, identifier))

    def marked(self, kind: str) -> list[str]:
        """The ids that were marked with a word, as they came."""
        return [found for (found,) in self.db.execute("SELECT id FROM marks WHERE kind = ? ORDER BY n", (kind,))]

    def is_marked(self, kind: str, identifier: str) -> bool:
        """Whether an id was marked with a word."""
        found = self.db.execute("SELECT 1 FROM marks WHERE kind = ? AND id = ?", (kind, identifier))
        return found.fetchone() is not None

    def drop(self, reason: str, **row: Any) -> None:
        """Count something that is left out; `row` says what it was, for those who want to read it."""
        self.dropped[reason] += 1
        if self.keep_dropped:
            text = json.dumps({"reason": reason, **row}, ensure_ascii=False, default=str)
            self.db.execute("INSERT INTO dropped (row) VALUES (?)", (text,))

    def dropped_rows(self) -> Iterator[str]:
        """What was left out, one JSON object each, in the order in which it was."""
        for (row,) in self.read("SELECT row FROM dropped ORDER BY n"):
            yield row

    def read(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement, as they are asked for."""
        # A cursor of its own: what is done meanwhile does not disturb it.
        cursor = self.db.cursor()
        cursor.execute(statement, values)
        while rows := cursor.fetchmany(2_000):
            yield from rows

    def choose(self, numbers: Ints, values: Iterable[int] | None = None) -> None:
        """Put numbers, with a value each where they have one, into the table `chosen` for the next statement."""
        self.db.execute("DELETE FROM chosen")
        found = ((int(n), None) for n in numbers) if values is None else zip(numbers.tolist(), values, strict=True)
        self.db.executemany("INSERT INTO chosen VALUES (?, ?)", found)

    def columns(self, statement: str, kinds: Sequence[Any], values: Sequence[Any] = ()) -> list[NDArray[Any]]:
        """The columns of a statement as arrays of these kinds; NULL is NaN."""
        blocks: list[list[NDArray[Any]]] = [[] for _ in kinds]
        waiting: list[tuple[Any, ...]] = []

        def pack() -> None:
            for block, values, kind in zip(blocks, zip(*waiting, strict=True), kinds, strict=True):
                block.append(np.array([np.nan if value is None else value for value in values], dtype=kind))
            waiting.clear()

        for row in self.read(statement, values):
            waiting.append(row)
            if len(waiting) == _AT_ONCE:
                pack()
        if waiting:
            pack()
        return [
            np.concatenate(block) if block else np.empty(0, dtype=kind)
            for block, kind in zip(blocks, kinds, strict=True)
        ]
