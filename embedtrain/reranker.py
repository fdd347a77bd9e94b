"""The only file that knows how a cross-encoder is loaded, made from an encoder, batched and saved."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from embedtrain import console, inference
from embedtrain.encoder import UNLIMITED, default_device, quiet_loading
from embedtrain.errors import EmbedtrainError
from embedtrain.models import ModelSource, is_cross_encoder
from embedtrain.store import VectorStore, text_key

Pair = tuple[str, str]


def doubts(held_out_mrr: Mapping[str, float] | None) -> str | None:
    """What to say of a teacher that ranks held-out positives lower than the retriever it is to correct."""
    if not held_out_mrr or held_out_mrr["teacher"] >= held_out_mrr["retriever"]:
        return None
    return (
        f"the teacher is worse than the retriever it is to correct (mean reciprocal rank "
        f"{held_out_mrr['teacher']:.2f} against {held_out_mrr['retriever']:.2f} on held-out queries): train it on "
        "more, or use its scores with care (--policy keep, --loss infonce)"
    )


class Reranker:
    """A cross-encoder: (query, document) pairs in, raw logits out. Never probabilities: they saturate and tie."""

    def __init__(self, model: CrossEncoder, source: ModelSource, max_length: int | None) -> None:
        """`max_length`: tokens of query and document together; None, or more than the model reads: its own limit."""
        self.model = model
        self.source = source
        own = model.max_seq_length
        own = int(own) if own and math.isfinite(own) else UNLIMITED
        self.max_length = min(max_length or own, own)

    @classmethod
    def load(
        cls, source: ModelSource, max_length: int | None = None, device: torch.device | None = None
    ) -> "Reranker":
        """Load a cross-encoder with one output. An encoder, whose head would be random, is an EmbedtrainError."""
        if not is_cross_encoder(source.path):
            raise EmbedtrainError(
                f"{source.name} is no cross-encoder (its classification head would be random); "
                "make one with: embedtrain train-teacher"
            )
        return cls(cls._open(source, device), source, max_length)

    @classmethod
    def from_encoder(
        cls, source: ModelSource, seed: int, max_length: int, device: torch.device | None = None
    ) -> "Reranker":
        """Put a fresh head of one output, drawn from `seed`, on an encoder; a cross-encoder is taken as it is."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return cls(cls._open(source, device), source, max_length)

    @staticmethod
    def _open(source: ModelSource, device: torch.device | None) -> CrossEncoder:
        try:
            with quiet_loading():
                model = CrossEncoder(
                    str(source.path),
                    num_labels=1,
                    device=str(device or default_device()),
                    local_files_only=True,
                    activation_fn=torch.nn.Identity(),
                )
        except Exception as error:  # a broken folder breaks in as many ways as there are libraries under it
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise EmbedtrainError(f"teacher {source.name} cannot be loaded: {reason}") from error
        model.eval()
        return model

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.device

    def token_lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Tokens of each pair, uncut. (n,) int64"""
        lengths: list[int] = []
        for start in range(0, len(pairs), inference.TOKENISED_AT_ONCE):
            queries, documents = map(list, zip(*pairs[start : start + inference.TOKENISED_AT_ONCE], strict=True))
            with quiet_loading():
                encoded = self.model.tokenizer(queries, documents, truncation=False)["input_ids"]
            lengths += [len(ids) for ids in encoded]
        return np.asarray(lengths, dtype=np.int64)

    def forward(self, pairs: Sequence[Pair], *, width: int = 0) -> torch.Tensor:
        """Raw logits (n,) of one chunk of pairs, with gradient where grad mode is on.

        Only the document is cut, so long as the queries leave it a quarter of the limit; else the longer side is.
        Pairs are padded to the longest of them, or to `width` tokens where that is more.
        """
        features = {
            name: value.to(self.device) if isinstance(value, torch.Tensor) else value
            for name, value in inference.widened(self._features(pairs), self.model.tokenizer, width).items()
        }
        return self.model(features)["scores"].reshape(len(pairs))

    def _features(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Tokens of pairs, cut: which side of a pair is cut depends on that pair alone."""
        with quiet_loading():
            queries = self.model.tokenizer([query for query, _ in pairs], truncation=False)["input_ids"]
        fits = np.array([len(ids) <= self.max_length * 3 // 4 for ids in queries])
        sides = [(places, side) for side in (True, False) if len(places := np.flatnonzero(fits == side))]
        parts = [
            self.model.preprocess(
                [list(pairs[i]) for i in places.tolist()],
                max_length=self.max_length,
                processing_kwargs={"text": {"truncation": "only_second" if side else "longest_first"}},
            )
            for places, side in sides
        ]
        if len(parts) == 1:
            return parts[0]
        longest = max(part["input_ids"].shape[1] for part in parts)
        parts = [inference.widened(part, self.model.tokenizer, longest) for part in parts]
        order = torch.from_numpy(np.argsort(np.concatenate([places for places, _ in sides])))
        return {
            name: torch.cat([part[name] for part in parts])[order] if isinstance(value, torch.Tensor) else value
            for name, value in parts[0].items()
        }

    def score(
        self, pairs: Sequence[Pair], progress: console.Progress = console.silent, *, stored: bool = True
    ) -> np.ndarray:
        """Raw logits (n,) float32 of pairs, in their order; each distinct pair is scored once.

        Scores come from the store and go to it unless `stored` is False (a model still in training has no identity
        to keep them under).
        """
        identity = {
            "kind": "scores",
            "weights and settings": self.source.sha256,
            "max_length": self.max_length,
            "precision": "float32",
            **inference.computed_by(self.device),
        }
        scores = inference.compute(
            pairs,
            lambda pair: text_key(f"{len(pair[0])}|{pair[0]}|{pair[1]}"),
            model=self.model,
            lengths=self.token_lengths,
            limit=self.max_length,
            forward=lambda chunk, width: self.forward(chunk, width=width)[:, None],
            device=self.device,
            dimension=1,
            store=VectorStore(identity, {"model": self.source.name}) if stored else None,
            what=f"score pairs with {self.source.name}" if stored else "score held-out pairs",
            progress=progress,
        )
        return scores[:].reshape(len(pairs))

    def save(self, folder: Path) -> None:
        """Save in the form that `CrossEncoder(path)` loads: weights as safetensors, the length limit included."""
        self.model.max_seq_length = self.max_length
        with quiet_loading():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
