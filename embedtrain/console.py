"""Progress and hints on standard error, tables on standard output; rich is loaded when something is drawn."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedtrain import atomic

# A stage calls its progress with (what, done, total, note); it never knows whether anyone listens.
Progress = Callable[[str, int, int, str], None]


def silent(what: str, done: int, total: int, note: str = "") -> None:
    """The progress of those who want none."""


def hint(text: str) -> None:
    """A line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _plain(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class _Lines:
    """Progress for logs: a line every 15 seconds of a step, with the time left, and one at its end."""

    def __init__(self) -> None:
        self._what = ""
        self._started = self._said = 0.0
        self._from = 0

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._started, self._said, self._from = what, now, now, done
        elapsed = now - self._started
        finished = done >= total
        if not finished and now - self._said < 15:
            return
        self._said = now
        worked = done - self._from
        left = "" if finished or not worked else f", {_plain(elapsed / worked * (total - done))} left"
        hint(f"  {what} {done:,}/{total:,} in {_plain(elapsed)}{left}{' ' + note if note else ''}")
        if finished:
            self._what = ""


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """A progress bar on a terminal, spaced lines in a log, nothing when quiet."""
    if quiet:
        yield silent
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
    tasks: dict[str, TaskID] = {}

    def update(what: str, done: int, total: int, note: str = "") -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total, note=note)
        bars.update(tasks[what], completed=done, total=total, note=note)

    with bars:
        yield update


def print_json(value: Any) -> None:
    """A result for machines: one JSON document on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def write_json(path: Path, value: Any) -> None:
    """A result for machines as a file, whole or absent."""
    atomic.write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def opening(text: str, width: int = 96) -> str:
    """A text on one line, cut to be read at a glance."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A result for people on standard output: first column left, the others right; never cut to the window."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for index, name in enumerate(columns):
        drawn.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*[Text(cell) for cell in row])
    console = Console(highlight=False)
    wide = Console(highlight=False, width=max(console.width, 10_000)).measure(drawn).maximum
    Console(highlight=False, width=max(console.width, wide)).print(drawn)


def pairs(values: Sequence[tuple[str, str]]) -> None:
    """Aligned `name  value` lines on standard output."""
    width = max((len(name) for name, _ in values), default=0)
    for name, value in values:
        print(f"  {name:<{width}}  {value}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def summary(values: dict[str, Any], dropped: dict[str, int]) -> None:
    """Print a stage's summary: scalars and flat mappings as lines, `table` and `tables` as tables, `notes` as sentences.

    Deeper values are for `--json` and are passed over here.
    """
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        label = name.replace("_", " ")
        if isinstance(value, dict) and name != "table":
            flat = {key: item for key, item in value.items() if not isinstance(item, dict | list)}
            if len(flat) == len(value) and flat:
                lines.append(
                    (label, ", ".join(f"{key.replace('_', ' ')} {_shown(item)}" for key, item in flat.items()))
                )
        elif value is not None and not isinstance(value, dict | list):
            lines.append((label, _shown(value)))
    if dropped:
        lines.append(("dropped", ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())))
    pairs(lines)
    if "table" in values:
        table(values["table"]["columns"], values["table"]["rows"])
    for further in values.get("tables", []):
        table(further["columns"], further["rows"], further["title"])
    for note in values.get("notes", []):
        print(f"  {note}")
