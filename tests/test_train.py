"""pretrain, finetune, train-teacher and score-teacher as users run them, and that training learns.

Deliberate breaks that turn a test here red: verdicts not heeded, texts of a second source taken from the first.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import RunCli, call, write_collection

from embedtrain import denoise
from embedtrain.artifacts import read_record
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.encoder import Encoder
from embedtrain.mined import MinedRow, read_mined
from embedtrain.models import MINILM, find_model
from embedtrain.rows import Sources, first, guard, of_mined

torch.set_num_threads(1)


def test_rows_that_ask_the_same_guard_each_others_positives(tmp_path: Path) -> None:
    write_collection(
        tmp_path / "c",
        [{"_id": d, "text": f"text {d}"} for d in ("d1", "d2", "d3")],
        [
            {"_id": "q1", "text": "Same words"},
            {"_id": "q2", "text": "same  words"},
            {"_id": "q3", "text": "other"},
        ],
        {"train": [("q1", "d1", 1), ("q2", "d2", 1), ("q3", "d3", 1)]},
    )
    collection = Collection(tmp_path / "c")
    sources = Sources([collection])
    rows, dropped = sources.pairs("train")
    guarded = guard(rows, sources)
    assert [row.not_negatives for row in guarded] == [("d2",), ("d1",), ()]
    assert dropped == {}


def test_documents_judged_not_relevant_are_negatives_by_hand(tmp_path: Path) -> None:
    write_collection(
        tmp_path / "c",
        [{"_id": "d1", "text": "text"}, {"_id": "d2", "text": "other"}, {"_id": "d3", "text": " "}],
        [{"_id": "q1", "text": "one"}],
        {"train": [("q1", "d2", 0), ("q1", "d1", 2), ("q1", "d3", 0)]},
    )
    (row,), _ = Sources([Collection(tmp_path / "c")]).pairs("train")
    assert row.positives == ("d1",)
    assert row.negatives == row.explicit == ("d2",)


def test_a_limit_is_shared_by_sources() -> None:
    rows = [
        Row(f"{source}{n}", ("d",), source=source)
        for source, count in (("a", 5), ("b", 1), ("c", 4))
        for n in range(count)
    ]
    assert [row.query_id for row in first(rows, 6)] == ["a0", "a1", "a2", "b0", "c0", "c1"]
    assert first(rows, None) == first(rows, 10) == rows


def test_pairs_without_text_are_counted(tmp_path: Path) -> None:
    write_collection(
        tmp_path / "c",
        [{"_id": "d1", "text": "text"}, {"_id": "d2", "text": " "}],
        [{"_id": f"q{n}", "text": text} for n, text in enumerate(["one", "two", " ", "four", "five"])],
        {"train": [("q0", "d1", 1), ("q1", "d2", 1), ("q2", "d1", 1), ("q3", "d1", 0), ("q4", "d1", 1)]},
    )
    rows, dropped = Sources([Collection(tmp_path / "c")]).pairs("train")
    assert [row.query_id for row in rows] == ["q0", "q4"]
    assert dropped == {"pair without text": 2, "query without a positive": 1}


def test_what_the_teacher_dropped_is_no_negative_anywhere() -> None:
    mined = MinedRow(
        query_id="q",
        positive_ids=["p"],
        candidate_ids=["a", "b", "c", "d"],
        candidate_ranks=[1, 2, 3, 4],
        candidate_retrievers=["dense"] * 4,
        selected=[True, True, False, False],
        reason=["selected", "selected", "eligible", "above max ratio"],
        positive_teacher=[2.0],
        candidate_teacher=[3.0, 1.0, None, None],
        verdict=["drop", "keep", "keep", "keep"],
    )
    row = of_mined(mined)
    assert row.negatives == ("b",)
    assert row.not_negatives == ("a", "d")
    assert row.teacher == {"p": 2.0, "a": 3.0, "b": 1.0}
    assert row.scores == {"a": -1.0, "b": -2.0, "c": -3.0, "d": -4.0}


SHORT = ["--max-document-length", "48", "--max-query-length", "24", "--quiet"]
COMMANDS = [
    ["mine", "TINY", "--out", "mined.parquet", "--top-k", "10", "--negatives", "3", "--quiet"],
    ["train-teacher", "mined.parquet", "--collection", "TINY", "--out", "teacher", "--epochs", "0.5"]
    + ["--max-length", "64", "--quiet"],
    ["score-teacher", "mined.parquet", "--collection", "TINY", "--teacher", "teacher", "--out", "scored.parquet"]
    + ["--trust", "--quiet"],
    ["pretrain", "TINY", "--out", "pretrained", "--batch-size", "16", *SHORT],
    ["finetune", "scored.parquet", "--collection", "TINY", "--model", "pretrained", "--out", "tuned"]
    + ["--epochs", "1", "--batch-size", "16", *SHORT],
]


@pytest.fixture(scope="module")
def story(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mine, train-teacher, score-teacher, pretrain and finetune on the tiny collection, each through its command."""
    folder = tmp_path_factory.mktemp("story")
    env = {**os.environ, "EMBEDTRAIN_CACHE": str(folder / "cache")}
    for command in COMMANDS:
        args = [str(tiny) if argument == "TINY" else argument for argument in command]
        done = subprocess.run(
            [sys.executable, "-m", "embedtrain", *args],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    return folder


def test_scored_artifact_holds_raw_scores_of_the_negatives(story: Path) -> None:
    mined, scored = read_mined(story / "mined.parquet"), read_mined(story / "scored.parquet")
    assert [row.query_id for row in mined] == [row.query_id for row in scored]
    for before, after in zip(mined, scored, strict=True):
        assert before.candidate_ids == after.candidate_ids
        assert after.positive_teacher is not None
        assert after.candidate_teacher is not None
        assert [score is not None for score in after.candidate_teacher] == before.selected
        assert after.verdict == denoise.verdicts(after, denoise.Rules(), "drop")


def test_a_teacher_that_saw_the_rows_is_said_to_be_flattered(story: Path) -> None:
    record = read_record(story / "scored.parquet")
    assert record is not None
    assert any("trained on queries of this split" in note for note in record["summary"]["notes"])


def test_that_is_said_again_of_a_second_policy(story: Path, tiny: Path, tmp_path: Path) -> None:
    again = ("score-teacher", "scored.parquet", "--collection", tiny, "--trust", "--policy", "keep")
    done = call(*again, "--out", tmp_path / "again.parquet", cwd=story)
    assert done.returncode == 0, done.stderr
    assert "trained on queries of this split" in done.stdout


def test_mining_again_does_not_hide_what_the_teacher_saw(story: Path, tiny: Path, tmp_path: Path) -> None:
    env = {"EMBEDTRAIN_CACHE": str(tmp_path / "cache")}
    for split, flattered in (("train", True), ("test", False)):
        mined = tmp_path / f"{split}.parquet"
        lexical = ("--retriever", "bm25", "--split", split, "--limit", "4", "--negatives", "2")
        assert call("mine", tiny, *lexical, "--out", mined, cwd=story, **env).returncode == 0
        scored = tmp_path / f"{split}-scored.parquet"
        done = call(
            *("score-teacher", mined, "--teacher", "teacher", "--collection", tiny, "--trust", "--out", scored),
            cwd=story,
            **env,
        )
        assert done.returncode == 0, done.stderr
        assert ("trained on queries of this split" in done.stdout) is flattered


def test_teacher_loads_plainly_and_scores_the_same(story: Path, tiny: Path) -> None:
    from sentence_transformers import CrossEncoder

    collection = Collection(tiny)
    row = read_mined(story / "scored.parquet")[0]
    teacher = CrossEncoder(str(story / "teacher"))
    assert teacher.max_seq_length == 64
    query = collection.queries.by_id(row.query_id)
    pairs = [(query, collection.corpus.by_id(document)) for document in row.positive_ids]
    assert np.abs(teacher.predict(pairs) - np.asarray(row.positive_teacher)).max() < 1e-4


def test_tuned_model_loads_plainly_and_knows_its_ancestry(story: Path) -> None:
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(story / "tuned"))
    ours = Encoder.load(find_model(str(story / "tuned")), torch.device("cpu"))
    texts = ["a claim about cells", "another claim"]
    assert np.abs(plain.encode_query(texts) - ours.encode(texts, "query", stored=False)[:]).max() < 1e-6
    record = json.loads((story / "tuned" / "embedtrain.json").read_text("utf-8"))
    assert record["summary"]["loss"] == "infonce:0.2,kl:1"
    stages = {parent["stage"] for parent in record["ancestry"].values()}
    assert stages == {"mine", "train-teacher", "score-teacher", "pretrain"}
    steps = [json.loads(line) for line in (story / "tuned" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert len(steps) == record["summary"]["steps"]
    assert {"loss", "infonce", "kl", "gradient_norm"} <= steps[0].keys()
    assert not list(story.glob(".*work*"))


def contents(path: Path) -> dict[str, bytes]:
    """Every file of an artifact, by its name within it."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {file.relative_to(path.parent).as_posix(): file.read_bytes() for file in files}


def test_the_same_commands_again_give_the_same_bytes_whatever_the_hash_seed(
    story: Path, tiny: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """A cache of its own, another hash seed, the same inputs: the same bytes of every artifact."""
    again = tmp_path / "again"
    for command in COMMANDS:
        args = [str(tiny) if argument == "TINY" else argument for argument in command]
        # Inputs are those of the first story, so that each stage is compared by itself.
        args = [
            str(story / a) if a in ("mined.parquet", "scored.parquet", "teacher", "pretrained") else a
            for a in args
        ]
        out = args.index("--out") + 1
        args[out] = str(again / Path(args[out]).name)
        done = run_cli(*args, cwd=story, PYTHONHASHSEED="12345", EMBEDTRAIN_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
    made = sorted(path.name for path in again.iterdir())
    assert made == ["mined.parquet", "pretrained", "scored.parquet", "teacher", "tuned"]
    for name in made:
        assert contents(again / name) == contents(story / name), name


def test_a_teacher_is_no_encoder_and_a_model_no_collection(story: Path, tiny: Path, run_cli: RunCli) -> None:
    done = run_cli("eval", tiny, "--model", story / "teacher", "--out", "results")
    assert done.returncode == 1
    assert "is a cross-encoder; a bi-encoder is needed" in done.stderr
    done = run_cli("mine", tiny, "--model", story / "teacher", "--out", "mined.parquet")
    assert done.returncode == 1
    assert "is a cross-encoder; a bi-encoder is needed" in done.stderr
    assert "BM25" not in done.stderr  # it is said before the work starts
    done = run_cli("pretrain", story / "tuned", "--out", "out")
    assert done.returncode == 1
    assert "is a model artifact where a collection one is needed" in done.stderr
    assert "embedtrain harvest" in done.stderr


def test_a_full_disk_in_training_is_a_sentence_and_leaves_nothing_whole(tiny: Path, tmp_path: Path) -> None:
    """Files may not grow beyond 1 MB in this process: the first checkpoint fails."""
    code = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); "
        "sys.argv = ['embedtrain', *sys.argv[1:]]; runpy.run_module('embedtrain', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, "pretrain", str(tiny), "--out", "out", "--limit", "8", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make room and run the command again" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_distillation_needs_scores_and_an_encoder_is_no_teacher(
    story: Path, tiny: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    mined = story / "mined.parquet"
    done = run_cli("finetune", mined, "--collection", tiny, "--out", tmp_path / "out", "--loss", "kl")
    assert done.returncode == 1
    assert "embedtrain score-teacher" in done.stderr
    done = run_cli(
        *("score-teacher", mined, "--collection", tiny, "--teacher", MINILM, "--out", tmp_path / "scored.parquet")
    )
    assert done.returncode == 1
    assert "no cross-encoder" in done.stderr
    assert "embedtrain train-teacher" in done.stderr
    done = run_cli("finetune", mined, "--collection", tiny, "--out", tmp_path / "out", "--loss", "bogus")
    assert done.returncode == 2
    assert [p.name for p in tmp_path.iterdir()] == []


def test_a_second_run_is_up_to_date_and_force_does_it_again(story: Path, tiny: Path, run_cli: RunCli) -> None:
    command = ["pretrain", tiny, "--out", "pretrained", "--batch-size", "16"]
    command += ["--max-document-length", "48", "--max-query-length", "24", "--quiet"]
    before = (story / "pretrained" / "model.safetensors").stat().st_mtime_ns
    done = run_cli(*command, cwd=story)
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stdout
    assert (story / "pretrained" / "model.safetensors").stat().st_mtime_ns == before
    done = run_cli(*command, "--json", "--force", cwd=story)
    assert json.loads(done.stdout)["up_to_date"] is False
    assert (story / "pretrained" / "model.safetensors").stat().st_mtime_ns != before
