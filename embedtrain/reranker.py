"""The only file that knows how a cross-encoder is loaded, made from an encoder, batched and saved."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder

from embedtrain import chunks, console
from embedtrain.encoder import default_device, quiet_loading, token_budget
from embedtrain.errors import EmbedtrainError
from embedtrain.models import ModelSource

Pair = tuple[str, str]


def _is_cross_encoder(path: Path) -> bool:
    try:
        settings = json.loads((path / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return any("SequenceClassification" in name for name in settings.get("architectures") or [])


class Reranker:
    """A cross-encoder: (query, document) pairs in, raw logits out. Never probabilities: they saturate and tie."""

    def __init__(self, model: CrossEncoder, source: ModelSource, max_length: int) -> None:
        self.model = model
        self.source = source
        self.max_length = min(max_length, int(model.max_seq_length or max_length))

    @classmethod
    def load(cls, source: ModelSource, max_length: int = 256, device: torch.device | None = None) -> "Reranker":
        """Load a cross-encoder with one output. An encoder, whose head would be random, is an EmbedtrainError."""
        if not _is_cross_encoder(source.path):
            raise EmbedtrainError(
                f"{source.name} is no cross-encoder (its classification head would be random); "
                "make one with: embedtrain train-teacher"
            )
        return cls(cls._open(source, device), source, max_length)

    @classmethod
    def from_encoder(
        cls, source: ModelSource, seed: int, max_length: int = 256, device: torch.device | None = None
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
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise EmbedtrainError(f"teacher {source.name} cannot be loaded: {reason}") from error
        model.eval()
        return model

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.device

    def token_lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Tokens of each pair, uncut. (n,) int64."""
        if not pairs:
            return np.empty(0, dtype=np.int64)
        queries, documents = map(list, zip(*pairs, strict=True))
        with quiet_loading():
            encoded = self.model.tokenizer(queries, documents, truncation=False)["input_ids"]
        return np.asarray([len(ids) for ids in encoded], dtype=np.int64)

    def forward(self, pairs: Sequence[Pair]) -> torch.Tensor:
        """Raw logits (n,) of one chunk of pairs, with gradient where grad mode is on.

        The tokenizer cuts the longer side first, so the query stays whole while the document is longer.
        """
        features = self.model.preprocess([list(pair) for pair in pairs], max_length=self.max_length)
        features = {
            name: value.to(self.device) if isinstance(value, torch.Tensor) else value
            for name, value in features.items()
        }
        return self.model(features)["scores"].reshape(len(pairs))

    def score(self, pairs: Sequence[Pair], progress: console.Progress = console.silent) -> np.ndarray:
        """Raw logits (n,) float32 of pairs, in their order; each distinct pair is scored once."""
        distinct = list(dict.fromkeys(pairs))
        lengths = np.minimum(self.token_lengths(distinct), self.max_length)
        scores: dict[Pair, float] = {}
        what = f"score pairs with {self.source.name}"
        self.model.eval()
        with torch.inference_mode():
            for chunk in chunks.by_length(lengths, token_budget(self.device)):
                members = [distinct[i] for i in chunk]
                values = self.forward(members).float().cpu().numpy()
                scores.update(zip(members, values, strict=True))
                progress(what, len(scores), len(distinct), "")
        return np.asarray([scores[pair] for pair in pairs], dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Save in the form that `CrossEncoder(path)` loads, weights as safetensors."""
        with quiet_loading():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
