"""The collection in the making: documents, queries and judgements on disk, and the count of what did not get in.

It is a SQLite database (see `ledger`), so that memory does not grow with what is harvested. Documents and queries are numbered in the order in which they came; their ids are their own or hashes of their
texts. What later steps take out leaves the tables, counted and, where that is asked for, kept to be read.
"""

import contextlib
import errno
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embedtrain.collection import join_title
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.harvest.clean import Cleaner, copies_first_line
from embedtrain.harvest.identity import document_id, document_key, number, query_id, query_key
from embedtrain.harvest.ledger import Ints, Ledger
from embedtrain.readers import Row

TRAIN = "train"
JUDGED = "judged"  # the source of what people judged, not we
SELF = "self"  # of a text that is its own query

_TABLES = """
CREATE TABLE IF NOT EXISTS documents (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, own INTEGER NOT NULL, key INTEGER NOT NULL,
    title TEXT NOT NULL, text TEXT NOT NULL, extra TEXT);
CREATE TABLE IF NOT EXISTS queries (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, own INTEGER NOT NULL, key INTEGER NOT NULL,
    text TEXT NOT NULL, extra TEXT);
CREATE TABLE IF NOT EXISTS pairs (
    p INTEGER PRIMARY KEY, split INTEGER NOT NULL, query INTEGER NOT NULL, document INTEGER NOT NULL,
    grade REAL NOT NULL, source INTEGER NOT NULL, weight REAL NOT NULL, time REAL, UNIQUE (query, document, split));
CREATE TABLE IF NOT EXISTS together (grp INTEGER NOT NULL, document INTEGER NOT NULL, UNIQUE (document, grp));
CREATE TABLE IF NOT EXISTS names (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name));
"""


class Document(NamedTuple):
    """A document: its title may be empty; `extra` holds columns of the user's own."""

    title: str
    text: str
    extra: Row


class Query(NamedTuple):
    """A query; `extra` holds columns of the user's own."""

    text: str
    extra: Row


@dataclass(frozen=True)
class Pairs:
    """Judgements as columns, one entry each, in the order in which they came. All (n,)."""

    p: Ints
    query: Ints  # its number
    document: Ints
    grade: NDArray[np.float64]
    source: Ints
    weight: NDArray[np.float64]
    time: NDArray[np.float64]  # seconds; NaN where none is known


def _as_json(extra: Row) -> str | None:
    # `default`: dates and the like of a Parquet source have no JSON of their own.
    return json.dumps(extra, ensure_ascii=False, default=str) if extra else None


def _as_row(extra: str | None) -> Row:
    return json.loads(extra) if extra else {}


class Draft(Ledger):
    """Everything a harvest has found so far; in a temporary file unless `path` says where."""

    def __init__(self, path: Path | None = None, *, keep_dropped: bool = False) -> None:
        super().__init__(path, _TABLES, keep_dropped=keep_dropped)
        self._numbers: dict[tuple[str, str], int] = {}
        self.cleaner: Cleaner | None = None

    # -- what comes in -------------------------------------------------------------------------------------------

    def name(self, kind: str, name: str) -> int:
        """The number of a name of a kind: a split, a source, a page."""
        known = self._numbers.get((kind, name))
        if known is not None:
            return known
        self.db.execute("INSERT OR IGNORE INTO names (kind, name) VALUES (?, ?)", (kind, name))
        (found,) = self.db.execute("SELECT n FROM names WHERE kind = ? AND name = ?", (kind, name)).fetchone()
        if kind != "page":  # of which there may be very many
            self._numbers[kind, name] = found
        return int(found)

    def _insert_document(self, identifier: str, own: bool, document: Document) -> bool:
        title, text, extra = document
        made = self.db.execute(
            "INSERT OR IGNORE INTO documents (id, own, key, title, text, extra) VALUES (?, ?, ?, ?, ?, ?)",
            (identifier, own, number(document_key(title, text)), title, text, _as_json(extra)),
        )
        return made.rowcount == 1

    def _insert_query(self, identifier: str, own: bool, query: Query) -> bool:
        made = self.db.execute(
            "INSERT OR IGNORE INTO queries (id, own, key, text, extra) VALUES (?, ?, ?, ?, ?)",
            (identifier, own, number(query_key(query.text)), query.text, _as_json(query.extra)),
        )
        return made.rowcount == 1

    def add_document(self, identifier: str, document: Document) -> bool:
        """Add a document under its own id; False where the id stands for another text already."""
        if self._insert_document(identifier, True, document):
            return True
        if self.document(identifier)[:2] != document[:2]:
            return False
        self.drop("repeated document", document=identifier)
        return True

    def add_query(self, identifier: str, query: Query) -> bool:
        """Add a query under its own id; False where the id stands for another text already."""
        if self._insert_query(identifier, True, query):
            return True
        if self.query(identifier).text != query.text:
            return False
        self.drop("repeated query", query=identifier)
        return True

    def judge(self, split: str, query: str, document: str, grade: float, where: str) -> None:
        """Add a judgement of known ids; EmbedtrainError where the same pair has another grade already."""
        places = self._number_of("queries", query), self._number_of("documents", document)
        if self._insert_pair(split, *places, grade, JUDGED, 1.0, None):
            return
        where_it_is = (*places, self.name("split", split))
        known, source = self.db.execute(
            "SELECT grade, source FROM pairs WHERE query = ? AND document = ? AND split = ?", where_it_is
        ).fetchone()
        judged = self.name("source", JUDGED)
        if source != judged:  # what somebody judged outweighs what was made of a page or a log
            self.db.execute(
                "UPDATE pairs SET grade = ?, source = ?, weight = 1 WHERE query = ? AND document = ? AND split = ?",
                (grade, judged, *where_it_is),
            )
            self.drop("repeated pair", query=query, document=document, where=where)
            return
        if known != grade:
            raise EmbedtrainError(
                f"{where} judges query {query} and document {document} a second time, with another grade; keep one"
            )
        self.drop("repeated judgement", query=query, document=document, where=where)

    def _insert_pair(
        self, split: str, query: int, document: int, grade: float, source: str, weight: float, time: float | None
    ) -> bool:
        made = self.db.execute(
            "INSERT OR IGNORE INTO pairs (split, query, document, grade, source, weight, time)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.name("split", split), query, document, grade, self.name("source", source), weight, time),
        )
        return made.rowcount == 1

    def add_weak_document(self, title: str, text: str, extra: Row, page: str = "") -> str:
        """Add a document that has no id of its own and return the one it gets; the same text is one document.

        `page`: what it was cut from; what was cut from one page is never parted by a split. The id is empty where the
        text is left out, as the cleaner says: pairs with it are left out too.
        """
        if self.cleaner is not None:
            title, text = self.cleaner.tidied(title, self.changed), self.cleaner.tidied(text, self.changed)
            if reason := self.cleaner.against("document", text, title):
                self.drop(reason, title=title, text=text, page=page)
                return ""
        identifier = document_id(title, text)
        self._insert_document(identifier, False, Document(title, text, extra))
        if page:
            places = self.name("page", page), self._number_of("documents", identifier)
            self.db.execute("INSERT OR IGNORE INTO together (grp, document) VALUES (?, ?)", places)
        return identifier

    def add_weak_pair(
        self,
        query: str,
        document: str,
        source: str,
        weight: float = 1.0,
        grade: float = 1.0,
        time: float | None = None,
    ) -> None:
        """Add a training pair that nobody judged; `source` says what it was made from.

        An empty `document` is one that was left out. `grade` 0: the document is known not to answer the query. `time` in
        seconds, for splits by time.
        """
        if not document:
            return
        found = self.document(document)
        if self.cleaner is not None:
            query = self.cleaner.tidied(query, self.changed)
            reason = self.cleaner.against("query", query)
            copies = source != SELF and not self.cleaner.options.keep_copies
            if not reason and copies and copies_first_line(query, found.text):
                reason = "query stands in the first line of its document"
            if reason:
                self.drop(reason, query=query, document=document)
                return
        if source != SELF and query_key(query) == query_key(join_title(found.title, found.text)):
            self.drop("query is its document", query=query, document=document)
            return
        identifier = query_id(query)
        self._insert_query(identifier, False, Query(query, {}))
        places = self._number_of("queries", identifier), self._number_of("documents", document)
        if self._insert_pair(TRAIN, *places, grade, source, weight, time):
            return
        # Another grade says the opposite: what speaks for the document outweighs what speaks against it, but for what
        # somebody judged.
        raised = self.db.execute(
            "UPDATE pairs SET grade = ?, source = ?, weight = ? WHERE query = ? AND document = ? AND split = ?"
            " AND grade <= 0 AND source != ? AND ? > 0",
            (
                *(grade, self.name("source", source), weight, *places, self.name("split", TRAIN)),
                *(self.name("source", JUDGED), grade),
            ),
        )
        self.drop("negative pair that is a positive too" if raised.rowcount else "repeated pair", query=query)

    # -- what is there -------------------------------------------------------------------------------------------

    def _number_of(self, table: str, identifier: str) -> int:
        found = self.db.execute(f"SELECT n FROM {table} WHERE id = ?", (identifier,)).fetchone()
        if found is None:
            raise KeyError(identifier)
        return int(found[0])

    def holds(self, table: str, identifier: str) -> bool:
        """Whether `documents` or `queries` has an id."""
        return self.db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (identifier,)).fetchone() is not None

    def count(self, table: str) -> int:
        """The rows of `documents`, `queries` or `pairs`."""
        (found,) = self.db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
        return int(found)

    def document(self, identifier: str) -> Document:
        """A document by its id; KeyError where there is none."""
        row = self.db.execute("SELECT title, text, extra FROM documents WHERE id = ?", (identifier,)).fetchone()
        if row is None:
            raise KeyError(identifier)
        return Document(row[0], row[1], _as_row(row[2]))

    def query(self, identifier: str) -> Query:
        """A query by its id; KeyError where there is none."""
        row = self.db.execute("SELECT text, extra FROM queries WHERE id = ?", (identifier,)).fetchone()
        if row is None:
            raise KeyError(identifier)
        return Query(row[0], _as_row(row[1]))

    def documents(self) -> Iterator[tuple[int, str, Document]]:
        """(number, id, document) of every document, in the order in which they came."""
        for n, identifier, title, text, extra in self.read(
            "SELECT n, id, title, text, extra FROM documents ORDER BY n"
        ):
            yield n, identifier, Document(title, text, _as_row(extra))

    def queries(self) -> Iterator[tuple[int, str, Query]]:
        """(number, id, query) of every query, in the order in which they came."""
        for n, identifier, text, extra in self.read("SELECT n, id, text, extra FROM queries ORDER BY n"):
            yield n, identifier, Query(text, _as_row(extra))

    def names(self, kind: str) -> dict[str, int]:
        """The numbers of all names of a kind that are in use, by name."""
        used = {"split": "split", "source": "source"}[kind]
        rows = self.db.execute(
            f"SELECT name, n FROM names WHERE kind = ? AND n IN (SELECT DISTINCT {used} FROM pairs) ORDER BY name",
            (kind,),
        )
        return dict(rows.fetchall())

    def splits(self) -> list[str]:
        """The names of the splits that hold a judgement, sorted."""
        return list(self.names("split"))

    def judgements(self, split: str) -> Iterator[tuple[str, str, float, str, float]]:
        """(query id, document id, grade, source, weight) of a split, a query's together, as they came."""
        statement = """
            SELECT queries.id, documents.id, pairs.grade, names.name, pairs.weight
            FROM pairs JOIN (SELECT query, MIN(p) AS first FROM pairs WHERE split = ?1 GROUP BY query) USING (query)
                JOIN queries ON queries.n = pairs.query JOIN documents ON documents.n = pairs.document
                JOIN names ON names.n = pairs.source
            WHERE pairs.split = ?1 ORDER BY first, p"""
        yield from self.read(statement, (self.name("split", split),))

    def pairs(self, split: str | None = None) -> Pairs:
        """The judgements of a split, or of all, as columns."""
        where, values = ("", ()) if split is None else (" WHERE split = ?", (self.name("split", split),))
        names = ("p", "query", "document", "grade", "source", "weight", "time")
        whole = {"p", "query", "document", "source"}
        kinds = [np.int64 if name in whole else np.float64 for name in names]
        return Pairs(*self.columns(f"SELECT {', '.join(names)} FROM pairs{where} ORDER BY p", kinds, values))

    def keys(self, table: str) -> tuple[Ints, Ints]:
        """Numbers of all documents or queries, ascending, and what they are compared by (see `identity.number`)."""
        numbers, keys = self.columns(f"SELECT n, key FROM {table} ORDER BY n", [np.int64, np.int64])
        return numbers, keys

    def together(self) -> tuple[Ints, Ints]:
        """(group, document): what no split may part, such as all that was cut from one page."""
        statement = "SELECT grp, document FROM together ORDER BY document, grp"
        groups, documents = self.columns(statement, [np.int64, np.int64])
        return groups, documents

    def ids(self, table: str, numbers: Ints) -> Iterator[str]:
        """The ids of documents or queries by their numbers, which ascend; they are never all in memory."""
        self.choose(numbers)
        for (identifier,) in self.read(f"SELECT id FROM {table} JOIN chosen USING (n) ORDER BY n"):
            yield identifier

    def own(self, table: str) -> NDArray[np.bool_]:
        """Whether each document or query, by ascending number, came with an id of its own."""
        (found,) = self.columns(f"SELECT own FROM {table} ORDER BY n", [np.int64])
        return found.astype(bool)

    def text(self, table: str, n: int) -> str:
        """The text of a document, its title before it, or of a query, by its number."""
        if table == "queries":
            return str(self.db.execute("SELECT text FROM queries WHERE n = ?", (n,)).fetchone()[0])
        return join_title(*self.db.execute("SELECT title, text FROM documents WHERE n = ?", (n,)).fetchone())

    def keep_together(self, name: str, documents: Ints) -> None:
        """Say that no split may part these documents."""
        group = self.name("group", name)
        self.db.executemany(
            "INSERT OR IGNORE INTO together (grp, document) VALUES (?, ?)", ((group, int(n)) for n in documents)
        )


@contextlib.contextmanager
def open_draft(path: Path, *, keep_dropped: bool = False) -> Iterator[Draft]:
    """The draft at a path; it stays there when the process is struck, and is gone after an error.

    What is wrong with an input is mended there, and an input that was mended makes another draft.
    """
    draft = Draft(path, keep_dropped=keep_dropped)
    try:
        yield draft
    except sqlite3.OperationalError as error:
        draft.discard()
        if error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
    except Exception:
        draft.discard()
        raise
    except BaseException:
        draft.leave()
        raise
    draft.close()


def refuse_clashes(noun: str, where: object, clashes: list[str]) -> None:
    """Raise EmbedtrainError where ids stand for several different texts."""
    if clashes:
        ids = list(dict.fromkeys(clashes))
        raise EmbedtrainError(
            f"{where}: {len(ids)} duplicate ids, each with different {noun} texts: {first_three(ids)}; "
            "every id stands for one text"
        )
