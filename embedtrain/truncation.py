"""How long texts are in a model's tokens, counted once and kept, and what of them it does not read."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain import inference
from embedtrain.encoder import Encoder, Role
from embedtrain.store import VectorStore, pack, text_key


def token_counts(encoder: Encoder, texts: Sequence[str], role: Role) -> NDArray[np.int64]:
    """Tokens of each text with its prompt, whatever the limit. (n,)

    Counts are kept beside the vectors: tokenising a corpus takes longer than searching it. A float32, which is what a
    store holds, is exact up to 16,777,216 tokens.
    """
    identity = {
        "kind": "token counts",
        "weights and settings": encoder.source.sha256,
        "role": role,
        "prompt": encoder.prompts[role],
        **inference.computed_by(encoder.device),
    }
    store = VectorStore(identity, {"model": encoder.source.name})
    keys = pack(text_key(texts[place]) for place in range(len(texts)))
    missing = np.flatnonzero(store.find(keys) < 0)
    _, first = np.unique(keys[missing], axis=0, return_index=True)
    missing = missing[np.sort(first)]
    for start in range(0, len(missing), inference.CPU_WINDOW):
        part = missing[start : start + inference.CPU_WINDOW]
        counts = encoder.token_lengths([texts[place] for place in part.tolist()], role)
        store.add(keys[part], counts[:, None].astype(np.float32))
    return store.vectors(store.find(keys), 1)[:].ravel().astype(np.int64)


def cut(encoder: Encoder, texts: Sequence[str], role: Role) -> int:
    """How many texts are longer than the model reads, whether or not their vectors were in the store."""
    return int((token_counts(encoder, texts, role) > encoder.limit(role)).sum())
