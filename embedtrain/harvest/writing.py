"""The collection on disk: Parquet, or JSONL with TSV qrels; UTF-8, line feeds, no byte-order mark."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import Draft
from embedtrain.readers import Row

# A row group ends at whichever comes first, so that memory stays bounded whatever the length of a text.
_GROUP_ROWS = 10_000
_GROUP_CHARACTERS = 32_000_000


def _json(value: Any) -> str:
    # `default`: dates and the like of a Parquet source have no JSON of their own.
    return json.dumps(value, ensure_ascii=False, default=str)


def _write_jsonl(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(_json(row) + "\n")


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    characters = 0
    for row in rows:
        group.append(row)
        characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) >= _GROUP_ROWS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _write_parquet(path: Path, rows: Iterable[Row], schema: pa.Schema) -> None:
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema))


def _texts_schema(own: tuple[str, ...], extras: Iterable[Row]) -> tuple[pa.Schema, list[str]]:
    """The schema of a table of texts, and the names of those further columns that become JSON.

    A column of the user's is text where every value is text or nothing, JSON otherwise: no row decides for others.
    large_string has 64-bit offsets; a column may pass 2 GB.
    """
    textual: dict[str, bool] = {}
    for row in extras:
        for name, value in row.items():
            textual[name] = textual.get(name, True) and (value is None or isinstance(value, str))
    names = (*own, *textual)
    schema = pa.schema([(name, pa.large_string()) for name in names])
    return schema, [name for name, text in textual.items() if not text]


def _as_json(rows: Iterable[Row], columns: list[str]) -> Iterator[Row]:
    for row in rows:
        yield row | {name: _json(row[name]) for name in columns if row.get(name) is not None}


def _document_rows(draft: Draft) -> Iterator[Row]:
    for identifier, document in draft.documents.items():
        yield {"_id": identifier, "title": document.title, "text": document.text, **document.extra}


def _query_rows(draft: Draft) -> Iterator[Row]:
    for identifier, query in draft.queries.items():
        yield {"_id": identifier, "text": query.text, **query.extra}


def _qrels_rows(draft: Draft, split: str) -> Iterator[Row]:
    for query, judged in draft.splits[split].items():
        for document, grade in judged.items():
            row: Row = {
                "query-id": query,
                "corpus-id": document,
                "score": int(grade) if grade.is_integer() else grade,
            }
            if draft.sources:
                row["source"] = draft.sources.get((query, document), "judged")
            yield row


def _write_tsv(path: Path, rows: Iterable[Row], columns: list[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(columns) + "\n")
        for row in rows:
            values = [str(row[name]) for name in columns]
            if any(character in value for value in values for character in "\t\n\r"):
                raise EmbedtrainError(
                    f"the ids {values[0]!r} and {values[1]!r} cannot stand in a TSV file; use --format parquet"
                )
            file.write("\t".join(values) + "\n")


def write(draft: Draft, folder: Path, format: str) -> None:
    """Write a draft into an empty folder as a collection, in `format` parquet or jsonl."""
    (folder / "qrels").mkdir()
    columns = ["query-id", "corpus-id", "score", *(["source"] if draft.sources else [])]
    if format == "jsonl":
        _write_jsonl(folder / "corpus.jsonl", _document_rows(draft))
        _write_jsonl(folder / "queries.jsonl", _query_rows(draft))
        for split in draft.splits:
            _write_tsv(folder / "qrels" / f"{split}.tsv", _qrels_rows(draft, split), columns)
        return
    schema, as_json = _texts_schema(("_id", "title", "text"), (row.extra for row in draft.documents.values()))
    _write_parquet(folder / "corpus.parquet", _as_json(_document_rows(draft), as_json), schema)
    schema, as_json = _texts_schema(("_id", "text"), (row.extra for row in draft.queries.values()))
    _write_parquet(folder / "queries.parquet", _as_json(_query_rows(draft), as_json), schema)
    grades = (g for qrels in draft.splits.values() for judged in qrels.values() for g in judged.values())
    score = pa.int64() if all(grade.is_integer() for grade in grades) else pa.float64()
    types = {"score": score}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    for split in draft.splits:
        _write_parquet(folder / "qrels" / f"{split}.parquet", _qrels_rows(draft, split), schema)
