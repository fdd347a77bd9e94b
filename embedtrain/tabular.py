"""Rows into files as they come: JSONL, Parquet, TSV; UTF-8, line feeds, no byte-order mark."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from embedtrain.errors import EmbedtrainError
from embedtrain.readers import Row

# A row group ends at whichever comes first, so that memory stays bounded whatever the length of a text.
_GROUP_ROWS = 10_000
_GROUP_CHARACTERS = 32_000_000

TEXT = pa.large_string()  # 64-bit offsets: a column may pass 2 GB


def write_jsonl(path: Path, rows: Iterable[Row]) -> int:
    """Write one JSON object a line; returns how many."""
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _characters(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_characters, value))
    return len(value) if isinstance(value, str) else 0


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    characters = 0
    for row in rows:
        group.append(row)
        characters += sum(map(_characters, row.values()))
        if len(group) >= _GROUP_ROWS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def write_parquet(path: Path, rows: Iterable[Row], schema: pa.Schema) -> int:
    """Write a Parquet file of these columns; returns how many rows."""
    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(rows):
            count += len(group)
            writer.write_table(pa.Table.from_pylist(group, schema))
    return count


def write_tsv(path: Path, rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> int:
    """Write a TSV file, without quotes; returns how many rows. Raises EmbedtrainError for what cannot stand in one."""
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        if header:
            file.write("\t".join(header) + "\n")
        for values in rows:
            for value in values:
                if "\t" in value or "\n" in value or "\r" in value:
                    raise EmbedtrainError(f"{value[:60]!r} cannot stand in a TSV file; choose another format")
            file.write("\t".join(values) + "\n")
            count += 1
    return count
