"""`train-teacher`: an encoder becomes a cross-encoder that ranks a query's positive above its candidates."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedtrain import allocator, atomic, batching, card, chunks, console, gradcache, loop, losses
from embedtrain.artifacts import Claim, beyond_limit
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.config import TrainTeacherOptions
from embedtrain.encoder import default_device
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.inference import token_budget
from embedtrain.mined import NOT_NEGATIVE, MinedRow, read_mined
from embedtrain.models import find_model
from embedtrain.negatives import ELIGIBLE, JUDGED, SELECTED
from embedtrain.reranker import Pair, Reranker, doubts

# Candidates of a held-out row that the teacher is measured on, the retriever's best first.
DEPTH = 20


class _Steps:
    """Turns a step number into gradients of the listwise loss over a batch of rows."""

    def __init__(
        self, reranker: Reranker, collection: Collection, rows: list[Row], options: TrainTeacherOptions
    ) -> None:
        self._reranker = reranker
        self._collection = collection
        self._seed = options.seed
        settings = reranker.model.config
        self._graph_tokens = gradcache.graph_tokens(
            getattr(settings, "hidden_size", None) or 768,
            getattr(settings, "num_hidden_layers", None) or 12,
            reranker.device,
        )
        self._batcher = batching.Batcher(
            rows,
            batch_size=options.batch_size,
            negatives=options.negatives,
            start=batching.stream(options.seed, "train-teacher"),
            text_of=collection.corpus.by_id,
        )
        self.per_epoch = self._batcher.per_epoch

    def __call__(self, epoch: int, step: int, scale: float) -> loop.StepResult:
        batch = self._batcher.batch(epoch, step)
        pairs: list[Pair] = []
        for row, query in enumerate(batch.queries):
            text = self._collection.queries.by_id(query)
            for column in np.flatnonzero(batch.present[row]):
                document = batch.documents[batch.columns[row, column]]
                pairs.append((text, self._collection.corpus.by_id(document)))
        found = self._reranker.token_lengths(pairs)
        lengths = np.minimum(found, self._reranker.max_length)
        cut = chunks.by_length(lengths, token_budget(self._reranker.device))
        present = torch.from_numpy(batch.present).to(self._reranker.device)

        def loss(outputs: list[Tensor]) -> Tensor:
            order = torch.from_numpy(np.concatenate(cut)).to(outputs[0].device)
            values = torch.cat(outputs)[torch.argsort(order)]
            scores = torch.zeros(present.shape, dtype=values.dtype, device=values.device)
            return losses.listwise(scores.masked_scatter(present, values), present).mean()

        value = gradcache.step(
            lambda places: self._reranker.forward([pairs[i] for i in places]),
            cut,
            [len(places) for places in cut],
            loss,
            parameters=self._reranker.model.parameters(),
            seed=(self._seed, epoch, step),
            cached=int(lengths.sum()) > self._graph_tokens,
            scale=scale,
        )
        numbers = {
            "tokens": int(lengths.sum()),
            "pairs": len(pairs),
            "pairs_cut": int((found > lengths).sum()),
        }
        return loop.StepResult(value, numbers, batch.queries)


def _reciprocal_rank(scores: np.ndarray) -> float:
    """1 / rank of item 0 by score, ties against it."""
    return 1.0 / (1 + int((scores[1:] >= scores[0]).sum()))


def _candidates(row: MinedRow) -> list[str]:
    """Candidates that may stand as negatives of a row, in rank order: those selected and those that would do.

    A cross-encoder learns more from the whole window than from its hardest alone (RocketQA, section 3.2).
    """
    verdicts = row.verdict or ["keep"] * len(row.candidate_ids)
    return [
        document
        for document, why, verdict in zip(row.candidate_ids, row.reason, verdicts, strict=True)
        if why in (SELECTED, ELIGIBLE, JUDGED) and verdict not in NOT_NEGATIVE
    ]


def _judge(
    reranker: Reranker, collection: Collection, rows: list[MinedRow], progress: console.Progress
) -> dict[str, float]:
    """Mean reciprocal rank of the first positive among the best candidates of held-out rows, by both orders."""
    by_teacher, by_retriever = [], []
    pairs: list[Pair] = []
    sizes = []
    for row in rows:
        usable = _candidates(row)[:DEPTH]
        positive = row.positive_ids[0]
        # The retriever's order is the fused rank; a positive it missed is behind every candidate it found.
        ranks = dict(zip(row.candidate_ids, row.candidate_ranks, strict=True))
        usable = [document for document in usable if ranks[document] is not None]
        place = ranks.get(positive) or len(row.candidate_ids) + 1
        by_retriever.append(1.0 / (1 + sum((ranks[document] or place) < place for document in usable)))
        query = collection.queries.by_id(row.query_id)
        pairs += [(query, collection.corpus.by_id(document)) for document in [positive, *usable]]
        sizes.append(1 + len(usable))
    scores = reranker.score(pairs, progress, stored=False)
    for part in np.split(scores, np.cumsum(sizes)[:-1]):
        by_teacher.append(_reciprocal_rank(part))
    return {"teacher": round(float(np.mean(by_teacher)), 4), "retriever": round(float(np.mean(by_retriever)), 4)}


def _hold_out(rows: list[MinedRow], options: TrainTeacherOptions) -> list[int]:
    """Rows to measure the teacher on: a seeded draw among those that share no positive with another row."""
    owners = Counter(document for row in rows for document in row.positive_ids)
    alone = [n for n, row in enumerate(rows) if all(owners[document] == 1 for document in row.positive_ids)]
    rng = np.random.default_rng([*batching.stream(options.seed, "train-teacher"), len(rows)])
    return sorted(rng.permutation(alone)[: round(options.dev_share * len(rows))].tolist())


def train_teacher(
    claim: Claim,
    options: TrainTeacherOptions,
    mined_path: Path,
    collection_path: Path,
    model: str,
    progress: console.Progress,
) -> None:
    """Train a cross-encoder on mined rows, measure it on held-out queries, write its folder."""
    if options.negatives < 1:
        raise UsageError("--negatives 0 leaves the teacher nothing to compare; give 1 or more")
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    dropped = beyond_limit(len(mined), options.limit)
    usable = [row for row in mined[: options.limit] if _candidates(row)]
    if len(usable) < len(mined[: options.limit]):
        dropped["query without negatives"] = len(mined[: options.limit]) - len(usable)
    if len(usable) < 2:
        raise EmbedtrainError(f"{mined_path} has {len(usable)} rows with negatives; a teacher needs two at least")
    held_out = _hold_out(usable, options)
    kept = sorted(set(range(len(usable))) - set(held_out))
    rows = [
        Row(row.query_id, tuple(row.positive_ids), tuple(_candidates(row))) for row in (usable[i] for i in kept)
    ]
    allocator.for_training(default_device())
    reranker = Reranker.from_encoder(find_model(model), options.seed, options.max_length)
    reranker.model.eval()  # no dropout: the fused attention of PyTorch needs that
    steps = _Steps(reranker, collection, rows, options)
    curve = loop.run(
        reranker.model,
        steps,
        options,
        what=claim.stage,
        steps_per_epoch=steps.per_epoch,
        workspace=claim.workspace,
        progress=progress,
        key=claim.key,
    )
    summary: dict[str, Any] = {
        "rows": len(rows),
        "steps": len(curve.steps),
        "first_loss": round(curve.first_loss, 6),
        "last_loss": round(curve.last_loss, 6),
        "held_out_queries": len(held_out),
        "pairs_cut": f"{curve.share('pairs_cut', 'pairs'):.1%} at {reranker.max_length} tokens",
    }
    if held_out:
        summary["held_out_mrr"] = _judge(reranker, collection, [usable[i] for i in held_out], progress)
        if doubt := doubts(summary["held_out_mrr"]):
            summary["notes"] = [doubt]
    with atomic.atomic_folder(claim.out) as folder:
        reranker.save(folder)
        curve.write(folder / "metrics.jsonl")
        (folder / "README.md").write_text(card.model_card(claim, summary), encoding="utf-8")
        claim.write_folder(folder, rows=len(rows), dropped=dropped, summary=summary)
