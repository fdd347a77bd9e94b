"""`pretrain` and `finetune`: rows into steps of one bi-encoder, and the tuned model onto disk."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedtrain import atomic, batching, card, chunks, console, gradcache, loop, losses, search
from embedtrain.artifacts import Claim, beyond_limit
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.config import FinetuneOptions, PretrainOptions, TrainOptions
from embedtrain.duplicates import normalised
from embedtrain.encoder import Encoder, Role
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.inference import token_budget
from embedtrain.metrics import score_run
from embedtrain.mined import NOT_NEGATIVE, MinedRow, read_mined
from embedtrain.models import find_model
from embedtrain.negatives import LIKE_A_POSITIVE
from embedtrain.systems import Questions, without_self

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
        stage: str,
        negatives: int,
        teacher_temperature: float = 1.0,
    ) -> None:
        self._encoder = encoder
        self._collection = collection
        self._options = options
        self._weights = weights
        self._teacher_temperature = teacher_temperature
        self._normalize = encoder.similarity == "cosine"
        settings = encoder.model.config
        self._graph_tokens = loop.graph_tokens(
            getattr(settings, "hidden_size", None) or encoder.dimension or 384,
            getattr(settings, "num_hidden_layers", None) or 1,
            encoder.device,
        )
        self._batcher = batching.Batcher(
            rows,
            batch_size=options.batch_size,
            negatives=negatives,
            start=batching.stream(options.seed, stage),
            text_of=collection.corpus.by_id,
        )
        self.per_epoch = self._batcher.per_epoch

    def _cut(self, texts: list[str], role: Role, limit: int) -> tuple[list[_TextChunk], dict[str, int]]:
        limit = min(limit, self._encoder.max_length)
        found = self._encoder.token_lengths(texts, role)
        lengths = np.minimum(found, limit)
        cut = chunks.by_length(lengths, token_budget(self._encoder.device))
        noun = "queries" if role == "query" else "documents"
        counts = {noun: len(texts), f"{noun}_cut": int((found > limit).sum()), "tokens": int(lengths.sum())}
        return [_TextChunk(role, [texts[i] for i in places], places) for places in cut], counts

    def _encode(self, chunk: _TextChunk) -> Tensor:
        query = chunk.role == "query"
        limit = self._options.max_query_length if query else self._options.max_document_length
        vectors = self._encoder.forward(chunk.texts, chunk.role, min(limit, self._encoder.max_length))
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalize else vectors

    def __call__(self, epoch: int, step: int, backward: Any) -> tuple[Tensor, dict[str, float]]:
        batch = self._batcher.batch(epoch, step)
        corpus, queries = self._collection.corpus, self._collection.queries
        query_chunks, query_counts = self._cut(
            [queries.by_id(i) for i in batch.queries], "query", self._options.max_query_length
        )
        document_chunks, document_counts = self._cut(
            [corpus.by_id(i) for i in batch.documents], "document", self._options.max_document_length
        )
        tokens = query_counts["tokens"] + document_counts["tokens"]
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
            cached=tokens > self._graph_tokens,
            backward=backward,
        )
        numbers = query_counts | document_counts | {"tokens": tokens, "no_negatives": batch.without_negatives}
        return value, numbers | (parts if len(parts) > 1 else {})


def _in_order(outputs: list[Tensor], cut: list[_TextChunk]) -> Tensor:
    """Join the outputs of chunks and put their rows back in the order of the texts."""
    places = torch.from_numpy(np.concatenate([chunk.places for chunk in cut]))
    return torch.cat(outputs)[torch.argsort(places).to(outputs[0].device)]


class _Dev:
    """nDCG@10 of the model in training on a dev split, over the whole corpus, as `eval` measures it."""

    def __init__(self, encoder: Encoder, collection: Collection, split: str, progress: console.Progress) -> None:
        self._encoder = encoder
        self._collection = collection
        self._questions = Questions.of(collection, split, None)
        self._progress = progress

    def __call__(self) -> float:
        corpus, questions = self._collection.corpus, self._questions
        queries = self._encoder.encode(questions.texts, "query", stored=False)
        documents = self._encoder.encode(corpus, "document", self._progress, stored=False)
        found = search.dense(
            queries, documents, corpus.ids, 11, similarity=self._encoder.similarity, device=self._encoder.gpu
        )
        hits, _ = without_self(found, questions, corpus.ids, 10)
        return float(np.mean(score_run(hits, corpus.ids, questions.qrels, DEV_MEASURE)))


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
    notes = []
    if negatives and not any(row.negatives for row in rows):
        notes.append("no row has a mined negative: only the other documents of a batch are compared")
    if len(rows) < 2:
        raise EmbedtrainError(f"{len(rows)} rows to train on; contrastive training needs two at least")
    encoder.set_prompts(options.query_prompt, options.document_prompt)
    loop.set_dropout(encoder.model, options.dropout)
    rows = _guarded(rows, collection)
    steps = _Steps(
        encoder,
        collection,
        rows,
        options,
        weights,
        stage=claim.stage,
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
        "documents_cut": f"{curve.share('documents_cut', 'documents'):.1%} at {options.max_document_length} tokens",
        "queries_cut": f"{curve.share('queries_cut', 'queries'):.1%} at {options.max_query_length} tokens",
    }
    alone = sum(int(entry["no_negatives"]) for entry in curve.steps)
    if alone:
        summary["rows_without_negatives"] = f"{alone:,} of {sum(int(e['queries']) for e in curve.steps):,} drawn"
    if curve.best_epoch is not None:
        summary["dev_ndcg"] = {f"epoch {n + 1}": round(value, 4) for n, value in enumerate(curve.dev)}
        summary["kept_epoch"] = curve.best_epoch + 1
    if notes:
        summary["notes"] = notes
    with atomic.atomic_folder(claim.out) as folder:
        encoder.save(folder)
        curve.write(folder / "metrics.jsonl")
        (folder / "README.md").write_text(card.model_card(claim, summary), encoding="utf-8")
        claim.write_folder(folder, rows=len(rows), dropped=dropped, summary=summary)


def _guarded(rows: list[Row], collection: Collection) -> list[Row]:
    """Rows whose positives are known to every other row that asks the same, in the same words."""
    asked: dict[str, dict[str, None]] = {}
    words = [normalised(collection.queries.by_id(row.query_id)) for row in rows]
    for text, row in zip(words, rows, strict=True):
        asked.setdefault(text, {}).update(dict.fromkeys(row.positives))
    return [
        dataclasses.replace(row, not_negatives=(*row.not_negatives, *others))
        if (others := [d for d in asked[text] if d not in row.positives])
        else row
        for text, row in zip(words, rows, strict=True)
    ]


def _pairs(collection: Collection, options: PretrainOptions) -> tuple[list[Row], dict[str, int]]:
    """A row for every query of a split with text and a positive with text; what is left out is counted."""
    rows: list[Row] = []
    dropped: Counter[str] = Counter()
    for query, judged in collection.qrels(options.split).items():
        positives = [document for document, grade in judged.items() if grade > 0]
        filled = tuple(document for document in positives if normalised(collection.corpus.by_id(document)))
        if not positives:
            dropped["query without a positive"] += 1
        elif not normalised(collection.queries.by_id(query)) or not filled:
            dropped["pair without text"] += 1
        else:
            rows.append(Row(query, filled))
    dropped.update(beyond_limit(len(rows), options.limit))
    return rows[: options.limit], dict(dropped)


def pretrain(
    claim: Claim, options: PretrainOptions, collection_path: Path, model: str, progress: console.Progress
) -> None:
    """Train on every query and its positives of a split with in-batch negatives; write a model folder."""
    collection = Collection(collection_path)
    rows, dropped = _pairs(collection, options)
    encoder = Encoder.load(find_model(model))
    _train(claim, options, collection, rows, encoder, {"infonce": 1.0}, dropped, progress)


def _row(mined: MinedRow) -> Row:
    """A training row of a mined or scored one.

    What the miner or the teacher took for a positive is no negative of the query in any batch.
    """
    verdicts = mined.verdict or ["keep"] * len(mined.candidate_ids)
    judged = zip(mined.candidate_ids, mined.reason, verdicts, strict=True)
    not_negatives = tuple(
        document for document, why, verdict in judged if why in LIKE_A_POSITIVE or verdict in NOT_NEGATIVE
    )
    teacher = None
    if mined.positive_teacher is not None and mined.candidate_teacher is not None:
        scores = zip(
            [*mined.positive_ids, *mined.candidate_ids],
            [*mined.positive_teacher, *mined.candidate_teacher],
            strict=True,
        )
        teacher = {document: score for document, score in scores if score is not None}
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
    rows = [_row(row) for row in mined[: options.limit]]
    scored = bool(rows) and all(row.teacher is not None for row in rows)
    weights = losses.parse(options.loss or ("infonce:0.2,kl:1.0" if scored else "infonce"))
    wanting = [name for name in weights if name in losses.NEEDS_TEACHER]
    if wanting and not scored:
        raise EmbedtrainError(
            f"--loss {wanting[0]} needs a teacher's scores and {mined_path} has none; "
            "score it with: embedtrain score-teacher"
        )
    if wanting and not options.negatives:
        raise UsageError(f"--negatives 0 leaves {wanting[0]} nothing to compare; give 1 or more")
    encoder = Encoder.load(find_model(model))
    _train(
        claim,
        options,
        collection,
        rows,
        encoder,
        weights,
        beyond_limit(len(mined), options.limit),
        progress,
        negatives=options.negatives,
        teacher_temperature=options.teacher_temperature,
        dev_split=options.dev_split,
    )
