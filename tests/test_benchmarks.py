"""The benchmarks run, compare what they say they compare, and judge; their figures are for a quiet machine.

Deliberate breaks that turn a test red: the ratio turned round, the exit code 0 whatever was measured, the order of the
two sides never changed. Training: the other side's weights not put back after its first run (seen where `datasets` is
installed), losses that differ let through, the slowest mini-batch taken, a limit that is passed called met, a
document drawn twice, bf16 called best where it is not native, a recipe judged without the other side, minutes of
interrupted work taken for whole, finished work timed anew.
"""

import dataclasses
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from embedtrain import precision

BENCHMARKS = ROOT / "tests" / "benchmarks"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import figures

    return figures


def test_a_row_is_the_median_of_paired_ratios(figures, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(figures.time, "perf_counter", lambda: clock[0])
    took = {"ours": iter([1.0, 1.0, 2.0, 2.0, 4.0, 4.0]), "other": iter([10.0, 8.0, 8.0])}
    called = []

    def side(name: str) -> None:
        called.append(name)
        clock[0] += next(took[name])

    row = figures.compare(
        "work",
        "them",
        lambda: side("ours"),
        lambda: side("other"),
        amount=20,
        unit="queries/s",
        least=4,
        rounds=3,
        repeats=2,
    )
    # Ours 1, 2, 4 s a call and theirs 10, 8, 8 s: ratios 10, 4, 2; medians 2 s and 8 s.
    assert (row.ratio, row.ours, row.other, row.met) == (4.0, 10.0, 2.5, True)
    assert called == ["ours", "ours", "other", "other", "ours", "ours", "ours", "ours", "other"]
    assert "10 and 2.5 queries/s | 4 x, to reach 4 x: met | 3 rounds" in str(row)


@pytest.mark.parametrize(("ratio", "code", "verdict"), [(0.9, 0, ": met"), (0.899, 1, ": MISSED")])
def test_a_missed_target_is_exit_code_1(figures, capsys, ratio: float, code: int, verdict: str) -> None:
    row = figures.Row("work", "them", 1.0, 1.0, "queries/s", ratio, 0.9, 3)
    good = figures.Row("work", "them", 1.0, 1.0, "queries/s", 2.0, 0.9, 3)
    assert figures.finish([row, good], False) == code
    assert verdict in capsys.readouterr().out
    assert figures.finish([good, row], True) == code
    assert [line["met"] for line in json.loads(capsys.readouterr().out)["rows"]] == [True, code == 0]


def test_the_machine_has_no_name(figures) -> None:
    about = figures.machine("numpy")
    assert {"processor", "cores", "load", "python", "numpy"} <= set(about)
    assert os.uname().nodename not in [str(value) for value in about.values()]


def test_bm25(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "bench_bm25.py", "--json", "--limit", "4"]
    done = subprocess.run(
        [*map(str, command), "--rounds", "1", "--slow-rounds", "1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["against"] for row in rows][:2] == ["rank-bm25", "bm25s used directly, numpy backend"]
    assert {row["work"] for row in rows} == {"BM25, 5,183 documents, 4 queries, top 100"}
    assert all(row["ours"] > 0 and row["other"] > 0 for row in rows)


def test_dense_alone() -> None:
    command = [sys.executable, BENCHMARKS / "bench_dense.py", "--alone", "--queries", "20", "--documents", "300"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dense, 20 queries x 300 documents x 384, top 100: ")


def test_encode() -> None:
    command = [sys.executable, BENCHMARKS / "bench_encode.py", "--json", "--documents", "8", "--rounds", "1"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    row = json.loads(done.stdout)["rows"][0]
    assert row["work"].startswith("encode 8 documents of SciFact, MiniLM, 256 tokens, one thread, ")
    assert row["ours"] > 0
    assert row["other"] > 0


def test_score() -> None:
    command = [sys.executable, BENCHMARKS / "bench_score.py", "--json", "--pairs", "16", "--rounds", "1"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert rows[0]["work"].startswith("score 16 pairs of SciFact, cross-encoder of MiniLM's size, 256 tokens, ")
    assert rows[0]["ours"] > 0
    assert rows[-2]["ratio"] > 0.9  # both sides scored the same pairs in the same order
    assert rows[-1]["work"].startswith("a second policy on the scores of 2 queries")


def test_eval(tiny: Path) -> None:
    command = [sys.executable, BENCHMARKS / "bench_eval.py", "--json", "--queries", "30", "--results", "1000"]
    command += ["--documents", "8", "--rounds", "1", "--collection", tiny]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["work"] for row in rows] == [
        "3 measures of 30 queries x 1,000 results",
        "3 measures of 30 queries x 1,000 results",
        "search and 15 measures, SciFact, 300 queries, 8 documents",
        "eval of tiny with stored vectors, the whole process",
    ]
    assert all(row["ours"] > 0 and row["other"] > 0 for row in rows)


@pytest.fixture
def training(figures):
    import training

    return training


@pytest.fixture
def quality(figures):
    import compare_quality

    return compare_quality


# The other side's trainer takes the package `datasets`; where it is not installed, ours is run alone.
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_other_side_trains_in_every_precision_on_a_processor(precision, monkeypatch, tmp_path: Path) -> None:
    # transformers refuses bfloat16 without a GPU unless it is told to stay on the processor, whatever that one can do.
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from sentence_transformers import SentenceTransformerTrainingArguments
    from training_side import trainer_precision

    arguments = SentenceTransformerTrainingArguments(str(tmp_path), **trainer_precision(precision))
    assert arguments.bf16 is (precision == "bfloat16")


BOTH = importlib.util.find_spec("datasets") is not None
ALONE = [] if BOTH else ["--alone"]


def _plan(training, **changed):
    plan = training.Plan(
        collection=Path("unused"),
        rounds=2,
        batch=32,
        steps=2,
        length=256,
        negatives=4,
        large=((1_024, 1),),
        large_length=48,
        large_negatives=0,
        search=(8, 32, 64),
        search_rows=128,
        agree_rows=256,
        warm=8,
        parts=training.PARTS,
    )
    return dataclasses.replace(plan, **changed)


def _table(training, monkeypatch, plan, *, native=False, off=0.0):
    """A table whose runs are made up: ours 2 s (dropout 3 s), the other side 8 s, or 40 / mini_batch_size."""
    jobs = []

    def run(script, job):
        job = training.Job(**json.loads(job))
        jobs.append(job)
        took = {"ours": 3.0 if job.dropout else 2.0, "theirs": 40 / job.mini_batch if job.mini_batch else 8.0}
        return {
            "seconds": took[job.side],
            "losses": [1.0 + (off if job.side == "theirs" else 0.0)],
            "peak": 900.0 if job.batch > 32 else 500.0,
            "padding": 0.08 if job.side == "ours" else 0.4,
        }

    monkeypatch.setattr(training, "in_process", lambda script, job, **_: run(script, job))
    monkeypatch.setattr(training, "native_bfloat16", lambda: native)
    monkeypatch.setattr(training, "supports_precision", lambda: native)
    return training.Table(plan, Path("unused")), jobs


def test_table_of_training(training, monkeypatch: pytest.MonkeyPatch) -> None:
    table, jobs = _table(training, monkeypatch, _plan(training))
    rows = table.rows()
    # 64 pairs in 2 s and 8 s: 32 and 8 a second; 3 s with dropout. 40 / 64 = 0.625 s against 2 s.
    assert [round(row.ratio, 4) for row in rows] == [4.0, 2.6667, 4.0, 1.25, 0.3125, 0.8333]
    assert [row.met for row in rows] == [True, True, True, True, False, False]
    assert (rows[0].ours, rows[0].other) == (32.0, 8.0)
    assert "40.0%" in rows[3].work
    assert "mini_batch_size 64 (best of 8, 32, 64)" in rows[4].against
    assert (round(rows[5].ours, 2), rows[5].other) == (1.8, 1.5)
    sides = [(job.side, job.dropout) for job in jobs[:8]]
    assert sides[4:] == sides[3::-1]
    assert sides[:4] == [("ours", 0.0), ("ours", 0.1), ("theirs", None), ("theirs", 0.0)]


def test_best_settings_are_bf16_where_it_is_native(training, monkeypatch: pytest.MonkeyPatch) -> None:
    table, jobs = _table(training, monkeypatch, _plan(training, large_negatives=4), native=True)
    rows = table.rows()
    assert rows[2].against == "SentenceTransformerTrainer, bf16, its dropout"
    assert {(job.precision, job.dropout) for job in jobs if job.side == "theirs" and not job.mini_batch} == {
        ("float32", None),
        ("bfloat16", None),
    }
    # Losses are compared in float32 on rows that share no document, on both sides.
    compared = [job for job in jobs if job.rows == 256]
    assert {(job.side, job.precision, job.negatives, job.dropout) for job in compared} == {
        ("ours", "float32", 0, 0.0),
        ("theirs", "float32", 0, 0.0),
    }


def test_losses_that_differ_end_the_benchmark(training, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = _table(training, monkeypatch, _plan(training, parts=("large",)), off=9e-4)
    assert len(table.rows()) == 1
    table, _ = _table(training, monkeypatch, _plan(training, parts=("large",)), off=1.1e-3)
    with pytest.raises(SystemExit, match="the losses of the same batch differ"):
        table.rows()


def test_pairs_show_no_text_twice(training, tiny: Path) -> None:
    from embedtrain.collection import Collection
    from embedtrain.duplicates import normalised

    collection = Collection(tiny)
    documents = len(collection.corpus)
    found = [pair for pair, _ in zip(training.pairs(tiny), range(documents + 5), strict=False)]
    asked = [normalised(query) for query, _ in found]
    shown = [normalised(collection.corpus.by_id(document)) for _, document in found]
    assert len(set(asked)) == documents + 5
    assert len(set(shown[:documents])) == documents
    # Queries of the collection stand first; behind them, a cut from the document itself.
    assert found[0][0] in list(collection.queries)
    query, document = found[-1]
    assert query in " ".join(collection.corpus.by_id(document).split())


def test_train(tiny: Path) -> None:
    command = [
        sys.executable,
        BENCHMARKS / "bench_train.py",
        "--json",
        "--collection",
        tiny,
        "--rounds",
        "1",
        *ALONE,
    ]
    command += ["--only", "large", "--batch", "2", "--large", "8", "--large-length", "16"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    native = "bfloat16" if precision.bf16_flags() else "float32"
    assert row["work"] == f"train, batch 8, 0 negatives, 16 tokens, gradient caching, {native}, dropout 0"
    assert row["ours"] > 0
    assert row["other"] > 0


def test_the_gpu_table_needs_a_gpu(figures, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    import gpu
    import torch

    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("this machine has no GPU")
    assert shown.err.count("\n") == 1


def test_results_are_written_to_a_file(figures, tmp_path: Path, capsys) -> None:
    row = figures.Row("work", "them", 1.0, 1.0, "pairs/s", 2.0, 1.0, 3)
    assert figures.finish([row], False, out=tmp_path / "results.json") == 0
    assert capsys.readouterr().out.startswith("work | against them")
    assert json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"][0]["met"] is True


def test_minutes_of_steps(figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import minutes

    clock = [0.0]
    monkeypatch.setattr(minutes.time, "perf_counter", lambda: clock[0])

    def work(seconds: float, worked: bool = True, fails: bool = False):
        def do() -> bool:
            clock[0] += seconds
            if fails:
                raise KeyboardInterrupt
            return worked

        return do

    def log():
        return minutes.Log(tmp_path / "log.json")

    log().time("a", "1", work(120))
    log().time("a", "1", work(3, worked=False))  # up to date: the first minutes stay
    assert (log().minutes(["a"]), log().too_few(["a"]), log().finished("a", "1")) == (2.0, False, True)
    assert not log().finished("a", "2")
    with pytest.raises(KeyboardInterrupt):
        log().time("b", "1", work(60, fails=True))
    assert not log().finished("b", "1")
    log().time("b", "1", work(30))  # goes on, with the time before the kill
    assert (log().minutes(["a", "b"]), log().too_few(["a", "b"])) == (3.5, False)
    log().time("b", "2", work(90))  # another key is done from the beginning
    assert (log().minutes(["b"]), log().too_few(["b"])) == (1.5, False)
    log().time("c", "1", work(1, worked=False))  # done before anybody timed it
    assert log().too_few(["c"])


def test_a_killed_step_keeps_its_minutes(figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import minutes

    monkeypatch.setattr(minutes, "BEAT", 0.01)
    file = tmp_path / "log.json"
    kept: list[str] = []

    def work() -> bool:
        while json.loads(file.read_text("utf-8"))["a"]["so_far"] <= before:
            time.sleep(0.01)
        kept.append(file.read_text("utf-8"))  # what a kill at this moment leaves
        return True

    before = 0.0
    minutes.Log(file).time("a", "1", work)
    file.write_text(kept[0], encoding="utf-8")
    before = json.loads(kept[0])["a"]["so_far"]
    minutes.Log(file).time("a", "1", work)
    assert minutes.Log(file).minutes(["a"]) * 60 > before > 0
    assert not minutes.Log(file).too_few(["a"])


def test_what_a_recipe_reaches(quality) -> None:
    values = {"minutes_ours": 40.0, "minutes_theirs": 43.0, "base": 0.6, "ours": 0.735, "low": 0.001, "high": 0.02}
    for name, (_, reached) in quality.REACH.items():
        assert reached(values), name
    for name, worse in {
        "scifact": {"minutes_ours": 43.0},
        "medquad": {"low": 0.0},
        "squad-small": {"high": -0.001},
        "aws-docs": {"base": 0.706},
    }.items():
        assert not quality.REACH[name][1](values | worse), name


@pytest.mark.slow
def test_a_recipe_beside_the_other(quality, tiny: Path, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "pairs.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("score\tsentence1\tsentence2\tgenre\n5\tA cat sat.\tA cat sat down.\tx\n")
        file.write("2\tA cat sat.\tA dog slept.\tx\n0\tA cat sat.\tShares fell again.\tx\n")
    command = [
        sys.executable,
        BENCHMARKS / "compare_quality.py",
        "--only",
        "medquad",
        "--source",
        tiny,
        "--json",
        "--side",
        "both" if BOTH else "ours",
    ]
    command += ["--epochs", "1", "--max-length", "16", "--limit", "8", "--out", tmp_path / "quality"]
    command += ["--guard", tmp_path / "pairs.tsv.gz"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout, done.stderr
    (values,) = json.loads(done.stdout)["rows"]
    assert 0 < values["base"] <= 1
    assert values["difference"] == pytest.approx(values["ours"] - values["theirs" if BOTH else "base"])
    assert values["minutes_ours"] > 0
    assert abs(values["guard_ours"]) < 100
    assert (values["met"] is None) is not BOTH
    assert not values["minutes_too_few"]


def test_harvest_is_judged_at_its_size_only(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "bench_harvest.py", "--pairs", "300", "--near", "200"]
    done = subprocess.run(
        [*map(str, command), "--folder", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    harvest, near = done.stdout.splitlines()
    assert harvest.startswith("harvest of 300 pairs (")
    assert harvest.endswith("MB, at most 8 GB for 10,000,000: not judged with fewer")
    assert near.startswith("near-duplicates among 200 documents of ")
    assert near.endswith(" s, at most 60 s for 100,000: met | 0 of 20 copies missed")
