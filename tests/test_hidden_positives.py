"""The helper of the recipe on false negatives: what it hides, counts and compares, by hand."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import ROOT, RunCli, write_collection

from embedtrain.collection import Collection
from embedtrain.mined import read_mined


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = importlib.util.spec_from_file_location("hidden_positives", ROOT / "recipes" / "hidden_positives.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["hidden_positives"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Four queries about apples; the first has three positives, the second two."""
    documents = [
        {"_id": f"d{n}", "text": f"apple story number {n} tells of {'red' * (n % 3)} fruit {n}"} for n in range(9)
    ]
    queries = [{"_id": f"q{n}", "text": f"apple story {n}"} for n in range(4)]
    train = [("q0", "d0", 1), ("q0", "d1", 2), ("q0", "d2", 1), ("q1", "d3", 1), ("q1", "d4", 1), ("q2", "d5", 1)]
    write_collection(tmp_path / "source", documents, queries, {"train": train, "test": [("q3", "d6", 1)]})
    return tmp_path / "source"


def test_half_is_hidden(recipe: Any, source: Path, tmp_path: Path) -> None:
    told = recipe.hide(source, "train", 0, tmp_path / "out")
    assert told == {
        "train_queries": 2,
        "single_queries": 1,
        "test_queries": 1,
        "hidden_positives": 2,
    }
    made, before = Collection(tmp_path / "out"), Collection(source).qrels("train")
    kept, hidden = made.qrels("train"), made.qrels("hidden")
    assert {query: len(documents) for query, documents in kept.items()} == {"q0": 2, "q1": 1}
    assert made.qrels("single") == {"q2": before["q2"]}
    for query in kept:
        assert {**kept[query], **hidden[query]} == before[query]
    assert made.qrels("test") == Collection(source).qrels("test")
    others = {str(recipe.hide(source, "train", seed, tmp_path / "out")) for seed in range(3)}
    assert len(others) == 1
    drawn = set()
    for seed in range(8):
        recipe.hide(source, "train", seed, tmp_path / "out")
        drawn.add(tuple(Collection(tmp_path / "out").qrels("hidden")["q0"]))
    assert len(drawn) > 1


def test_a_test_split_is_halved(recipe: Any, source: Path, tmp_path: Path) -> None:
    (source / "qrels" / "test.tsv").unlink()
    (source / "qrels" / "train.tsv").rename(source / "qrels" / "test.tsv")
    recipe.hide(source, "test", 1, tmp_path / "out")
    made = Collection(tmp_path / "out")
    train, test = set(made.qrels("train")), set(made.qrels("test"))
    single = {"q2"} - test
    assert train | test | single == {"q0", "q1", "q2"}
    assert (tmp_path / "out" / "qrels" / "single.tsv").is_file() == bool(single)
    assert train
    assert not train & test


def test_what_is_hidden_is_counted(recipe: Any, source: Path, tmp_path: Path, run_here: RunCli) -> None:
    recipe.hide(source, "train", 0, tmp_path / "c")
    done = run_here(
        "mine", "c", "--retriever", "bm25", "--negatives", "8", "--max-ratio", "0", "--out", "m.parquet"
    )
    assert done.returncode == 0, done.stderr
    rows = read_mined(tmp_path / "m.parquet")
    hidden = Collection(tmp_path / "c").qrels("hidden")
    # A judge who gives what is hidden more than any positive finds it all; and one of the others too.
    from embedtrain.artifacts import Claim
    from embedtrain.config import ScoreOptions
    from embedtrain.mined import to_table
    from embedtrain.scoring import with_scores

    wrong = next(
        d
        for d in rows[0].candidate_ids
        if d not in hidden["q0"] and rows[0].reason[rows[0].candidate_ids.index(d)] == "selected"
    )
    scores = [
        (
            [1.0] * len(row.positive_ids),
            [
                2.0 if d in hidden.get(row.query_id, {}) or (row is rows[0] and d == wrong) else 0.0
                for d in row.candidate_ids
            ],
        )
        for row in rows
    ]
    claim = Claim(tmp_path / "s.parquet", kind="scored", stage="score-teacher", options=ScoreOptions(), inputs=[])
    import dataclasses

    made = [
        dataclasses.replace(row, verdict=["keep"] * len(row.candidate_ids)) for row in with_scores(rows, scores)
    ]
    claim.write_table(to_table(made, "scored"), dropped={}, summary={})
    told = recipe.count(tmp_path / "c", tmp_path / "m.parquet", tmp_path / "s.parquet")
    assert told["hidden_among_them"] == told["hidden_among_scored"] == 2
    assert told["suspected"] == 3
    assert told["precision"] == pytest.approx(2 / 3, abs=1e-4)
    assert told["recall"] == 1.0
    assert told["share"] == pytest.approx(2 / told["negatives"], abs=1e-4)


def test_arms_are_compared_over_seeds(recipe: Any, tmp_path: Path) -> None:
    for seed, shift in ((0, 0.0), (1, 0.1)):
        rows = [
            {"query_id": f"q{n}", "system": f"out/{seed}/{name}", "measure": "nDCG@10", "value": value + shift}
            for n in range(3)
            for name, value in (("naive", 0.2 + n / 10), ("drop", 0.3 + n / 10))
        ]
        (tmp_path / str(seed)).mkdir()
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / str(seed) / "per_query.parquet")
    naive, drop = recipe.compare([tmp_path / "0", tmp_path / "1"])
    assert (naive["system"], naive["mean"], naive["difference"]) == ("naive", 0.35, 0.0)
    assert naive["by_seed"] == [0.3, 0.4]
    assert (drop["system"], drop["mean"], drop["difference"]) == ("drop", 0.45, 0.1)
    assert (drop["low"], drop["high"]) == (0.1, 0.1)


def test_seeds_may_ask_other_queries(recipe: Any, tmp_path: Path) -> None:
    for seed, (queries, value) in enumerate((("ab", 0.1), ("bc", 0.5), ("cd", 0.9))):
        rows = [{"query_id": q, "system": "naive", "measure": "nDCG@10", "value": value} for q in queries]
        (tmp_path / str(seed)).mkdir()
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / str(seed) / "per_query.parquet")
    (naive,) = recipe.compare([tmp_path / str(seed) for seed in range(3)])
    assert naive["by_seed"] == [0.1, 0.5, 0.9]
    assert naive["mean"] == pytest.approx((0.1 + 0.3 + 0.7 + 0.9) / 4)


def test_a_source_is_not_replaced(recipe: Any, source: Path) -> None:
    for out in (source, source.parent):
        with pytest.raises(SystemExit, match="would replace the source"):
            recipe.hide(source, "train", 0, out)
    assert (source / "qrels" / "train.tsv").is_file()


def test_a_part_is_drawn_alike_for_every_seed(recipe: Any, source: Path, tmp_path: Path) -> None:
    made = []
    for seed in (0, 1):
        told = recipe.hide(source, "train", seed, tmp_path / "out", 1, 6)
        assert (told["train_queries"], told["single_queries"], told["test_queries"]) == (1, 1, 1)
        part = Collection(tmp_path / "out")
        assert len(part.corpus) == 6
        named = [part.qrels(split) for split in ("train", "hidden", "single", "test")]
        assert {d for qrels in named for found in qrels.values() for d in found} <= set(part.corpus.ids)
        assert part.corpus.by_id("d5") == Collection(source).corpus.by_id("d5")
        made.append((part.corpus.ids, list(part.qrels("train"))))
    assert made[0] == made[1]


def test_nothing_to_hide(recipe: Any, source: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has two positives"):
        recipe.hide(source, "test", 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()
