"""`train-teacher`: an encoder becomes a cross-encoder that ranks a query's positive above its candidates."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedtrain import (
    allocator,
    atomic,
    batching,
    belief,
    card,
    chunks,
    console,
    denoise,
    gradcache,
    loop,
    losses,
    scoring,
)
from embedtrain.artifacts import Claim, beyond_limit
from embedtrain.batching import Row
from embedtrain.collection import Collection
from embedtrain.config import TrainTeacherOptions
from embedtrain.curve import Curve
from embedtrain.encoder import default_device
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.inference import token_budget
from embedtrain.mined import NOT_NEGATIVE, MinedRow, read_mined
from embedtrain.models import find_model
from embedtrain.negatives import ELIGIBLE, JUDGED, OPEN, SELECTED
from embedtrain.reranker import Pair, Reranker
from embedtrain.workers import Workers, side_by_side

# Candidates of a held-out row that the teacher is measured on, the retriever's best first.
DEPTH = 20


class _Steps:
    """Turns a step number into gradients of a loss over a batch of rows."""

    def __init__(
        self, reranker: Reranker, collection: Collection, rows: list[Row], options: TrainTeacherOptions
    ) -> None:
        self._reranker = reranker
        self._collection = collection
        self._seed = options.seed
        self._loss = losses.RERANKING[options.loss]
        settings = reranker.model.config
        self._graph_tokens = gradcache.graph_tokens(
            getattr(settings, "hidden_size", None) or 768,
            getattr(settings, "num_hidden_layers", None) or 12,
            reranker.device,
        )
        self._workers = Workers(side_by_side(reranker.device, reranker.model, settings))
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
            return self._loss(scores.masked_scatter(present, values), present).mean()

        value = gradcache.step(
            self._reranker.forward_features,
            # Tokenised here: no tokenizer may be used by several threads at once.
            [self._reranker.features([pairs[i] for i in places]) for places in cut],
            [len(places) for places in cut],
            loss,
            parameters=self._reranker.model.parameters(),
            seed=(self._seed, epoch, step),
            cached=int(lengths.sum()) > self._graph_tokens,
            scale=scale,
            workers=self._workers,
        )
        numbers = {
            "tokens": int(lengths.sum()),
            "pairs": len(pairs),
            "pairs_cut": int((found > lengths).sum()),
        }
        return loop.StepResult(value, numbers, batch.queries)


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


def _scored(
    reranker: Reranker, collection: Collection, rows: list[MinedRow], what: str, progress: console.Progress
) -> list[MinedRow]:
    """Rows with the teacher's scores of their positives and of the first candidates that no label or text speaks for.

    What a rule on scores or ranks left out is among them: there the retriever errs.
    """
    wanted = [
        [place for place, why in enumerate(row.reason) if why in OPEN or why == JUDGED][:DEPTH] for row in rows
    ]
    pairs = scoring.pairs_of(rows, wanted, collection)
    scores = reranker.score(pairs, progress, stored=False, what=what)
    return scoring.with_scores(rows, scoring.in_rows(rows, wanted, scores))


def _cleaned(
    reranker: Reranker, collection: Collection, rows: list[MinedRow], progress: console.Progress
) -> tuple[list[MinedRow], int]:
    """Rows without the candidates that the teacher scores like a positive, and how many those were.

    RocketQA's denoising (Qu et al. 2021, section 3.2), of the teacher's own training data. A row that would be left
    without any keeps them.
    """
    cleaned, taken = [], 0
    for row in _scored(reranker, collection, rows, "score training pairs", progress):
        verdicts = denoise.verdicts(row, denoise.Rules(), denoise.DROP)
        judged = dataclasses.replace(
            row,
            verdict=[
                old if old in NOT_NEGATIVE else new
                for old, new in zip(row.verdict or verdicts, verdicts, strict=True)
            ],
        )
        lost = len(_candidates(row)) - len(_candidates(judged))
        cleaned.append(judged if _candidates(judged) else row)
        taken += lost if _candidates(judged) else 0
    return cleaned, taken


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
    if options.loss not in losses.RERANKING:
        raise UsageError(f"--loss {options.loss}: {', '.join(losses.RERANKING)} are a teacher's losses")
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    dropped = beyond_limit(len(mined), options.limit)
    usable = [row for row in mined[: options.limit] if _candidates(row)]
    if len(usable) < len(mined[: options.limit]):
        dropped["query without negatives"] = len(mined[: options.limit]) - len(usable)
    if len(usable) < 2:
        raise EmbedtrainError(f"{mined_path} has {len(usable)} rows with negatives; a teacher needs two at least")
    held_out = _hold_out(usable, options)
    rows = [usable[i] for i in sorted(set(range(len(usable))) - set(held_out))]
    allocator.for_training(default_device())

    def trained(number: int) -> tuple[Reranker, Curve]:
        """A teacher of `rows`, from the same start in every round."""
        reranker = Reranker.from_encoder(find_model(model), options.seed, options.max_length)
        reranker.model.eval()  # no dropout: the fused attention of PyTorch needs that
        training = [Row(row.query_id, (*row.positive_ids, *row.promoted), tuple(_candidates(row))) for row in rows]
        steps = _Steps(reranker, collection, training, options)
        curve = loop.run(
            reranker.model,
            steps,
            options,
            what=claim.stage if options.rounds == 1 else f"{claim.stage}, round {number} of {options.rounds}",
            steps_per_epoch=steps.per_epoch,
            workspace=claim.workspace / f"round-{number}",
            progress=progress,
            key=claim.key,
        )
        return reranker, curve

    reranker, curve = trained(1)
    cleaned = 0
    for number in range(2, options.rounds + 1):
        rows, lost = _cleaned(reranker, collection, rows, progress)
        cleaned += lost
        reranker, curve = trained(number)
    summary: dict[str, Any] = {
        "rows": len(rows),
        "loss": options.loss,
        "steps": len(curve.steps),
        "first_loss": round(curve.first_loss, 6),
        "last_loss": round(curve.last_loss, 6),
        "held_out_queries": len(held_out),
        "pairs_cut": f"{curve.share('pairs_cut', 'pairs'):.1%} at {reranker.max_length} tokens",
    }
    if options.rounds > 1:
        summary["negatives_cleaned"] = cleaned
    if held_out:
        scored = _scored(reranker, collection, [usable[i] for i in held_out], "score held-out pairs", progress)
        found = belief.measure(scored, logits=True, seed=options.seed)
        summary["held_out"] = found.summary() if found else {}
        if doubt := belief.doubt(summary["held_out"], "on its held-out queries"):
            summary["notes"] = [f"{doubt[0]}: train it on more, or use its scores with care (--policy keep)"]
    with atomic.atomic_folder(claim.out) as folder:
        reranker.save(folder)
        curve.write(folder / "metrics.jsonl")
        (folder / "README.md").write_text(card.model_card(claim, summary), encoding="utf-8")
        claim.write_folder(folder, rows=len(rows), dropped=dropped, summary=summary)
