"""The model as it is trained: loaded, pooled, doubled, partly frozen, as the options want it, and what follows for them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from embedtrain import backbone, export, loop, losses, static
from embedtrain.config import TrainOptions, learning_rate_for, temperature_for
from embedtrain.encoder import Encoder
from embedtrain.errors import UsageError
from embedtrain.models import find_encoder, is_raw


@dataclasses.dataclass
class Trainable:
    """A model ready to be trained, with what was done to it in `notes`."""

    encoder: Encoder
    raw: bool  # it had no contrastive training
    lora: backbone.Lora | None
    notes: list[str]

    @classmethod
    def load(
        cls,
        model: str,
        options: TrainOptions,
        device: torch.device | None,
        *,
        project: Callable[[Encoder], Encoder] | None = None,
        remember: Callable[[Encoder], None],
    ) -> "Trainable":
        """Load `model` (folder, hub name, or a text file of word vectors).

        `project` puts another space behind it; `remember` sees the weights that training starts from.
        """
        encoder, raw = _encoder(model, options, device)
        encoder.set_prompts(options.query_prompt, options.document_prompt)
        if project is not None:
            encoder = project(encoder)
        if options.two_towers:
            encoder = backbone.two_towers(encoder)
        if options.lora and options.freeze:
            raise UsageError("--lora trains its own matrices alone; leave --freeze out")
        if options.export not in ("", "onnx"):
            raise UsageError(f"--export {options.export}: onnx is the one there is")
        if options.export:
            export.check_export(encoder)
        notes = list(encoder.notes)
        if encoder.created:
            named = ", ".join(encoder.created[:3])
            notes.append(f"{len(encoder.created)} weights were not in the checkpoint and start random: {named}")
        remember(encoder)
        lora = backbone.add_lora(encoder, options.lora, seed=options.seed) if options.lora else None
        if lora:
            notes.append(str(lora.trained))
        if options.freeze:
            notes.append(str(backbone.freeze(encoder, options.freeze)))
        if options.gradient_checkpointing:
            backbone.gradient_checkpointing(encoder)
        loop.set_dropout(encoder.model, options.dropout)
        return cls(encoder, raw, lora, notes)

    def resolved(self, options: TrainOptions, stage: str) -> TrainOptions:
        """The options with what depends on the model and the stage filled in."""
        model, on_gpu = self.encoder.model, self.encoder.gpu is not None
        tables = [module for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
        size = sum(p.numel() for p in model.parameters()) - sum(t.weight.numel() for t in tables)
        temperature, rate = options.temperature, options.learning_rate
        if temperature is None:
            temperature = temperature_for(stage, options.batch_size, on_gpu=on_gpu)
        if rate is None:
            rate = learning_rate_for(stage, size, raw=self.raw)
        return dataclasses.replace(options, temperature=temperature, learning_rate=rate)

    def settings(self, options: TrainOptions, *, teacher_temperature: float, standardize: bool) -> losses.Settings:
        """The settings of the losses, by resolved options; UsageError for what does not go with the model."""
        dimensions, weights = losses.parse_dimensions(options.matryoshka)
        settings = losses.Settings(
            temperature=options.temperature or 0.0,
            teacher_temperature=teacher_temperature,
            standardize=standardize,
            directions=tuple(options.directions.split(",")),
            joint=options.joint,
            hardness=options.hardness,
            margin=options.margin,
            dimensions=dimensions,
            dimension_weights=weights,
            gor=options.gor,
        )
        settings.fits(self.encoder.dimension)
        if dimensions and self.encoder.similarity != "cosine":
            raise UsageError(
                f"--matryoshka: prefixes are normalised, and model {self.encoder.source.name} compares by dot product; "
                "leave the flag out"
            )
        return settings


def _encoder(model: str, options: TrainOptions, device: torch.device | None) -> tuple[Encoder, bool]:
    """The model, and whether it has had no contrastive training."""
    if Path(model).is_file():
        return static.from_word_vectors(Path(model), device), True
    if options.static:
        return static.from_tokenizer(find_encoder(model, raw=True), options.static, options.seed, device), True
    pooling = options.pooling or None
    source = find_encoder(model, raw=pooling is not None)
    encoder = Encoder.load(source, device, pooling=pooling, seed=options.seed)
    return encoder, is_raw(source)
