"""The table of an evaluation: systems with their values, and how they compare with the base."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from embedtrain import console
from embedtrain.comparison import Measured, Results
from embedtrain.systems import BASE, System


def table(systems: Sequence[System], results: Results, base: str) -> dict[str, Any]:
    """A row a system: its values, what its vectors take, and how it compares with the base.

    Of a recipe the standard deviation between its seeds stands behind the mean.
    """
    first, *others = results[base]
    columns = ["system", f"{first} [95 %]", *others]
    sizes = _sizes(systems)
    columns += ["bytes/vector", "index"] if sizes else []
    if len(systems) > 1:
        columns += [f"vs {base}", "p (Holm)" if len(systems) > 2 else "p"]
    rows = []
    for system in systems:
        measured = results[system.name]
        label = system.name
        if label == BASE and "model" in system.about:
            label = f"{BASE} ({PurePosixPath(system.about['model']).name})"
        if "seeds" in system.about:
            label += f" ({len(system.about['seeds'])} seeds)"
        row = [label, _with_interval(measured[first])]
        row += [f"{measured[name].mean:.4f}" for name in others]
        row += sizes.get(system.name, ["", ""]) if sizes else []
        if len(systems) > 1:
            versus = measured[first].versus
            row += [f"{versus.difference:+.4f}", _p(versus.p_holm)] if versus else ["", ""]
        rows.append(row)
    return {"columns": columns, "rows": rows}


def _sizes(systems: Sequence[System]) -> dict[str, list[str]]:
    """Of each system with vectors the bytes of one and of all, where they are not all the same."""
    sizes = {
        system.name: system.about["bytes_per_vector"] for system in systems if "bytes_per_vector" in system.about
    }
    if len(set(sizes.values())) < 2:
        return {}
    documents = {system.name: len(system.ids) for system in systems}
    return {name: [f"{each:,}", console.size(each * documents[name])] for name, each in sizes.items()}


def _with_interval(measured: Measured) -> str:
    inside = "" if measured.interval is None else f" [{measured.interval.low:.4f}, {measured.interval.high:.4f}]"
    spread = "" if measured.spread is None else f" ± {measured.spread:.4f}"
    return f"{measured.mean:.4f}{spread}{inside}"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"
