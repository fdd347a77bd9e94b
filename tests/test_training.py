"""What `pretrain` and `finetune` offer besides: several sources, other models, merging, launches, each through its command.

Deliberate breaks that turn a test here red: the second process's share of the chunks left out, `--merge 0` keeping the
tuned weights, a guide that is not asked, texts of one source taken from another.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SCIFACT, RunCli, call, write_collection
from safetensors.torch import load_file
from test_processes import free_port

from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, find_model

torch.set_num_threads(1)
SHORT = ["--max-document-length", "24", "--max-query-length", "16", "--batch-size", "8", "--limit", "16"]


@pytest.fixture(scope="module")
def mined(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny collection mined lexically: no model is needed for that."""
    out = tmp_path_factory.mktemp("mined") / "mined.parquet"
    done = call("mine", tiny, "--retriever", "bm25", "--negatives", "3", "--out", out, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return out


def trained(run: RunCli, mined: Path, tiny: Path, out: Path, *flags: str) -> dict[str, Any]:
    """Finetune through the command; what it printed as JSON."""
    done = run("finetune", mined, "--collection", tiny, *SHORT, "--epochs", "1", "--json", "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def base() -> dict[str, torch.Tensor]:
    found = load_file(find_model(MINILM).path / "model.safetensors")
    return {name: value for name, value in found.items() if value.is_floating_point()}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def launched(count: int, cwd: Path, *args: str | Path) -> list[str]:
    """Run a command in `count` processes as a launcher does; their standard outputs."""
    port = free_port()
    running = []
    for rank in range(count):
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-m", "embedtrain", *map(str, args)]
        running.append(
            subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    told = []
    for process in running:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        told.append(output)
    return told


def test_two_processes_train_as_one(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    flags = ("--dropout", "0.1", "--learn-temperature", "--dev-split", "test", "--dev-documents", "30")
    flags += ("--precision", "float32")  # what bfloat16 rounds away depends on what stands beside a text
    alone = trained(run_here, mined, tiny, tmp_path / "one", *flags)
    told = launched(
        2,
        tmp_path,
        *("finetune", mined, "--collection", tiny, *SHORT, "--epochs", "1", "--json", "--out", "two", *flags),
    )
    both = json.loads(told[0])
    assert told[1] == ""
    assert both["first_loss"] == pytest.approx(alone["first_loss"], abs=1e-5)
    assert both["learned"] == pytest.approx(alone["learned"], abs=1e-5)
    # AdamW's first steps are of one size whatever the gradient's: where it is nearly 0 its sign may turn.
    moved = distance(weights(tmp_path / "one"), base())
    assert distance(weights(tmp_path / "one"), weights(tmp_path / "two")) < 0.2 * moved
    one, two = (
        torch.cat([w.reshape(-1) for _, w in sorted(weights(tmp_path / n).items())]) for n in ("one", "two")
    )
    start = torch.cat([w.reshape(-1) for _, w in sorted(base().items())])
    assert float((one - two).norm()) < 0.01 * float((one - start).norm())
    assert [p.name for p in tmp_path.iterdir() if "work" in p.name] == []


def test_merging_by_share_and_by_dev_split(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    trained(run_here, mined, tiny, tmp_path / "whole")
    trained(run_here, mined, tiny, tmp_path / "none", "--merge", "0")
    trained(run_here, mined, tiny, tmp_path / "half", "--merge", "0.5")
    tuned, before = weights(tmp_path / "whole"), base()
    assert distance(weights(tmp_path / "none"), before) == 0
    middle = {name: (tuned[name] + before[name]) / 2 for name in tuned}
    assert distance(weights(tmp_path / "half"), middle) < 1e-6
    assert distance(tuned, before) > 1e-5
    chosen = trained(
        run_here,
        mined,
        tiny,
        tmp_path / "auto",
        *("--merge", "auto", "--dev-split", "test", "--dev-documents", "25", "--guard", str(tiny)),
        *("--learning-rate", "5e-3"),
    )
    # Such a rate destroys the model: what is kept is near the one it started from, and says so.
    assert "the base model had the best dev value" in chosen["merged"] or "0.25 of" in chosen["merged"]
    assert "on the guard" in chosen["merged"]
    assert any("destroys a pretrained transformer" in note for note in chosen["notes"])


def test_merge_auto_needs_a_dev_split(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    for wrong, said in (("auto", "--dev-split"), ("2", "from 0 to 1"), ("often", "from 0 to 1")):
        done = run_here("finetune", mined, "--collection", tiny, "--merge", wrong, "--out", "out")
        assert done.returncode == 2
        assert said in done.stderr
    assert not (tmp_path / "out").exists()


def test_several_collections_are_sources(run_here: RunCli, tmp_path: Path) -> None:
    for name, words in (("a", "apple"), ("b", "bridge")):
        write_collection(
            tmp_path / name,
            [{"_id": f"d{n}", "text": f"{words} document number {n}"} for n in range(6)],
            [{"_id": f"q{n}", "text": f"{words} {n}?"} for n in range(6)],
            {"train": [(f"q{n}", f"d{n}", 1) for n in range(6)]},
        )
    flags = ("--batch-size", "4", "--quiet", "--json")
    done = run_here("pretrain", "a", "b", *flags, "--out", "both")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == 12
    # Batches of one source: three candidates each, never the other's documents.
    assert told["candidates"] == 3.0
    done = run_here("pretrain", "a", "b", *flags, "--sources", "3,1", "--out", "weighted")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_drawn_again_in_the_first_epoch"] == 3
    done = run_here("pretrain", "a", "b", *flags, "--sources", "temperature:2", "--out", "even")
    assert done.returncode == 0, done.stderr
    done = run_here("pretrain", "a", "b", *flags, "--sources", "3", "--out", "wrong")
    assert done.returncode == 2
    assert "give 2 numbers" in done.stderr


@pytest.mark.parametrize("loss", ["siglip", "triplet", "supcon", "multi-infonce", "infonce:1,cosine:0.5", "score"])
def test_every_loss_trains(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path, loss: str) -> None:
    flags = ["--loss", loss, "--matryoshka", "384,64:0.5", "--gor", "0.1", "--positives", "2"]
    if "cosine" in loss or "score" in loss:
        flags += ["--embedding-teacher", MINILM]
    told = trained(run_here, mined, tiny, tmp_path / "out", *flags)
    assert told["steps"] == 2
    assert np.isfinite(told["last_loss"])
    assert distance(weights(tmp_path / "out"), base()) > 1e-6


def test_masks_topics_and_curriculum_are_heeded(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    plain = trained(run_here, mined, tiny, tmp_path / "plain")
    margin = trained(run_here, mined, tiny, tmp_path / "margin", "--mask-margin", "0", "--hardness", "5")
    guided = trained(run_here, mined, tiny, tmp_path / "guided", "--guide", MINILM, "--guide-margin", "0.3")
    alone = trained(run_here, mined, tiny, tmp_path / "alone", "--mix", "mined", "--curriculum", "linear")
    topics = trained(run_here, mined, tiny, tmp_path / "topics", "--homogeneous", "topic", "--topics", "2")
    assert margin["candidates"] <= plain["candidates"]
    assert guided["candidates"] < plain["candidates"]
    assert alone["candidates"] <= 4
    assert topics["rows"] == plain["rows"] == 16


def test_two_towers_and_a_static_model(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    trained(
        run_here, mined, tiny, tmp_path / "towers", "--two-towers", "--freeze", "4", "--gradient-checkpointing"
    )
    towers = Encoder.load(find_model(str(tmp_path / "towers")), torch.device("cpu"))
    text = ["a text of both"]
    query, document = (towers.encode(text, role, stored=False)[:] for role in ("query", "document"))
    assert np.abs(query - document).max() > 1e-6
    (tmp_path / "words.txt").write_text(
        "\n".join(
            f"{word} {n} {n % 3} 1.0" for n, word in enumerate(["the", "of", "cells", "protein", "patients"])
        ),
        encoding="utf-8",
    )
    done = run_here(
        "pretrain",
        tiny,
        *("--model", "words.txt", "--batch-size", "16", "--epochs", "2", "--learning-rate", "0.05"),
        *("--out", "static", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert any("a static model of 6 words in 3 dimensions" in note for note in json.loads(done.stdout)["notes"])
    told = trained(run_here, mined, tiny, tmp_path / "new", "--static", "32", "--learning-rate", "0.05")
    assert told["model"]["dimension"] == "32"


def test_a_static_model_reads_texts_whole_and_says_no_cuts(
    run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path
) -> None:
    told = trained(run_here, mined, tiny, tmp_path / "new", "--static", "16", "--learning-rate", "0.05")
    assert not {"documents_cut", "queries_cut", "padding"} & told.keys()
    lines = (tmp_path / "new" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert all(json.loads(line)["documents_cut"] == 0 for line in lines)


def test_topics_of_an_altered_model_are_no_vectors_of_the_base(
    run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "cache"))
    flags = ("--homogeneous", "topic", "--topics", "2", "--pooling", "cls", "--two-towers")
    trained(run_here, mined, tiny, tmp_path / "out", *flags)
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]


def test_what_the_card_says_was_measured_on_what_is_written(
    run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path
) -> None:
    dev = ("--dev-split", "test", "--dev-documents", "25")
    for merge, measured in (("0.5", False), ("auto", True)):
        told = trained(run_here, mined, tiny, tmp_path / merge, *dev, "--merge", merge)
        card = (tmp_path / merge / "README.md").read_text("utf-8")
        assert ("nDCG@10 on test: " in card) is measured
    value = card.split("nDCG@10 on test: ")[1].split()[0]
    assert float(value) == pytest.approx(float(told["merged"].split("dev value, ")[1][:6]), abs=1e-4)


def test_an_export_that_fails_costs_nothing(
    run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from embedtrain import export

    def fail(*_: object) -> None:
        raise EmbedtrainError("--export onnx: no such operator")

    monkeypatch.setattr(export, "check_export", lambda _: None)
    monkeypatch.setattr(export, "to_onnx", fail)
    told = trained(run_here, mined, tiny, tmp_path / "out", "--export", "onnx")
    assert told["exported"] == "failed"
    assert "warning: --export onnx: no such operator" in told["notes"]
    assert distance(weights(tmp_path / "out"), base()) > 1e-6


def test_a_launcher_is_for_training_alone(run_cli: RunCli, tiny: Path, tmp_path: Path) -> None:
    done = run_cli("eval", tiny, "--bm25", "--out", "results", WORLD_SIZE="2", RANK="1")
    assert done.returncode == 2
    assert "works in one process" in done.stderr
    assert not list(tmp_path.iterdir())


def test_rows_of_a_class_may_meet_for_supcon(run_here: RunCli, tmp_path: Path) -> None:
    write_collection(
        tmp_path / "c",
        [{"_id": f"d{n}", "text": f"document number {n}"} for n in range(12)],
        [{"_id": f"q{n}", "text": f"question {n}?"} for n in range(16)],
        {"train": [(f"q{n}", f"d{n // 2}", 1) for n in range(16)]},
    )
    found = {}
    for loss in ("infonce", "supcon"):
        done = run_here("pretrain", "c", "--batch-size", "8", "--loss", loss, "--json", "--quiet", "--out", loss)
        assert done.returncode == 0, done.stderr
        found[loss] = json.loads(done.stdout)["candidates"]
    # Kept apart, eight rows show eight documents; queries of one document that meet show fewer.
    assert found["infonce"] == 8.0
    assert found["supcon"] < 8.0


def test_judged_negatives_are_drawn_and_a_limit_takes_of_every_source(run_here: RunCli, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_collection(
            tmp_path / name,
            [{"_id": f"d{n}", "text": f"{name} {n}"} for n in range(40)],
            [{"_id": f"q{n}", "text": f"{name} {n}?"} for n in range(6)],
            {"train": [(f"q{n}", f"d{d}", int(d == n)) for n in range(6) for d in (n, *range(10, 40))]},
        )
    flags = ("--batch-size", "4", "--json", "--quiet")
    done = run_here("pretrain", "a", "b", *flags, "--limit", "4", "--negatives", "3", "--out", "out")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == 4
    assert told["dropped"] == {"query beyond --limit": 8}
    # Two rows of each source in a batch: two positives, three negatives each at most, of 30.
    assert 2 < told["candidates"] <= 8
    done = run_here("pretrain", "a", "b", *flags, "--limit", "1", "--out", "one")
    assert done.returncode == 1
    assert "b gives no pair to train on" in done.stderr


def test_time_ends_training_cleanly(run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path) -> None:
    told = trained(run_here, mined, tiny, tmp_path / "short", "--epochs", "500", "--max-minutes", "0.3")
    assert any("the time of --max-minutes was over" in note for note in told["notes"])
    assert told["steps"] < 1000


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--directions", "d2q"], "q2d is what a search does"),
        (["--matryoshka", "500"], "the model has 384 dimensions"),
        (["--matryoshka", "64"], "add 384"),
        (["--precision", "float8"], "float16 are the choices"),
        (["--loss", "score"], "--embedding-teacher"),
        (["--pooling", "median"], "--pooling median"),
        (["--freeze", "99"], "6 layers"),
        (["--freeze", "6"], "one at least is trained"),
        (["--mix", "in-batch", "--loss", "triplet"], "--mix in-batch leaves triplet nothing"),
        (["--embedding-teacher", MINILM], "acts on --loss cosine or score"),
        (["--patience", "2"], "acts on --dev-split"),
        (["--guard", str(SCIFACT)], "acts on --merge auto"),
        (["--topics", "3"], "acts on --homogeneous topic"),
        (["--static", "8", "--pooling", "cls"], "acts on a transformer"),
        (["--epochs", "inf"], "give a finite number"),
        (["--max-minutes", "inf"], "give a finite number"),
        (["--track", "paper"], "are the choices"),
        (["--export", "pdf"], "onnx is the one there is"),
        (["--mix", "all"], "--mix all"),
        (["--curriculum", "steep"], "--curriculum steep"),
        (["--homogeneous", "colour"], "--homogeneous colour"),
        (["--dev-split", "wrong"], "has no split 'wrong'"),
        (["--group-column", "journal"], "has no column 'journal'"),
    ],
)
def test_wrong_flags_are_a_sentence_and_nothing_is_left(
    run_here: RunCli, mined: Path, tiny: Path, tmp_path: Path, flags: list[str], said: str
) -> None:
    done = run_here("finetune", mined, "--collection", tiny, "--out", "out", "--quiet", *flags)
    assert done.returncode in (1, 2), done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == []
