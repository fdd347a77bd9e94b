"""`inspect` of every kind of artifact and of files of somebody else's, and that it loads nothing heavy.

Breaks that turn a test red: texts from another collection, a candidate that is no negative shown as one, torch
imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RunCli, write_collection
from safetensors.numpy import save_file

from embedtrain import config, mined
from embedtrain.artifacts import Claim, Input
from embedtrain.atomic import atomic_folder
from embedtrain.errors import EmbedtrainError
from embedtrain.inspection import inspect_artifact
from embedtrain.mined import MinedRow

LONG = "a very long text\nof two lines " * 20


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a source and, made from it, one artifact of every kind."""
    monkeypatch.chdir(tmp_path)
    Path("source.jsonl").write_text('{"query": "q", "document": "d"}\n')
    documents = [{"_id": f"d{i}", "title": f"Title {i}", "text": f"text {i}"} for i in range(12)]
    documents[2]["text"] = LONG
    queries = [{"_id": "q1", "text": "first query"}, {"_id": "q2", "text": "second query"}]
    claim = Claim(
        Path("collection"),
        kind="collection",
        stage="harvest",
        options=config.HarvestOptions(kind="table"),
        inputs=[Input.of("source", Path("source.jsonl"))],
    )
    with atomic_folder(claim.out) as folder:
        judged = [("q1", "d0", 1), ("q1", "d2", 2), ("q2", "d1", 1)]
        write_collection(folder / "new", documents, queries, {"train": judged, "test": [("q2", "d1", 1)]})
        for entry in (folder / "new").iterdir():
            entry.rename(folder / entry.name)
        (folder / "new").rmdir()
        claim.write_folder(folder, rows=12, dropped={"empty rows": 3}, summary={"documents": 12})
    _tables()
    _models()
    _pages()
    return tmp_path


def _row(**more: Any) -> MinedRow:
    return MinedRow(
        query_id="q1",
        positive_ids=["d0", "d2"],
        candidate_ids=["d3", "d4", "d5", "d6"],
        candidate_ranks=[1, 2, 3, 4],
        candidate_retrievers=["dense", "bm25", "bm25+dense", "bm25"],
        selected=[False, True, True, False],
        reason=["above max ratio", "selected", "selected", "eligible"],
        scores={"bm25": [None, 9.0, 8.0, 7.0], "dense": [0.74, 0.6, 0.55, 0.5]},
        ranks={"bm25": [None, 1, 2, 3], "dense": [1, None, 2, None]},
        positive_scores={"bm25": [12.0, 3.0], "dense": [0.75, 0.5]},
        **more,
    )


def _tables() -> None:
    collection = Input.of("collection", Path("collection"))
    claim = Claim(
        Path("mined.parquet"),
        kind="mined",
        stage="mine",
        options=config.MineOptions(top_k=20),
        inputs=[collection],
    )
    claim.write_table(mined.to_table([_row()], "mined"), dropped={}, summary={"candidates": 4})
    claim = Claim(
        Path("scored.parquet"),
        kind="scored",
        stage="score-teacher",
        options=config.ScoreOptions(),
        inputs=[Input.of("mined", Path("mined.parquet")), collection],
    )
    scores = {"positive_teacher": [4.0, 3.0], "candidate_teacher": [5.0, 4.5, -2.0, -3.0]}
    row = _row(**scores, verdict=["drop", "drop", "keep", "keep"])
    claim.write_table(mined.to_table([row], "scored"), dropped={}, summary={"pairs": 6})


def _models() -> None:
    for kind, stage, options in (
        ("model", "finetune", config.FinetuneOptions(batch_size=8)),
        ("teacher", "train-teacher", config.TrainTeacherOptions()),
    ):
        inputs = [Input.of("mined", Path("mined.parquet"))]
        claim = Claim(Path(kind), kind=kind, stage=stage, options=options, inputs=inputs)
        with atomic_folder(claim.out) as folder:
            architecture = "BertModel" if kind == "model" else "BertForSequenceClassification"
            settings = {"architectures": [architecture], "hidden_size": 4, "num_hidden_layers": 1}
            (folder / "config.json").write_text(json.dumps({**settings, "id2label": {"0": "LABEL_0"}}))
            save_file({"w": np.zeros((2, 4), np.float32)}, folder / "model.safetensors")
            claim.write_folder(folder, rows=1, dropped={}, summary={"steps": 10, "last_loss": 0.25})


def _pages() -> None:
    table = {"columns": ["system", "nDCG@10"], "rows": [["BM25", "0.68"], ["tuned", "0.7412"]]}
    claim = Claim(
        Path("results"),
        kind="evaluation",
        stage="eval",
        options=config.EvalOptions(bm25=True),
        inputs=[Input.of("collection", Path("collection")), Input.of("model", Path("model"))],
    )
    with atomic_folder(claim.out) as folder:
        claim.write_folder(folder, rows=2, dropped={}, summary={"queries": 2, "table": table})
    claim = Claim(
        Path("report"),
        kind="report",
        stage="diagnose",
        options=config.DiagnoseOptions(),
        inputs=[Input.of("model", Path("model")), Input.of("evaluation", Path("results"))],
    )
    with atomic_folder(claim.out) as folder:
        summary = {"verdict": "healthy", "report": "report.html"}
        claim.write_folder(folder, rows=9, dropped={}, summary=summary)


def test_mined(work: Path) -> None:
    text = inspect_artifact(Path("mined.parquet"), None, 3).as_text()
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "mined.parquet: mined artifact, schema 2, 1 rows"
    assert "made by     embedtrain 0.1.0 mine, top k 20, seed 0" in lines
    at = lines.index("query q1: first query")
    assert lines[at + 1] == "+ d0 (bm25 12.000, dense 0.750)  Title 0 text 0"
    assert lines[at + 2].startswith("+ d2 (bm25 3.000, dense 0.500)  Title 2 a very long text of two lines a very")
    assert lines[at + 2].endswith("…")
    assert lines[at + 3 : at + 6] == [
        "− d4 (bm25 9.000, dense 0.600, rank 2 by bm25)  Title 4 text 4",
        "− d5 (bm25 8.000, dense 0.550, rank 3 by bm25+dense)  Title 5 text 5",
        "· d3 (dense 0.740, rank 1 by dense, above max ratio)  Title 3 text 3",
    ]
    assert "d6" not in text, "what would do and is not needed is no example of anything"
    tree = lines[lines.index("made from") + 1 :]
    assert tree[0].startswith("└─ collection collection  by harvest: kind table, seed 0  [")
    assert tree[1].startswith("└─ source source.jsonl  from outside  [")


def test_scored(work: Path) -> None:
    found = inspect_artifact(Path("scored.parquet"), None, 1)
    text = found.as_text()
    assert "− d5 (bm25 8.000, dense 0.550, teacher -2.000, rank 3 by bm25+dense)" in text
    assert "· d4 (bm25 9.000, dense 0.600, teacher 4.500, rank 2 by bm25, drop, selected)" in text
    example = found.as_dict()["examples"][0]
    assert example["positives"][0] == {
        "id": "d0",
        "scores": {"bm25": 12.0, "dense": 0.75},
        "teacher": 4.0,
        "text": "Title 0 text 0",
    }
    assert [item["id"] for item in example["negatives"]] == ["d5"]
    assert [item["verdict"] for item in example["left_out"]] == ["drop", "drop"]


def test_collection_that_cannot_be_found(work: Path) -> None:
    Path("collection").rename("moved")
    found = inspect_artifact(Path("mined.parquet"), None, 1)
    assert found.examples[0]["query"] == {"id": "q1"}
    assert "give --collection" in found.notes[0]
    assert "query q1\n" in found.as_text()
    given = inspect_artifact(Path("mined.parquet"), Path("moved"), 1)
    assert given.examples[0]["query"]["text"] == "first query"


def test_another_collection_is_refused(work: Path) -> None:
    other = write_collection(work / "other", [{"_id": "d0", "text": "x"}], [{"_id": "q1", "text": "y"}], {})
    with pytest.raises(EmbedtrainError, match="another collection"):
        inspect_artifact(Path("mined.parquet"), other, 1)


def test_collection(work: Path) -> None:
    found = inspect_artifact(Path("collection"), None, 1)
    text = found.as_text()
    assert "dropped    empty rows 3" in text
    assert "splits     test 1 queries, 1 judgements, train 2 queries, 3 judgements" in text
    assert found.examples == [
        {
            "split": "train",
            "query": {"id": "q1", "text": "first query"},
            "documents": [
                {"id": "d2", "grade": 2.0, "text": found.examples[0]["documents"][0]["text"]},
                {"id": "d0", "grade": 1.0, "text": "Title 0 text 0"},
            ],
            "more": 0,
        }
    ]
    assert "+ d0 (grade 1)  Title 0 text 0" in text
    assert inspect_artifact(Path("collection"), None, 0).examples == []


def test_models(work: Path) -> None:
    model = inspect_artifact(Path("model"), None, 3).as_text()
    assert "finetune, batch size 8, seed 0" in model
    assert "parameters    8" in model
    assert "last loss     0.25" in model
    assert model.index("mined mined.parquet") < model.index("source source.jsonl"), "the whole ancestry"
    teacher = inspect_artifact(Path("teacher"), None, 3).as_text()
    assert "labels        1" in teacher


def test_evaluation_and_report(work: Path) -> None:
    evaluation = inspect_artifact(Path("results"), None, 3).as_text()
    assert "  BM25        0.68\n  tuned     0.7412" in evaluation
    report = inspect_artifact(Path("report"), None, 3).as_text()
    assert "page     report/report.html" in report
    assert "collection collection  by harvest, as above" in report


def test_changed_files_are_noticed(work: Path) -> None:
    (work / "model" / "config.json").write_text("{}")
    assert "changed since they were written" in inspect_artifact(Path("model"), None, 1).as_text()


def test_a_newer_schema_is_said_and_not_read(work: Path) -> None:
    record = json.loads((work / "model" / "embedtrain.json").read_text())
    (work / "model" / "embedtrain.json").write_text(json.dumps({**record, "schema": 99, "kind": "model"}))
    assert "update embedtrain" in inspect_artifact(Path("model"), None, 1).as_text()
    (work / "model" / "embedtrain.json").write_text(json.dumps({**record, "kind": "symphony"}))
    assert "update embedtrain" in inspect_artifact(Path("model"), None, 1).as_text()


def test_somebody_elses(tmp_path: Path) -> None:
    folder = write_collection(
        tmp_path / "c",
        [{"_id": "d", "text": "document"}],
        [{"_id": "q", "text": "question"}],
        {"test": [("q", "d", 1)]},
    )
    found = inspect_artifact(folder, None, 2)
    assert found.as_text().splitlines()[0] == "c: a collection"
    assert "query q: question" in found.as_text()
    assert found.as_dict()["ancestry"] is None
    (folder / "qrels" / "test.tsv").write_text("q\tnone\t1\n")
    assert "1 document ids are not in the corpus: none" in inspect_artifact(folder, None, 2).as_text()
    (tmp_path / "t.jsonl").write_text(json.dumps({"query": "why", "document": LONG}) + "\n")
    text = inspect_artifact(tmp_path / "t.jsonl", None, 2).as_text()
    assert "columns  query str, document str" in text
    assert "query: why" in text
    assert max(map(len, text.splitlines())) < 130
    assert "a model" in inspect_artifact(Path("all-MiniLM-L6-v2"), None, 1).as_text()
    with pytest.raises(EmbedtrainError, match="does not exist"):
        inspect_artifact(tmp_path / "nothing", None, 1)


def test_the_command(work: Path, run_cli: RunCli) -> None:
    done = run_cli("inspect", "scored.parquet", "--examples", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == inspect_artifact(Path("scored.parquet"), None, 1).as_text() + "\n"
    found = json.loads(run_cli("inspect", "scored.parquet", "--json").stdout)
    assert found["kind"] == "scored"
    assert found["rows"] == 1
    assert found["ancestry"]["parents"][0]["name"] == "mined.parquet"
    missing = run_cli("inspect", "nothing")
    assert (missing.returncode, missing.stderr) == (1, "error: nothing does not exist; check the path\n")


def test_nothing_heavy_is_loaded(work: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from embedtrain.inspection import inspect_artifact as look\n"
        "for name in ('mined.parquet', 'scored.parquet', 'collection', 'model', 'results', 'report'):\n"
        "    look(Path(name), None, 2).as_text()\n"
        "print([m for m in ('torch', 'transformers', 'matplotlib', 'scipy', 'faiss') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
