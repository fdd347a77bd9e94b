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
    for verdict, opening in ((COLLAPSED, "Collapsed"), (WATCH, "Something to look at")):
        found = [measure for measure in measures if measure.verdict == verdict]
        if found:
            why = f" {found[0].sentence}" if len(found) == 1 else ""
            return verdict, f"{opening}: {', '.join(measure.name for measure in found)}.{why}"
    return HEALTHY, "Nothing that was measured speaks against it."


def limited(
    key: str, name: str, value: float, limit: float, sentence: str, advice: str = "", *, enough: bool = True
) -> Measure:
    """A share that is to be looked at above `limit`, with what to do then; not where it is made of too few."""
    watch = value > limit and enough
    text = f"{sentence} {advice}" if watch and advice else sentence
    most = min(1.0, max(5.0 * limit, value) or 1.0)
    verdict = WATCH if watch else HEALTHY
    reference = f"watch above {limit:.2g}" if limit else "none should be"
    return Measure(key, name, value, None, reference, verdict, text, 0.0, most, limit)


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def counted(part: float, whole: float) -> str:
    """A count and its share, in words."""
    return f"{int(part):,} ({100 * part / whole:.1f} %)" if whole else f"{int(part):,}"
