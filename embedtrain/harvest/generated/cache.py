"""Replies on disk between runs: what was answered once is never asked again.

One SQLite file for all models (its form: `embedtrain.replies`). Its key is everything a reply depends on
(`reply_key`), but not where the model was reached. Each reply is kept as it comes, so a killed run goes on from
there; several processes may write at once, and the reply that came first is everybody's. With it stand the model's
name and the day it was last used, for `embedtrain cache`.
"""

import datetime
import hashlib
import json
import sqlite3
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.generated.replies import Reply
from embedtrain.replies import TABLE, WAIT, replies_file


def reply_key(parts: Mapping[str, Any]) -> bytes:
    """The key of plain values that name everything a reply depends on. 32 bytes"""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


class RepliesCache:
    """The replies that were kept, for a `with` block. EmbedtrainError where the file cannot be read or written."""

    def __init__(self) -> None:
        self.path = replies_file()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._error(error) from error
        try:
            # Nothing that was kept is lost with the process, and no reply waits for the disk.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(TABLE)
        except sqlite3.Error as error:
            self._db.close()
            raise self._error(error) from error

    def __enter__(self) -> "RepliesCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._db.close()

    def find(self, key: bytes) -> Reply | None:
        """The reply that was kept under a key, if there is one; it counts as used today."""
        today = datetime.date.today().isoformat()
        try:
            row = self._db.execute(
                "SELECT used, text, finish, prompt_tokens, reply_tokens FROM replies WHERE key = ?", (key,)
            ).fetchone()
            if row is not None and row[0] < today:
                self._db.execute("UPDATE replies SET used = ? WHERE key = ?", (today, key))
        except sqlite3.Error as error:
            raise self._error(error) from error
        return None if row is None else Reply(*row[1:])

    def keep(self, key: bytes, reply: Reply, model: str) -> None:
        """Keep a reply of a model, on disk at once; where another process was first, its reply stays."""
        # Half of a pair of surrogates, which JSON may spell, is no text that a file could hold.
        text = reply.text.encode("utf-8", "replace").decode("utf-8")
        values = (key, model, datetime.date.today().isoformat(), text, *reply[1:])
        try:
            self._db.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> EmbedtrainError:
        return EmbedtrainError(
            f"the replies kept in {self.path} cannot be read or written ({error}); see that the folder can be "
            "written and the disk is not full, remove the file if it is broken, or set EMBEDTRAIN_CACHE to "
            "another folder"
        )
