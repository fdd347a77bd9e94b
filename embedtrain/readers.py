"""Rows out of files, each with its place: JSONL, CSV, TSV (plain, gzip, zstd), Parquet and Arrow; standard input too.

Everything is read as it stands: ids are strings from the first byte to the last, no type is guessed, a record
ends at a line feed and nowhere else, a byte-order mark and carriage returns at line ends are taken off.
"""

import contextlib
import csv
import glob
import io
import json
import math
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from embedtrain import columnar
from embedtrain.columnar import Row, Seen
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.packed import ENDINGS, STANDARD_INPUT, open_packed, torn

# What to do with a line that is no row: called with its number and a sentence that names file and line.
Bad = Callable[[int, str], None]
_TEXT = (".jsonl", ".csv", ".tsv")
SUFFIXES = (*(kind + packed for kind in _TEXT for packed in ENDINGS), ".parquet", ".arrow", ".feather")

_SEEN_EVERY = 4_096  # rows between two words on how far it is


def suffix(path: Path) -> str:
    """The part of the name that says how to read it, `.jsonl.gz` included; empty where it is none of ours."""
    return next((ending for ending in sorted(SUFFIXES, key=len, reverse=True) if path.name.endswith(ending)), "")


def kind_of(path: Path, format: str = "") -> str:
    """What a file is by its name, or by `format` (`jsonl`, `tsv.gz`, ...), without what it is packed with.

    Raises UsageError for a format that is none, and for standard input without one.
    """
    return _ending(path, format).removesuffix(".gz").removesuffix(".zst")


def _ending(path: Path, format: str) -> str:
    if format:
        ending = f".{format.removeprefix('.')}"
        if ending not in SUFFIXES:
            known = ", ".join(name.removeprefix(".") for name in SUFFIXES)
            raise UsageError(f"--input-format {format}: {known} are the formats")
        return ending
    if path == STANDARD_INPUT:
        raise UsageError("standard input has no name that tells its format; give --input-format, as jsonl")
    return suffix(path)


def files(source: Path) -> list[Path]:
    """The files a source stands for: itself, or all that a pattern as `data/*.jsonl.gz` matches, sorted by name.

    A name that is there is never taken for a pattern. Raises EmbedtrainError for a pattern that matches nothing.
    """
    if source == STANDARD_INPUT or source.exists() or not glob.has_magic(str(source)):
        return [source]
    found = sorted(path for path in map(Path, glob.glob(str(source), recursive=True)) if path.is_file())
    if not found:
        raise EmbedtrainError(f"{source} matches no file; check the pattern")
    return found


@contextlib.contextmanager
def standard_input_stored(sources: Sequence[str], format: str) -> Iterator[list[Path]]:
    """The sources as paths; standard input (-) as a file, so that it has a content hash and can be read twice.

    A pattern that stands for tables stays one source, another is all that it matches.
    """
    with tempfile.TemporaryDirectory(prefix="embedtrain-") as folder:
        found: list[Path] = []
        for source in map(Path, sources):
            if source == STANDARD_INPUT:
                path = Path(folder) / f"standard-input{_ending(STANDARD_INPUT, format)}"
                with path.open("wb") as file:
                    shutil.copyfileobj(sys.stdin.buffer, file)
                found.append(path)
            else:
                matched = files(source)
                found += [source] if all(map(suffix, matched)) else matched
        yield found


def _raw_lines(path: Path, ending: str, seen: Seen | None = None) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with open_packed(path, ending) as (file, position):
            for raw in file:
                number += 1
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                if seen and number % _SEEN_EVERY == 0:
                    seen(*position())
                yield number, raw.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, OSError, zlib.error) as error:
        if not (what := torn(error, ending)):
            raise
        raise EmbedtrainError(
            f"{path} is not a whole {what} file (after line {number}); fetch or make it again"
        ) from error


def _decode(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EmbedtrainError(f"{path} line {number} is not UTF-8 text; convert the file to UTF-8") from error


def lines(path: Path, format: str = "") -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) of a UTF-8 file; only a line feed ends a line."""
    ending = _ending(path, format) if format or path == STANDARD_INPUT else path.suffix
    for number, raw in _raw_lines(path, ending):
        yield number, _decode(raw, path, number)


# A table's own limit on the length of a field (131,072 characters) is shorter than many documents.
_LONGEST_FIELD = 2**31 - 1


def _json_row(raw: bytes, path: Path, number: int) -> Row | None:
    """The object of a line; None for a blank line."""
    text = _decode(raw, path, number)
    if not text.strip():
        return None
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
    return row


def _json_rows(
    path: Path, ending: str, dropped: Counter[str], bad: Bad | None, seen: Seen | None
) -> Iterator[tuple[int, Row]]:
    for number, raw in _raw_lines(path, ending, seen):
        try:
            row = _json_row(raw, path, number)
        except EmbedtrainError as error:
            if bad is None:
                raise
            bad(number, str(error))
            continue
        if row is None:
            dropped["blank line"] += 1
            continue
        yield number, row


def _refuse_half_characters(row: Row, where: str) -> None:
    # "\ud83d" without its second half is legal JSON and no text: it can be written to no file.
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise EmbedtrainError(f"{where} holds {half}, half of a character; mend or remove it") from error


def _width(
    path: Path, number: int, values: Sequence[str], header: Sequence[str], where: str, bad: Bad | None
) -> bool:
    """Whether a line has as many columns as it should; an error, or a word to `bad`, where not."""
    if len(values) == len(header):
        return True
    message = f"{path} line {number} has {len(values)} columns where {where} {len(header)}"
    if bad is None:
        raise EmbedtrainError(message)
    bad(number, message)
    return False


def _delimited_rows(
    path: Path, ending: str, dropped: Counter[str], bad: Bad | None, seen: Seen | None
) -> Iterator[tuple[int, Row]]:
    number = 0
    csv.field_size_limit(_LONGEST_FIELD)
    try:
        with (
            open_packed(path, ending) as (raw, position),
            io.TextIOWrapper(cast(Any, raw), encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(file, delimiter="," if ending.startswith(".csv") else "\t", strict=True)
            header = next(reader, None)
            if header is None:
                return
            columnar.refuse_twice(path, header)
            for count, values in enumerate(reader, start=1):
                number = reader.line_num
                if seen and count % _SEEN_EVERY == 0:
                    seen(*position())
                if not values:
                    dropped["blank line"] += 1
                elif _width(path, number, values, header, "the header has", bad):
                    yield number, dict(zip(header, values, strict=True))
    except UnicodeDecodeError as error:
        raise EmbedtrainError(f"{path} after line {number} is not UTF-8 text; convert the file") from error
    except csv.Error as error:
        raise EmbedtrainError(f"{path} after line {number}: {error}; mend the quoting") from error
    except (EOFError, OSError, zlib.error) as error:
        if not (what := torn(error, ending)):
            raise
        raise EmbedtrainError(f"{path} is not a whole {what} file; fetch or make it again") from error


def _headless_rows(
    path: Path, ending: str, columns: Sequence[str], dropped: Counter[str], bad: Bad | None, seen: Seen | None
) -> Iterator[tuple[int, Row]]:
    for number, raw in _raw_lines(path, ending, seen):
        try:
            text = _decode(raw, path, number)
        except EmbedtrainError as error:
            if bad is None:
                raise
            bad(number, str(error))
            continue
        values = text.split("\t")
        if not text.strip():
            dropped["blank line"] += 1
        elif _width(path, number, values, columns, "a file without a header needs", bad):
            yield number, dict(zip(columns, values, strict=True))


def rows(
    path: Path,
    dropped: Counter[str] | None = None,
    *,
    format: str = "",
    columns: Sequence[str] | None = None,
    bad: Bad | None = None,
    seen: Seen | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yield (line or row number from 1, row) of a table file; blank lines are counted in `dropped`.

    `-` is standard input, whose `format` must be given. `columns` name those of a TSV file that has no header; quotes
    in it are quotes. With `bad` a line that is no row is told to it and reading goes on. `seen` hears how far it is.
    Raises EmbedtrainError naming the file and the line where the file cannot be read.
    """
    if path != STANDARD_INPUT and not path.is_file():
        raise EmbedtrainError(f"{path} does not exist; check the path")
    ending = _ending(path, format)
    kind = kind_of(path, format)
    counted = Counter[str]() if dropped is None else dropped
    if kind == ".jsonl":
        return _json_rows(path, ending, counted, bad, seen)
    if kind == ".tsv" and columns is not None:
        return _headless_rows(path, ending, columns, counted, bad, seen)
    if kind in (".csv", ".tsv"):
        return _delimited_rows(path, ending, counted, bad, seen)
    if kind == ".parquet":
        if path == STANDARD_INPUT:
            raise UsageError("Parquet cannot be read from standard input, its end must be read first; give a file")
        return columnar.parquet_rows(path, seen)
    if kind in (".arrow", ".feather"):
        return columnar.arrow_rows(path, seen)
    raise EmbedtrainError(f"{path}: files ending in {', '.join(SUFFIXES)} are read; rename or convert it")


def as_id(value: Any, where: str) -> str:
    """An id as text: a string stays as it is, an integer is written out; anything else is an error."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise EmbedtrainError(f"{where} is {value!r}; an id is a string that is not empty")


def as_number(value: Any) -> float | None:
    """A finite number, written out or not; None for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


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
