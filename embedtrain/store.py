"""Vectors on disk between runs, keyed by what made them: another model, prompt or length never meets them.

A store is a folder of shards; a shard is a safetensors file with `keys` (n, 16) uint8, the first half of the
SHA-256 of each text, and `vectors` (n, d) float32. Shards are written whole, so a killed run keeps what it had.
"""

import hashlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from embedtrain import atomic
from embedtrain.models import cache_folder

KEY_BYTES = 16


def text_key(text: str) -> bytes:
    """The key of a text: the first 16 bytes of the SHA-256 of its UTF-8 form."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]


class VectorStore:
    """The vectors of one (weights, prompt, length limit, precision) combination."""

    def __init__(self, identity: str) -> None:
        """Open the store of `identity`, a string that names everything the vectors depend on but the text."""
        name = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self.folder = cache_folder() / "vectors" / name
        self._known: dict[bytes, np.ndarray] = {}
        if self.folder.is_dir():
            for shard in sorted(self.folder.glob("*.safetensors")):
                self._read(shard)

    def _read(self, shard: Path) -> None:
        try:
            with safe_open(shard, framework="np") as file:
                keys, vectors = file.get_tensor("keys"), file.get_tensor("vectors")
        except (SafetensorError, OSError):
            # A shard that cannot be read is only a cache miss; its vectors are made again.
            atomic.remove(shard)
            return
        for key, vector in zip(keys, vectors, strict=True):
            self._known.setdefault(key.tobytes(), vector)

    def get(self, key: bytes) -> np.ndarray | None:
        """The vector of a key, or None."""
        return self._known.get(key)

    def add(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Keep vectors (n, d) float32 under their keys, on disk at once."""
        if not keys:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        packed = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), KEY_BYTES).copy()
        number = len(list(self.folder.glob("*.safetensors")))
        # Two processes may fill the same store: the random part keeps their shards apart.
        target = self.folder / f"{number:06d}-{os.getpid()}-{uuid.uuid4().hex[:8]}.safetensors"
        with atomic.atomic_file(target) as temporary:
            save_file({"keys": packed, "vectors": np.ascontiguousarray(vectors, np.float32)}, temporary)
        for key, vector in zip(keys, vectors, strict=True):
            self._known.setdefault(key, vector)
