"""Vectors on disk between runs, keyed by what made them: another model, prompt or length never meets them.

A store is a folder of shards and an `identity.json` that says for people what made them. A shard is a safetensors
file with `keys` (n, 16) uint8, the first half of the SHA-256 of each text, and `vectors` (n, d) float32, in the
order in which they were asked for: a corpus that is read block by block is read almost in file order. Shards are
written whole, so a killed run keeps what it had. Vectors stay on disk and are mapped; in memory are 20 bytes each.
"""

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from embedtrain import atomic
from embedtrain.errors import EmbedtrainError
from embedtrain.models import cache_folder

KEY_BYTES = 16
DESCRIPTION = "identity.json"

# The form of what lies on disk and of how items are cut into chunks: another one is another identity.
FORM = 2

# More shards than this below SMALL bytes are joined, up to LARGE bytes each: a store of any size opens quickly.
MANY = 64
SMALL = 32 << 20
LARGE = 64 << 20

# A shard is written so many times where the folder is cleared meanwhile.
TRIES = 5

STORE_NAME = re.compile(r"[0-9a-f]{32}")
SHARD_NAME = re.compile(r"(?P<number>\d{6,})-\d+-[0-9a-f]{8}\.safetensors")
PARTIAL_NAME = re.compile(r"\.(?P<name>.+)\.\d+\.partial")

Keys = NDArray[np.uint64]


def text_key(text: str) -> bytes:
    """The key of a text: the first 16 bytes of the SHA-256 of its UTF-8 form."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]


def pack(keys: Iterable[bytes]) -> Keys:
    """Keys of 16 bytes as pairs of integers. (n, 2) uint64"""
    return np.frombuffer(b"".join(keys), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def stores_folder() -> Path:
    """The folder that holds one folder an identity."""
    return cache_folder() / "vectors"


class Vectors:
    """Rows of float32 that are read when they are asked for: `vectors[3:9]`, `vectors[[5, 2]]` give arrays.

    Behind it are the files of a store, or an array. What a slice or a list of rows needs is all that is in memory;
    `vectors[:]` and `numpy.asarray` read everything.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, blocks: Sequence[NDArray[np.float32]], rows: NDArray[np.int64], dimension: int) -> None:
        """Row i is row `rows[i]` of the blocks (n_b, dimension), which are counted through."""
        self._blocks = list(blocks)
        self._ends = np.cumsum([len(block) for block in self._blocks], dtype=np.int64)
        self._rows = rows
        self.shape = (len(rows), dimension)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        rows = self._rows[index]
        return self._read(rows) if rows.ndim else self._read(rows[None])[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        found = np.empty((len(rows), self.shape[1]), dtype=np.float32)
        order = np.argsort(rows, kind="stable")  # files are read forwards
        ordered = rows[order]
        bounds = np.searchsorted(ordered, np.append(0, self._ends))
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            start, stop = bounds[number], bounds[number + 1]
            block = self._blocks[number]
            inside = ordered[start:stop] - (self._ends[number] - len(block))
            first, last = int(inside[0]), int(inside[-1])
            if last - first == stop - start - 1 and (np.diff(inside) == 1).all():
                found[order[start:stop]] = block[first : last + 1]
            else:
                found[order[start:stop]] = block[inside]
        return found


class Shard(NamedTuple):
    """A shard on disk: keys (n, 16) uint8 and vectors (n, d), both mapped."""

    path: Path
    keys: NDArray[np.uint8]
    vectors: NDArray[np.float32]


def open_shard(path: Path) -> Shard | None:
    """Map a shard; None where the file is not a whole one."""
    try:
        data = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:start].tobytes())
        found = {}
        for name, kind, code in (("keys", np.uint8, "U8"), ("vectors", np.float32, "F32")):
            about = header[name]
            first, last = about["data_offsets"]
            if about["dtype"] != code or len(about["shape"]) != 2 or start + last > len(data):
                return None
            found[name] = data[start + first : start + last].view(kind).reshape(about["shape"])
        ends = [header[name]["data_offsets"][1] for name in found]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    keys, vectors = found["keys"], found["vectors"]
    if len(keys) != len(vectors) or keys.shape[1] != KEY_BYTES or start + max(ends) != len(data):
        return None
    return Shard(path, keys, vectors)


class VectorStore:
    """The vectors of one combination of weights, prompt, length limit, precision and libraries."""

    def __init__(self, identity: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> None:
        """Open the store of `identity`, plain values that name everything the vectors depend on but the text.

        `about` is for people only (the model's name): it is written down beside the identity.
        """
        self._description = {**(about or {}), "identity": {"form": FORM, **identity}}
        name = json.dumps(self._description["identity"], sort_keys=True)
        self.folder = stores_folder() / hashlib.sha256(name.encode()).hexdigest()[:32]
        self._unjoinable = 0
        self._start()
        self._open()
        self._join()
        with contextlib.suppress(OSError):
            os.utime(self.folder / DESCRIPTION)  # when it was last used

    def _start(self) -> None:
        self._shards: list[Shard] = []
        self._rows = 0
        self._dimension = 0
        self._high, self._low = np.empty(0, np.uint64), np.empty(0, np.uint64)
        self._row = np.empty(0, np.uint32)
        self._loose: list[tuple[Keys, int]] = []

    def _open(self) -> None:
        entries: list[Path] = []
        with contextlib.suppress(FileNotFoundError):  # there is none yet, or it is cleared at this moment
            entries = sorted(self.folder.iterdir())
        for entry in entries:
            if SHARD_NAME.fullmatch(entry.name):
                shard = open_shard(entry)
                if shard is None or (self._shards and shard.vectors.shape[1] != self._dimension):
                    # A shard that cannot be read is only a cache miss; its vectors are made again.
                    atomic.remove(entry)
                else:
                    self._take(shard)
            elif partial := PARTIAL_NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    atomic.sweep(self.folder / partial["name"])

    def _take(self, shard: Shard) -> None:
        self._dimension = shard.vectors.shape[1]
        self._loose.append((pack([shard.keys.tobytes()]), self._rows))
        self._shards.append(shard)
        self._rows += len(shard.keys)

    def _fold(self) -> None:
        """Sort the keys of new shards in among the others; of equal keys the first written stays."""
        if not self._loose:
            return
        high = np.concatenate([self._high, *(keys[:, 0] for keys, _ in self._loose)])
        low = np.concatenate([self._low, *(keys[:, 1] for keys, _ in self._loose)])
        rows = [np.arange(start, start + len(keys), dtype=np.uint32) for keys, start in self._loose]
        row = np.concatenate([self._row, *rows])
        self._loose = []
        order = np.lexsort((low, high))  # stable: of equal keys the first stays first
        high, low, row = high[order], low[order], row[order]
        new = np.ones(len(high), dtype=bool)
        new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        self._high, self._low, self._row = high[new], low[new], row[new]

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The row of each key in `vectors`, or -1. (n,)"""
        self._fold()
        found = np.full(len(keys), -1, dtype=np.int64)
        open_ = np.arange(len(keys))
        place = np.searchsorted(self._high, keys[:, 0])
        while len(open_):  # twice only where two keys share their first half
            inside = place < len(self._high)
            open_, place = open_[inside], place[inside]
            same = self._high[place] == keys[open_, 0]
            open_, place = open_[same], place[same]
            hit = self._low[place] == keys[open_, 1]
            found[open_[hit]] = self._row[place[hit]]
            open_, place = open_[~hit], place[~hit] + 1
        return found

    def vectors(self, rows: NDArray[np.int64], dimension: int) -> Vectors:
        """Vectors at rows that `find` gave, none of them -1; they stay readable whatever becomes of the store."""
        return Vectors([shard.vectors for shard in self._shards], rows, self._dimension or dimension)

    def add(self, keys: Keys, vectors: NDArray[Any]) -> None:
        """Keep vectors (n, d) under their keys (n, 2), on disk at once.

        What was added stays readable here when the folder is cleared later. Raises EmbedtrainError where it is
        cleared as fast as it is written.
        """
        if not len(keys):
            return
        numbers = [int(shard.path.name.split("-")[0]) for shard in self._shards]
        for _ in range(TRIES):
            shard = self._write(max(numbers, default=-1) + 1, keys, vectors)
            if shard is not None:
                self._take(shard)
                self._join()
                return
        raise EmbedtrainError(
            f"{self.folder} is removed as fast as it is written: does `embedtrain cache --clear` run beside this? "
            "Run this command again when it has ended"
        )

    def _write(self, number: int, keys: Keys, vectors: NDArray[Any]) -> Shard | None:
        """Write a shard and map it; None where the folder was cleared meanwhile."""
        # Two processes may fill the same store: the random part keeps their shards apart.
        target = self.folder / f"{number:06d}-{os.getpid()}-{uuid.uuid4().hex[:8]}.safetensors"
        packed = keys.astype("<u8").view(np.uint8).reshape(len(keys), KEY_BYTES)
        content = save({"keys": packed, "vectors": np.ascontiguousarray(vectors, np.float32)})
        with contextlib.suppress(FileNotFoundError):
            self.folder.mkdir(parents=True, exist_ok=True)
            description = self.folder / DESCRIPTION
            if not description.is_file():
                text = json.dumps({**self._description, "dimension": int(vectors.shape[1])}, indent=1)
                with atomic.atomic_file(description) as temporary:
                    temporary.write_text(text + "\n", encoding="utf-8")
            with atomic.atomic_file(target) as temporary:
                temporary.write_bytes(content)
            return open_shard(target)
        return None

    def _join(self) -> None:
        """Write many small shards as few larger ones, in the same order, each vector once."""
        small = [index for index, shard in enumerate(self._shards) if shard.vectors.nbytes < SMALL]
        if len(small) <= max(MANY, self._unjoinable):
            return
        self._fold()
        used = np.zeros(self._rows, dtype=bool)
        used[self._row] = True
        starts = np.cumsum([0, *(len(shard.keys) for shard in self._shards)])
        groups: list[list[int]] = [[]]
        for index in small:
            size = sum(self._shards[i].vectors.nbytes for i in [*groups[-1], index])
            if groups[-1] and size > LARGE:
                groups.append([])
            groups[-1].append(index)
        found: dict[int, Shard | None] = dict(enumerate(self._shards))
        for group in groups:
            shards = [self._shards[i] for i in group]
            joined = self._joined(shards, [used[starts[i] : starts[i + 1]] for i in group])
            if joined is not None:  # it takes the place of the first
                found |= dict.fromkeys(group) | {group[0]: joined}
        # What is mapped is kept, not looked for again: it may have been cleared, and rows were promised to be there.
        self._start()
        for shard in found.values():
            if shard is not None:
                self._take(shard)
        # Where files in use cannot be removed, the same ones are not joined again and again.
        self._unjoinable = sum(shard.vectors.nbytes < SMALL for shard in self._shards)

    def _joined(self, shards: Sequence[Shard], used: Sequence[NDArray[np.bool_]]) -> Shard | None:
        """One new shard in place of these, on disk too; None where they are to stay."""
        if len(shards) < 2:
            return None
        keys = np.concatenate([shard.keys[kept] for shard, kept in zip(shards, used, strict=True)])
        vectors = np.concatenate([shard.vectors[kept] for shard, kept in zip(shards, used, strict=True)])
        joined = self._write(int(shards[0].path.name.split("-")[0]), pack([keys.tobytes()]), vectors)
        if joined is not None:
            for shard in shards:
                # Whoever has it open keeps its pages.
                with contextlib.suppress(OSError):
                    shard.path.unlink()
        return joined
