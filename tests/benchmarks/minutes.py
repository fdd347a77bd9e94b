"""Minutes of the steps of a comparison that may be stopped and started again."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Log:
    """Minutes of what was done, in a file beside it, so that a run which finds it done knows them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def _put(self, name: str, entry: dict[str, Any]) -> None:
        self._entries[name] = entry
        self._path.write_text(json.dumps(self._entries, indent=1) + "\n", encoding="utf-8")

    def finished(self, name: str, key: str) -> bool:
        """Whether this was done to its end the last time it was done."""
        entry = self._entries.get(name, {})
        return entry.get("key") == key and "seconds" in entry

    def time(self, name: str, key: str, work: Callable[[], bool]) -> None:
        """Time work, which says whether there was anything to do; if not, what is known of it stays.

        Work that goes on after a kill, or was done at a time nobody knows, is marked: its minutes are too few.
        """
        before, known = self._entries.get(name, {}), self.finished(name, key)
        resumed = before.get("key") == key and not known
        self._put(name, {"key": key})
        start = time.perf_counter()
        worked = work()
        seconds = time.perf_counter() - start
        fresh = {"key": key, "seconds": seconds, "too_few": resumed or not worked}
        self._put(name, before if known and not worked else fresh)

    def minutes(self, names: Sequence[str]) -> float:
        """Minutes of all of these."""
        return sum(self._entries[name]["seconds"] for name in names) / 60

    def too_few(self, names: Sequence[str]) -> bool:
        """Whether the minutes of any of these are too few."""
        return any(self._entries[name]["too_few"] for name in names)
