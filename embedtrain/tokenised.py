"""Texts as rows of token features: each is tokenised once, cut to its role's limit, and put into chunks without texts."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embedtrain import inference
from embedtrain.encoder import UNLIMITED, Encoder, Role, quiet_loading

# Bytes of token rows that are kept; what comes later is tokenised each time it is needed.
KEPT = 2 << 30

# Chunks are made by several threads. A tokenizer, which roles share, is told its limits and padding before each use.
_TOKENIZING = threading.Lock()


class Tokenised:
    """The texts of one role as token rows.

    The library's own preprocessing makes them (prompts, special tokens, limits), so that training sees what encoding
    sees. Models whose features are no rows of tokens (static embeddings, flattened input on a GPU) are served by text.
    """

    def __init__(self, encoder: Encoder, role: Role, limit: int | None, text_of: Callable[[str], str]) -> None:
        self._encoder = encoder
        self._role = role
        self._limit = limit
        self._text_of = text_of
        self._rows: dict[str, NDArray[Any]] = {}
        self._lengths: dict[str, tuple[int, int]] = {}  # tokens read, tokens there are
        self._bytes = 0
        self._shared: dict[str, Any] | None = None  # features that are not a text's own; None: served by text

    def measure(self, ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens that are read of each text, and tokens it has. (n,), (n,)"""
        new = [identifier for identifier in dict.fromkeys(ids) if identifier not in self._lengths]
        for start in range(0, len(new), inference.TOKENISED_AT_ONCE):
            self._measure(new[start : start + inference.TOKENISED_AT_ONCE])
        found = np.asarray([self._lengths[identifier] for identifier in ids], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def _measure(self, ids: list[str]) -> None:
        texts = [self._text_of(identifier) for identifier in ids]
        whole = self._encoder.token_lengths(texts, self._role)
        limit = min(self._limit or UNLIMITED, self._encoder.limit(self._role))
        for identifier, length in zip(ids, whole.tolist(), strict=True):
            self._lengths[identifier] = (min(length, limit), length)
        self._keep(ids, texts)

    def _preprocess(self, texts: list[str]) -> dict[str, Any]:
        with _TOKENIZING, quiet_loading():
            return self._encoder.features(texts, self._role, self._limit)

    def _keep(self, ids: list[str], texts: list[str]) -> None:
        rows = self._tokenise(texts)
        if rows is None:
            return
        for identifier, row in zip(ids, rows, strict=True):
            self._lengths[identifier] = (row.shape[1], max(row.shape[1], self._lengths[identifier][1]))
            if self._bytes < KEPT:
                self._rows[identifier] = row
                self._bytes += row.nbytes

    def _tokenise(self, texts: list[str]) -> list[NDArray[Any]] | None:
        """Token ids and token types (2, length) of each text; None where the model has no such features."""
        features = self._preprocess(texts)
        tensors = {name for name, value in features.items() if isinstance(value, Tensor)}
        ids, mask = features.get("input_ids"), features.get("attention_mask")
        if ids is None or mask is None or ids.ndim != 2 or not tensors <= {*inference.PADDING, "prompt_length"}:
            return None
        self._shared = {name: value for name, value in features.items() if name not in inference.PADDING}
        self._typed = "token_type_ids" in tensors
        kinds = features["token_type_ids"] if self._typed else torch.zeros_like(ids)
        there = mask.bool().numpy()
        both = torch.stack([ids, kinds], dim=1).numpy().astype(np.int32)
        return [pair[:, shown] for pair, shown in zip(both, there, strict=True)]

    def features(self, ids: Sequence[str]) -> dict[str, Any]:
        """Features of some texts, padded to the longest of them."""
        missing = [identifier for identifier in ids if identifier not in self._rows]
        rows = self._rows
        if missing:
            texts = [self._text_of(identifier) for identifier in missing]
            made = self._tokenise(texts) if self._shared is not None else None
            if made is None:
                return self._preprocess([self._text_of(identifier) for identifier in ids])
            rows = {**{i: self._rows[i] for i in ids if i in self._rows}, **dict(zip(missing, made, strict=True))}
        return self._padded([rows[identifier] for identifier in ids])

    def _padded(self, rows: list[NDArray[Any]]) -> dict[str, Any]:
        tokenizer = self._encoder.input_module(self._role).tokenizer
        width = max(row.shape[1] for row in rows)
        both = np.empty((2, len(rows), width), dtype=np.int64)
        both[0] = tokenizer.pad_token_id or 0
        both[1] = getattr(tokenizer, "pad_token_type_id", 0)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        left = tokenizer.padding_side == "left"
        for number, row in enumerate(rows):
            place = slice(width - row.shape[1], width) if left else slice(0, row.shape[1])
            both[:, number, place] = row
            mask[number, place] = 1
        made = {"input_ids": torch.from_numpy(both[0]), "attention_mask": torch.from_numpy(mask)}
        if self._typed:
            made["token_type_ids"] = torch.from_numpy(both[1])
        return {**(self._shared or {}), **made}
