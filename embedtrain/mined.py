"""The rows of a mined and of a scored artifact: their columns, written and read in this one place.

Besides the columns below there are three for each retriever, by its name: NAME_scores and NAME_ranks, one entry a
candidate (null: it did not score it; it is not in its list), and NAME_positive_scores, one a positive.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from embedtrain.artifacts import require_kind
from embedtrain.candidates import Block, Candidates, Ints, Ragged
from embedtrain.errors import EmbedtrainError
from embedtrain.negatives import CODE, JUDGED, REASONS, Codes
from embedtrain.sampling import RANDOM

_ROW = [
    ("query_id", pa.string()),
    ("positive_ids", pa.list_(pa.string())),
    ("candidate_ids", pa.list_(pa.string())),
    ("candidate_ranks", pa.list_(pa.int32())),
    ("candidate_retrievers", pa.list_(pa.string())),
    ("selected", pa.list_(pa.bool_())),
    ("reason", pa.list_(pa.string())),
]
_TEACHER = [
    ("positive_teacher", pa.list_(pa.float32())),
    ("candidate_teacher", pa.list_(pa.float32())),
    ("verdict", pa.list_(pa.string())),
]
_POSITIVE_SCORES = "_positive_scores"
# Of several teachers each has its own two columns besides those of what they say together.
_POSITIVE_TEACHER, _CANDIDATE_TEACHER = "positive_teacher_", "candidate_teacher_"

# What stands in candidate_retrievers for a candidate that no retriever found.
JUDGED_ONLY = "judged"

# Verdicts that take a selected candidate's place among the negatives away.
NOT_NEGATIVE = frozenset({"drop", "mask", "promote"})

Kind = Literal["mined", "scored"]


def schema(kind: Kind, retrievers: Iterable[str], teachers: int = 0) -> pa.Schema:
    """The columns of a mined or scored artifact of these retrievers, with columns for each of so many teachers."""
    own = [
        column
        for name in retrievers
        for column in (
            (f"{name}_scores", pa.list_(pa.float32())),
            (f"{name}_ranks", pa.list_(pa.int32())),
            (f"{name}{_POSITIVE_SCORES}", pa.list_(pa.float32())),
        )
    ]
    each = [
        (f"{start}{number}", pa.list_(pa.float32()))
        for number in range(1, teachers + 1)
        for start in (_POSITIVE_TEACHER, _CANDIDATE_TEACHER)
    ]
    return pa.schema([*_ROW, *own, *(_TEACHER + each if kind == "scored" else [])])


@dataclass(frozen=True)
class MinedRow:
    """One query: its positives, and every candidate with where it stood and why it is a negative or not.

    Candidates stand in the order of the fused ranks (from 1); behind them, with rank None, those that no retriever
    found: judged not relevant, or drawn at random. What a teacher says is None in a mined artifact; a candidate it was not
    asked for has no score. With several of them `teachers` are the raw scores of each, of positives and candidates.
    """

    query_id: str
    positive_ids: list[str]
    candidate_ids: list[str]
    candidate_ranks: list[int | None]
    candidate_retrievers: list[str]
    selected: list[bool]
    reason: list[str]
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    ranks: dict[str, list[int | None]] = field(default_factory=dict)
    positive_scores: dict[str, list[float | None]] = field(default_factory=dict)
    positive_teacher: list[float] | None = None
    candidate_teacher: list[float | None] | None = None
    verdict: list[str] | None = None
    teachers: list[tuple[list[float], list[float | None]]] = field(default_factory=list)

    def _selected_without(self, refused: Collection[str]) -> list[int]:
        """Indices of selected candidates whose verdict is none of these: those judged not relevant first, then by rank,
        then those drawn at random."""
        verdicts = self.verdict or ["keep"] * len(self.candidate_ids)
        order = sorted(range(len(self.candidate_ids)), key=self.place)
        return [index for index in order if self.selected[index] and verdicts[index] not in refused]

    @property
    def negative_indices(self) -> list[int]:
        """Indices of the candidates that serve as negatives, selected and not taken back, in their order."""
        return self._selected_without(NOT_NEGATIVE)

    def place(self, index: int) -> tuple[bool, float, int]:
        """What negatives are ordered by: those judged not relevant first, then by rank, then those drawn at random."""
        rank = self.candidate_ranks[index]
        return self.reason[index] != JUDGED, float("inf") if rank is None else rank, index

    @property
    def negatives(self) -> list[str]:
        """Ids of the candidates that serve as negatives, as `negative_indices` orders them."""
        return [self.candidate_ids[index] for index in self.negative_indices]

    @property
    def shown(self) -> list[str]:
        """Ids of the documents a row brings beside its positives: its negatives, and masked ones, which are none."""
        return [self.candidate_ids[index] for index in self._selected_without(NOT_NEGATIVE - {"mask"})]

    @property
    def promoted(self) -> list[str]:
        """Ids of the candidates that became positives."""
        return [
            d for d, verdict in zip(self.candidate_ids, self.verdict or (), strict=False) if verdict == "promote"
        ]

    def column(self, name: str) -> Any:
        """The value of a column of the artifact."""
        for suffix, values in (
            (_POSITIVE_SCORES, self.positive_scores),
            ("_scores", self.scores),
            ("_ranks", self.ranks),
        ):
            if (retriever := name.removesuffix(suffix)) != name and retriever in values:
                return values[retriever]
        for side, start in enumerate((_POSITIVE_TEACHER, _CANDIDATE_TEACHER)):
            if (number := name.removeprefix(start)) != name:
                return self.teachers[int(number) - 1][side]
        return getattr(self, name)


def to_table(rows: Iterable[MinedRow], kind: Kind) -> pa.Table:
    """Rows, all of the same retrievers, as the table of a mined or a scored artifact."""
    rows = list(rows)
    columns = schema(kind, rows[0].scores if rows else (), len(rows[0].teachers) if rows else 0)
    return pa.table({name: [row.column(name) for row in rows] for name in columns.names}, schema=columns)


def to_batch(block: Block, corpus_ids: pa.Array, codes: Codes, selected: NDArray[np.bool_]) -> pa.Table:
    """A block with what became of its candidates as rows of a mined artifact; ids are taken from `corpus_ids`."""
    positives, candidates = block.positives, block.candidates

    def lists(part: Ragged, values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(part.offsets.astype(np.int32)), values)

    def some(values: NDArray[Any], there: NDArray[np.bool_]) -> pa.Array:
        return pa.array(values, mask=~there)

    columns = {
        "query_id": pa.array(block.query_ids, pa.string()),
        "positive_ids": lists(positives, corpus_ids.take(pa.array(positives.values))),
        "candidate_ids": lists(candidates, corpus_ids.take(pa.array(candidates.values))),
        "candidate_ranks": lists(candidates, some(candidates.rank, candidates.rank > 0)),
        "candidate_retrievers": lists(candidates, _retrievers(candidates, codes == CODE[JUDGED])),
        "selected": lists(candidates, pa.array(selected)),
        "reason": lists(candidates, pa.array(REASONS, pa.string()).take(pa.array(codes))),
    }
    for name, scores in candidates.scores.items():
        ranks = candidates.ranks[name]
        columns[f"{name}_scores"] = lists(candidates, some(scores, ~np.isnan(scores)))
        columns[f"{name}_ranks"] = lists(candidates, some(ranks, ranks > 0))
        own = block.positive_scores[name]
        columns[f"{name}{_POSITIVE_SCORES}"] = lists(positives, some(own, ~np.isnan(own)))
    return pa.table(columns, schema=schema("mined", candidates.scores))


def _retrievers(candidates: Candidates, judged: NDArray[np.bool_]) -> pa.Array:
    """Who found each candidate: names joined by a plus; where nobody did, whether it was judged or drawn."""
    names, found = candidates.finders()
    words = pa.array([JUDGED_ONLY, RANDOM, *names[1:]], pa.string())
    return words.take(pa.array(np.where(found > 0, found + 1, np.where(judged, 0, 1))))


def _open(path: Path) -> tuple[Kind, list[str], pa.parquet.ParquetFile]:
    kind: Kind = require_kind(path, "mined", "scored")["kind"]
    file = pyarrow.parquet.ParquetFile(path)
    there = file.schema_arrow.names
    names = _retriever_names(file.schema_arrow)
    missing = [name for name in schema(kind, names).names if name not in there]
    if missing:
        file.close()
        raise EmbedtrainError(f"{path} has no column {missing[0]!r}; make it again")
    return kind, names, file


def _columns(kind: Kind, names: list[str], file: pa.parquet.ParquetFile) -> list[str]:
    """Names of the columns that are read of an artifact."""
    return schema(kind, names, _teachers(file.schema_arrow)).names


def _teachers(columns: pa.Schema) -> int:
    """How many teachers have columns of their own."""
    return sum(name.startswith(_POSITIVE_TEACHER) for name in columns.names)


def iter_mined(path: Path, at_once: int = 1024) -> Iterator[MinedRow]:
    """The rows of a mined or scored artifact, in file order; `at_once` of them are in memory.

    Raises EmbedtrainError for anything else, with the command that makes one, and for rows whose lists do not fit
    together.
    """
    kind, names, file = _open(path)
    with file:
        for batch in file.iter_batches(batch_size=at_once, columns=_columns(kind, names, file)):
            for row in from_batch(batch):
                _check(row, path)
                yield row


def read_mined(path: Path, limit: int | None = None) -> list[MinedRow]:
    """The same as a list, or the first `limit` of them."""
    return list(itertools.islice(iter_mined(path), limit))


def from_batch(batch: pa.RecordBatch | pa.Table) -> list[MinedRow]:
    """The rows of some or all of an artifact's table."""
    names, teachers = _retriever_names(batch.schema), _teachers(batch.schema)
    found = []
    for values in batch.to_pylist():
        for key, ending in (("scores", "_scores"), ("ranks", "_ranks"), ("positive_scores", _POSITIVE_SCORES)):
            values[key] = {name: values.pop(name + ending) for name in names}
        values["teachers"] = [
            (values.pop(f"{_POSITIVE_TEACHER}{number}"), values.pop(f"{_CANDIDATE_TEACHER}{number}"))
            for number in range(1, teachers + 1)
        ]
        found.append(MinedRow(**values))
    return found


def _retriever_names(columns: pa.Schema) -> list[str]:
    return [name.removesuffix(_POSITIVE_SCORES) for name in columns.names if name.endswith(_POSITIVE_SCORES)]


def _check(row: MinedRow, path: Path) -> None:
    per_positive: dict[str, Any] = {"positive_ids": row.positive_ids, "positive_teacher": row.positive_teacher}
    per_positive |= {f"{name}{_POSITIVE_SCORES}": values for name, values in row.positive_scores.items()}
    per_candidate: dict[str, Any] = {
        name: getattr(row, name)
        for name in (
            "candidate_ids",
            "candidate_ranks",
            "candidate_retrievers",
            "selected",
            "reason",
            "candidate_teacher",
            "verdict",
        )
    }
    per_candidate |= {f"{name}_scores": values for name, values in row.scores.items()}
    per_candidate |= {f"{name}_ranks": values for name, values in row.ranks.items()}
    for columns in (per_positive, per_candidate):
        lengths = {name: len(values) for name, values in columns.items() if values is not None}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise EmbedtrainError(
                f"{path}: the lists of query {row.query_id} differ in length ({shown}); make it again"
            )


def read_blocks(path: Path, corpus_ids: pa.Array, size: int) -> Iterator[Block]:
    """The rows of a mined artifact, `size` at a time, with ids as places in `corpus_ids`.

    Raises EmbedtrainError where an id is not in the corpus.
    """
    kind, names, file = _open(path)
    with file:
        for batch in file.iter_batches(batch_size=size, columns=schema(kind, names).names):
            positives, found = (
                _ragged(batch.column(name), corpus_ids, path) for name in ("positive_ids", "candidate_ids")
            )
            yield Block(
                batch.column("query_id").to_pylist(),
                positives,
                {name: _floats(batch.column(f"{name}{_POSITIVE_SCORES}")) for name in names},
                Candidates(
                    found.offsets,
                    found.values,
                    _whole(batch.column("candidate_ranks")),
                    {name: _whole(batch.column(f"{name}_ranks")) for name in names},
                    {name: _floats(batch.column(f"{name}_scores")) for name in names},
                ),
            )


def _ragged(column: pa.ListArray, corpus_ids: pa.Array, path: Path) -> Ragged:
    places = pa.compute.index_in(column.flatten(), value_set=corpus_ids)
    if places.null_count:
        missing = column.flatten().filter(places.is_null())[0]
        raise EmbedtrainError(f"{path} names {missing}, which is not in its collection; mine it again")
    lengths = pa.compute.list_value_length(column).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values: Ints = places.to_numpy().astype(np.int64)
    return Ragged(offsets, values)


def _floats(column: pa.ListArray) -> NDArray[np.float32]:
    return column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)


def _whole(column: pa.ListArray) -> NDArray[np.int32]:
    return column.flatten().fill_null(0).to_numpy().astype(np.int32)
