"""Rows out of files: nothing is guessed, split or lost, and an error names file and line.

Deliberate breaks that turn a test red: `splitlines()` in `lines`; `utf-8` for `utf-8-sig`; `int(value)` in `as_id`;
no `field_size_limit`; leaving out the check for half characters; counting no blank lines; `csv.reader` for TSV without a
header; taking a name with a bracket for a pattern; `open_file` for every Arrow file; stopping at a bad line though `bad` is
given; leaving pyarrow's errors of a torn zstd file as they are.
"""

import datetime
import gzip
import io
import json
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import readers
from embedtrain.errors import EmbedtrainError, UsageError


def write(path: Path, content: str | bytes) -> Path:
    data = content if isinstance(content, bytes) else content.encode()
    if path.name.endswith(".zst"):
        data = zstd(data)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def zstd(data: bytes) -> bytes:
    """One frame."""
    return pa.compress(data, codec="zstd", asbytes=True)


def read(path: Path) -> list[dict]:
    return [row for _, row in readers.rows(path)]


def write_arrow(path: Path, rows: list[dict], *, stream: bool) -> None:
    table = pa.Table.from_pylist(rows)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)


@pytest.mark.parametrize("name", sorted(readers.SUFFIXES))
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = [{"query": "a, b", "document": 'say "x"'}, {"query": "ü", "document": "line one\nline two"}]
    path = tmp_path / f"a{name}"
    if name == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name in (".arrow", ".feather"):
        write_arrow(path, rows, stream=False)
        assert read(path) == rows
        write_arrow(path, rows, stream=True)
    elif "jsonl" in name:
        write(path, "".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "," if "csv" in name else "\t"
        quoted = [['"' + value.replace('"', '""') + '"' for value in row.values()] for row in rows]
        write(path, "\n".join(mark.join(values) for values in [["query", "document"], *quoted]) + "\n")
    assert read(path) == rows


def test_p84_ids_in_jsonl_are_not_guessed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", '{"i": "007"}\n{"i": "7"}\n{"i": 1}\n{"i": 9007199254740993}\n{"i": "1e5"}\n'
    )
    assert [readers.as_id(row["i"], "here") for row in read(path)] == ["007", "7", "1", "9007199254740993", "1e5"]


def test_p84_ids_in_tsv_are_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "_id\ttext\n001\ta\n1e5\tb\nNA\tc\nnull\td\n")
    assert [row["_id"] for row in read(path)] == ["001", "1e5", "NA", "null"]


@pytest.mark.parametrize("value", [None, "", 1.0, True, [1], {}])
def test_what_is_no_id_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(EmbedtrainError, match=r"^x\.jsonl line 3 is .*; an id is a string"):
        readers.as_id(value, "x.jsonl line 3")


def test_p86_blank_lines_are_counted_and_shift_no_line_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '\n{"_id": "10"}\n  \n{"_id": "20"}\n\n')
    dropped: Counter[str] = Counter()
    assert list(readers.rows(path, dropped)) == [(2, {"_id": "10"}), (4, {"_id": "20"})]
    assert dropped == {"blank line": 3}


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_p87_only_a_line_feed_ends_a_record(tmp_path: Path, mark: str) -> None:
    text = f"a{mark}b"
    # JSON itself demands that controls below 0x20 are escaped; the separators above it may stand as they are.
    lines = [json.dumps({"query": text}, ensure_ascii=mark < " "), '{"query": "c"}']
    assert read(write(tmp_path / "a.jsonl", "\n".join(lines) + "\n")) == [{"query": text}, {"query": "c"}]
    assert read(write(tmp_path / "a.tsv", f"query\tn\n{text}\t1\nc\t2\n")) == [
        {"query": text, "n": "1"},
        {"query": "c", "n": "2"},
    ]


def test_p88_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    jsonl = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"query": "a"}\r\n{"query": "b"}\r\n')
    assert read(jsonl) == [{"query": "a"}, {"query": "b"}]
    table = write(tmp_path / "a.csv", b"\xef\xbb\xbfquery,document\r\na,b\r\nc,d\r\n")
    assert read(table) == [{"query": "a", "document": "b"}, {"query": "c", "document": "d"}]
    plain = write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\r\n")
    assert list(readers.lines(plain)) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("reverse", [False, True])
def test_p89_no_row_decides_for_the_others(tmp_path: Path, reverse: bool) -> None:
    rows = [{"query": "a", "negatives": None, "score": 1}] * 60_000
    rows.append({"query": "z", "negatives": ["x"], "score": 0.5, "note": "n"})
    rows = rows[::-1] if reverse else rows
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read(path) == rows


def test_a_long_field_of_a_table_is_read(tmp_path: Path) -> None:
    # The csv module's own limit is 131,072 characters.
    path = write(tmp_path / "a.csv", "query,document\nq," + "x" * 200_000 + "\n")
    assert len(read(path)[0]["document"]) == 200_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a\.jsonl line 2 is not JSON \(Expecting value at column 7\)"),
        ("a.jsonl", '{"a": 1}\n\n[1]\n', r"a\.jsonl line 3 is not a JSON object"),
        ("a.jsonl", '{"a": "\\ud83d"}\n', r"a\.jsonl line 1 holds \\ud83d, half of a character"),
        ("a.jsonl", '{"a": 1' + "0" * 5000 + "}\n", r"a\.jsonl line 1 cannot be read"),
        ("a.jsonl", "[" * 100_000 + "\n", r"a\.jsonl line 1"),
        ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', r"a\.jsonl line 2 is not UTF-8"),
        ("a.csv", "a,b\n1,2\n3\n", r"a\.csv line 3 has 1 columns where the header has 2"),
        ("a.csv", "a,a\n1,2\n", r"a\.csv has the column 'a' twice"),
        ("a.csv", 'a,b\n1,"2\n', r"a\.csv after line \d: .*; mend the quoting"),
        ("a.csv", b"a,b\n1,\xff\n", r"a\.csv after line \d is not UTF-8"),
        ("a.tsv.gz", b"", r"^$"),
        ("a.parquet", b"", r"a\.parquet is not a whole Parquet file"),
        ("a.parquet", b"PAR1nonsense", r"a\.parquet is not a whole Parquet file"),
        ("a.docx", "x", r"a\.docx: files ending in \.jsonl, .* are read"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = write(tmp_path / name, content)
    if message == "^$":
        assert read(path) == []
        return
    with pytest.raises(EmbedtrainError, match=message):
        read(path)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b'{"a": %d}\n' % n for n in range(10_000)))
    for name, content in (("a.jsonl.gz", whole[: len(whole) // 2]), ("b.csv.gz", whole[:-3]), ("c.tsv.gz", b"no")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(EmbedtrainError, match=rf"{name} .*not a whole gzip file"):
            read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EmbedtrainError, match=r"a\.jsonl does not exist; check the path"):
        readers.rows(tmp_path / "a.jsonl")


def test_a_missing_column_names_those_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(EmbedtrainError, match=r"a\.csv line 2 has no column 'query'; its columns are: q, doc"):
        readers.column({"q": "1", "doc": "2"}, "query", tmp_path / "a.csv", 2)


def test_texts() -> None:
    assert readers.as_text(None, "here") == ""
    assert readers.as_text(" a ", "here") == " a "
    with pytest.raises(EmbedtrainError, match="here is int, not text"):
        readers.as_text(3, "here")


@given(st.lists(st.dictionaries(st.text(min_size=1), st.none() | st.text() | st.integers() | st.booleans())))
@settings(max_examples=60, deadline=None)
def test_any_objects_come_back_from_jsonl(tmp_path_factory: pytest.TempPathFactory, rows: list[dict]) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    assert read(path) == rows


def test_a_truncated_zstd_file_is_refused(tmp_path: Path) -> None:
    whole = zstd(b"".join(b'{"a": %d}\n' % n for n in range(10_000)))
    for name, content in (
        ("a.jsonl.zst", whole[: len(whole) // 2]),
        ("b.csv.zst", whole[:-3]),
        ("c.tsv.zst", b"no"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(EmbedtrainError, match=rf"{name} .*not a whole zstd file"):
            read(path)


def test_all_frames_of_a_zstd_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd(b'{"a": 1}\n{"a":') + zstd(b" 2}\n"))
    assert read(path) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "Arrow file"), (b"ARROW1", "Arrow file"), (b"FEA1", "first")]
)
def test_arrow_files_that_are_none(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(EmbedtrainError, match=rf"a\.arrow is .*{message}"):
        read(write(tmp_path / "a.arrow", content))


def test_arrow_and_parquet_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table([pa.array(["1"]), pa.array(["2"])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        with pytest.raises(EmbedtrainError, match=rf"{name} has the column 'a' twice"):
            read(tmp_path / name)


def test_types_of_arrow_come_as_they_are(tmp_path: Path) -> None:
    when = datetime.datetime(2020, 1, 31, tzinfo=datetime.UTC)
    rows = [{"pos": ["a"], "when": when, "n": 2**53 + 1}, {"pos": None, "when": None, "n": 1}]
    write_arrow(tmp_path / "a.arrow", rows, stream=True)
    assert read(tmp_path / "a.arrow") == rows


def test_patterns_name_their_files_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "c.csv", "x[1].jsonl"):
        write(tmp_path / name, "")
    (tmp_path / "d.jsonl").mkdir()
    assert readers.files(tmp_path / "?.jsonl") == [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    assert readers.files(tmp_path / "x[1].jsonl") == [tmp_path / "x[1].jsonl"]
    assert readers.files(tmp_path / "nowhere.jsonl") == [tmp_path / "nowhere.jsonl"]
    assert readers.files(Path("-")) == [Path("-")]
    with pytest.raises(EmbedtrainError, match=r"\*\.tsv matches no file; check the pattern"):
        readers.files(tmp_path / "*.tsv")


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "jsonl.gz", "tsv.zst", "arrow"])
def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    rows = [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    path = tmp_path / f"a.{format}"
    if format == "arrow":
        write_arrow(path, rows, stream=True)
    else:
        mark = "," if "csv" in format else "\t"
        lines = [json.dumps(row) for row in rows] if "jsonl" in format else [f"a{mark}b", f"1{mark}x", f"2{mark}y"]
        write(path, "\n".join(lines) + "\n")
    for _ in range(2):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        assert [row for _, row in readers.rows(Path("-"), format=format)] == rows
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    with readers.standard_input_stored([str(path), "-"], format) as found:
        assert (found[0], found[1].name, read(found[1])) == (path, f"standard-input.{format}", rows)


def test_standard_input_needs_a_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give --input-format, as jsonl"):
        readers.rows(Path("-"))
    with pytest.raises(UsageError, match="--input-format xml: jsonl, "):
        readers.rows(Path("-"), format="xml")
    with pytest.raises(UsageError, match="Parquet cannot be read from standard input"):
        readers.rows(Path("-"), format="parquet")


def test_a_format_goes_before_the_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "q\td\n1\t2\n")
    assert [row for _, row in readers.rows(path, format="tsv")] == [{"q": "1", "d": "2"}]


def test_a_table_without_a_header_has_no_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "triples.tsv", 'a "b"\t"c\td\r\n\n1\t2\t3\n')
    dropped: Counter[str] = Counter()
    found = list(readers.rows(path, dropped, columns=("q", "p", "n")))
    assert found == [(1, {"q": 'a "b"', "p": '"c', "n": "d"}), (3, {"q": "1", "p": "2", "n": "3"})]
    assert dropped == {"blank line": 1}
    with pytest.raises(EmbedtrainError, match=r"line 1 has 3 columns where a file without a header needs 2"):
        list(readers.rows(path, columns=("q", "p")))


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.jsonl", b'{"a": "1"}\n{"a"\n[]\n{"a": "\xff"}\n{"a": "2"}\n', [2, 3, 4]),
        ("a.csv", b"a,b\n1,\n3\n2,\n4,5,6\n", [3, 5]),
    ],
)
def test_bad_lines_are_told_and_left_out(tmp_path: Path, name: str, content: bytes, lines: list[int]) -> None:
    bad: list[tuple[int, str]] = []
    path = write(tmp_path / name, content)
    rows = readers.rows(path, bad=lambda number, why: bad.append((number, why)))
    assert [row["a"] for _, row in rows] == ["1", "2"]
    assert [number for number, _ in bad] == lines
    assert all(why.startswith(f"{path} line {number} ") for number, why in bad)


def test_how_far_a_file_is_read(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv"):
        content = "".join(f'{{"a": {n}}}\n' for n in range(20_000)) if "json" in name else "a\n" + "1\n" * 20_000
        path = write(tmp_path / name, content)
        seen: list[tuple[int, int]] = []
        rows = readers.rows(path, seen=lambda done, total, seen=seen: seen.append((done, total)))
        assert sum(1 for _ in rows) == 20_000
        assert len(seen) == 4
        assert seen == sorted(seen)
        assert {total for _, total in seen} == {path.stat().st_size}
        assert 0 < seen[0][0] <= seen[-1][0] <= path.stat().st_size
