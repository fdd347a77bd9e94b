"""The rows of a mined and of a scored artifact: their columns, written and read in this one place."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from embedtrain.artifacts import require_kind
from embedtrain.errors import EmbedtrainError

MINED = pa.schema(
    [
        ("query_id", pa.string()),
        ("positive_ids", pa.list_(pa.string())),
        ("positive_scores", pa.list_(pa.float32())),
        ("candidate_ids", pa.list_(pa.string())),
        ("candidate_scores", pa.list_(pa.float32())),
        ("candidate_ranks", pa.list_(pa.int32())),
        ("candidate_retrievers", pa.list_(pa.string())),
        ("selected", pa.list_(pa.bool_())),
        ("reason", pa.list_(pa.string())),
    ]
)
SCORED = pa.schema(
    [
        *MINED,
        ("positive_teacher", pa.list_(pa.float32())),
        ("candidate_teacher", pa.list_(pa.float32())),
        ("verdict", pa.list_(pa.string())),
    ]
)

# Verdicts that take a selected candidate's place among the negatives away.
NOT_NEGATIVE = frozenset({"drop", "promote"})

Kind = Literal["mined", "scored"]


@dataclass(frozen=True)
class MinedRow:
    """One query: its positives, and every candidate with where it stood and why it is a negative or not.

    Scores are those of the dense retriever, or of BM25 where it was alone. Candidates stand in the order of
    `candidate_ranks` (from 1). The last three are None in a mined artifact; a candidate the teacher was not asked for
    has no score.
    """

    query_id: str
    positive_ids: list[str]
    positive_scores: list[float]
    candidate_ids: list[str]
    candidate_scores: list[float]
    candidate_ranks: list[int]
    candidate_retrievers: list[str]
    selected: list[bool]
    reason: list[str]
    positive_teacher: list[float] | None = None
    candidate_teacher: list[float | None] | None = None
    verdict: list[str] | None = None

    @property
    def negative_indices(self) -> list[int]:
        """Indices, in rank order, of the candidates that serve as negatives: selected, and not taken back."""
        verdicts = self.verdict or ["keep"] * len(self.candidate_ids)
        return [
            index
            for index in sorted(range(len(self.candidate_ids)), key=self.candidate_ranks.__getitem__)
            if self.selected[index] and verdicts[index] not in NOT_NEGATIVE
        ]

    @property
    def negatives(self) -> list[str]:
        """Ids of the candidates that serve as negatives, in rank order."""
        return [self.candidate_ids[index] for index in self.negative_indices]


def to_table(rows: Iterable[MinedRow], kind: Kind) -> pa.Table:
    """Rows as the table of a mined or a scored artifact."""
    schema = MINED if kind == "mined" else SCORED
    rows = list(rows)
    return pa.table({name: [getattr(row, name) for row in rows] for name in schema.names}, schema=schema)


def read_mined(path: Path) -> list[MinedRow]:
    """The rows of a mined or scored artifact, in file order.

    Raises EmbedtrainError for anything else, with the command that makes one, and for rows whose lists do not fit
    together.
    """
    kind = require_kind(path, "mined", "scored")["kind"]
    schema = MINED if kind == "mined" else SCORED
    rows: list[MinedRow] = []
    with pyarrow.parquet.ParquetFile(path) as file:
        missing = [name for name in schema.names if name not in file.schema_arrow.names]
        if missing:
            raise EmbedtrainError(f"{path} has no column {missing[0]!r}; make it again")
        for batch in file.iter_batches(batch_size=1024, columns=schema.names):
            for values in batch.to_pylist():
                row = MinedRow(**values)
                _check(row, path)
                rows.append(row)
    return rows


_PER_POSITIVE = [name for name in SCORED.names if name.startswith("positive_")]
_PER_CANDIDATE = [name for name in SCORED.names if name not in {"query_id", *_PER_POSITIVE}]


def _check(row: MinedRow, path: Path) -> None:
    for names in (_PER_POSITIVE, _PER_CANDIDATE):
        lengths = {name: len(values) for name in names if (values := getattr(row, name)) is not None}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise EmbedtrainError(
                f"{path}: the lists of query {row.query_id} differ in length ({shown}); make it again"
            )
