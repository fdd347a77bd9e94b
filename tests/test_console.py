"""What people read: progress on standard error, whole tables on standard output, nothing when quiet."""

import time

import pytest

from embedtrain import console


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress(quiet=True) as progress:
        progress("work", 1, 2, "")
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_a_line_at_the_end_and_every_quarter_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with console.progress(quiet=False) as progress:
        for done in range(5):
            progress("work", done, 4, "loss 1")
            now += 8.0
    captured = capsys.readouterr()
    assert captured.out == ""
    # 16 seconds for half of it: as much again is left.
    assert captured.err.splitlines() == ["  work 2/4 in 0:16, 0:16 left loss 1", "  work 4/4 in 0:32 loss 1"]


def test_tables_are_never_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    console.table(
        ["system", "a long name of a measure"], [["x" * 60, "[0.1234, 0.5678]"], ["[bold]y[/bold]", "1"]]
    )
    out = capsys.readouterr().out
    assert "x" * 60 in out
    assert "[0.1234, 0.5678]" in out
    assert "[bold]y[/bold]" in out


def test_a_summary_shows_lines_tables_and_notes_and_leaves_the_deep_to_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {
        "queries": 1200,
        "share": 0.123456,
        "whole": True,
        "by_reason": {"a": 1, "b": 2.5},
        "deep": {"a": {"b": 1}},
        "nothing": None,
        "table": {"columns": ["system"], "rows": [["BM25"]]},
        "notes": ["a sentence"],
    }
    console.summary(values, {"query without text": 3})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == [
        "queries 1,200",
        "share 0.1235",
        "whole yes",
        "by reason a 1, b 2.5",
        "dropped query without text 3",
    ]
    assert "BM25" in lines
    assert lines[-1] == "a sentence"


def test_sizes() -> None:
    assert [console.size(n) for n in (0, 1023, 1536, 2**20, 3 * 2**40)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "1.0 MiB",
        "3.0 TiB",
    ]
