"""What a path seems to be, by its own bytes.

Breaks that turn a test red: an id column read as a number, position ids counted as parameters, a run taken for
qrels.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import write_collection
from safetensors.numpy import save_file

from embedtrain import contents
from embedtrain.models import MINILM, find_model


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_run(tmp_path: Path) -> None:
    rows = "1 Q0 d3 1 0.9 bm25\n1 Q0 d1 2 0.8 bm25\n2 Q0 d1 1 0.7 bm25\n"
    for name in ("run.trec", "run.txt", "run"):
        what, facts = contents.seems(write(tmp_path / name, rows))
        assert (what, facts) == ("a TREC run", {"lines": 3, "queries": 2, "tag": "bm25"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\n"),
        ("test.qrels", "q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n"),
        ("qrels", "q1 d1 1\nq1 d2 0\nq2 d1 2"),
    ],
)
def test_qrels(tmp_path: Path, name: str, text: str) -> None:
    what, facts = contents.seems(write(tmp_path / name, text))
    assert (what, facts) == ("relevance judgements (qrels)", {"judgements": 3, "queries": 2})


def test_audits(tmp_path: Path) -> None:
    numbers = {"queries": 2, "candidates": 6, "negatives": 4, "candidates_by_reason": {}, "most_suspicious": []}
    file = write(tmp_path / "audit.json", json.dumps({**numbers, "gates": {"missed": 0.5, "short": 0.0}}))
    what, facts = contents.seems(file)
    assert what == "the audit of a mining run"
    assert facts == {"queries": 2, "candidates": 6, "negatives": 4, "gates": "missed 0.5, short 0"}
    assert contents.seems(write(tmp_path / "other.json", '{"gates": {}}'))[0] != what


def test_tables(tmp_path: Path) -> None:
    jsonl = write(tmp_path / "a.jsonl", '{"_id": "007", "n": 1}\n\n{"_id": "8", "text": "x"}\n')
    columns = {"_id": "str", "n": "int", "text": "str"}
    assert contents.seems(jsonl) == ("a JSONL table", {"rows": 2, "columns": columns})
    assert [row["_id"] for row in contents.first_rows(jsonl, 5)] == ["007", "8"]
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("query,document\nwhat,that\n")
    assert contents.seems(tmp_path / "b.csv.gz")[0] == "a CSV table"
    tsv = write(tmp_path / "c.tsv", "query\tdocument\nwhat\tthat\n")
    assert contents.seems(tsv) == ("a TSV table", {"rows": 1, "columns": {"query": "str", "document": "str"}})
    pyarrow.parquet.write_table(pa.table({"_id": ["1"], "score": [0.5]}), tmp_path / "d.parquet")
    assert contents.seems(tmp_path / "d.parquet") == (
        "a Parquet table",
        {"rows": 1, "columns": {"_id": "string", "score": "double"}},
    )


def test_a_broken_table_says_where(tmp_path: Path) -> None:
    what, facts = contents.seems(write(tmp_path / "a.jsonl", '{"a": 1}\nnot json\n'))
    assert what == "a JSONL table"
    assert facts["rows"] == 1
    assert "line 2 is not JSON" in facts["fault"]
    assert list(contents.first_rows(tmp_path / "a.jsonl", 5)) == [{"a": 1}]


def test_long_tables_are_not_counted_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOST_ROWS", 3)
    assert contents.seems(write(tmp_path / "a.jsonl", '{"a": 1}\n' * 4))[1]["rows"] == "more than 3"
    assert contents.seems(write(tmp_path / "b.jsonl", '{"a": 1}\n' * 3))[1]["rows"] == 3


def test_other_things(tmp_path: Path) -> None:
    assert contents.seems(write(tmp_path / "empty.jsonl", ""))[0] == "an empty file"
    assert contents.seems(write(tmp_path / "note.md", "# Title\n")) == (
        "a file that embedtrain does not read",
        {"bytes": 8},
    )
    (tmp_path / "bytes.bin").write_bytes(b"\xff\xfe\x00 1 2 3 4 5")
    assert contents.seems(tmp_path / "bytes.bin")[0] == "a file that embedtrain does not read"
    folder = tmp_path / "folder"
    folder.mkdir()
    assert contents.seems(folder) == ("an empty folder", {})
    for index in range(10):
        write(folder / f"{index}.txt", "x")
    assert contents.seems(folder)[1]["holds"].endswith("7.txt and 2 more")
    collection = write_collection(tmp_path / "c", [{"_id": "d", "text": "x"}], [{"_id": "q", "text": "y"}], {})
    assert contents.seems(collection)[0] == "a collection"


def test_settings_of_the_packaged_model() -> None:
    facts = contents.model_settings(find_model(MINILM).path)
    assert facts == {
        "architecture": "BertModel",
        "layers": 6,
        "dimension": 384,
        "pooling": "mean",
        "modules": "Transformer > Pooling > Normalize",
        "max_length": 256,
        "parameters": 22_713_216,
        "precision": "f32",
    }


def test_settings_of_a_model_as_it_is_saved_today(tmp_path: Path) -> None:
    files = {
        "config.json": {"architectures": ["XModel"], "hidden_size": 32, "num_hidden_layers": 2},
        "modules.json": [{"type": "a.b.Transformer"}, {"type": "a.c.Pooling"}, {"type": "a.d.Dense"}],
        "1_Pooling/config.json": {"embedding_dimension": 32, "pooling_mode": "cls"},
        "2_Dense/config.json": {"in_features": 32, "out_features": 8},
        "config_sentence_transformers.json": {"prompts": {"query": "q: "}, "similarity_fn_name": "dot"},
        "tokenizer_config.json": {"model_max_length": 128},
    }
    for name, values in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, json.dumps(values))
    weights = {"w": np.zeros((3, 4), np.float32), "h": np.zeros(5, np.float16), "ids": np.zeros(9, np.int64)}
    save_file(weights, tmp_path / "model.safetensors")
    what, facts = contents.seems(tmp_path)
    assert what == "a model"
    assert facts == {
        "architecture": "XModel",
        "layers": 2,
        "dimension": 8,
        "pooling": "cls",
        "modules": "Transformer > Pooling > Dense",
        "max_length": 128,
        "similarity": "dot",
        "prompts": {"query": "q: "},
        "parameters": 17,
        "precision": "f16+f32",
    }


def test_a_damaged_model_is_described_as_far_as_it_goes(tmp_path: Path) -> None:
    write(tmp_path / "config.json", "{")
    write(tmp_path / "model.safetensors", "no weights at all")
    assert contents.seems(tmp_path) == ("a model", {"weights": "model.safetensors cannot be read"})
