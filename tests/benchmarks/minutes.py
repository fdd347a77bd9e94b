"""Minutes of the steps of a comparison that may be stopped and started again."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BEAT = 20.0  # seconds between two notes of how long a step has run: a kill loses no more


class Log:
    """Minutes of what was done, in a file beside it, so that a run which finds it done knows them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def _put(self, name: str, entry: dict[str, Any]) -> None:
        self._entries[name] = entry
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._entries, indent=1) + "\n", encoding="utf-8")
        new.replace(self._path)

    def finished(self, name: str, key: str) -> bool:
        """Whether this was done to its end the last time it was done."""
        entry = self._entries.get(name, {})
        return entry.get("key") == key and "seconds" in entry

    def time(self, name: str, key: str, work: Callable[[], bool]) -> None:
        """Time work, which says whether there was anything to do; if not, what is known of it stays.

        Work that goes on after a kill has the time before the kill too, what it does again included. Work that was done
        at a time nobody knows is marked: its minutes are too few.
        """
        before, known = self._entries.get(name, {}), self.finished(name, key)
        spent = before.get("so_far", 0.0) if before.get("key") == key and not known else 0.0
        with self._noted(name, key, spent) as seconds:
            worked = work()
        fresh = {"key": key, "seconds": seconds(), "too_few": not worked and not spent}
        self._put(name, before if known and not worked else fresh)

    @contextmanager
    def _noted(self, name: str, key: str, spent: float) -> Iterator[Callable[[], float]]:
        """Note every now and then, and at the end, how many seconds a step has run."""
        start, done = time.perf_counter(), threading.Event()

        def seconds() -> float:
            return spent + time.perf_counter() - start

        def note() -> None:
            while not done.wait(BEAT):
                self._put(name, {"key": key, "so_far": seconds()})

        self._put(name, {"key": key, "so_far": spent})
        beating = threading.Thread(target=note, daemon=True)
        beating.start()
        try:
            yield seconds
        finally:
            done.set()
            beating.join()
            self._put(name, {"key": key, "so_far": seconds()})

    def minutes(self, names: Sequence[str]) -> float:
        """Minutes of all of these."""
        return sum(self._entries[name]["seconds"] for name in names) / 60

    def too_few(self, names: Sequence[str]) -> bool:
        """Whether the minutes of any of these are too few."""
        return any(self._entries[name]["too_few"] for name in names)
