"""`train-teacher` as users run it: its losses, what it says of itself, rounds that clean, starts from a teacher, kills.

Breaks that turn a test red: a loss that is not asked, a second round that keeps the first one's head, cleaning that takes
a row's last negative, held-out rows in training, threads that change a bit.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import RunCli, call, write_collection
from test_denoise import row

from embedtrain import teacher
from embedtrain.artifacts import read_record
from embedtrain.collection import Collection
from embedtrain.mined import read_mined
from embedtrain.models import MINILM, find_model
from embedtrain.negatives import ELIGIBLE
from embedtrain.reranker import Reranker

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def mined(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "mined.parquet"
    done = call("mine", tiny, "--retriever", "bm25", "--negatives", "3", "--out", out, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return out


def trained(run: RunCli, mined: Path, tiny: Path, out: Path, *flags: str | Path) -> dict[str, Any]:
    done = run(
        *(
            "train-teacher",
            mined,
            "--collection",
            tiny,
            "--max-length",
            "48",
            "--epochs",
            "0.5",
            "--negatives",
            "2",
        ),
        *("--json", "--out", out, *flags),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_loss_trains_another_teacher(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    scores = []
    for loss in ("listwise", "binary", "margin"):
        told = trained(run_here, mined, tiny, tmp_path / loss, "--loss", loss)
        assert told["loss"] == loss
        held = told["held_out"]
        assert 0 <= held["nDCG@10_teacher"] <= 1
        assert held["difference"] == pytest.approx(held["nDCG@10_teacher"] - held["nDCG@10_retriever"], abs=2e-4)
        scores.append(float(Reranker.load(find_model(str(tmp_path / loss))).score([("a cell", "a gene")])[0]))
    assert len(set(scores)) == 3
    done = run_here("train-teacher", mined, "--collection", tiny, "--loss", "hinge", "--out", "x")
    assert done.returncode == 2
    assert "--loss hinge: listwise, binary, margin are a teacher's losses" in done.stderr


@pytest.mark.slow
def test_a_second_round_starts_anew(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    told = trained(run_here, mined, tiny, tmp_path / "two", "--rounds", "2")
    one = trained(run_here, mined, tiny, tmp_path / "one")
    assert told["rows"] == one["rows"]
    assert told["steps"] == one["steps"]
    assert told["negatives_cleaned"] > 0  # a teacher of a few steps suspects much
    assert "negatives_cleaned" not in one
    assert (tmp_path / "two" / "model.safetensors").read_bytes() != (
        tmp_path / "one" / "model.safetensors"
    ).read_bytes()


def test_cleaning_takes_what_is_scored_like_a_positive(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row([5.0, 1.0], reasons=[ELIGIBLE] * 2), row([5.0, 6.0], reasons=[ELIGIBLE] * 2)]
    monkeypatch.setattr(teacher, "_scored", lambda *args: rows)
    cleaned, taken = teacher._cleaned(None, None, rows, lambda *args: None)  # type: ignore[arg-type]
    # The first loses d0; the second would lose all it has, and keeps it.
    assert [teacher._candidates(one) for one in cleaned] == [["d1"], ["d0", "d1"]]
    assert taken == 1
    before = dataclasses.replace(rows[0], verdict=["keep", "mask"])
    monkeypatch.setattr(teacher, "_scored", lambda *args: [before])
    (cleaned_row,), _ = teacher._cleaned(None, None, [before], lambda *args: None)  # type: ignore[arg-type]
    # d1 was masked before: with d0 gone nothing is left, so the row stays as it was.
    assert cleaned_row.verdict == ["keep", "mask"]


def test_a_teacher_is_trained_further(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    trained(run_here, mined, tiny, tmp_path / "first")
    trained(run_here, mined, tiny, tmp_path / "more", "--model", tmp_path / "first", "--learning-rate", "1e-7")
    first, more = (Reranker.load(find_model(str(tmp_path / name))) for name in ("first", "more"))
    pairs = [("a cell", "a gene"), ("a mouse", "a virus in a mouse")]
    # At such a rate it is still the same teacher: its head was taken, not drawn.
    assert np.abs(first.score(pairs) - more.score(pairs)).max() < 1e-2
    record = read_record(tmp_path / "more")
    assert record is not None
    assert "train-teacher" in {parent["stage"] for parent in record["ancestry"].values()}


def test_held_out_queries_are_not_trained_on(mined: Path) -> None:
    from embedtrain.config import TrainTeacherOptions

    rows = read_mined(mined)
    held = teacher._hold_out(rows, TrainTeacherOptions())
    assert 0 < len(held) <= round(0.1 * len(rows))
    rest = {document for n, one in enumerate(rows) if n not in held for document in one.positive_ids}
    assert not rest & {document for n in held for document in rows[n].positive_ids}


def test_threads_change_no_bit(tiny: Path, mined: Path) -> None:
    from embedtrain.config import TrainTeacherOptions

    gradients = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            judge = Reranker.from_encoder(find_model(MINILM), seed=0, max_length=64)
            judge.model.eval()
            rows = [
                teacher.Row(one.query_id, tuple(one.positive_ids), tuple(teacher._candidates(one)))
                for one in read_mined(mined)[:8]
            ]
            steps = teacher._Steps(judge, Collection(tiny), rows, TrainTeacherOptions(batch_size=4))
            steps(0, 0, 1.0)
            gradients.append([p.grad for p in judge.model.parameters() if p.grad is not None])
        finally:
            torch.set_num_threads(1)
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_a_teacher_learns_what_is_right(run_here: RunCli, tmp_path: Path) -> None:
    """A word that the query shares with one document alone: no reranker that learned something misses it."""
    words = [
        f"{a}{b}" for a in ("red", "blue", "green", "black", "white") for b in ("fish", "bird", "tree", "stone")
    ]
    documents = [{"_id": f"d{n}", "text": f"a story of the {word} by the sea"} for n, word in enumerate(words)]
    queries = [{"_id": f"q{n}", "text": f"the {word}?"} for n, word in enumerate(words)]
    write_collection(
        tmp_path / "c", documents, queries, {"train": [(f"q{n}", f"d{n}", 1) for n in range(len(words))]}
    )
    assert run_here("mine", "c", "--negatives", "3", "--out", "m.parquet").returncode == 0
    done = run_here(
        *("train-teacher", "m.parquet", "--epochs", "6", "--max-length", "32", "--json", "--out", "t"),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["last_loss"] < 0.5 * told["first_loss"]
