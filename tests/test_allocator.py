"""What the allocator is told, seen from outside: pages cleared, pages that are large. A process of its own each."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from embedtrain import allocator, memory

SIZE = 64 << 20
SMALL_PAGES = SIZE // os.sysconf("SC_PAGE_SIZE")
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

# Takes, fills and frees 64 MB, then takes 48 MB, which fit where those were; prints the page faults of each time, and the
# kilobytes in large pages at the end.
SCRIPT = f"""
import re, resource, sys
import torch
from embedtrain import allocator

def fill(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    taken = torch.ones(size // 4)
    return taken, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = allocator.keep_memory(int(sys.argv[1])) if len(sys.argv) > 1 else None
first = fill({SIZE})[1]
taken, again = fill({SIZE} * 3 // 4)
with open("/proc/self/smaps", encoding="ascii") as file:
    large = sum(map(int, re.findall("AnonHugePages: *([0-9]+)", file.read())))
print(kept, first, again, large)
"""

MODE = PAGES.read_text("ascii") if PAGES.is_file() else "[never]"

pytestmark = [
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's malloc that is told"),
    # There a process that asks for nothing has large pages too, and small ones cannot be counted.
    pytest.mark.skipif("[always]" in MODE, reason="this kernel gives every process large pages"),
]


def run(*arguments: str, limit: str = "") -> tuple[str, int, int, int]:
    """(whether memory is kept, faults of the first time, faults of the second, kilobytes in large pages)"""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    if limit:
        command = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept, *numbers = done.stdout.split()
    first, again, large = map(int, numbers)
    return kept, first, again, large


def test_what_is_freed_is_not_cleared_again() -> None:
    _, _, again, _ = run()
    assert again > SMALL_PAGES // 2  # what glibc does by itself
    kept, first, again, _ = run("0")
    assert kept == "True"
    assert first > SMALL_PAGES // 2
    assert again < SMALL_PAGES // 50


@pytest.mark.skipif("[never]" in MODE, reason="this kernel gives no large pages")
def test_the_heap_is_in_large_pages() -> None:
    kept, first, again, large = run(str(1 << 30))
    assert kept == "True"
    assert large > 0.7 * SIZE / 1024 + run("0")[3]
    assert first < SMALL_PAGES // 4
    assert again < SMALL_PAGES // 50


def test_where_addresses_are_counted_the_heap_stays_as_it_is() -> None:
    """Where 8 GB were asked for none of the 6 that are allowed would be left."""
    kept, first, _, large = run(str(8 << 30), limit=f"-v {6 << 20}")
    assert kept == "True"
    assert first > SMALL_PAGES // 2
    assert large == run("0")[3]


@pytest.mark.parametrize(("says", "counted"), [("0\n", False), ("1\n", False), ("2\n", True)])
def test_a_strict_kernel_counts_addresses(tmp_path: Path, says: str, counted: bool) -> None:
    (tmp_path / "overcommit").write_text(says, "ascii")
    assert allocator._counts_addresses(tmp_path / "overcommit") == counted
    assert not allocator._counts_addresses(tmp_path / "missing")


def test_there_are_other_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert not allocator.keep_memory(0)


def test_training_keeps_memory_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(allocator, "keep_memory", asked.append)
    allocator.for_training(torch.device("cuda"))
    assert asked == []
    allocator.for_training(torch.device("cpu"))
    assert asked == [memory.machine() // 2]
