"""Imports run one way: cli -> stages -> mechanisms -> the core; never stage to stage, never mechanism to stage."""

import ast
from pathlib import Path

from conftest import ROOT

PACKAGE = ROOT / "embedtrain"
STAGES = {"harvest", "mine", "teacher", "score", "train", "evaluate", "diagnose", "inspection", "cache", "doctor"}
CORE = {"artifacts", "atomic", "collection", "columnar", "config", "errors", "models", "packed", "readers"}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("embedtrain.")}
    return {name for name in found if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()}


def modules() -> dict[str, set[str]]:
    """Every module (a package counts as one) with what it imports of the others."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not name.startswith("__"):
            found.setdefault(name, set()).update(imported(path) - {name})
    return found


def test_stages_import_no_stage_and_mechanisms_neither() -> None:
    for name, uses in modules().items():
        if name != "cli":
            assert not uses & STAGES, f"{name} imports {uses & STAGES}"
            assert "cli" not in uses, name


def test_the_core_rests_on_itself_alone() -> None:
    found = modules()
    for name in CORE:
        assert found[name] <= CORE, f"{name} imports {found[name] - CORE}"


def test_options_need_the_standard_library_alone() -> None:
    assert modules()["config"] == set()


def test_no_module_is_named_for_nothing() -> None:
    assert not {"utils", "common", "base", "helpers"} & {path.stem for path in PACKAGE.rglob("*.py")}
