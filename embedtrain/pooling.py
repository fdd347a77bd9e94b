"""How token vectors become one vector: found, changed and checked in a model, and added to a raw checkpoint."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import TRANSFORMER_TASK_DEFAULTS
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Router, Transformer
from tokenizers import processors
from torch import nn
from transformers import AutoTokenizer
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from embedtrain.errors import EmbedtrainError, UsageError

AUTO = "auto"
POOLINGS = (AUTO, "mean", "cls", "lasttoken", "weightedmean", "max")

# Tokens of the text that shows whether truncation keeps the end token: more words than any prompt leaves room for.
_CUT = 10
_LONG = "word " * 30

# Cosine of one text's vectors at two widths from which they count as one.
_SAME = 0.999


def check_pooling(name: str) -> str:
    """`name`, if it is a pooling that can be asked for; else UsageError."""
    if name not in POOLINGS:
        raise UsageError(f"--pooling {name}: {', '.join(POOLINGS)} are the choices")
    return name


def chains(model: SentenceTransformer) -> dict[str, list[nn.Module]]:
    """The modules a text of each role passes through, in order; those of a model without routes are the same."""
    first, rest = model[0], list(model)[1:]
    if not isinstance(first, Router):
        return {role: [first, *rest] for role in ("query", "document")}
    routes = {role: str(first._resolve_route(task=role, modality="text")) for role in ("query", "document")}
    return {role: [*first.sub_modules[route].children(), *rest] for role, route in routes.items()}


def _each(model: SentenceTransformer) -> Iterator[tuple[Any, list[Pooling]]]:
    """Every input module once, with the poolings behind it."""
    seen: set[int] = set()
    for modules in chains(model).values():
        if id(modules[0]) not in seen:
            seen.add(id(modules[0]))
            yield modules[0], [module for module in modules if isinstance(module, Pooling)]


def found(model: SentenceTransformer) -> dict[str, str]:
    """The pooling of each role: a mode, several joined by +, or none where the model pools by itself."""
    names: dict[str, str] = {}
    for role, modules in chains(model).items():
        modes: list[str] = []
        for module in modules:
            if isinstance(module, Pooling):
                own = module.pooling_mode
                modes += [own] if isinstance(own, str) else list(own)
        names[role] = "+".join(modes) or "none"
    return names


def override(model: SentenceTransformer, mode: str, name: str) -> None:
    """Pool by `mode` (not auto) from now on; saved with the model.

    Raises UsageError where the model has no pooling, or what follows it expects vectors of another length.
    """
    places = [module for module in model.modules() if isinstance(module, Pooling)]
    if not places:
        raise UsageError(f"--pooling {mode}: model {name} has no pooling that could be changed; leave it out")
    for place in places:
        wide = place.pooling_output_dimension
        if wide != place.embedding_dimension and any(isinstance(module, Dense) for module in model.modules()):
            raise UsageError(
                f"--pooling {mode}: model {name} pools in several ways at once ({wide} numbers), which its dense "
                "layer expects; leave --pooling out"
            )
        place.pooling_mode = mode
        place.pooling_output_dimension = place.embedding_dimension


def _last_ids(tokenizer: Any) -> tuple[int, int]:
    """The last token of a short text and of one that is cut."""
    short = tokenizer("three short words")["input_ids"]
    long = tokenizer(_LONG, truncation=True, max_length=_CUT)["input_ids"]
    return (short[-1] if short else -1), (long[-1] if long else -1)


def _keeps_end(tokenizer: Any) -> bool:
    short, long = _last_ids(tokenizer)
    special = set(tokenizer.all_special_ids)
    special |= {i for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items() if token.special}
    return short == long and short in special


def check_end_token(model: SentenceTransformer, name: str) -> None:
    """Raise EmbedtrainError where the last token is pooled and the tokenizer ends texts, cut ones too, with a word.

    The end token need not be the tokenizer's eos_token (Qwen3-Embedding ends with <|endoftext|>), but one that is no
    word.
    """
    for module, poolings in _each(model):
        pooled = any("lasttoken" in pooling.get_config_dict()["pooling_mode"] for pooling in poolings)
        tokenizer = module.tokenizer if isinstance(module, Transformer) else None
        if pooled and tokenizer is not None and not _keeps_end(tokenizer):
            raise EmbedtrainError(
                f"model {name} pools the last token, and its tokenizer ends a text (or one that is cut) with a word "
                "instead of an end token; give the tokenizer a template that adds one, or another --pooling"
            )


def check_padding(model: SentenceTransformer, name: str) -> None:
    """Raise EmbedtrainError where a text's vector depends on how far it is padded on the left.

    Padding there moves the words, which a model notices that counts positions from the left and learned a vector for
    each (BERT, GPT-2). Some such models count from the first word, so two forward passes of five tokens decide.
    """
    for module, _ in _each(model):
        tokenizer: Any = module.tokenizer if isinstance(module, Transformer) else None
        if getattr(tokenizer, "padding_side", "right") != "left":
            continue
        inner = module.model
        learned = ("position_embeddings", "wpe", "embed_positions")
        if not any(part.endswith(learned) for part, _ in inner.named_modules()):
            continue
        training = inner.training
        inner.eval()
        try:
            with torch.no_grad():
                rows = []
                for padding in ({}, {"padding": "max_length", "max_length": 8}):
                    features = tokenizer(["a b"], return_tensors="pt", truncation=True, **padding).to(inner.device)
                    rows.append(inner(**features).last_hidden_state[0, -1].float())
        finally:
            inner.train(training)
        if float(torch.nn.functional.cosine_similarity(rows[0], rows[1], dim=0)) < _SAME:
            raise EmbedtrainError(
                f"the tokenizer of {name} pads on the left, where its learned positions would move with the padding; "
                'set "padding_side": "right" in its tokenizer_config.json'
            )


def is_decoder(config: Any) -> bool:
    """Whether an architecture reads left to right only: there is a causal language model of it and no masked one."""
    kind = config.model_type
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return causal and getattr(config, "is_causal", None) is not False


class _Recording(Transformer):
    """A Transformer that keeps the names of the weights its checkpoint does not hold."""

    created: tuple[str, ...] = ()

    def _load_model(self, *args: Any, **kwargs: Any) -> Any:
        loaded: Any = super()._load_model(*args, output_loading_info=True, **kwargs)
        self.created = tuple(sorted(loaded[1]["missing_keys"]))
        return loaded[0]


def from_raw(
    path: Path, mode: str, name: str, *, device: str, seed: int
) -> tuple[SentenceTransformer, tuple[str, ...], list[str]]:
    """A bi-encoder of a checkpoint without modules.json: model, names of random weights, what was done in sentences.

    `mode` auto is the mean of an encoder's tokens and the last token of a decoder, as both families are trained. A
    decoder's tokenizer gets an end token where it adds none, since there is nothing else for it to be read from.
    Random weights come from `seed`.
    """
    shared = {"local_files_only": True}
    # Plain texts: a chat template would wrap every text in a conversation.
    modalities, output = TRANSFORMER_TASK_DEFAULTS["feature-extraction"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = _Recording(
            str(path),
            model_kwargs=dict(shared),
            processor_kwargs=dict(shared),
            config_kwargs=dict(shared),
            modality_config=dict(modalities),
            module_output_name=output,
        )
    created = transformer.created
    del transformer.created
    transformer.__class__ = Transformer  # what is saved and loaded is the library's own module
    decoder = is_decoder(transformer.config)
    chosen = mode if mode != AUTO else "lasttoken" if decoder else "mean"
    why = "" if mode != AUTO else f", as is usual for {'a decoder' if decoder else 'an encoder'}"
    notes = [
        f"{name} is a checkpoint without pooling and without contrastive training: pooling {chosen} added{why}"
    ]
    notes += _ready(transformer, chosen, name)
    if created:
        shown = ", ".join(created[:4]) + (", ..." if len(created) > 4 else "")
        notes.append(f"{len(created)} weights are not in {name} and start random (seed {seed}): {shown}")
    pooling = Pooling(transformer.get_embedding_dimension(), chosen)
    return SentenceTransformer(modules=[transformer, pooling], device=device), created, notes


def _ready(transformer: Transformer, mode: str, name: str) -> list[str]:
    """Give a raw tokenizer what batches and the last token need; says what."""
    tokenizer: Any = transformer.tokenizer
    if tokenizer is None:
        raise EmbedtrainError(f"model {name} has no tokenizer; give a model that reads texts")
    notes = []
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise EmbedtrainError(f"the tokenizer of {name} has neither a padding nor an end token; give it one")
        tokenizer.pad_token = tokenizer.eos_token
        notes.append(f"the tokenizer has no padding token: {tokenizer.eos_token} pads (and is masked)")
    # Where positions are absolute (GPT-2), padding on the left would move the words.
    tokenizer.padding_side = "right"
    if mode == "lasttoken" and not _keeps_end(tokenizer):
        _add_end(tokenizer, name)
        notes.append(f"the tokenizer ends a text with a word: {tokenizer.eos_token} is added as its end token")
    return notes


def _add_end(tokenizer: Any, name: str) -> None:
    """Make the end token the last of every text, cut or not, also after saving and loading; else EmbedtrainError."""
    refusal = EmbedtrainError(
        f"the tokenizer of {name} ends a text with a word and cannot be given an end token, which pooling the last "
        "token needs; use --pooling mean"
    )
    end, backend = tokenizer.eos_token, getattr(tokenizer, "backend_tokenizer", None)
    if end is None or backend is None:
        raise refusal
    before, plain = backend.post_processor, tokenizer("three short words")["input_ids"]
    template = processors.TemplateProcessing(
        # A start token put there by the processor before this one is the first of two pieces.
        single=["$A", end],
        pair=["$A", "$B:0", end],
        special_tokens=[(end, tokenizer.eos_token_id)],
    )
    backend.post_processor = template if before is None else processors.Sequence([before, template])
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        again = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for one in (tokenizer, again):
        if one("three short words")["input_ids"] != [*plain, tokenizer.eos_token_id] or not _keeps_end(one):
            raise refusal
