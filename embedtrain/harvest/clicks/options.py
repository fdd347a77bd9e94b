"""How a click log is read and what is believed of it: the flags, checked once."""

from dataclasses import dataclass, fields
from typing import Any

from embedtrain.config import HarvestOptions
from embedtrain.errors import UsageError


def parse_propensities(text: str) -> dict[int, float]:
    """Read `1:1.0,2:0.6` into shares by rank, ranks ascending; UsageError for anything else."""
    found: dict[int, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        rank, _, value = part.partition(":")
        try:
            place, share = int(rank), float(value)
        except ValueError:
            place, share = 0, 0.0
        if place < 1 or not 0 < share <= 1 or place in found:
            raise UsageError(
                f"--propensities {text}: {part!r} is no RANK:SHARE with a rank from 1, given once, and a share above 0 "
                "and at most 1, as 1:1.0,2:0.6"
            )
        found[place] = share
    if not found:
        raise UsageError(f"--propensities {text!r} names no rank; give them as 1:1.0,2:0.6")
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class ClickOptions:
    """How a click log is read and what is believed of it. An empty column is recognised by common spellings."""

    query_column: str = HarvestOptions.query_column  # of this and the next other spellings are tried too
    document_column: str = HarvestOptions.document_column[0]
    clicked_column: str = HarvestOptions.clicked_column
    impressions_column: str = HarvestOptions.impressions_column
    position_column: str = HarvestOptions.position_column
    session_column: str = HarvestOptions.session_column
    time_column: str = HarvestOptions.time_column
    collection: str = HarvestOptions.collection  # what documents, and perhaps queries, are ids of
    propensities: str = HarvestOptions.propensities
    min_clicks: int = HarvestOptions.min_clicks
    min_relevance: float | None = HarvestOptions.min_relevance
    min_skips: int = HarvestOptions.min_skips
    negatives_below: float | None = HarvestOptions.negatives_below  # relevance; None: only what was never clicked
    max_queries_per_document: int = HarvestOptions.max_queries_per_document
    weight: float = HarvestOptions.weight
    input_format: str = HarvestOptions.input_format
    max_bad: float = HarvestOptions.max_bad

    @classmethod
    def of(cls, options: Any) -> "ClickOptions":
        """The flags for click logs among a stage's options. Raises UsageError for those that cannot be."""
        given: dict[str, Any] = {f.name: getattr(options, f.name, f.default) for f in fields(cls)}
        for name in ("query_column", "document_column"):
            names = given[name] if isinstance(given[name], str) else ",".join(given[name])
            if "," in names:
                raise UsageError(f"--{name.replace('_', '-')} {names}: a click log has one such column; name one")
            given[name] = names
        given["collection"] = str(given["collection"] or "")
        found = cls(**given)
        found._check()
        return found

    def _check(self) -> None:
        if self.propensities:
            parse_propensities(self.propensities)
        for flag, value in (("min-clicks", self.min_clicks), ("min-skips", self.min_skips)):
            if value < 1:
                raise UsageError(f"--{flag} {value}: at least 1 is needed")
        if self.max_queries_per_document < 0:
            raise UsageError(
                f"--max-queries-per-document {self.max_queries_per_document}: 1 or more, or 0 for any number, is needed"
            )
        if self.min_relevance is not None and not 0 <= self.min_relevance < 1:
            raise UsageError(f"--min-relevance {self.min_relevance}: a relevance from 0 to below 1 is needed")
        if self.negatives_below is not None:
            if not 0 < self.negatives_below < 1:
                raise UsageError(
                    f"--negatives-below {self.negatives_below}: a relevance between 0 and 1 is needed"
                )
            if self.min_relevance is not None and self.negatives_below > self.min_relevance:
                raise UsageError(
                    f"--negatives-below {self.negatives_below} is above --min-relevance {self.min_relevance}"
                )
        if not self.weight > 0:
            raise UsageError(f"--weight {self.weight}: a weight is above 0")
        if not 0 <= self.max_bad < 1:
            raise UsageError(f"--max-bad {self.max_bad}: a share from 0 to below 1 is needed")
