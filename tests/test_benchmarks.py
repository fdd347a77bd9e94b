"""The benchmarks run, compare what they say they compare, and judge; their figures are for a quiet machine.

Deliberate breaks that turn a test red: the ratio turned round, the exit code 0 whatever was measured, the order of the
two sides never changed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

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
