"""Replies of language models on disk between runs: in which form they lie there, what there is, and its removal.

One SQLite file for all models. `harvest` fills it and asks it (`harvest.generated.cache`); `cache` lists and removes.
"""

import contextlib
import datetime
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedtrain.errors import EmbedtrainError
from embedtrain.models import cache_folder

# The form of what lies on disk and of its keys: another one is another file.
FORM = 2
WAIT = 60.0  # seconds for another process to finish its writing
TABLE = """
CREATE TABLE IF NOT EXISTS replies (
    key BLOB PRIMARY KEY, model TEXT NOT NULL, used TEXT NOT NULL, text TEXT NOT NULL, finish TEXT NOT NULL,
    prompt_tokens INTEGER, reply_tokens INTEGER)"""
_NAME = re.compile(r"replies-(?P<form>\d+)\.sqlite")
_COMPANIONS = ("", "-wal", "-shm", "-journal")  # what SQLite lays beside a file


@dataclass(frozen=True)
class Replies:
    """The replies of one model in one file: how many, their part of the file's size, when the last was used.

    `model` is None for those of an earlier form, and `broken` says that the file is no database.
    """

    path: Path
    model: str | None
    count: int
    bytes: int
    last_used: datetime.date
    until: datetime.date | None = None  # only those that were not used after this day
    broken: bool = False


def replies_folder() -> Path:
    """The folder that holds the replies of all models."""
    return cache_folder() / "replies"


def replies_file() -> Path:
    """The file of today's form."""
    return replies_folder() / f"replies-{FORM}.sqlite"


def _states(path: Path) -> list[os.stat_result]:
    found = []
    for ending in _COMPANIONS:
        with contextlib.suppress(FileNotFoundError):
            found.append(path.with_name(path.name + ending).stat())
    return found


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file that is there; EmbedtrainError where SQLite refuses, but for what is no database."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=WAIT, isolation_level=None)) as db:
            yield db
    except sqlite3.OperationalError as error:
        raise EmbedtrainError(f"the replies kept in {path} cannot be read or removed ({error})") from error


def _of_this_form(path: Path, until: datetime.date | None) -> list[Replies]:
    whole = sum(state.st_size for state in _states(path))
    with _opened(path) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'replies'").fetchone():
            return []  # a run opened it a moment ago
        rows = db.execute(
            "SELECT model, SUM(LENGTH(CAST(text AS BLOB)) + 100), SUM(used <= ?1),"
            " SUM((used <= ?1) * (LENGTH(CAST(text AS BLOB)) + 100)), MAX(used) FILTER (WHERE used <= ?1)"
            " FROM replies GROUP BY model",
            ((until or datetime.date.max).isoformat(),),
        ).fetchall()
    weight = sum(row[1] for row in rows)  # of all of them: a model's part of the file is by its texts
    return [
        Replies(path, model, chosen, round(whole * part / weight), datetime.date.fromisoformat(used), until)
        for model, _, chosen, part, used in rows
        if chosen
    ]


def _of_another(path: Path, until: datetime.date | None, *, readable: bool) -> list[Replies]:
    """Replies that no run of this version finds: the whole file, as old as its last change."""
    states = _states(path)
    used = datetime.date.fromtimestamp(max(state.st_mtime for state in states))
    if until is not None and used > until:
        return []
    count = 0
    if readable:
        with contextlib.suppress(sqlite3.DatabaseError, EmbedtrainError), _opened(path) as db:
            (count,) = db.execute("SELECT COUNT(*) FROM replies").fetchone()
    size = sum(state.st_size for state in states)
    return [Replies(path, None, count, size, used, until, broken=not readable)]


def kept(until: datetime.date | None = None) -> list[Replies]:
    """The replies that are kept, by file and model; with `until` those that were not used after that day.

    Raises EmbedtrainError where a file is held by another process for longer than it should be.
    """
    folder = replies_folder()
    found: list[Replies] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.fullmatch(path.name)
        # Files of later forms are another installation's business.
        if not match or int(match["form"]) > FORM or path.is_symlink() or not path.is_file():
            continue
        if int(match["form"]) < FORM:
            found += _of_another(path, until, readable=True)
            continue
        try:
            found += _of_this_form(path, until)
        except sqlite3.DatabaseError:
            found += _of_another(path, until, readable=False)
    return found


def _alone(db: sqlite3.Connection) -> bool:
    """Take a file for this connection alone; False where another process has it open.

    A file in WAL mode leaves it only when nobody else is connected: that is what tells.
    """
    db.execute("PRAGMA busy_timeout = 0")
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    try:
        (mode,) = db.execute("PRAGMA journal_mode = DELETE").fetchone()
        db.execute("BEGIN EXCLUSIVE")
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return False
        raise
    return bool(mode == "delete")


def remove(chosen: Sequence[Replies]) -> bool:
    """Remove replies of one file; False, and nothing is removed, where a run has it open.

    Such a run reads again what it kept. The file itself stays: a run that opens it meanwhile would write into one that
    nobody finds. Raises EmbedtrainError where it cannot be written.
    """
    path = chosen[0].path
    if not any(replies.broken for replies in chosen):
        with _opened(path) as db:
            if not _alone(db):
                return False
            if chosen[0].model is not None:
                db.execute("BEGIN")
                for replies in chosen:
                    last = (replies.until or datetime.date.max).isoformat()
                    db.execute("DELETE FROM replies WHERE model = ? AND used <= ?", (replies.model, last))
                db.execute("COMMIT")
                db.execute("VACUUM")
                return True
    # Nothing of this version opens these.
    for ending in _COMPANIONS:
        path.with_name(path.name + ending).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        replies_folder().rmdir()
    return True
