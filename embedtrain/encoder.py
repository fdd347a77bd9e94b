"""The only file that knows how a bi-encoder is loaded, prompted, batched and saved."""

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from embedtrain import console, inference, precision
from embedtrain import pooling as poolings
from embedtrain.errors import EmbedtrainError
from embedtrain.models import ModelSource, check_encoder, is_raw
from embedtrain.precision import Precision
from embedtrain.store import Vectors, VectorStore, text_key

Role = Literal["query", "document"]

# The length limit of a model that has none (static embeddings).
UNLIMITED = 1 << 20

_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


@contextlib.contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep the libraries' own progress bars and load reports off standard error."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    others = logging.getLogger("sentence_transformers")
    previous = others.level
    others.setLevel(logging.ERROR)
    try:
        yield
    finally:
        others.setLevel(previous)
        transformers_logging.set_verbosity(level)


def default_device() -> torch.device:
    """The GPU where there is one, else the CPU, set up for short matrix products of ever new shapes.

    With AVX2 and no more, oneDNN is the slower way there: MiniLM encoded 1.3 to 2.1 times as many tokens a second
    without it (median 1.5 of six pairs of fresh processes, one thread, 160 to 240 abstracts none of which came
    twice).
    """
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        torch.backends.mkldnn.set_flags(False)
    return torch.device("cpu")


def _as_float32(_module: torch.nn.Module, _inputs: Any, features: dict[str, Any]) -> dict[str, Any]:
    # Pooling and what follows add up in float32 whatever the layers before them compute in.
    return {
        name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in features.items()
    }


class Encoder:
    """A bi-encoder: texts in, float32 vectors out, the model's own prompts applied exactly once."""

    def __init__(self, model: SentenceTransformer, source: ModelSource, precision: Precision = "float32") -> None:
        self.model = model
        self.source = source
        self.precision = precision  # what the layers compute in; vectors are float32 always
        self.created: tuple[str, ...] = ()  # names of weights the checkpoint did not hold: they start random
        self.notes: list[str] = []  # what loading did to the model, to be said
        self.pooled = ""  # the pooling it was given in place of its own
        self.set_prompts(None, None)

    @classmethod
    def load(
        cls,
        source: ModelSource,
        device: torch.device | None = None,
        *,
        wanted: str = "float32",
        pooling: str | None = None,
        seed: int = 0,
    ) -> "Encoder":
        """Load a model folder; `wanted` is the precision it computes in: auto, float32 or bfloat16.

        `pooling` is for training: a mode takes the place of the model's own, and a raw checkpoint, refused
        otherwise, gets one (auto: by its architecture), with what was done in `notes` and random weights from `seed`
        in `created`. Raises EmbedtrainError for a folder that sentence-transformers cannot read, for a last-token
        model without end token, and as `check_encoder` does.
        """
        if pooling is not None:
            poolings.check_pooling(pooling)
        check_encoder(source, raw=pooling is not None)
        place = str(device or default_device())
        created: tuple[str, ...] = ()
        notes: list[str] = []
        try:
            with quiet_loading():
                if is_raw(source):
                    model, created, notes = poolings.from_raw(
                        source.path, pooling or poolings.AUTO, source.name, device=place, seed=seed
                    )
                else:
                    model = SentenceTransformer(str(source.path), device=place, local_files_only=True)
        except EmbedtrainError:
            raise
        except Exception as error:  # a broken folder breaks in as many ways as there are libraries under it
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise EmbedtrainError(f"model {source.name} cannot be loaded: {reason}") from error
        changed = pooling not in (None, poolings.AUTO) and not is_raw(source)
        if pooling and changed:
            was = poolings.found(model)["document"]
            poolings.override(model, pooling, source.name)
            notes.append(f"pooling {pooling} in place of the model's own {was}")
        model.eval()
        poolings.check_end_token(model, source.name)
        poolings.check_padding(model, source.name)
        found = precision.resolve(wanted, inference.capability_of(model.device))
        if found == "bfloat16":
            for first in {id(modules[0]): modules[0] for modules in poolings.chains(model).values()}.values():
                first.to(torch.bfloat16)
                first.register_forward_hook(_as_float32)
        encoder = cls(model, source, found)
        encoder.created, encoder.notes, encoder.pooled = created, notes, pooling if pooling and changed else ""
        return encoder

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.model.device

    @property
    def gpu(self) -> torch.device | None:
        """Where the model computes, if that is no CPU."""
        return None if self.device.type == "cpu" else self.device

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability of the GPU the model is on, None on a CPU."""
        return inference.capability_of(self.device)

    @property
    def similarity(self) -> Literal["cosine", "dot"]:
        """The model's own similarity; distances (euclidean, manhattan) are refused with EmbedtrainError."""
        name = self.model.similarity_fn_name
        if name not in ("cosine", "dot"):
            raise EmbedtrainError(f"model {self.source.name} compares by {name}; cosine and dot are supported")
        return name

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.model.get_embedding_dimension() or 0)

    @property
    def max_length(self) -> int:
        """Tokens of a text the model reads, whatever its role."""
        return max(self.limit("query"), self.limit("document"))

    def input_module(self, role: Role) -> Any:
        """The module that tokenises texts of a role and computes their token vectors; two towers have two."""
        return poolings.chains(self.model)[role][0]

    def limit(self, role: Role) -> int:
        """Tokens of a text of a role the model reads: its own limit, and the role's where it was saved with one.

        sentence-transformers' encode_query and encode_document apply both; its encode, which knows of no role, the
        first.
        """
        module = self.input_module(role)
        limits = (getattr(module, "max_seq_length", None), getattr(module, f"{role}_length", None))
        return min((int(limit) for limit in limits if limit and math.isfinite(limit)), default=UNLIMITED)

    @property
    def shape(self) -> tuple[int, int]:
        """Size of a token's vector inside the model, and the number of layers."""
        settings = getattr(getattr(self.input_module("document"), "model", None), "config", None)
        size = getattr(settings, "hidden_size", None) or self.dimension or 384
        return int(size), int(getattr(settings, "num_hidden_layers", None) or 1)

    def set_prompts(self, query: str | None, document: str | None) -> None:
        """Give the model other prompts (None: leave as they are); they are saved with it."""
        prompts = self.model.prompts
        if query is not None:
            prompts["query"] = query
        if document is not None:
            prompts["document"] = document
        default = prompts.get(self.model.default_prompt_name or "")
        named = next((prompts[name] for name in _DOCUMENT_PROMPTS if name in prompts), default)
        self.prompts: dict[str, str] = {"query": prompts.get("query", default) or "", "document": named or ""}

    def token_lengths(self, texts: Sequence[str], role: Role) -> np.ndarray:
        """Tokens of each text with its prompt, whatever the limit. (n,) int64"""
        tokenizer = self.input_module(role).tokenizer
        lengths: list[int] = []
        for start in range(0, len(texts), inference.TOKENISED_AT_ONCE):
            prompted = [self.prompts[role] + text for text in texts[start : start + inference.TOKENISED_AT_ONCE]]
            if tokenizer is None:
                lengths += [len(text.split()) for text in prompted]
            elif hasattr(tokenizer, "encode_batch"):  # a static model holds the bare Rust tokenizer
                lengths += [len(item.ids) for item in tokenizer.encode_batch(prompted, add_special_tokens=False)]
            else:
                with quiet_loading():
                    lengths += [len(ids) for ids in tokenizer(prompted, truncation=False)["input_ids"]]
        return np.asarray(lengths, dtype=np.int64)

    def features(self, texts: Sequence[str], role: Role, max_length: int | None = None) -> dict[str, Any]:
        """What the model reads of texts: prompts put before them, tokenised, cut to `max_length` where it is given."""
        limits: dict[str, Any] = {"max_length": min(max_length, self.limit(role))} if max_length else {}
        return self.model.preprocess(list(texts), prompt=self.prompts[role] or None, task=role, **limits)

    def forward_features(self, features: dict[str, Any], role: Role) -> torch.Tensor:
        """Vectors (n, d) of features, on the model's device, with gradient where grad mode is on."""
        there = {
            name: value.to(self.device) if isinstance(value, torch.Tensor) else value
            for name, value in features.items()
        }
        return self.model(there, task=role)["sentence_embedding"]

    def forward(
        self, texts: Sequence[str], role: Role, max_length: int | None = None, *, width: int = 0
    ) -> torch.Tensor:
        """Vectors (n, d) of one chunk of texts, on the model's device, with gradient where grad mode is on.

        Texts are padded to the longest of them, or to `width` tokens where that is more.
        """
        return self.forward_features(self.padded(texts, role, max_length, width=width), role)

    def padded(
        self, texts: Sequence[str], role: Role, max_length: int | None = None, *, width: int = 0
    ) -> dict[str, Any]:
        """The features of texts, padded to the longest of them, or to `width` tokens where that is more."""
        features = self.features(texts, role, max_length)
        return inference.widened(features, self.input_module(role).tokenizer, width)

    @property
    def settings(self) -> list[object]:
        """The configuration of the transformer inside, of both where there are two towers; empty where there is none."""
        towers = [self.input_module("query"), self.input_module("document")]
        modules = {id(module): module for module in towers}
        models = (getattr(module, "model", None) for module in modules.values())
        return [settings for model in models if (settings := getattr(model, "config", None)) is not None]

    def identity(self, role: Role) -> dict[str, Any]:
        """Whatever may change the last bits of a vector but its text; pooling is part of the settings."""
        return {
            "kind": "vectors",
            "weights and settings": self.source.sha256,
            "role": role,
            "prompt": self.prompts[role],
            "max_length": self.limit(role),
            "precision": self.precision,
            **({"pooling": self.pooled} if self.pooled else {}),
            **inference.computed_by(self.device),
        }

    def encode(
        self,
        texts: Sequence[str],
        role: Role,
        progress: console.Progress = console.silent,
        *,
        stored: bool = True,
    ) -> Vectors:
        """Vectors (n, d) of texts, in their order; each distinct text is encoded once.

        Texts are read by position, a window at a time. What comes back is read from disk where it is asked for
        (`vectors[start:stop]`); `vectors[:]` is the whole as an array. Vectors come from the store and go to it
        unless `stored` is False (a model still in training has no identity to keep them under): then they are in
        memory.
        """
        return inference.compute(
            texts,
            text_key,
            model=self.model,
            lengths=lambda window: self.token_lengths(window, role),
            limit=self.limit(role),
            tokenise=lambda chunk, width: self.padded(chunk, role, width=width),
            forward=lambda features: self.forward_features(features, role),
            device=self.device,
            settings=self.settings,
            dimension=self.dimension,
            store=VectorStore(self.identity(role), {"model": self.source.name}) if stored else None,
            what=f"encode {'queries' if role == 'query' else 'documents'} with {self.source.name}",
            progress=progress,
        )

    def save(self, folder: Path) -> None:
        """Save in the form that `SentenceTransformer(path)` loads, prompts included, weights as safetensors."""
        if any(".lora_A." in name for name, _ in self.model.named_parameters()):
            raise ValueError("the LoRA matrices are not merged: such a folder would not load plainly")
        with quiet_loading():
            self.model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
