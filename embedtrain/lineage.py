"""The ancestry of an artifact as a tree that a person can read, out of the records artifacts carry."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from embedtrain import config

_OPTIONS = {
    "harvest": config.HarvestOptions,
    "mine": config.MineOptions,
    "train-teacher": config.TrainTeacherOptions,
    "score-teacher": config.ScoreOptions,
    "pretrain": config.PretrainOptions,
    "finetune": config.FinetuneOptions,
    "eval": config.EvalOptions,
    "diagnose": config.DiagnoseOptions,
    "export": config.ExportOptions,
}


@dataclasses.dataclass(frozen=True)
class Node:
    """One thing a result was made from: what it was for, its name, and how it was made (None: not by a stage)."""

    role: str  # empty for the artifact itself
    name: str
    sha256: str
    kind: str | None = None
    stage: str | None = None
    seed: int | None = None
    rows: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # those that are not the defaults
    repeated: bool = False  # it stands in full further up, and its parents there
    parents: tuple["Node", ...] = ()

    @property
    def story(self) -> str:
        """How it came to be, in one line."""
        if self.stage is None:
            return "from outside"
        if self.repeated:
            return f"by {self.stage}, as above"
        chosen = [f"{name.replace('_', ' ')} {shown(value)}" for name, value in self.options.items()]
        if self.seed is not None:
            chosen.append(f"seed {self.seed}")
        rows = f", {self.rows:,} rows" if self.rows is not None and self.kind in ("mined", "scored") else ""
        return f"by {self.stage}{': ' if chosen else ''}{', '.join(chosen)}{rows}"


def shown(value: Any) -> str:
    """An option's value in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "+".join(shown(item) for item in value) or "none"
    return str(value)


def chosen_options(stage: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options whose values are not today's defaults of the stage."""
    known = (
        {field.name: field.default for field in dataclasses.fields(_OPTIONS[stage])} if stage in _OPTIONS else {}
    )
    return {
        name: value
        for name, value in options.items()
        if name not in known or value != (list(default) if isinstance(default := known[name], tuple) else default)
    }


def ancestry(record: Mapping[str, Any], name: str, sha256: str = "") -> Node:
    """The artifact of a record as a tree: its parents are what it was made from, and so on to the sources."""
    known: Mapping[str, Mapping[str, Any]] = record.get("ancestry", {})
    told: set[str] = set()

    def visit(entry: Mapping[str, Any], role: str, name: str, sha256: str) -> Node:
        repeated = bool(sha256) and sha256 in told
        told.add(sha256)
        stage = str(entry.get("stage"))
        return Node(
            role,
            name,
            sha256,
            kind=entry.get("kind"),
            stage=stage,
            seed=entry.get("seed"),
            rows=entry.get("rows"),
            options=chosen_options(stage, entry.get("options", {})),
            repeated=repeated,
            parents=() if repeated else tuple(parent(item) for item in entry.get("inputs", [])),
        )

    def parent(item: Mapping[str, str]) -> Node:
        role, name, sha256 = item["role"], item["name"], item["sha256"]
        return visit(known[sha256], role, name, sha256) if sha256 in known else Node(role, name, sha256)

    return visit(record, "", name, sha256)


def as_text(node: Node, head: str = "", below: str = "") -> list[str]:
    """The tree as lines: role, name, how it was made, the start of its hash."""
    role = f"{node.role} " if node.role else ""
    mark = f"  [{node.sha256[:12]}]" if node.sha256 else ""
    lines = [f"{head}{role}{node.name}  {node.story}{mark}"]
    for index, parent in enumerate(node.parents):
        last = index == len(node.parents) - 1
        lines += as_text(parent, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
    return lines


def as_dict(node: Node) -> dict[str, Any]:
    """The tree as plain values; what is not known is left out."""
    found = {
        key: value for key, value in dataclasses.asdict(node).items() if value is not None and key != "parents"
    }
    return found | {"parents": [as_dict(parent) for parent in node.parents]}
