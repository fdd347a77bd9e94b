"""Texts by their ids: what `--texts` names, for tables that hold ids in the place of texts."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from embedtrain import readers
from embedtrain.collection import table_files
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import refuse_clashes
from embedtrain.harvest.tables.cells import Text
from embedtrain.readers import Row

_ID = (
    "_id",
    "id",
    "doc_id",
    "docid",
    "document_id",
    "corpus-id",
    "corpus_id",
    "pid",
    "query_id",
    "qid",
    "query-id",
)
_TEXT = ("text", "contents", "body", "document", "passage", "query", "question")
_ENDINGS = ("", ".gz", ".zst")


def _find(folder: Path, name: str, plain: str) -> list[Path]:
    """The table of a folder: BEIR's `name`, or MS MARCO's `plain`.tsv, which has no header; empty where it has none."""
    found = [path for ending in _ENDINGS if (path := folder / f"{plain}.tsv{ending}").is_file()]
    if found and not any(folder.glob(f"{name}.[jp]*")) and not any(folder.glob(f"{name}-*")):
        return found
    try:
        return table_files(folder, name)
    except EmbedtrainError:
        if name == "corpus":
            raise EmbedtrainError(
                f"{folder} has neither a corpus nor a collection.tsv; --texts is a folder with one, or a table of "
                "ids and texts"
            ) from None
        return []


def _headless(path: Path) -> bool:
    """Whether the first line of a TSV file is data: two columns, the first called nothing an id is called."""
    if readers.kind_of(path) != ".tsv":
        return False
    first = next(readers.lines(path), (1, ""))[1].split("\t")
    return len(first) == 2 and first[0].strip().lower() not in _ID


def _name(row: Row, names: tuple[str, ...], what: str, where: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise EmbedtrainError(
            f"{where} has no column with {what} ({', '.join(names)}); its columns are: {', '.join(row) or 'none'}"
        )
    return found


def _texts(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield (where, id, title, text) of a table."""
    columns = ("_id", "text") if _headless(path) else None
    for number, row in readers.rows(path, columns=columns):
        where = f"{path} line {number}"
        name = _name(row, _ID, "ids", where)
        identifier = readers.as_id(row[name], f"{where} column {name}")
        name = _name(row, _TEXT, "texts", where)
        text = readers.as_text(row[name], f"{where} column {name}")
        yield where, identifier, readers.as_text(row.get("title"), f"{where} column title"), text


class Lookup:
    """Documents and queries by id, in a temporary file: memory does not grow with them.

    `path` is a folder (BEIR's layout, or MS MARCO's collection.tsv and queries.tsv) or a table of documents. Raises
    EmbedtrainError where it cannot be read, or where an id stands for two texts.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise EmbedtrainError(f"--texts {path} does not exist; check the path")
        self.path = path
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        for table in ("documents", "queries"):
            self._db.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, title TEXT, text TEXT)")
        self._db.execute("BEGIN")
        folder = path.is_dir()
        for file in _find(path, "corpus", "collection") if folder else readers.files(path):
            self._fill("documents", file)
        for file in _find(path, "queries", "queries") if folder else []:
            self._fill("queries", file)

    def _fill(self, table: str, path: Path) -> None:
        for where, identifier, title, text in _texts(path):
            insert = f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?)"
            if self._db.execute(insert, (identifier, title, text)).rowcount != 1:
                found = self._find(table, identifier)
                if found is None or found[:2] != (title, text):
                    refuse_clashes("document" if table == "documents" else "query", where, [identifier])

    def _find(self, table: str, identifier: str) -> Text | None:
        row = self._db.execute(f"SELECT title, text FROM {table} WHERE id = ?", (identifier,)).fetchone()
        return None if row is None else Text(row[0], row[1], identifier)

    def document(self, identifier: str) -> Text | None:
        """The document of an id; None where it is not known."""
        return self._find("documents", identifier)

    def query(self, identifier: str) -> str | None:
        """The text of a query's id; None where it is not known."""
        found = self._find("queries", identifier)
        return None if found is None else found.text

    def documents(self) -> Iterator[Text]:
        """All documents, in the order in which they came."""
        for identifier, title, text in self._db.execute("SELECT id, title, text FROM documents ORDER BY rowid"):
            yield Text(title, text, identifier)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
