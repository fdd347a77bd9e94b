"""A BEIR-layout folder as an object: corpus, queries and qrels; ids are strings, never positions.

corpus.parquet  | corpus.jsonl[.gz] | corpus-00001-of-00004.*     _id, title, text
queries.parquet | queries.jsonl[.gz]                              _id, text
qrels/SPLIT.parquet | SPLIT.tsv                                   query-id, corpus-id, score
"""

import re
import tempfile
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from embedtrain import readers
from embedtrain.artifacts import Input, read_record, require_kind
from embedtrain.errors import EmbedtrainError, first_three

_SHARD = re.compile(r"^(?P<name>corpus|queries)(-\d+-of-(?P<count>\d+))?$")
_WORD = re.compile(r"\w")
# What the columns of a qrels file with a header may be called: query, document, grade.
_QRELS_COLUMNS = (
    ("query-id", "query_id", "qid", "query"),
    ("corpus-id", "corpus_id", "docid", "doc-id", "doc_id", "document"),
    ("score", "grade", "relevance", "rel", "label"),
)

Qrels = dict[str, dict[str, float]]


def join_title(title: str, text: str) -> str:
    """The text of a document as every stage sees it: title, one space, text; either may be missing."""
    return f"{title} {text}" if title and text else title or text


def is_blank(text: str) -> bool:
    """Whether nothing of a text is seen: white space, controls and format characters (zero-width ones) only."""
    return _WORD.search(text) is None and all(
        sign.isspace() or unicodedata.category(sign) in ("Cc", "Cf") for sign in text
    )


class Texts(Sequence[str]):
    """Ids and texts of a corpus or of queries; by position a document's title and text, joined (see `join_title`).

    Texts are Arrow memory, in blocks; those of a large corpus lie in a temporary file (see TMPDIR) that is mapped, so
    that they take memory while they are read. A Python string is made when it is asked for.
    """

    def __init__(self, ids: Sequence[str], titles: Sequence[str] | None, texts: Sequence[str]) -> None:
        table = _Blocks(titled=titles is not None)
        for start in range(0, len(ids), _ROWS):
            part = slice(start, start + _ROWS)
            table.add(texts[part], [] if titles is None else titles[part])
        self._fill(list(ids), table)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str]], *, titled: bool) -> "Texts":
        """Ids, titles and texts as they come; they are never all in memory as strings."""
        ids: list[str] = []
        table = _Blocks(titled=titled)
        titles: list[str] = []
        texts: list[str] = []
        for identifier, title, text in rows:
            ids.append(identifier)
            titles.append(title)
            texts.append(text)
            if len(texts) == _ROWS:
                table.add(texts, titles)
                titles, texts = [], []
        table.add(texts, titles)
        made = cls.__new__(cls)
        made._fill(ids, table)
        return made

    def _fill(self, ids: list[str], table: "_Blocks") -> None:
        self.ids = ids
        self._titles, self._texts = table.columns()
        self.position = {identifier: index for index, identifier in enumerate(ids)}

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self.text(place) for place in range(*index.indices(len(self)))]
        return self.text(range(len(self))[index])

    def title(self, index: int) -> str:
        """The title at a position; empty where there are none."""
        return self._titles[index // _ROWS][index % _ROWS].as_py() if self._titles else ""

    def body(self, index: int) -> str:
        """The text at a position, without its title."""
        return self._texts[index // _ROWS][index % _ROWS].as_py()

    def text(self, index: int) -> str:
        """Title and text at a position, joined once (see `join_title`)."""
        return join_title(self.title(index), self.body(index))

    def by_id(self, identifier: str) -> str:
        """The joined text of an id."""
        return self.text(self.position[identifier])


# Rows of a block of texts, and the size of all blocks from which they go to a file.
_ROWS = 4_096
_IN_MEMORY = 64 << 20


class _Blocks:
    """Columns of strings, `_ROWS` rows a block; from some size on in a temporary file."""

    def __init__(self, *, titled: bool) -> None:
        names = ["text", "title"] if titled else ["text"]
        self._schema = pa.schema([(name, pa.large_string()) for name in names])
        self._blocks: list[pa.RecordBatch] = []
        self._size = 0
        self._file: Any = None
        self._writer: Any = None

    def add(self, texts: Sequence[str], titles: Sequence[str]) -> None:
        """Take the next block."""
        columns = [pa.array(texts, pa.large_string()), pa.array(titles, pa.large_string())][: len(self._schema)]
        block = pa.record_batch(columns, schema=self._schema)
        self._size += block.nbytes
        self._blocks.append(block)
        if self._writer is None and self._size > _IN_MEMORY:
            self._file = tempfile.NamedTemporaryFile(prefix="embedtrain-texts-")  # noqa: SIM115
            self._writer = pa.ipc.new_file(self._file, self._schema)
        if self._writer is not None:
            for waiting in self._blocks:
                self._writer.write_batch(waiting)
            self._blocks = []

    def columns(self) -> tuple[list[pa.Array], list[pa.Array]]:
        """The blocks of the titles (none where there are no titles) and of the texts."""
        if self._writer is not None:
            self._writer.close()
            self._file.flush()
            reader = pa.ipc.open_file(pa.memory_map(self._file.name))
            self._file.close()  # and its name is gone; what is mapped stays
            self._blocks = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        titles = [block.column(1) for block in self._blocks] if len(self._schema) > 1 else []
        return titles, [block.column(0) for block in self._blocks]


def table_files(folder: Path, name: str) -> list[Path]:
    """The file or shards of a folder's `corpus` or `queries`; EmbedtrainError where there is none, or not all."""
    found: list[Path] = []
    counts = set()
    for file in sorted(folder.iterdir()):
        ending = readers.suffix(file)
        match = _SHARD.match(file.name.removesuffix(ending)) if ending else None
        if match and match["name"] == name:
            found.append(file)
            counts.add(int(match["count"] or 0))
    if not found:
        raise EmbedtrainError(
            f"{folder} has no {name}.parquet or {name}.jsonl; a collection in BEIR layout is needed"
        )
    if len(counts) > 1 or (counts != {0} and counts != {len(found)}) or (counts == {0} and len(found) > 1):
        raise EmbedtrainError(
            f"{folder} has {len(found)} files for its {name} ({first_three([f.name for f in found])}); "
            "one file, or all shards of one set, are needed"
        )
    return found


def split_files(folder: Path) -> dict[str, Path]:
    """The qrels file of every split of a folder, sorted by name; EmbedtrainError for two of the same name."""
    found: dict[str, Path] = {}
    for file in sorted((folder / "qrels").glob("[!.]*")):
        if file.suffix not in (".tsv", ".parquet"):
            continue
        if file.stem in found:
            raise EmbedtrainError(
                f"{folder} has two files for the split {file.stem!r}: {found[file.stem].name} and {file.name}; "
                "keep one"
            )
        found[file.stem] = file
    return found


class Collection:
    """A collection folder, opened and checked. Splits are read when asked for.

    Raises EmbedtrainError for a folder that is none, rows that cannot be read, repeated ids.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise EmbedtrainError(f"collection {path} does not exist; make one with: embedtrain harvest")
        if not path.is_dir():
            if read_record(path) is not None:
                require_kind(path, "collection")
            raise EmbedtrainError(f"{path} is a file where a collection folder is needed; give the folder")
        if (read_record(path) or {"kind": "collection"})["kind"] != "collection":
            require_kind(path, "collection")
        self.path = path
        self.corpus = self._read("corpus", titles=True)
        self.queries = self._read("queries", titles=False)
        if not len(self.corpus):
            raise EmbedtrainError(f"the corpus of {path} is empty; a collection needs documents")
        self._qrels_files = split_files(path)
        self.splits = list(self._qrels_files)

    def as_input(self) -> Input:
        """This collection as the input of a stage."""
        return Input.of("collection", self.path)

    def _read(self, name: str, *, titles: bool) -> Texts:
        seen: set[str] = set()
        repeated: list[str] = []
        found = Texts.of(self._rows(name, seen, repeated, titles=titles), titled=titles)
        if repeated:
            raise EmbedtrainError(
                f"{self.path}: {len(repeated)} repeated ids in its {name}: {first_three(repeated)}; "
                "every id stands once"
            )
        return found

    def _rows(
        self, name: str, seen: set[str], repeated: list[str], *, titles: bool
    ) -> Iterator[tuple[str, str, str]]:
        for path in table_files(self.path, name):
            shown = str(path)
            for number, row in readers.rows(path):
                identifier, text, title = row.get("_id"), row.get("text"), row.get("title") if titles else ""
                # Rows are many and nearly all good: where one stands is written out for those that are not.
                if not (type(identifier) is type(text) is type(title) is str and identifier):
                    where = f"{shown} line {number}"
                    identifier = readers.as_id(readers.column(row, "_id", path, number), f"{where} column _id")
                    text = readers.as_text(readers.column(row, "text", path, number), f"{where} column text")
                    title = readers.as_text(title, f"{where} column title")
                if identifier in seen:
                    repeated.append(identifier)
                    continue
                seen.add(identifier)
                yield identifier, title, text

    def corpus_column(self, name: str) -> list[str]:
        """A further text column of the corpus, in its order; "" where a document has none.

        Raises EmbedtrainError where no document has it, with the columns there are.
        """
        return self._column("corpus", name)

    def query_column(self, name: str) -> list[str]:
        """The same of the queries."""
        return self._column("queries", name)

    def _column(self, table: str, name: str) -> list[str]:
        values: list[str] = []
        there: dict[str, None] = {}
        for path in table_files(self.path, table):
            for number, row in readers.rows(path):
                there |= dict.fromkeys(row)
                value = row.get(name)
                shown = str(value) if isinstance(value, int) else value  # numbers name groups as well as words do
                values.append(readers.as_text(shown, f"{path} line {number} column {name}"))
        if name not in there:
            raise EmbedtrainError(
                f"the table {table} of {self.path} has no column {name!r}; its columns are: {', '.join(there)}"
            )
        return values

    def qrels(self, split: str) -> Qrels:
        """Judgements of a split: {query id: {document id: grade}}, in file order.

        Raises EmbedtrainError for a split that is not there, a line that cannot be read, ids that are not in the
        corpus or the queries.
        """
        path = self._qrels_files.get(split)
        if path is None:
            raise EmbedtrainError(
                f"{self.path} has no split {split!r}; its splits are: {', '.join(self.splits) or 'none'}"
            )
        qrels: Qrels = {}
        for number, (query, document, grade) in judgements(path):
            judged = qrels.setdefault(query, {})
            if judged.get(document, grade) != grade:
                raise EmbedtrainError(
                    f"{path} line {number} judges query {query} and document {document} a second time, "
                    "with another grade; keep one"
                )
            judged[document] = grade
        if not qrels:
            raise EmbedtrainError(f"{path} is empty; a split needs judgements")
        check_ids(path, "queries", "query", list(qrels), self.queries.position)
        check_ids(path, "corpus", "document", [d for row in qrels.values() for d in row], self.corpus.position)
        return qrels

    def positives(self, split: str) -> dict[str, list[str]]:
        """Documents with a grade above 0, for every query of a split that has one."""
        found = {q: [d for d, grade in row.items() if grade > 0] for q, row in self.qrels(split).items()}
        return {query: documents for query, documents in found.items() if documents}


def check_ids(path: Path, table: str, noun: str, ids: Iterable[str], known: Container[str]) -> None:
    """Raise EmbedtrainError with the number and the first three of the ids of a qrels file that are not known."""
    missing = list(dict.fromkeys(identifier for identifier in ids if identifier not in known))
    if missing:
        raise EmbedtrainError(
            f"{path}: {len(missing)} {noun} ids are not in the {table}: {first_three(missing)}; "
            f"add them to the {table} or take their lines out"
        )


def _grade(value: Any, where: str) -> float:
    grade = readers.as_number(value)
    if grade is None:
        raise EmbedtrainError(f"{where} has the grade {value!r}; a number is needed")
    return grade


def _header(values: list[str]) -> tuple[int, int, int] | None:
    # Where query, document and grade stand, if this first line is a header: its grade column holds a name.
    names = [value.strip().lower() for value in values]
    if names[0] not in _QRELS_COLUMNS[0] or not any(name in _QRELS_COLUMNS[2] for name in names):
        return None
    places = [next((i for i, n in enumerate(names) if n in known), -1) for known in _QRELS_COLUMNS]
    return None if -1 in places else (places[0], places[1], places[2])


def judgements(path: Path) -> Iterator[tuple[int, tuple[str, str, float]]]:
    """Yield (line or row number, (query id, document id, grade)) of a qrels file, Parquet or text.

    Text is BEIR's (tabs; query-id, corpus-id, score; further columns where a header names them) or TREC's (blanks;
    four columns, the second of no meaning). Raises EmbedtrainError naming the line that is neither.
    """
    if path.suffix == ".parquet":
        for number, row in readers.rows(path):
            where = f"{path} row {number}"
            query = readers.as_id(readers.column(row, "query-id", path, number), f"{where} column query-id")
            document = readers.as_id(readers.column(row, "corpus-id", path, number), f"{where} column corpus-id")
            yield number, (query, document, _grade(readers.column(row, "score", path, number), where))
        return
    first = True
    header: tuple[int, int, int] | None = None
    width = 0
    for number, line in readers.lines(path):
        if not line.strip():
            continue
        values = line.split("\t") if "\t" in line else line.split()
        if first:
            first, header, width = False, _header(values), len(values)
            if header is not None:
                continue
        where = f"{path} line {number}"
        if len(values) != width if header else len(values) not in (3, 4):
            raise EmbedtrainError(f"{where} has {len(values)} columns; query-id, corpus-id and score are needed")
        places = header or (0, len(values) - 2, len(values) - 1)
        query, document, grade = (values[place] for place in places)
        yield number, (readers.as_id(query, where), readers.as_id(document, where), _grade(grade, where))
