"""How a benchmark measures, says and judges: paired, alternating runs of two sides that do the same work.

A benchmark is a script `bench_NAME.py` beside this file: it makes rows with `compare` (or `Row` for other figures, such
as peak memory) and ends with `sys.exit(finish(rows, as_json))`.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Mining, and the same settings for `mine_hard_negatives`: window 100, at most 95 % of the positive's score, the best 7.
K = 100
NEGATIVES = 7
PEER: dict[str, Any] = {
    "range_max": K,
    "relative_margin": 0.05,
    "num_negatives": NEGATIVES,
    "output_format": "n-tuple",
    "output_scores": True,
    "verbose": False,
}


@dataclass(frozen=True)
class Row:
    """One row of the table: ours beside another's, in `unit`, and the ratio that was to be reached."""

    work: str
    against: str
    ours: float
    other: float
    unit: str
    ratio: float  # median over the rounds, so that it need not be the ratio of the two medians
    least: float
    rounds: int

    @property
    def met(self) -> bool:
        return self.ratio >= self.least

    def __str__(self) -> str:
        verdict = "met" if self.met else "MISSED"
        return (
            f"{self.work} | against {self.against} | {_short(self.ours)} and {_short(self.other)} {self.unit} | "
            f"{_short(self.ratio)} x, to reach {self.least:g} x: {verdict} | {self.rounds} rounds"
        )


def compare(
    work: str,
    against: str,
    ours: Callable[[], object],
    other: Callable[[], object],
    *,
    amount: int,
    unit: str,
    least: float,
    rounds: int,
    repeats: int = 1,
) -> Row:
    """Time both sides in turn, the first one changing from round to round; `amount` units are done in a call.

    `repeats` is how often ours runs in a round, where one run is too short to be timed beside a long one. What is
    compiled or loaded on the first call is the caller's to warm up.
    """
    times: dict[Callable[[], object], list[float]] = {ours: [], other: []}
    for number in range(rounds):
        for side in (ours, other) if number % 2 == 0 else (other, ours):
            count = repeats if side is ours else 1
            start = time.perf_counter()
            for _ in range(count):
                side()
            times[side].append((time.perf_counter() - start) / count)
    return beside(work, against, times[ours], times[other], amount=amount, unit=unit, least=least)


def in_process(*command: object, **environment: str) -> dict[str, Any]:
    """Run a Python script in a process of its own; what it printed last, as JSON."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of some work in this process, and how far its peak memory rose meanwhile, and to what, in MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "rise": (peak - before) / 1024, "peak": peak / 1024}


def beside(
    work: str,
    against: str,
    ours: Sequence[float],
    other: Sequence[float],
    *,
    amount: int,
    unit: str,
    least: float,
) -> Row:
    """A row from the seconds both sides took in the same rounds for `amount` units."""
    ratio = statistics.median(theirs / own for own, theirs in zip(ours, other, strict=True))
    speeds = (amount / statistics.median(ours), amount / statistics.median(other))
    return Row(work, against, *speeds, unit, ratio, least, len(ours))


def machine(*packages: str) -> dict[str, str | int | float]:
    """What the figures were measured on: processor, cores, load at the end, versions."""
    model = platform.machine()
    if (path := Path("/proc/cpuinfo")).is_file():
        names = [line.split(":", 1)[1].strip() for line in path.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        **_gpu(packages),
        "cores": os.cpu_count() or 1,
        "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _gpu(packages: Sequence[str]) -> dict[str, str]:
    """The GPU that torch sees, where torch is among the packages; empty where it sees none."""
    if "torch" in packages:
        import torch

        if torch.cuda.is_available():
            return {"gpu": torch.cuda.get_device_name()}
    return {}


def finish(rows: list[Row], as_json: bool, *packages: str, out: Path | None = None) -> int:
    """Print the rows and the machine, and write them to `out`; the exit code: 1 where a row missed its target."""
    about = machine(*packages)
    document = json.dumps({"machine": about, "rows": [asdict(row) | {"met": row.met} for row in rows]}, indent=2)
    if out:
        out.write_text(document + "\n", encoding="utf-8")
    if as_json:
        print(document)
    else:
        for row in rows:
            print(row)
        print("machine: " + ", ".join(f"{name} {value}" for name, value in about.items()))
    return 0 if all(row.met for row in rows) else 1


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
