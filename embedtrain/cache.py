"""`cache`: what is kept between runs, model by model, and its removal: never of anything that is not the cache's.

Vectors and scores lie in stores (`store`), replies of language models in one file (`replies`).
"""

import contextlib
import datetime
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedtrain.replies import Replies, kept, remove
from embedtrain.store import DESCRIPTION, PARTIAL_NAME, SHARD_NAME, STORE_NAME, open_shard, stores_folder

EARLIER = "(by an earlier version)"
BROKEN = "(cannot be read)"


@dataclass(frozen=True)
class Entry:
    """Vectors of one identity, or replies of one model: how many, their size on disk, when they were last used."""

    id: str
    model: str
    identity: dict[str, Any]
    dimension: int
    vectors: int
    bytes: int
    last_used: datetime.date
    replies: Replies | None = None  # where they are no vectors

    @property
    def what(self) -> str:
        """Vectors of queries or of documents, scores, or replies."""
        if self.replies:
            return "replies"
        return str(self.identity.get("role") or self.identity.get("kind") or "?")

    @property
    def count(self) -> int:
        """How many vectors or replies there are."""
        return self.replies.count if self.replies else self.vectors

    @property
    def precision(self) -> str:
        """What the model computed in."""
        return str(self.identity.get("precision") or "?")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shared = {"id": self.id, "model": self.model, "what": self.what}
        size = {"bytes": self.bytes, "last_used": self.last_used.isoformat()}
        if self.replies:
            return {**shared, "replies": self.replies.count, **size}
        about = {"dimension": self.dimension, "vectors": self.vectors}
        return {**shared, **about, **size, "identity": self.identity}


@dataclass(frozen=True)
class Cleared:
    """What was removed, and a sentence for each place where something stays."""

    entries: list[Entry]
    stays: list[str]


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


def _entry(found: Replies) -> Entry:
    model = found.model if found.model is not None else BROKEN if found.broken else EARLIER
    return Entry(found.path.name, model, {}, 0, 0, found.bytes, found.last_used, found)


def contents(model: str | None = None, older_than: int | None = None) -> list[Entry]:
    """What the cache holds, largest first: all, or that of a model (as it was named), or not used for so many days.

    Vectors of one identity are of an age; of a model's replies those are listed that were not used for so long. Raises
    EmbedtrainError where the replies are held by another process.
    """
    limit = None
    if older_than is not None:
        today = datetime.date.today()
        limit = today - datetime.timedelta(days=min(older_than, (today - datetime.date.min).days))
    folder = stores_folder()
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if STORE_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink() and (entry := _read(path)):
            found.append(entry)
    if limit is not None:
        found = [entry for entry in found if entry.last_used <= limit]
    found += map(_entry, kept(limit))
    if model is not None:
        found = [entry for entry in found if entry.model == model]
    return sorted(found, key=lambda entry: (-entry.bytes, entry.id, entry.model))


def clear(entries: Sequence[Entry]) -> Cleared:
    """Remove entries. A folder stays where something else lies in it, and replies stay while a run has them open.

    A run that has vectors open goes on with what it has mapped, and may write it again. Raises EmbedtrainError for
    replies that cannot be removed.
    """
    removed: list[Entry] = []
    stays: list[str] = []
    by_file: dict[Path, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.replies:
            by_file[entry.replies.path].append(entry)
            continue
        folder = stores_folder() / entry.id
        for path in _own_files(folder):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        if folder.is_dir() and set(folder.iterdir()) - set(_own_files(folder)):
            stays.append(f"{folder} stays: it holds files that are not the cache's")
        removed.append(entry)
    for path, chosen in by_file.items():
        if remove([entry.replies for entry in chosen if entry.replies]):
            removed += chosen
        else:
            stays.append(f"{path} stays as it is: a run has it open; clear it when that has ended")
    with contextlib.suppress(OSError):
        stores_folder().rmdir()
    return Cleared(removed, stays)
