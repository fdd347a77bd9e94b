"""The collection on disk: Parquet, or JSONL with TSV qrels; UTF-8, line feeds, no byte-order mark."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from embedtrain.harvest.draft import JUDGED, Draft
from embedtrain.readers import Row
from embedtrain.tabular import TEXT, write_jsonl, write_parquet, write_tsv


def _texts_schema(own: tuple[str, ...], extras: Iterable[Row]) -> tuple[pa.Schema, list[str]]:
    """The schema of a table of texts, and the names of those further columns that become JSON.

    A column of the user's is text where every value is text or nothing, JSON otherwise: no row decides for others.
    """
    textual: dict[str, bool] = {}
    for row in extras:
        for name, value in row.items():
            textual[name] = textual.get(name, True) and (value is None or isinstance(value, str))
    names = (*own, *textual)
    schema = pa.schema([(name, TEXT) for name in names])
    return schema, [name for name, text in textual.items() if not text]


def _as_json(rows: Iterable[Row], columns: list[str]) -> Iterator[Row]:
    for row in rows:
        yield row | {
            name: json.dumps(row[name], ensure_ascii=False) for name in columns if row.get(name) is not None
        }


def _document_rows(draft: Draft) -> Iterator[Row]:
    for _, identifier, document in draft.documents():
        yield {"_id": identifier, "title": document.title, "text": document.text, **document.extra}


def _query_rows(draft: Draft) -> Iterator[Row]:
    for _, identifier, query in draft.queries():
        yield {"_id": identifier, "text": query.text, **query.extra}


def _qrels_rows(draft: Draft, split: str) -> Iterator[Row]:
    for query, document, grade, source, weight in draft.judgements(split):
        score = int(grade) if grade.is_integer() else grade
        yield {"query-id": query, "corpus-id": document, "score": score, "source": source, "weight": weight}


def _qrels_columns(draft: Draft) -> list[str]:
    # Sources and weights where they say something.
    more = [] if set(draft.names("source")) <= {JUDGED} else ["source"]
    return ["query-id", "corpus-id", "score", *more, *(["weight"] if (draft.pairs().weight != 1).any() else [])]


def write(draft: Draft, folder: Path, format: str) -> None:
    """Write a draft into an empty folder as a collection, in `format` parquet or jsonl."""
    (folder / "qrels").mkdir()
    columns = _qrels_columns(draft)
    if format == "jsonl":
        write_jsonl(folder / "corpus.jsonl", _document_rows(draft))
        write_jsonl(folder / "queries.jsonl", _query_rows(draft))
        for split in draft.splits():
            lines = ([str(row[name]) for name in columns] for row in _qrels_rows(draft, split))
            write_tsv(folder / "qrels" / f"{split}.tsv", lines, columns)
        return
    schema, as_json = _texts_schema(("_id", "title", "text"), (row.extra for _, _, row in draft.documents()))
    write_parquet(folder / "corpus.parquet", _as_json(_document_rows(draft), as_json), schema)
    schema, as_json = _texts_schema(("_id", "text"), (row.extra for _, _, row in draft.queries()))
    write_parquet(folder / "queries.parquet", _as_json(_query_rows(draft), as_json), schema)
    grades = draft.pairs().grade
    types = {"score": pa.int64() if (grades == grades.round()).all() else pa.float64(), "weight": pa.float64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    for split in draft.splits():
        rows = ({name: row[name] for name in columns} for row in _qrels_rows(draft, split))
        write_parquet(folder / "qrels" / f"{split}.parquet", rows, schema)
