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


def _read_documents(folder: Path, draft: Draft) -> None:
    for path in table_files(folder, "corpus"):
        for number, row in draft.new(f"{path} documents", readers.rows(path, draft.dropped)):
            identifier = read_id(row, path, number)
            title = read_text(row, "title", path, number, default="")
            text = read_text(row, "text", path, number)
            if is_blank(title) and is_blank(text):
                draft.drop("empty document", document=identifier, where=f"{path} line {number}")
                draft.mark("empty document", identifier)
            elif not draft.add_document(identifier, Document(title, text, extra_columns(row))):
                draft.mark(f"clash of documents in {folder}", identifier)
    refuse_clashes("document", folder, draft.marked(f"clash of documents in {folder}"))


def _read_queries(folder: Path, draft: Draft) -> None:
    for path in table_files(folder, "queries"):
        for number, row in draft.new(f"{path} queries", readers.rows(path, draft.dropped)):
            identifier = read_id(row, path, number)
            query = Query(read_text(row, "text", path, number), extra_columns(row))
            if is_blank(query.text):
                draft.drop("empty query", query=identifier, where=f"{path} line {number}")
                draft.mark("empty query", identifier)
            elif not draft.add_query(identifier, query):
                draft.mark(f"clash of queries in {folder}", identifier)
    refuse_clashes("query", folder, draft.marked(f"clash of queries in {folder}"))


def read_judgements(split: str, path: Path, draft: Draft) -> None:
    """Add the judgements of a qrels file to a split; EmbedtrainError for ids that are not there, or a file without any."""
    loop, nouns = f"{path} judgements", ("query", "document")
    for number, (query, document, grade) in draft.new(loop, judgements(path)):
        where, row = f"{path} line {number}", {"query": query, "document": document}
        there = [
            draft.holds(table, row[noun]) for noun, table in zip(nouns, ("queries", "documents"), strict=True)
        ]
        left_out = [noun for noun, held in zip(nouns, there, strict=True) if not held]
        unknown = [noun for noun in left_out if not draft.is_marked(f"empty {noun}", row[noun])]
        for noun in unknown:
            draft.mark(f"unknown {noun} of {path}", row[noun])
        if not left_out:
            draft.judge(split, query, document, grade, where)
        elif not unknown:
            draft.drop(f"judgement of an empty {left_out[0]}", **row, where=where)
    if not draft.items(loop):
        raise EmbedtrainError(f"{path} is empty; a split needs judgements")
    check_ids(path, "queries", "query", draft.marked(f"unknown query of {path}"), ())
    check_ids(path, "corpus", "document", draft.marked(f"unknown document of {path}"), ())


def read(source: Path, options: HarvestOptions, draft: Draft, progress: Progress) -> None:
    """Add a BEIR folder to the draft with all its splits.

    Blank documents and queries leave, and their judgements with them, all counted. Raises EmbedtrainError for ids
    that stand for two texts, or that the qrels name and the tables do not.
    """
    if not source.is_dir():
        raise EmbedtrainError(f"{source} is no folder; --kind beir reads a folder with corpus, queries and qrels")
    splits = split_files(source)
    steps = 2 + len(splits)
    _read_documents(source, draft)
    progress("read collection", 1, steps, "corpus")
    _read_queries(source, draft)
    progress("read collection", 2, steps, "queries")
    for step, (split, path) in enumerate(splits.items(), start=3):
        if not draft.finished(f"{path} judgements"):
            read_judgements(split, path, draft)
        progress("read collection", step, steps, split)
