"""What is done to a model before it is trained: two towers, LoRA, frozen layers, recomputed layers; and its looks."""

import copy
import dataclasses
import importlib.util
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Router, StaticEmbedding, Transformer
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from embedtrain import pooling
from embedtrain.encoder import UNLIMITED, Encoder, Role
from embedtrain.errors import EmbedtrainError, UsageError


def is_static(encoder: Encoder) -> bool:
    """Whether every role is a table of token vectors (StaticEmbedding), with nothing computed in context."""
    return all(isinstance(modules[0], StaticEmbedding) for modules in pooling.chains(encoder.model).values())


def describe(encoder: Encoder) -> dict[str, str]:
    """What decides how a text becomes a vector, for printing: one line each, roles apart only where they differ."""
    chains = pooling.chains(encoder.model)
    roles: tuple[Role, Role] = ("query", "document")
    limits = {r: "none" if (n := encoder.limit(r)) == UNLIMITED else f"{n:,} tokens" for r in roles}
    apart: dict[str, dict[Any, str]] = {
        "pooling": {r: "mean" if is_static(encoder) else p for r, p in pooling.found(encoder.model).items()},
        "normalised": {r: "yes" if any(isinstance(m, Normalize) for m in c) else "no" for r, c in chains.items()},
        "length limit": {**limits},
    }
    lines: dict[str, str] = {"towers": "one" if chains["query"][0] is chains["document"][0] else "two"}
    for name, values in apart.items():
        same = values["query"] == values["document"]
        lines |= {name: values["query"]} if same else {f"{role} {name}": value for role, value in values.items()}
    lines |= {"compared by": encoder.similarity, "dimension": f"{encoder.dimension:,}"}
    return lines | {f"{role} prompt": repr(prompt) for role, prompt in encoder.prompts.items()}


def rebuilt(encoder: Encoder, modules: list[Any]) -> Encoder:
    """The encoder with other modules; prompts, similarity, and what was done to it before stay."""
    model = encoder.model
    made = SentenceTransformer(
        modules=modules,
        device=str(encoder.device),
        prompts={name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
    )
    made.train(model.training)
    other = Encoder(made, encoder.source, encoder.precision)
    other.created, other.notes, other.pooled = encoder.created, list(encoder.notes), encoder.pooled
    return other


def two_towers(encoder: Encoder) -> Encoder:
    """Queries and documents through weights of their own, both copies of the model's (sentence-transformers' Router).

    It is saved and loaded as any model, prompts and limits included; a text of no role goes the document's way.
    Raises UsageError where there are routes already. Freeze, and add LoRA, afterwards.
    """
    model = encoder.model
    if isinstance(model[0], Router):
        raise UsageError(f"--two-towers: model {encoder.source.name} has routes already; leave the flag out")
    document: list[Any] = list(model)
    query = copy.deepcopy(document)
    return rebuilt(encoder, [Router.for_query_document(query, document, default_route="document")])


def _transformers(encoder: Encoder, flag: str) -> list[Any]:
    """The transformers models of the towers, each once; UsageError for a model without one."""
    found = [module.model for module in encoder.model.modules() if isinstance(module, Transformer)]
    if not found:
        raise UsageError(f"{flag}: model {encoder.source.name} has no transformer layers; leave the flag out")
    return found


def _layers(backbone: nn.Module) -> nn.ModuleList:
    """The stack of layers: the longest list of modules, at the top of which stands the first layer."""
    lists = [module for module in backbone.modules() if isinstance(module, nn.ModuleList)]
    count = getattr(getattr(backbone, "config", None), "num_hidden_layers", None)
    exact = [module for module in lists if len(module) == count]
    if not exact:
        raise EmbedtrainError(
            f"the layers of {type(backbone).__name__} are not known, so none can be frozen; use --freeze embeddings"
        )
    return exact[0]


@dataclasses.dataclass(frozen=True)
class Trained:
    """How many of a model's parameters are trained."""

    trained: int
    total: int
    what: str

    def __str__(self) -> str:
        return f"{self.what}: {self.trained:,} of {self.total:,} parameters are trained"

    @classmethod
    def of(cls, encoder: Encoder, what: str) -> "Trained":
        """Count what `encoder` trains now."""
        parameters = list(encoder.model.parameters())
        return cls(sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters), what)


def freeze(encoder: Encoder, what: str | int) -> Trained:
    """Keep the embeddings ("embeddings", or 0), or them and the first N layers, as they are; says what is trained.

    The embeddings are frozen with any layer: what lies before a frozen layer would be trained through it. Raises
    UsageError for a number of layers there is not, EmbedtrainError where the layers are not known.
    """
    flag = f"--freeze {what}"
    if not (what == "embeddings" or str(what).isdecimal()):
        raise UsageError(f"{flag}: give embeddings, or the number of layers to freeze, counted from the first")
    count = 0 if what == "embeddings" else int(what)
    for backbone in _transformers(encoder, flag):
        frozen: list[nn.Module] = [getattr(backbone, "embeddings", None) or backbone.get_input_embeddings()]
        # Absolute positions of a GPT-2 stand beside the embeddings of words.
        frozen += [
            part for name in ("wpe", "embed_positions") if (part := getattr(backbone, name, None)) is not None
        ]
        if count:
            layers = _layers(backbone)
            if count >= len(layers):
                raise UsageError(
                    f"{flag}: model {encoder.source.name} has {len(layers)} layers and one at least is trained; give fewer"
                )
            frozen += list(layers)[:count]
        for module in frozen:
            module.requires_grad_(False)
    layers_too = f" and the first {count} layers" if count else ""
    return Trained.of(encoder, f"embeddings{layers_too} frozen")


class _Recomputed:
    """A layer's forward that keeps its input alone and computes the rest again on the way back (Chen et al. 2016).

    Non-reentrant, so that it works inside gradient caching and with frozen layers before it. transformers' own switch
    works in training mode only, and training without dropout is in evaluation mode here.
    """

    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            return checkpoint(self.forward, *args, use_reentrant=False, **kwargs)
        return self.forward(*args, **kwargs)


def gradient_checkpointing(encoder: Encoder) -> int:
    """Recompute each layer in the backward pass instead of keeping its inner values; the number of layers.

    The random state is kept for each layer, so dropout is the same both times. Call it after `two_towers` and
    `add_lora`. Raises EmbedtrainError where the model's layers do not lend themselves to it.
    """
    count = 0
    for backbone in _transformers(encoder, "--gradient-checkpointing"):
        layers = [module for module in backbone.modules() if isinstance(module, GradientCheckpointingLayer)]
        if not layers:
            raise EmbedtrainError(
                f"--gradient-checkpointing: the layers of {type(backbone).__name__} cannot be computed again one by "
                "one; leave the flag out"
            )
        for layer in layers:
            if not isinstance(layer.forward, _Recomputed):
                layer.forward = _Recomputed(layer.forward)
        count += len(layers)
    return count


class Lora:
    """The low-rank matrices beside a model's linear layers; they are trained, and merged before it is saved."""

    def __init__(self, tuners: list[Any], trained: Trained) -> None:
        self._tuners = tuners
        self.trained = trained

    def merge(self) -> None:
        """Add the matrices into the weights they stand beside: from here on the model is a plain one, for saving."""
        for tuner in self._tuners:
            tuner.merge_and_unload()
        self._tuners = []


def add_lora(
    encoder: Encoder, rank: int = 16, alpha: float = 32.0, *, dropout: float = 0.0, seed: int = 0
) -> Lora:
    """Train low-rank matrices beside every linear layer of the transformer, and nothing else (Hu et al. 2021).

    A weight W becomes W + alpha/rank * B A, B (out, rank) of zeros, A (rank, in) random from `seed`: training starts
    from the model as it is. All linear layers, as QLoRA found it to be needed to match full training (Dettmers et
    al. 2023, section 4); the unused pooler of BERT is left out. Raises UsageError where peft is missing.
    """
    if importlib.util.find_spec("peft") is None:
        raise UsageError("--lora needs peft; install it with: pip install embedtrain[lora]")
    if rank < 1:
        raise UsageError(f"--lora {rank}: give a rank of 1 or more")
    from peft import LoraConfig, LoraModel

    backbones = _transformers(encoder, "--lora")
    scale: Any = alpha  # declared a whole number there, and divided by the rank
    encoder.model.requires_grad_(False)
    tuners = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for backbone in backbones:
            pooler = any("pooler" in name for name, _ in backbone.named_modules())
            settings = LoraConfig(
                r=rank,
                lora_alpha=scale,
                lora_dropout=dropout,
                target_modules="all-linear",
                exclude_modules=r".*pooler.*" if pooler else None,
                bias="none",
            )
            # The layers are put into the model itself; the wrapper only knows how to merge them.
            tuners.append(LoraModel(backbone, settings, "default"))
    return Lora(tuners, Trained.of(encoder, f"LoRA of rank {rank}, alpha {alpha:g}"))
