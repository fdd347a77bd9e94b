"""The flags that say how a table is read."""

import dataclasses
from typing import Any

from embedtrain.config import TableOptions
from embedtrain.errors import UsageError

SHAPES = ("pairs", "lists", "labelled", "graded", "scored", "nli", "duplicates", "clusters", "classes", "msmarco",
          "qrels", "graph")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings:
    """The flags that say how a table is read, checked once."""

    shape: str = TableOptions.shape
    query_column: tuple[str, ...] = (TableOptions.query_column,)  # joined with a blank
    document_column: tuple[str, ...] = TableOptions.document_column  # several: several positives
    negative_column: tuple[str, ...] = TableOptions.negative_column
    title_column: str = TableOptions.title_column
    label_column: str = TableOptions.label_column
    score_column: str = TableOptions.score_column
    min_score: float | None = TableOptions.min_score
    negatives_below: float | None = TableOptions.negatives_below
    time_column: str = TableOptions.time_column
    collection: str = TableOptions.collection
    max_pairs_per_class: int | None = TableOptions.max_pairs_per_class
    weight: float = TableOptions.weight
    input_format: str = TableOptions.input_format
    max_bad: float = TableOptions.max_bad
    seed: int = 0

    @classmethod
    def of(cls, options: Any) -> "Settings":
        """The settings among a stage's options. Raises UsageError for those that cannot be."""
        given: dict[str, Any] = {f.name: getattr(options, f.name, f.default) for f in dataclasses.fields(cls)}
        query = given["query_column"]
        given["query_column"] = tuple(filter(None, query.split(","))) if isinstance(query, str) else tuple(query)
        for name in ("document_column", "negative_column"):
            given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        given["collection"] = str(given["collection"] or "")
        found = cls(**given)
        found._check()
        return found

    def _check(self) -> None:
        if self.shape not in ("auto", *SHAPES):
            raise UsageError(f"--shape {self.shape}: auto, {', '.join(SHAPES)} are the shapes")
        if set(self.query_column) & set(self.document_column):
            raise UsageError("--query-column and --document-column name the same column; give two")
        if self.score_column and self.min_score is None:
            raise UsageError("--score-column needs --min-score: from which score on is a pair a positive?")
        if self.negatives_below is not None and self.negatives_below > (self.min_score or 0.0):
            raise UsageError(f"--negatives-below {self.negatives_below} is above --min-score {self.min_score}")
        if self.max_pairs_per_class is not None and self.max_pairs_per_class < 1:
            raise UsageError(f"--max-pairs-per-class {self.max_pairs_per_class}: at least 1 is needed")
        if not self.weight > 0:
            raise UsageError(f"--weight {self.weight}: a weight is above 0")
        if not 0 <= self.max_bad < 1:
            raise UsageError(f"--max-bad {self.max_bad}: a share from 0 to below 1 is needed")

    @property
    def named(self) -> bool:
        """Whether query and document columns were named."""
        return (self.query_column, self.document_column) != (("query",), ("document",))
