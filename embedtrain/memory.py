"""How much memory search and choice may take, and the sizes of blocks that follow from it.

Block sizes never change a result. What is not counted here: the libraries and a model (about 1 GB for a small one), and
what every document costs once, its id and its place in the orders, about 0.3 kB.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from embedtrain.errors import UsageError
from embedtrain.search import BLOCK

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SMALLEST = 10**7
# Control groups, version 2 and 1.
CONTROL_GROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

# Bytes: of a candidate while negatives are chosen (measured: see tests/test_memory.py), and of one in a search.
_CANDIDATE = 512
_HELD = 48

SEARCHED = 16_384  # queries searched together: every document is read once for all of them
CHOSEN = 2_048  # queries that are judged and written together


def parse(text: str) -> int:
    """Read `4GB`, `512 MiB` or a number of bytes; UsageError for anything else, and for less than 10 MB."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--memory {text}: a size is needed, as 4GB or 512MB")
    size = int(float(match["number"]) * (1024 if match["binary"] else 1000) ** _POWERS[match["unit"].lower()])
    if size < _SMALLEST:
        raise UsageError(f"--memory {text} is too little to work with; give 10MB or more")
    return size


def container(files: Iterable[Path] = CONTROL_GROUPS) -> int | None:
    """What the container this runs in may use, in bytes; None where nothing bounds it."""
    limits = []
    for file in files:
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or it says "max"
            limits.append(int(file.read_text("ascii")))
    return min(limits, default=None)


def machine() -> int:
    """The memory of this machine, or of the container this runs in where that is less, in bytes."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(whole, container() or whole)


def allowed(text: str) -> int:
    """What `--memory` allows, in bytes; a quarter of the machine where it is not given."""
    return parse(text) if text else machine() // 4


def _within(size: int, least: int, most: int) -> int:
    return max(least, min(size, most))


def search_block(size: int | None, dimension: int) -> tuple[int, int]:
    """Queries and documents of `dimension` that are multiplied at once."""
    if size is None:
        return BLOCK
    # A block of documents: as read, divided by their lengths, and in float64 for those; an eighth of all.
    documents = _within(size // 8 // max(1, 16 * dimension), 16, BLOCK[1])
    return _within(size // 16 // (4 * documents), 16, BLOCK[0]), documents


def chosen_together(size: int, candidates: int) -> int:
    """Queries with so many candidates each that are judged and written together: half of the memory."""
    return _within(size // 2 // (_CANDIDATE * max(1, candidates)), 1, CHOSEN)


def searched_together(size: int, k: int, dimension: int) -> int:
    """Queries searched together for k documents: a quarter of the memory."""
    return _within(size // 4 // (_HELD * k + 8 * dimension), 1, SEARCHED)
