"""BEIR folders: documents, queries and judgements as they are, ids and the user's own columns included."""

from pathlib import Path
from typing import Any

from embedtrain import readers
from embedtrain.collection import check_ids, is_blank, judgements, split_files, table_files
from embedtrain.config import HarvestOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import Document, Draft, Query, refuse_clashes
from embedtrain.readers import Row

_OWN = frozenset({"_id", "title", "text"})


def extra_columns(row: Row) -> Row:
    """The columns that are the user's own."""
    return {name: value for name, value in row.items() if name not in _OWN}


def read_text(row: Row, name: str, path: Path, number: int, default: Any = ...) -> str:
    """A text column of a row; missing is an error unless there is a default."""
    value = readers.column(row, name, path, number) if default is ... else row.get(name, default)
    return readers.as_text(value, f"{path} line {number} column {name}")


def read_id(row: Row, path: Path, number: int) -> str:
    """The id of a row."""
    return readers.as_id(readers.column(row, "_id", path, number), f"{path} line {number} column _id")


def _read_documents(folder: Path, draft: Draft) -> set[str]:
    blank: set[str] = set()
    clashes: list[str] = []
    for path in table_files(folder, "corpus"):
        for number, row in readers.rows(path, draft.dropped):
            identifier = read_id(row, path, number)
            title = read_text(row, "title", path, number, default="")
            text = read_text(row, "text", path, number)
            if is_blank(title) and is_blank(text):
                draft.dropped["empty document"] += 1
                blank.add(identifier)
            elif not draft.add_document(identifier, Document(title, text, extra_columns(row))):
                clashes.append(identifier)
    refuse_clashes("document", folder, clashes)
    return blank


def _read_queries(folder: Path, draft: Draft) -> set[str]:
    blank: set[str] = set()
    clashes: list[str] = []
    for path in table_files(folder, "queries"):
        for number, row in readers.rows(path, draft.dropped):
            identifier = read_id(row, path, number)
            query = Query(read_text(row, "text", path, number), extra_columns(row))
            if is_blank(query.text):
                draft.dropped["empty query"] += 1
                blank.add(identifier)
            elif not draft.add_query(identifier, query):
                clashes.append(identifier)
    refuse_clashes("query", folder, clashes)
    return blank


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add a BEIR folder to the draft with all its splits.

    Blank documents and queries leave, and their judgements with them, all counted. Raises EmbedtrainError for ids
    that stand for two texts, or that the qrels name and the tables do not.
    """
    if not source.is_dir():
        raise EmbedtrainError(f"{source} is no folder; --kind beir reads a folder with corpus, queries and qrels")
    splits = split_files(source)
    steps = 2 + len(splits)
    blank_documents = _read_documents(source, draft)
    progress("read collection", 1, steps, "corpus")
    blank_queries = _read_queries(source, draft)
    progress("read collection", 2, steps, "queries")
    documents = draft.documents.keys() | blank_documents
    queries = draft.queries.keys() | blank_queries
    for step, (split, path) in enumerate(splits.items(), start=3):
        rows = list(judgements(path))
        if not rows:
            raise EmbedtrainError(f"{path} is empty; a split needs judgements")
        check_ids(path, "queries", "query", (query for _, (query, _, _) in rows), queries)
        check_ids(path, "corpus", "document", (document for _, (_, document, _) in rows), documents)
        for number, (query, document, grade) in rows:
            if query in blank_queries:
                draft.dropped["judgement of an empty query"] += 1
            elif document in blank_documents:
                draft.dropped["judgement of an empty document"] += 1
            else:
                draft.judge(split, query, document, grade, f"{path} line {number}")
        progress("read collection", step, steps, split)
