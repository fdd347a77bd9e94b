"""`pretrain` and `finetune`: rows into steps of one bi-encoder, and the tuned model onto disk."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedtrain import atomic, batching, card, chunks, console, gradcache, loop, losses, search
from embedtrain.artifacts import Claim
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.config import FinetuneOptions, PretrainOptions, TrainOptions
from embedtrain.encoder import Encoder, Role, token_budget
from embedtrain.errors import EmbedtrainError
from embedtrain.metrics import answerable, score_run
from embedtrain.mined import MinedRow, read_mined
from embedtrain.models import find_model
from embedtrain.negatives import normalised

DEV_MEASURE = "nDCG@10"


@dataclasses.dataclass(frozen=True)
class _TextChunk:
    """Texts of one role that pass through the model together, and their places among all of that role."""

    role: Role
    texts: list[str]
    places: np.ndarray


class _Steps:
    """Turns a step number into gradients: batch, unique texts, chunks by length, loss over the whole batch."""

    def __init__(
        self,
        encoder: Encoder,
        collection: Collection,
        rows: list[Row],
        options: TrainOptions,
        weights: dict[str, float],
        *,
        negatives: int,
        teacher_temperature: float = 1.0,
    ) -> None:
        self._encoder = encoder
        self._collection = collection
        self._rows = rows
        self._options = options
        self._weights = weights
        self._negatives = negatives
        self._teacher_temperature = teacher_temperature
        self._groups: dict[str, int] = {}
        self._group_of: dict[str, int] = {}
        self._order: tuple[int, list[np.ndarray]] | None = None
        self._normalize = encoder.similarity == "cosine"
        settings = encoder.model.config
        self._graph_tokens = loop.graph_tokens(
            getattr(settings, "hidden_size", None) or encoder.dimension or 384,
            getattr(settings, "num_hidden_layers", None) or 1,
            encoder.device,
        )
        self.per_epoch = batching.steps_per_epoch(len(rows), options.batch_size)
        self.without_negatives = self.documents = self.documents_cut = 0

    def _group(self, document: str) -> int:
        if document not in self._group_of:
            text = normalised(self._collection.corpus.by_id(document))
            self._group_of[document] = self._groups.setdefault(text, len(self._groups))
        return self._group_of[document]

    def _members(self, epoch: int, step: int) -> np.ndarray:
        if self._order is None or self._order[0] != epoch:
            order = batching.epoch_order(len(self._rows), self._options.batch_size, self._options.seed, epoch)
            self._order = (epoch, order)
        return self._order[1][step]

    def _cut(self, texts: list[str], role: Role, limit: int) -> tuple[list[_TextChunk], int]:
        limit = min(limit, self._encoder.max_length)
        found = self._encoder.token_lengths(texts, role)
        lengths = np.minimum(found, limit)
        if role == "document":
            self.documents += len(found)
            self.documents_cut += int((found > limit).sum())
        cut = chunks.by_length(lengths, token_budget(self._encoder.device))
        return [_TextChunk(role, [texts[i] for i in places], places) for places in cut], int(lengths.sum())

    def _encode(self, chunk: _TextChunk) -> Tensor:
        query = chunk.role == "query"
        limit = self._options.max_query_length if query else self._options.max_document_length
        vectors = self._encoder.forward(chunk.texts, chunk.role, min(limit, self._encoder.max_length))
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalize else vectors

    def __call__(self, epoch: int, step: int, backward: Any) -> tuple[Tensor, dict[str, float]]:
        batch = batching.make_batch(
            self._rows,
            self._members(epoch, step),
            negatives=self._negatives,
            seed=self._options.seed,
            epoch=epoch,
            group=self._group,
        )
        self.without_negatives += batch.without_negatives
        corpus, queries = self._collection.corpus, self._collection.queries
        query_chunks, query_tokens = self._cut(
            [queries.by_id(i) for i in batch.queries], "query", self._options.max_query_length
        )
        document_chunks, document_tokens = self._cut(
            [corpus.by_id(i) for i in batch.documents], "document", self._options.max_document_length
        )
        parts: dict[str, float] = {}

        def loss(outputs: list[Tensor]) -> Tensor:
            query_vectors = _in_order(outputs[: len(query_chunks)], query_chunks)
            document_vectors = _in_order(outputs[len(query_chunks) :], document_chunks)
            device = query_vectors.device
            values = losses.combined(
                self._weights,
                query_vectors,
                document_vectors[torch.from_numpy(batch.columns).to(device)],
                torch.from_numpy(batch.mask).to(device),
                torch.from_numpy(batch.present).to(device),
                None if batch.teacher is None else torch.from_numpy(batch.teacher).to(device),
                temperature=self._options.temperature,
                teacher_temperature=self._teacher_temperature,
            )
            parts.update({name: float(value.detach()) for name, value in values.items()})
            return torch.stack([self._weights[name] * value for name, value in values.items()]).sum()

        value = gradcache.step(
            self._encode,
            [*query_chunks, *document_chunks],
            loss,
            device=self._encoder.device,
            cached=query_tokens + document_tokens > self._graph_tokens,
            backward=backward,
        )
        numbers = {"rows": len(batch.queries), "tokens": query_tokens + document_tokens}
        return value, numbers | (parts if len(parts) > 1 else {})


def _in_order(outputs: list[Tensor], cut: list[_TextChunk]) -> Tensor:
    """Join the outputs of chunks and put their rows back in the order of the texts."""
    places = torch.from_numpy(np.concatenate([chunk.places for chunk in cut]))
    return torch.cat(outputs)[torch.argsort(places).to(outputs[0].device)]


class _Dev:
    """nDCG@10 of the model in training on a dev split, over the whole corpus."""

    def __init__(self, encoder: Encoder, collection: Collection, split: str, progress: console.Progress) -> None:
        self._encoder = encoder
        self._collection = collection
        self._qrels = answerable(collection.qrels(split))
        self._progress = progress

    def __call__(self) -> float:
        corpus, queries = self._collection.corpus, self._collection.queries
        ids = list(self._qrels)
        query_vectors = self._encoder.encode([queries.by_id(i) for i in ids], "query", stored=False)
        vectors = self._encoder.encode(corpus.texts(), "document", self._progress, stored=False)
        hits = search.dense(query_vectors, vectors, corpus.ids, 10, similarity=self._encoder.similarity)
        return float(np.mean(score_run(hits, corpus.ids, self._qrels, DEV_MEASURE)))


def _train(
    claim: Claim,
    options: TrainOptions,
    collection: Collection,
    rows: list[Row],
    encoder: Encoder,
    weights: dict[str, float],
    dropped: dict[str, int],
    progress: console.Progress,
    *,
    negatives: int = 0,
    teacher_temperature: float = 1.0,
    dev_split: str = "",
) -> None:
    if len(rows) < 2:
        raise EmbedtrainError(f"{len(rows)} rows to train on; contrastive training needs two at least")
    encoder.set_prompts(options.query_prompt, options.document_prompt)
    loop.set_dropout(encoder.model, options.dropout)
    steps = _Steps(
        encoder,
        collection,
        rows,
        options,
        weights,
        negatives=negatives,
        teacher_temperature=teacher_temperature,
    )
    curve = loop.run(
        encoder.model,
        steps,
        options,
        what=claim.stage,
        steps_per_epoch=steps.per_epoch,
        workspace=claim.workspace,
        progress=progress,
        after_epoch=_Dev(encoder, collection, dev_split, progress) if dev_split else None,
    )
    summary: dict[str, Any] = {
        "rows": len(rows),
        "steps": len(curve.steps),
        "loss": ",".join(f"{name}:{weight:g}" for name, weight in weights.items()),
        "first_loss": round(curve.first_loss, 6),
        "last_loss": round(curve.last_loss, 6),
        "documents_cut_in_training": f"{steps.documents_cut / max(1, steps.documents):.1%} at {options.max_document_length} tokens",
    }
    if steps.without_negatives:
        summary["rows_without_any_negative"] = steps.without_negatives
    if curve.best_epoch is not None:
        summary["dev_ndcg"] = {f"epoch {n + 1}": round(value, 4) for n, value in enumerate(curve.dev)}
        summary["kept_epoch"] = curve.best_epoch + 1
    with atomic.atomic_folder(claim.out) as folder:
        encoder.save(folder)
        curve.write(folder / "metrics.jsonl")
        (folder / "README.md").write_text(card.model_card(claim, summary), encoding="utf-8")
        claim.write_folder(folder, rows=len(rows), dropped=dropped, summary=summary)


def pretrain(
    claim: Claim, options: PretrainOptions, collection_path: Path, model: str, progress: console.Progress
) -> None:
    """Train on every (query, positive) of a split with in-batch negatives; write a model folder."""
    collection = Collection(collection_path)
    positives = collection.positives(options.split)
    rows = [Row(query, tuple(documents)) for query, documents in positives.items()]
    dropped = {} if options.limit is None else {"over --limit": max(0, len(rows) - options.limit)}
    encoder = Encoder.load(find_model(model))
    _train(claim, options, collection, rows[: options.limit], encoder, {"infonce": 1.0}, dropped, progress)


def _row(mined: MinedRow) -> Row:
    """A training row of a mined or scored one; what the teacher called no negative is none in any batch."""
    teacher = None
    not_negatives: tuple[str, ...] = ()
    if mined.positive_teacher is not None and mined.candidate_teacher is not None:
        scores = zip(
            [*mined.positive_ids, *mined.candidate_ids],
            [*mined.positive_teacher, *mined.candidate_teacher],
            strict=True,
        )
        teacher = {document: score for document, score in scores if score is not None}
        judged = zip(mined.candidate_ids, mined.verdict or [], strict=True)
        not_negatives = tuple(document for document, verdict in judged if verdict in ("drop", "promote"))
    return Row(mined.query_id, tuple(mined.positive_ids), tuple(mined.negatives), not_negatives, teacher)


def finetune(
    claim: Claim,
    options: FinetuneOptions,
    mined_path: Path,
    collection_path: Path,
    model: str,
    progress: console.Progress,
) -> None:
    """Train on the rows of a mined or scored artifact; write a model folder."""
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    dropped = {} if options.limit is None else {"over --limit": max(0, len(mined) - options.limit)}
    rows = [_row(row) for row in mined[: options.limit]]
    scored = bool(rows) and all(row.teacher is not None for row in rows)
    weights = losses.parse(options.loss or ("infonce:0.2,kl:1.0" if scored else "infonce"))
    wanting = [name for name in weights if name in losses.NEEDS_TEACHER]
    if wanting and not scored:
        raise EmbedtrainError(
            f"--loss {wanting[0]} needs a teacher's scores and {mined_path} has none; "
            "score it with: embedtrain score-teacher"
        )
    encoder = Encoder.load(find_model(model))
    _train(
        claim,
        options,
        collection,
        rows,
        encoder,
        weights,
        dropped,
        progress,
        negatives=options.negatives,
        teacher_temperature=options.teacher_temperature,
        dev_split=options.dev_split,
    )
