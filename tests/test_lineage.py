"""The ancestry of an artifact as a tree.

Breaks that turn a test red: telling a repeated ancestor twice in full, showing an option that is the default.
"""

from typing import Any

from embedtrain import config, lineage

MINE = {"split": "train", "retrievers": ["bm25", "dense"], "top_k": 20, "negatives": 7, "max_ratio": None}


def entry(kind: str, stage: str, options: dict[str, Any], inputs: list[tuple[str, str, str]], **more: Any) -> Any:
    named = [{"role": role, "name": name, "sha256": sha256} for role, name, sha256 in inputs]
    return {"kind": kind, "stage": stage, "options": options, "seed": 0, "rows": 3, "inputs": named, **more}


def scored() -> dict[str, Any]:
    collection = entry("collection", "harvest", {"kind": "markdown"}, [("source", "docs", "d" * 64)])
    mined = entry("mined", "mine", MINE, [("collection", "c", "c" * 64), ("model", "base", "b" * 64)])
    inputs = [("mined", "m.parquet", "a" * 64), ("collection", "c", "c" * 64), ("teacher", "t", "e" * 64)]
    return entry("scored", "score-teacher", {}, inputs, ancestry={"a" * 64: mined, "c" * 64: collection})


def test_tree_as_text() -> None:
    assert lineage.as_text(lineage.ancestry(scored(), "s.parquet")) == [
        "s.parquet  by score-teacher: seed 0, 3 rows",
        "├─ mined m.parquet  by mine: top k 20, max ratio none, seed 0, 3 rows  [aaaaaaaaaaaa]",
        "│  ├─ collection c  by harvest: kind markdown, seed 0  [cccccccccccc]",
        "│  │  └─ source docs  from outside  [dddddddddddd]",
        "│  └─ model base  from outside  [bbbbbbbbbbbb]",
        "├─ collection c  by harvest, as above  [cccccccccccc]",
        "└─ teacher t  from outside  [eeeeeeeeeeee]",
    ]


def test_tree_as_values() -> None:
    tree = lineage.as_dict(lineage.ancestry(scored(), "s.parquet"))
    assert tree["name"] == "s.parquet"
    mined = tree["parents"][0]
    assert (mined["role"], mined["stage"], mined["options"]) == ("mined", "mine", {"top_k": 20, "max_ratio": None})
    assert mined["parents"][1] == {
        "role": "model",
        "name": "base",
        "sha256": "b" * 64,
        "options": {},
        "repeated": False,
        "parents": [],
    }


def test_defaults_are_not_told() -> None:
    assert lineage.chosen_options("mine", {"retrievers": ["bm25", "dense"], "negatives": 7}) == {}
    assert lineage.chosen_options("mine", {"retrievers": ["bm25"]}) == {"retrievers": ["bm25"]}


def test_an_option_or_stage_of_another_version_is_told() -> None:
    assert lineage.chosen_options("mine", {"flavour": "lemon"}) == {"flavour": "lemon"}
    assert lineage.chosen_options("season", {"salt": 1}) == {"salt": 1}


def test_every_stage_has_its_defaults() -> None:
    # Parts that several stages have in common, and those of harvest.
    shared = {"TrainOptions", "LexicalOptions"}
    shared |= {f"{part}Options" for part in ("Page", "Table", "Log", "Generate", "Clean")}
    stages = {name for name in vars(config) if name.endswith("Options")} - shared
    assert {options.__name__ for options in lineage._OPTIONS.values()} == stages
