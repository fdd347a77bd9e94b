"""One training run of a bi-encoder: its rows into steps, the best of its weights, and the model onto disk."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from embedtrain import (
    allocator,
    backbone,
    batching,
    cautions,
    console,
    dependent,
    gradcache,
    loop,
    losses,
    precision,
    projection,
    rows,
    topics,
    tracking,
)
from embedtrain.artifacts import Claim
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.companion import Companion
from embedtrain.config import TrainOptions
from embedtrain.dev import Measured
from embedtrain.encoder import Encoder, default_device
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mixture import Merge
from embedtrain.models import find_encoder
from embedtrain.outcome import Outcome
from embedtrain.processes import Processes
from embedtrain.rows import Sources
from embedtrain.schedule import Schedule, planned_steps
from embedtrain.steps import Masking, Steps
from embedtrain.trainable import Trainable


@dataclasses.dataclass(frozen=True)
class Work:
    """What a stage brings: its rows, where their texts are, and what is its own of the settings."""

    sources: Sources
    rows: list[Row]
    dropped: dict[str, int]
    weights: dict[str, float]
    negatives: int = 0
    mix: batching.Mix = batching.Mix()  # noqa: RUF009 (frozen)
    mixing: batching.Mixing | None = None
    curriculum: str = "none"
    teacher_temperature: float = 1.0
    standardize: bool = False
    dev_collection: Collection | None = None


@dataclasses.dataclass(frozen=True)
class _Rates:
    """What the loop reads, with a learning rate."""

    learning_rate: float
    warmup: float
    weight_decay: float
    epochs: float
    seed: int


class Tuning:
    """One run: everything that is made once, then the loop, then what is kept."""

    def __init__(
        self, claim: Claim, options: TrainOptions, work: Work, model: str, progress: console.Progress
    ) -> None:
        self._started = time.monotonic()
        self._claim = claim
        self._options = options
        self._work = work
        self._progress = progress
        self._notes: list[str] = []
        if len(work.rows) < 2:
            raise EmbedtrainError(f"{len(work.rows)} rows to train on; contrastive training needs two at least")
        dependent.check(options, work.weights, words=Path(model).is_file())
        if any(name in losses.NEEDS_VECTORS for name in work.weights) and not options.embedding_teacher:
            raise UsageError("the losses cosine and score follow a model's vectors; name it: --embedding-teacher")
        self._merge = Merge.parse(options.merge, options.dev_split)
        self._trackers = tracking.parse(options.track)
        # What is wrong with a split is said before a model is loaded and trained.
        self._measured = self._on(work.dev_collection, options.dev_split)
        guarding = Collection(Path(options.guard)) if options.guard else None
        self._guard = self._on(guarding, options.guard_split if guarding else "")
        self._processes = Processes.join()
        allocator.for_training(self._processes.device or default_device())
        self._trainable = Trainable.load(
            model,
            options,
            self._processes.device,
            project=self._projected if options.project else None,
            remember=self._merge.remember,
        )
        self._encoder = self._trainable.encoder
        self._notes += self._trainable.notes

    def _on(self, collection: Collection | None, split: str) -> Measured | None:
        if collection is None or not split:
            return None
        return Measured(collection, split, self._options.dev_documents, self._options.seed)

    @functools.cached_property
    def _teacher(self) -> Encoder:
        """The bi-encoder whose vectors are followed."""
        return Encoder.load(find_encoder(self._options.embedding_teacher), self._processes.device)

    def _companion(self, encoder: Encoder, found: Sequence[Row]) -> Companion:
        documents = (d for row in found for d in (*row.positives, *row.negatives))
        return Companion(encoder, self._work.sources, (row.query_id for row in found), documents, self._progress)

    def _projected(self, encoder: Encoder) -> Encoder:
        """The model with a layer to the embedding teacher's dimensions."""
        found, note = projection.towards(
            encoder,
            self._teacher,
            self._work.sources,
            self._work.rows,
            self._options.seed,
            self._progress,
            self._processes,
        )
        self._notes.append(note)
        return found

    def _topics(self, found: list[Row]) -> Any:
        if self._options.homogeneous != "topic":
            return None
        source = self._work.sources
        texts = [source.query(row.query_id) for row in found]
        # What is done to the model before training is not in the key of stored vectors.
        vectors = self._encoder.encode(texts, "query", self._progress, stored=False)
        count = self._options.topics or max(2, len(found) // (4 * self._options.batch_size))
        # A last bit may differ between processes, and a topic hang on it.
        return self._processes.same(topics.topics(vectors[:], count, self._options.seed))

    def _steps(self, options: TrainOptions, objective: losses.Objective, found: list[Row]) -> Steps:
        work, encoder = self._work, self._encoder
        groups = work.sources.groups(options.group_column) if options.group_column else None
        self._batcher = batching.Batcher(
            found,
            batch_size=options.batch_size,
            negatives=work.negatives,
            start=batching.stream(options.seed, self._claim.stage),
            text_of=work.sources.document,
            query_text_of=work.sources.query,
            positives=options.positives,
            curriculum=work.curriculum,
            epochs=options.epochs,
            mix=work.mix,
            mixing=work.mixing,
            homogeneous=options.homogeneous,
            topics=self._topics(found),
            separate="supcon" not in work.weights,  # its positives are the rows that share one
            group_of=groups.get if groups is not None else None,
        )
        teacher, guide = None, None
        if options.embedding_teacher:
            if "cosine" in work.weights and self._teacher.dimension != encoder.dimension:
                raise UsageError(losses.unequal(encoder.dimension, self._teacher.dimension))
            teacher = self._companion(self._teacher, found)
        if options.guide:
            guide = self._companion(Encoder.load(find_encoder(options.guide), self._processes.device), found)
        static_model = backbone.is_static(encoder)
        return Steps(
            encoder,
            self._batcher,
            objective,
            texts={"query": work.sources.query, "document": work.sources.document},
            limits={
                "query": None if static_model else options.max_query_length,
                "document": None if static_model else options.max_document_length,
            },
            seed=options.seed,
            graph_tokens=None if static_model else gradcache.graph_tokens(*encoder.shape, encoder.device),
            precision=precision.resolve_training(options.precision, encoder.capability),
            masks=Masking(
                margin=options.mask_margin,
                guide=guide,
                guide_margin=options.guide_margin,
            ),
            teacher_vectors=teacher,
            processes=self._processes,
        )

    def run(self) -> None:
        """Train, keep the best, write the folder."""
        options = self._trainable.resolved(self._options, self._claim.stage)
        found = rows.guard(self._work.rows, self._work.sources)
        if "supcon" in self._work.weights:
            found = rows.labelled(found)
        comparing = [name for name in self._work.weights if name in losses.NEEDS_NEGATIVES]
        if comparing and not any(row.compared for row in found):
            raise EmbedtrainError(
                f"--loss {comparing[0]} compares a positive with negatives of its own row and no row has one; mine some "
                "with: embedtrain mine"
            )
        if self._claim.stage == "finetune" and self._work.negatives and not any(row.compared for row in found):
            self._notes.append("no row has a mined negative: only the other documents of a batch are compared")
        settings = self._trainable.settings(
            options, teacher_temperature=self._work.teacher_temperature, standardize=self._work.standardize
        )
        objective = losses.Objective(self._work.weights, settings, learn_temperature=options.learn_temperature)
        objective.to(self._encoder.device)
        steps = self._steps(options, objective, found)
        self._warn(options, found, steps.per_epoch)
        with tracking.tracked(
            self._trackers if self._processes.main else (), self._claim.out, dataclasses.asdict(options)
        ) as tracker:
            curve = loop.run(
                nn.ModuleDict({"encoder": self._encoder.model, "objective": objective}),
                steps,
                _Rates(
                    options.learning_rate or 0.0,
                    options.warmup,
                    options.weight_decay,
                    options.epochs,
                    options.seed,
                ),
                what=self._claim.stage,
                steps_per_epoch=steps.per_epoch,
                workspace=self._claim.workspace,
                progress=self._progress,
                key=self._claim.key,
                processes=self._processes,
                dev=self._dev(),
                max_minutes=options.max_minutes,
                started=self._started,
                float16=steps.precision == "float16",
                tracker=tracker,
            )
        if self._trainable.lora:
            self._trainable.lora.merge()
        outcome = Outcome(
            options,
            rows=len(found),
            dropped=self._work.dropped,
            weights=self._work.weights,
            precision=steps.precision,
            curve=curve,
            learned=objective.state(),
            first=self._batcher.order(0),
            measured_on=self._measured.said if self._measured else "",
            kept=self._merge.apply(self._encoder, self._measured, self._guard, self._progress, self._processes),
            notes=self._notes,
        )
        if self._processes.main:
            texts = [self._work.sources.document(row.positives[0]) for row in found[:16]]
            outcome.write(self._claim, self._encoder, texts)
        self._processes.wait()

    def _dev(self) -> loop.Dev | None:
        if self._measured is None:
            return None
        measured = self._measured
        return loop.Dev(
            lambda: measured(self._encoder, self._progress),
            patience=self._options.patience,
            after=self._merge.evaluations * (1 if self._guard is None else 2),
        )

    def _warn(self, options: TrainOptions, found: list[Row], per_epoch: int) -> None:
        contrastive = {"infonce", "multi-infonce", "supcon", "siglip"}
        tempered = set(self._work.weights) & {"infonce", "multi-infonce", "supcon"}
        said = cautions.warnings_for(
            pairs=len(found),
            batch_size=options.batch_size,
            negatives=min(self._work.negatives, max((len(row.compared) for row in found), default=0)),
            temperature=options.temperature if tempered else None,
            normalised=self._encoder.similarity == "cosine",
            schedule=Schedule(
                options.learning_rate or 0.0, planned_steps(options.epochs, per_epoch), options.warmup
            ),
            transformer=not backbone.is_static(self._encoder),
            contrastive=bool(contrastive & set(self._work.weights)) and self._work.mix.in_batch,
        )
        if "margin-mse" in self._work.weights and not self._work.standardize:
            reached = cautions.margins(found, options.temperature or 1.0, self._work.teacher_temperature)
            if reached is not None and self._encoder.similarity == "cosine":
                sentence, outside = reached
                (said if outside else self._notes).append(sentence)
        self._notes += [f"warning: {sentence}" for sentence in said]
        if self._processes.main and self._progress is not console.silent:
            for sentence in said:
                console.hint(f"  warning: {sentence}")
