"""Outputs are whole or absent, whatever ends the process.

Deliberate breaks that turn a test red: writing to the target itself; not putting the old folder back; sweeping what a
living process writes; leaving created folders behind.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedtrain import atomic
from embedtrain.errors import EmbedtrainError


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with atomic.atomic_file(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_file_that_fails_leaves_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail() -> None:
        with atomic.atomic_file(target) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_takes_the_place_of_the_old_one_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for number in (1, 2):
        with atomic.atomic_folder(target) as temporary:
            (temporary / "sub").mkdir()
            (temporary / "sub" / f"{number}.txt").write_text("x")
    assert [path.relative_to(target).as_posix() for path in target.rglob("*.txt")] == ["sub/2.txt"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old.txt").write_text("old")

    def fail() -> None:
        with atomic.atomic_folder(target) as temporary:
            (temporary / "half.txt").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert names(target) == ["old.txt"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("failing", [1, 2])
def test_an_interruption_between_the_renames_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old.txt").write_text("old")
    rename, calls = Path.rename, 0

    def interrupted(self: Path, to: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic.atomic_folder(target):
        pass
    assert names(target) == ["old.txt"]
    assert names(tmp_path) == ["out"]


def test_sweep_clears_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "out"
    dead = dead_pid()
    (tmp_path / f".out.{dead}.partial").mkdir()
    (tmp_path / f".other.{dead}.partial").mkdir()
    (tmp_path / f".out.{os.getppid()}.partial").mkdir()
    (tmp_path / ".out.note").write_text("the user's own")
    atomic.sweep(target)
    kept = [".other." + str(dead) + ".partial", ".out.note", f".out.{os.getppid()}.partial"]
    assert names(tmp_path) == sorted(kept)
    atomic.sweep(tmp_path / "nowhere" / "out")


def test_sweep_puts_back_what_had_stepped_aside(tmp_path: Path) -> None:
    target = tmp_path / "out"
    aside = tmp_path / f".out.{dead_pid()}.old"
    aside.mkdir()
    (aside / "old.txt").write_text("old")
    atomic.sweep(target)
    assert names(target) == ["old.txt"]
    assert names(tmp_path) == ["out"]


def test_created_folders_are_given_back(tmp_path: Path) -> None:
    created = atomic.ensure_writable(tmp_path / "a" / "b" / "out")
    assert created == [tmp_path / "a", tmp_path / "a" / "b"]
    atomic.remove_empty(created)
    assert names(tmp_path) == []
    created = atomic.ensure_writable(tmp_path / "a" / "b" / "out")
    (tmp_path / "a" / "mine.txt").write_text("x")
    atomic.remove_empty(created)
    assert names(tmp_path / "a") == ["mine.txt"]
    assert atomic.ensure_writable(tmp_path / "a" / "out") == []


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file" / "out", tmp_path / "file" / "deep" / "out"):
        with pytest.raises(EmbedtrainError, match=r"cannot write to .*file is a file; choose another --out"):
            atomic.ensure_writable(target)
    with pytest.raises(EmbedtrainError, match=r"cannot write to /proc/1x: .*; choose another --out"):
        atomic.ensure_writable(Path("/proc/1x/out"))
