"""Items through a model without gradient: each distinct one once, like lengths together, kept on disk as they come."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from embedtrain import chunks, console
from embedtrain.store import VectorStore

Item = TypeVar("Item")

# Results are put on disk this often, so that a killed run goes on from there.
SHARD = 1_024

# Padded tokens a forward pass: on a CPU what stays in its caches is fastest, a GPU wants more.
CPU_TOKENS = 2_048
GPU_TOKENS = 65_536

# Texts are tokenised so many at a time: their token lists are large.
TOKENISED_AT_ONCE = 4_096


def token_budget(device: torch.device) -> int:
    """Padded tokens a forward pass on a device."""
    return CPU_TOKENS if device.type == "cpu" else GPU_TOKENS


def compute(
    items: Sequence[Item],
    keys: Sequence[bytes],
    *,
    model: nn.Module,
    lengths: Callable[[list[Item]], np.ndarray],
    forward: Callable[[list[Item]], Tensor],
    device: torch.device,
    store: VectorStore | None,
    what: str,
    progress: console.Progress,
) -> list[np.ndarray]:
    """One float32 vector (d,) an item, in their order; items of one key are one item.

    `lengths` gives the tokens of items, `forward` the vectors (n, d) of one chunk. What the store has is not
    computed; what is computed goes into it. The model is in evaluation mode meanwhile.
    """
    found: dict[bytes, np.ndarray] = {}
    missing: dict[bytes, Item] = {}
    for key, item in zip(keys, items, strict=True):
        vector = store.get(key) if store else None
        if vector is not None:
            found[key] = vector
        else:
            missing[key] = item
    if missing:
        waiting: list[bytes] = []

        def flush() -> None:
            if store and waiting:
                store.add(waiting, np.stack([found[key] for key in waiting]))
            waiting.clear()

        names, left = list(missing), list(missing.values())
        done, training = 0, model.training
        model.eval()
        progress(what, 0, len(left), "")
        try:
            with torch.inference_mode():
                for chunk in chunks.by_length(lengths(left), token_budget(device)):
                    vectors = forward([left[i] for i in chunk]).float().cpu().numpy()
                    for position, vector in zip(chunk, vectors, strict=True):
                        found[names[position]] = vector
                        waiting.append(names[position])
                    done += len(chunk)
                    if len(waiting) >= SHARD:
                        flush()
                    progress(what, done, len(left), "")
        finally:
            flush()
            model.train(training)
    return [found[key] for key in keys]
