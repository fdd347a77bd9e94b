"""The only file that knows how a cross-encoder is loaded, made from an encoder, batched and saved."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from sentence_transformers import CrossEncoder

from embedtrain import console, inference, precision
from embedtrain.encoder import UNLIMITED, default_device, quiet_loading
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.models import ModelSource, is_cross_encoder
from embedtrain.precision import Precision
from embedtrain.store import VectorStore, text_key

Pair = tuple[str, str]


# A query is cut only where it would leave its document fewer tokens than this (or than a quarter of a small limit).
LEAST_DOCUMENT = 32


@dataclasses.dataclass(frozen=True)
class Cut:
    """How many of some distinct pairs lost the end of their document, and of their query too; tokens of the longest."""

    pairs: int
    documents: int
    queries: int
    longest: int
    limit: int

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents and {self.queries:,} queries of {self.pairs:,} pairs at {self.limit:,} tokens, "
            f"longest {self.longest:,}"
        )


class Reranker:
    """A cross-encoder: (query, document) pairs in, raw logits out. Never probabilities: they saturate and tie."""

    def __init__(
        self, model: CrossEncoder, source: ModelSource, max_length: int | None, precision: Precision = "float32"
    ) -> None:
        """`max_length`: tokens of query and document together; None, or more than the model reads: its own limit."""
        self.model = model
        self.source = source
        self.precision = precision  # what the layers compute in; the head and the scores are float32 always
        own = model.max_seq_length
        own = int(own) if own and math.isfinite(own) else UNLIMITED
        self.max_length = min(max_length or own, own)

    @classmethod
    def load(
        cls,
        source: ModelSource,
        max_length: int | None = None,
        device: torch.device | None = None,
        *,
        wanted: str = "float32",
    ) -> "Reranker":
        """Load a cross-encoder with one output; `wanted` is its precision: auto, float32 or bfloat16.

        An encoder, or a classifier whose checkpoint lacks weights of the head, is an EmbedtrainError: they would be
        random.
        """
        if not is_cross_encoder(source.path):
            raise EmbedtrainError(
                f"{source.name} is no cross-encoder (its classification head would be random); "
                "make one with: embedtrain train-teacher"
            )
        model = cls._open(source, device)
        if missing := _missing(model, source.path):
            raise EmbedtrainError(
                f"{source.name} has no trained head: {first_three(missing)} are not in its checkpoint and would be random; "
                "train it with: embedtrain train-teacher"
            )
        found = precision.resolve(wanted, inference.capability_of(model.device))
        if found == "bfloat16":
            _in_bfloat16(model)
        return cls(model, source, max_length, found)

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

    def cut(self, pairs: Sequence[Pair]) -> Cut:
        """What is cut of pairs, each counted once."""
        pairs = list(dict.fromkeys(pairs))
        lengths = self.token_lengths(pairs)
        long = [pairs[i] for i in np.flatnonzero(lengths > self.max_length)]
        fitting = self._fitting(long)
        queries = sum(shorter != pair for pair, shorter in zip(long, fitting, strict=True))
        documents = int((self.token_lengths(fitting) > self.max_length).sum())
        return Cut(len(pairs), documents, queries, int(lengths.max(initial=0)), self.max_length)

    def forward(self, pairs: Sequence[Pair], *, width: int = 0) -> torch.Tensor:
        """Raw logits (n,) of one chunk of pairs, with gradient where grad mode is on.

        Only the document is cut; the query too where it would leave it next to nothing. Pairs are padded to the longest
        of them, or to `width` tokens where that is more.
        """
        return self.forward_features(self.padded(pairs, width))

    def padded(self, pairs: Sequence[Pair], width: int) -> dict[str, Any]:
        """The features of pairs, padded to the longest of them, or to `width` tokens where that is more."""
        return inference.widened(self.features(pairs), self.model.tokenizer, width)

    def forward_features(self, features: dict[str, Any]) -> torch.Tensor:
        """Raw logits (n,) of what `features` gave, on the model's device."""
        there = {
            name: value.to(self.device) if isinstance(value, torch.Tensor) else value
            for name, value in features.items()
        }
        return self.model(there)["scores"].reshape(-1)

    def features(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """Tokens of pairs, cut: what is cut of a pair depends on that pair alone."""
        return self.model.preprocess(
            [list(pair) for pair in self._fitting(pairs)],
            max_length=self.max_length,
            processing_kwargs={"text": {"truncation": "only_second"}},
        )

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        with quiet_loading():
            return list(self.model.tokenizer(list(texts), truncation=False, add_special_tokens=False)["input_ids"])

    def _fitting(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Pairs whose queries leave their documents room: of a query that is too long the beginning is kept."""
        if not pairs:
            return []
        room = self.max_length - self.model.tokenizer.num_special_tokens_to_add(pair=True)
        least = min(LEAST_DOCUMENT, self.max_length // 4)
        found = list(pairs)
        for place, query in enumerate(self._tokens([query for query, _ in pairs])):
            if len(query) <= room - least:
                continue
            (document,) = self._tokens([pairs[place][1]])
            keep = room - min(least, len(document))
            if len(query) > keep:
                found[place] = (self._beginning(pairs[place][0], keep), pairs[place][1])
        return found

    def _beginning(self, text: str, tokens: int) -> str:
        """The text up to the end of a token, counted from 1."""
        tokenizer = self.model.tokenizer
        if not tokenizer.is_fast:
            return str(tokenizer.decode(self._tokens([text])[0][:tokens]))
        with quiet_loading():
            places = tokenizer(text, truncation=False, add_special_tokens=False, return_offsets_mapping=True)
        return text[: places["offset_mapping"][tokens - 1][1]]

    def score(
        self,
        pairs: Sequence[Pair],
        progress: console.Progress = console.silent,
        *,
        stored: bool = True,
        what: str = "",
    ) -> np.ndarray:
        """Raw logits (n,) float32 of pairs, in their order; each distinct pair is scored once.

        Scores come from the store and go to it unless `stored` is False (a model still in training has no identity
        to keep them under).
        """
        identity = {
            "kind": "scores",
            "weights and settings": self.source.sha256,
            "max_length": self.max_length,
            "cut": "document first",
            "precision": self.precision,
            **inference.computed_by(self.device),
        }
        scores = inference.compute(
            pairs,
            lambda pair: text_key(f"{len(pair[0])}|{pair[0]}|{pair[1]}"),
            model=self.model,
            lengths=self.token_lengths,
            limit=self.max_length,
            tokenise=self.padded,
            forward=lambda features: self.forward_features(features)[:, None],
            device=self.device,
            settings=self.model.config,
            dimension=1,
            store=VectorStore(identity, {"model": self.source.name}) if stored else None,
            what=what or f"score pairs with {self.source.name}",
            progress=progress,
        )
        return scores[:].reshape(len(pairs))

    def save(self, folder: Path) -> None:
        """Save in the form that `CrossEncoder(path)` loads: weights as safetensors, the length limit included."""
        own, self.model.max_seq_length = self.model.max_seq_length, self.max_length
        try:
            with quiet_loading():
                self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
        finally:
            self.model.max_seq_length = own


def _missing(model: CrossEncoder, path: Path) -> list[str]:
    """Names of weights outside the backbone that a checkpoint folder does not hold."""
    inner: Any = model.model
    backbone = f"{inner.base_model_prefix}."
    head = sorted(name for name, _ in inner.named_parameters() if not name.startswith(backbone))
    held: set[str] = set()
    for file in path.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            held.update(tensors.keys())
    if set(head) <= held:
        return []
    # Other names, other files: the library that reads them knows what it did not find.
    with quiet_loading():
        _, report = type(inner).from_pretrained(
            path, num_labels=1, output_loading_info=True, local_files_only=True
        )
    return sorted(name for name in report["missing_keys"] if not name.startswith(backbone))


def _in_bfloat16(model: CrossEncoder) -> None:
    """Let the backbone compute in bfloat16 and the head in float32, so that near scores do not become one."""
    inner: Any = model.model
    inner.base_model.to(torch.bfloat16)

    def widened(_module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for value in inputs
        )

    for child in inner.children():
        if child is not inner.base_model:
            child.register_forward_pre_hook(widened)
