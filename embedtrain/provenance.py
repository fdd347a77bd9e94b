"""Who gave an artifact its scores, and what those teachers had seen, out of the records that artifacts carry."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedtrain.artifacts import read_record


def trained_on(teacher: Mapping[str, Any], collection: str, mined_path: Path) -> bool:
    """Whether a teacher has seen the split of the same collection that these rows were mined for."""
    made_from = {item["role"]: item["sha256"] for item in teacher.get("inputs", [])}
    rows = made_from.get("mined") or made_from.get("scored") or ""
    seen = _split(teacher.get("ancestry", {}), rows)
    here = read_record(mined_path) or {}
    asked = _split({**here.get("ancestry", {}), "": here}, "")
    return made_from.get("collection") == collection and seen is not None and seen == asked


def _split(ancestry: Mapping[str, Any], sha256: str) -> str | None:
    """The split a mined artifact, or a scored one made of it, was mined for."""
    record = ancestry.get(sha256)
    if record is None or record.get("kind") == "mined":
        return record["options"]["split"] if record else None
    parents = (item["sha256"] for item in record.get("inputs", []) if item["role"] in ("mined", "scored"))
    return next((split for parent in parents if (split := _split(ancestry, parent))), None)


def teachers_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is recorded of the teachers that a scored artifact, or the one it was judged anew from, was made with."""
    ancestry = record.get("ancestry", {})
    inputs = record.get("inputs", [])
    named = [item["sha256"] for item in inputs if item["role"] == "teacher"]
    if not named:
        parents = [
            ancestry[item["sha256"]] for item in inputs if item["role"] == "scored" and item["sha256"] in ancestry
        ]
        return [one for parent in parents for one in teachers_of({**parent, "ancestry": ancestry})]
    return [{**ancestry[sha256], "ancestry": ancestry} for sha256 in named if sha256 in ancestry]
