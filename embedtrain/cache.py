"""`cache`: what is kept between runs, model by model, and its removal: never of anything that is not the store's."""

import contextlib
import datetime
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedtrain.store import DESCRIPTION, PARTIAL_NAME, SHARD_NAME, STORE_NAME, open_shard, stores_folder

EARLIER = "(by an earlier version)"


@dataclass(frozen=True)
class Entry:
    """The vectors of one identity: what made them, how many there are, their size on disk, when they were used."""

    id: str
    model: str
    identity: dict[str, Any]
    dimension: int
    vectors: int
    bytes: int
    last_used: datetime.date

    @property
    def what(self) -> str:
        """Vectors of queries or of documents, or scores."""
        return str(self.identity.get("role") or self.identity.get("kind") or "?")

    @property
    def precision(self) -> str:
        """What the model computed in."""
        return str(self.identity.get("precision") or "?")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "id": self.id,
            "model": self.model,
            "what": self.what,
            "dimension": self.dimension,
            "vectors": self.vectors,
            "bytes": self.bytes,
            "last_used": self.last_used.isoformat(),
            "identity": self.identity,
        }


def _own_files(folder: Path) -> Iterator[Path]:
    """The files of a store, finished or not; nothing else that may lie there."""
    paths: list[Path] = []
    with contextlib.suppress(FileNotFoundError):
        paths = sorted(folder.iterdir())
    for path in paths:
        partial = PARTIAL_NAME.fullmatch(path.name)
        name = partial["name"] if partial else path.name
        if (name == DESCRIPTION or SHARD_NAME.fullmatch(name)) and path.is_file() and not path.is_symlink():
            yield path


def _read(folder: Path) -> Entry | None:
    states: dict[Path, os.stat_result] = {}
    for path in _own_files(folder):
        with contextlib.suppress(FileNotFoundError):  # a run may be writing there
            states[path] = path.stat()
    if not states:
        return None
    about: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        about = json.loads((folder / DESCRIPTION).read_text("utf-8"))
    if not isinstance(about, dict) or not isinstance(about.get("identity"), dict):
        about = {}
    shards = [shard for path in states if SHARD_NAME.fullmatch(path.name) and (shard := open_shard(path))]
    described = states.get(folder / DESCRIPTION) if about else None
    used = described.st_mtime if described else max(state.st_mtime for state in states.values())
    return Entry(
        id=folder.name,
        model=str(about.get("model", "?")) if about else EARLIER,
        identity=about.get("identity") or {},
        dimension=shards[0].vectors.shape[1] if shards else 0,
        vectors=sum(len(shard.keys) for shard in shards),
        bytes=sum(state.st_size for state in states.values()),
        last_used=datetime.date.fromtimestamp(used),
    )


def contents(model: str | None = None, older_than: int | None = None) -> list[Entry]:
    """What the cache holds, largest first: all, or that of a model (as it was named), or not used for so many days."""
    folder = stores_folder()
    folders = sorted(folder.iterdir()) if folder.is_dir() else []
    found = []
    for path in folders:
        if STORE_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink() and (entry := _read(path)):
            found.append(entry)
    if model is not None:
        found = [entry for entry in found if entry.model == model]
    if older_than is not None:
        limit = datetime.date.today() - datetime.timedelta(days=older_than)
        found = [entry for entry in found if entry.last_used <= limit]
    return sorted(found, key=lambda entry: (-entry.bytes, entry.id))


def clear(entries: Sequence[Entry]) -> list[Path]:
    """Remove entries; returns the folders that stay because something else lies in them.

    A run that has them open goes on with what it has mapped, and may write it again.
    """
    left = []
    for entry in entries:
        folder = stores_folder() / entry.id
        for path in _own_files(folder):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        if folder.is_dir() and set(folder.iterdir()) - set(_own_files(folder)):
            left.append(folder)
    with contextlib.suppress(OSError):
        stores_folder().rmdir()
    return left
