"""What a part of the report is made of: numbers with their verdicts, pictures, tables, and what is to be said."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from embedtrain.diagnose.pictures import Picture

HEALTHY, WATCH, COLLAPSED = "healthy", "watch", "collapsed"


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number with what it is compared with. `low` and `high` are the ends of its scale, `mark` the reference
    value on it; `base` is None where there is no base model."""

    key: str
    name: str
    value: float
    base: float | None
    reference: str
    verdict: str
    sentence: str
    low: float
    high: float
    mark: float
    digits: int = 3

    def shown(self, value: float) -> str:
        """A value of this measure, in text."""
        return f"{value:,.{self.digits}f}".replace("-", "−")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of the report: texts as they are shown; the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the report. `key` is its name in diagnose.json, where its `numbers` stand; `lead` says what it answers."""

    key: str
    title: str
    lead: str
    measures: list[Measure] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    numbers: dict[str, Any] = dataclasses.field(default_factory=dict)


def overall(measures: Sequence[Measure]) -> tuple[str, str]:
    """The worst verdict, and a sentence that names the measures behind it."""
    for verdict, opening in ((COLLAPSED, "The space has collapsed"), (WATCH, "Something to look at")):
        found = [measure for measure in measures if measure.verdict == verdict]
        if found:
            why = f" {found[0].sentence}" if len(found) == 1 else ""
            return verdict, f"{opening}: {', '.join(measure.name for measure in found)}.{why}"
    return HEALTHY, "Nothing in the shape of this space speaks against the model."
