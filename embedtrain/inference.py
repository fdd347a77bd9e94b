"""Items through a model without gradient: each distinct one once, like lengths together, kept on disk as they come.

The bits of a vector depend on its item alone, not on what is computed beside it or is in the store already: an item
is always padded to the same length, and where a library may choose its kernel by the size of a chunk, chunks of a
length always have the same size. So a run that was killed ends with the same bytes as one that was not.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import sentence_transformers
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from embedtrain import chunks, console
from embedtrain.store import Keys, Vectors, VectorStore, pack
from embedtrain.workers import Workers, side_by_side

Item = TypeVar("Item")

# Padded tokens a forward pass: on a CPU what stays in its caches is fastest, a GPU wants more.
CPU_TOKENS = 2_048
GPU_TOKENS = 65_536

# Without gradient a GPU is busy with fewer, and every chunk that is filled up to its size costs less.
GPU_FILLED_TOKENS = 16_384

# Items are read, sorted by length and computed so many at a time: their texts and tokens are large.
CPU_WINDOW = 4_096
GPU_WINDOW = 32_768

# Results are put on disk after each window, and within one this often, so that a killed run goes on from there.
SECONDS = 30.0

# Texts are tokenised so many at a time: their token lists are large.
TOKENISED_AT_ONCE = 4_096


# What pads a tensor of token features, by its name: an attribute of the tokenizer, or 0.
PADDING = {"input_ids": "pad_token_id", "token_type_ids": "pad_token_type_id", "attention_mask": ""}


def widened(features: dict[str, Any], tokenizer: Any, width: int) -> dict[str, Any]:
    """Token features (n, l) with padding up to `width` columns; features of another kind are left as they are."""
    tensors = {name: value for name, value in features.items() if isinstance(value, Tensor)}
    ids = tensors.get("input_ids")
    if ids is None or ids.ndim != 2 or ids.shape[1] >= width or "attention_mask" not in tensors:
        return features
    if not set(tensors) <= set(PADDING) or getattr(tokenizer, "pad_token_id", None) is None:
        return features
    more = width - ids.shape[1]
    sides = (more, 0) if tokenizer.padding_side == "left" else (0, more)
    wide = {
        name: nn.functional.pad(value, sides, value=getattr(tokenizer, PADDING[name], 0))
        for name, value in tensors.items()
    }
    return {**features, **wide}


def capability_of(device: torch.device) -> tuple[int, int] | None:
    """The compute capability of a GPU; None for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def computed_by(device: torch.device) -> dict[str, str]:
    """Libraries and kind of processor, for the identity of what they compute."""
    if device.type == "cpu":
        kind = torch.backends.cpu.get_cpu_capability()
    else:
        kind = ".".join(map(str, capability_of(device) or ()))
    libraries = {"sentence-transformers": sentence_transformers, "transformers": transformers, "torch": torch}
    versions = {name: str(library.__version__) for name, library in libraries.items()}
    return {"device": f"{device.type} {kind}".strip(), **versions}


def token_budget(device: torch.device) -> int:
    """Padded tokens a forward pass on a device."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def sizes_matter(device: torch.device) -> bool:
    """Whether the bits of a row of a matrix product may depend on the number of rows.

    cuBLAS and oneDNN choose among kernels by the shape of a product. MKL's float32 on a CPU did so only below four
    rows, fewer than any text has with its padding, or with one column (see `_ItemByItem`).
    """
    return device.type != "cpu" or bool(torch.backends.mkldnn.enabled)


class _ItemByItem(TorchFunctionMode):
    """Linear layers over one vector an item (heads, projections) work on one item at a time.

    Such a product has as many rows as there are items, and MKL sums a few rows, or a single column of results, in an
    order that depends on how many there are.
    """

    def __init__(self, items: int) -> None:
        super().__init__()
        self._items = items

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func is nn.functional.linear and args[0].ndim == 2 and 1 < len(args[0]) <= self._items:
            return torch.cat([func(row, *args[1:], **(kwargs or {})) for row in args[0].split(1)])
        return func(*args, **(kwargs or {}))


def compute(
    items: Sequence[Item],
    key: Callable[[Item], bytes],
    *,
    model: nn.Module,
    lengths: Callable[[list[Item]], NDArray[np.int64]],
    limit: int,
    tokenise: Callable[[list[Item], int], dict[str, Any]],
    forward: Callable[[dict[str, Any]], Tensor],
    device: torch.device,
    settings: object,
    dimension: int,
    store: VectorStore | None,
    what: str,
    progress: console.Progress,
) -> Vectors:
    """One float32 vector an item, in their order; items of one key are one item.

    `items` are read by position, a window at a time, and may be made when they are read. `lengths` gives their
    tokens, uncut; `tokenise` the features of one chunk, padded to the length it is given, `forward` their vectors
    (n, dimension); on a CPU several chunks are worked on at a time (`settings`: see `workers.side_by_side`). What the
    store has is not computed; what is computed goes into it. The model is in evaluation mode meanwhile.
    """
    keys = np.empty((len(items), 2), dtype=np.uint64)
    for start in range(0, len(items), CPU_WINDOW):
        stop = min(start + CPU_WINDOW, len(items))
        keys[start:stop] = pack(key(items[i]) for i in range(start, stop))
    rows = store.find(keys) if store else np.full(len(items), -1, dtype=np.int64)
    missing = _first_of_each(keys, np.flatnonzero(rows < 0))
    if not len(missing):
        return store.vectors(rows, dimension) if store else Vectors([], rows, dimension)
    made = np.empty((0 if store else len(missing), dimension), dtype=np.float32)
    note = f"({len(items) - int((rows < 0).sum()):,} more were in the cache)" if (rows >= 0).any() else ""
    window = CPU_WINDOW if device.type == "cpu" else GPU_WINDOW
    training, done = model.training, 0
    model.eval()
    workers = Workers(side_by_side(device, model, settings))
    progress(what, 0, len(missing), note)
    try:
        for start in range(0, len(missing), window):
            places = missing[start : start + window]
            found = made[start : start + window]
            if store:
                found = np.empty((len(places), dimension), dtype=np.float32)
            waiting: list[NDArray[np.int64]] = []
            kept = time.monotonic()
            try:
                part = [items[i] for i in places.tolist()]
                jobs = _jobs(part, lengths(part), limit, tokenise, device)
                for chunk, vectors in workers.map(partial(_vectors, forward, device), jobs):
                    found[chunk] = vectors
                    waiting.append(chunk)
                    done += len(chunk)
                    if time.monotonic() - kept > SECONDS:
                        _keep(store, keys[places], found, waiting)
                        kept = time.monotonic()
                    progress(what, done, len(missing), note)
            finally:
                _keep(store, keys[places], found, waiting)
    finally:
        model.train(training)
    if store:
        return store.vectors(store.find(keys), dimension)
    place = np.empty(len(items), dtype=np.int64)
    place[missing] = np.arange(len(missing))
    return Vectors([made], place[_first(keys)], dimension)


class _Job(NamedTuple):
    """A chunk to compute: the positions of its items and their features, filled up to `rows` of them."""

    chunk: NDArray[np.int64]
    features: dict[str, Any]
    rows: int


def _jobs(
    items: list[Item],
    lengths: NDArray[np.int64],
    limit: int,
    tokenise: Callable[[list[Item], int], dict[str, Any]],
    device: torch.device,
) -> Iterator[_Job]:
    """The chunks of `items`. They are tokenised here, by the caller: tokenizers are not for several threads."""
    widths = chunks.padded(lengths, limit)
    full = sizes_matter(device)
    budget = CPU_TOKENS if device.type == "cpu" else GPU_FILLED_TOKENS
    for chunk in chunks.by_shape(lengths, limit, budget):
        width = int(widths[chunk[0]])
        part = [items[i] for i in chunk.tolist()]
        if full:
            part += part[:1] * (chunks.items_of(width, budget) - len(part))
        yield _Job(chunk, tokenise(part, width), len(part))


def _vectors(
    forward: Callable[[dict[str, Any]], Tensor], device: torch.device, job: _Job
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The positions of a chunk's items, and their vectors (n, d); in whatever thread it is called."""
    item_by_item = contextlib.nullcontext() if device.type != "cpu" else _ItemByItem(job.rows)
    with torch.inference_mode(), item_by_item:
        return job.chunk, forward(job.features)[: len(job.chunk)].float().cpu().numpy()


def _keep(
    store: VectorStore | None, keys: Keys, found: NDArray[np.float32], waiting: list[NDArray[np.int64]]
) -> None:
    """Put the vectors at the positions in `waiting` into the store, in the order of the items; empty `waiting`."""
    if store and waiting:
        done = np.sort(np.concatenate(waiting))
        store.add(keys[done], found[done])
    waiting.clear()


def _first(keys: Keys) -> NDArray[np.int64]:
    """For each key (n, 2) the position at which it stands first. (n,)"""
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: the first of equal keys comes first
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    first = np.empty(len(keys), dtype=np.int64)
    first[order] = order[np.maximum.accumulate(np.where(new, np.arange(len(keys)), 0))]
    return first


def _first_of_each(keys: Keys, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of `places`, those whose key stands at no earlier one of them."""
    return places[_first(keys[places]) == np.arange(len(places))]
