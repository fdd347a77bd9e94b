"""An evaluation on the page: its table, and its systems as a picture."""

from pathlib import Path
from typing import Any

from embedtrain import artifacts
from embedtrain.diagnose import pictures
from embedtrain.diagnose.section import Section, Table


def section(folder: Path, name: str) -> Section:
    """The table of an evaluation and, where it has means to draw, a picture of its systems."""
    record = artifacts.require_kind(folder, "evaluation")
    summary = record["summary"]
    table = summary.get("table", {})
    split = record["options"].get("split", "")
    picture = _ladder(summary.get("systems", {}))
    return Section(
        "evaluation",
        "How well it finds things",
        f"From the evaluation {name}{f', split {split}' if split else ''}.",
        pictures=[picture] if picture else [],
        tables=[Table("", table.get("columns", []), table.get("rows", []))] if table.get("rows") else [],
        notes=summary.get("notes", []),
    )


def _ladder(systems: dict[str, dict[str, Any]]) -> pictures.Picture | None:
    """The systems by nDCG@10, or by the first measure there is where that was not measured."""
    measures = list(
        dict.fromkeys(
            name
            for system in systems.values()
            for name, value in system.items()
            if isinstance(value, dict) and "mean" in value
        )
    )
    if not measures:
        return None
    measure = "nDCG@10" if "nDCG@10" in measures else measures[0]
    found = [
        pictures.System(name, values[measure]["mean"], values[measure]["low"], values[measure]["high"])
        for name, values in systems.items()
        if measure in values
    ]
    return pictures.ladder(
        found,
        measure,
        title="Systems from best to worst",
        caption=f"{measure} with its 95 % interval over queries. Intervals that overlap may still hide a sure "
        "difference: the paired test in the table sees it.",
    )
