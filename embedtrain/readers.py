"""Rows out of files, each with its place: JSONL, CSV, TSV and Parquet, plain or gzipped.

Everything is read as it stands: ids are strings from the first byte to the last, no type is guessed, a record
ends at a line feed and nowhere else, a byte-order mark and carriage returns at line ends are taken off.
"""

import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from embedtrain.errors import EmbedtrainError

Row = dict[str, Any]

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


def suffix(path: Path) -> str:
    """The part of the name that says how to read it, `.jsonl.gz` included; empty where it is none of ours."""
    return next((ending for ending in sorted(SUFFIXES, key=len, reverse=True) if path.name.endswith(ending)), "")


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.name.endswith(".gz") else path.open("rb")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) of a UTF-8 file; only a line feed ends a line."""
    number = 0
    try:
        with _open(path) as file:
            for raw in file:
                number += 1
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                yield number, raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise EmbedtrainError(f"{path} line {number} is not UTF-8 text; convert the file to UTF-8") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise EmbedtrainError(
            f"{path} is not a whole gzip file (after line {number}); fetch or make it again"
        ) from error


# A table's own limit on the length of a field (131,072 characters) is shorter than many documents.
_LONGEST_FIELD = 2**31 - 1


def _json_rows(path: Path, dropped: Counter[str]) -> Iterator[tuple[int, Row]]:
    for number, text in lines(path):
        if not text.strip():
            dropped["blank line"] += 1
            continue
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            why = f"{error.msg} at column {error.colno}"
            raise EmbedtrainError(f"{path} line {number} is not JSON ({why}); mend or remove it") from error
        except (ValueError, RecursionError) as error:
            raise EmbedtrainError(f"{path} line {number} cannot be read ({error}); mend or remove it") from error
        if not isinstance(row, dict):
            raise EmbedtrainError(f"{path} line {number} is not a JSON object; one object a line is needed")
        if "\\ud" in text or "\\uD" in text:
            _refuse_half_characters(row, f"{path} line {number}")
        yield number, row


def _refuse_half_characters(row: Row, where: str) -> None:
    # "\ud83d" without its second half is legal JSON and no text: it can be written to no file.
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise EmbedtrainError(f"{where} holds {half}, half of a character; mend or remove it") from error


def _delimited_rows(path: Path, delimiter: str, dropped: Counter[str]) -> Iterator[tuple[int, Row]]:
    number = 0
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        with _open(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, None)
            if header is None:
                return
            if len(set(header)) < len(header):
                twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
                raise EmbedtrainError(f"{path} has the column {twice[0]!r} twice; rename one")
            for values in reader:
                number = reader.line_num
                if not values:
                    dropped["blank line"] += 1
                    continue
                if len(values) != len(header):
                    raise EmbedtrainError(
                        f"{path} line {number} has {len(values)} columns where the header has {len(header)}"
                    )
                yield number, dict(zip(header, values, strict=True))
    except UnicodeDecodeError as error:
        raise EmbedtrainError(f"{path} after line {number} is not UTF-8 text; convert the file") from error
    except csv.Error as error:
        raise EmbedtrainError(f"{path} after line {number}: {error}; mend the quoting") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise EmbedtrainError(f"{path} is not a whole gzip file; fetch or make it again") from error


def _parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            # One row group at a time, so that a batch is never larger than what was written at once.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(batch_size=8192, row_groups=[group]):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
    except (OSError, ValueError) as error:
        raise EmbedtrainError(f"{path} is not a whole Parquet file ({error}); make it again") from error


def rows(path: Path, dropped: Counter[str] | None = None) -> Iterator[tuple[int, Row]]:
    """Yield (line or row number from 1, row) of a table file; blank lines are counted in `dropped`.

    Raises EmbedtrainError naming the file and the line where the file cannot be read.
    """
    if not path.is_file():
        raise EmbedtrainError(f"{path} does not exist; check the path")
    kind = suffix(path).removesuffix(".gz")
    counted = Counter[str]() if dropped is None else dropped
    if kind == ".jsonl":
        return _json_rows(path, counted)
    if kind in (".csv", ".tsv"):
        return _delimited_rows(path, "," if kind == ".csv" else "\t", counted)
    if kind == ".parquet":
        return _parquet_rows(path)
    raise EmbedtrainError(f"{path}: files ending in {', '.join(SUFFIXES)} are read; rename or convert it")


def as_id(value: Any, where: str) -> str:
    """An id as text: a string stays as it is, an integer is written out; anything else is an error."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise EmbedtrainError(f"{where} is {value!r}; an id is a string that is not empty")


def as_text(value: Any, where: str) -> str:
    """A text: a string as it is, nothing (null) as the empty string; anything else is an error."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise EmbedtrainError(f"{where} is {type(value).__name__}, not text")


def column(row: Row, name: str, path: Path, number: int) -> Any:
    """The value of a column that must be there; the error names those that are."""
    if name not in row:
        there = ", ".join(row) or "none"
        raise EmbedtrainError(f"{path} line {number} has no column {name!r}; its columns are: {there}")
    return row[name]
