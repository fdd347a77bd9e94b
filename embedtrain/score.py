"""`score-teacher`: a cross-encoder scores every positive and candidate, and verdicts follow from the scores."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from embedtrain import console
from embedtrain.artifacts import Claim
from embedtrain.collection import Collection
from embedtrain.config import ScoreOptions
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow, read_mined, to_table
from embedtrain.models import find_model
from embedtrain.reranker import Pair, Reranker

KEEP, DROP = "keep", "drop"


def verdicts(positive: list[float], candidates: list[float], selected: list[bool], margin: float) -> list[str]:
    """The verdict of each candidate: "drop" for a selected one the teacher scores like a positive.

    That is a score above the lowest positive's less `margin` (logits): RocketQA's denoising (Qu et al. 2021,
    section 3.2) with the positive of the row as yardstick. All others are "keep".
    """
    limit = min(positive) - margin
    return [DROP if used and score > limit else KEEP for score, used in zip(candidates, selected, strict=True)]


def _pairs(row: MinedRow, collection: Collection) -> list[Pair]:
    query = collection.queries.by_id(row.query_id)
    return [(query, collection.corpus.by_id(document)) for document in [*row.positive_ids, *row.candidate_ids]]


def _agreement(rows: list[MinedRow]) -> dict[str, float]:
    """How the teacher tells positives from selected negatives: AUC over pairs of a row, share placed first."""
    wins = total = first = 0.0
    judged = 0
    for row in rows:
        scores = np.asarray(row.candidate_teacher, dtype=np.float32)[np.asarray(row.selected, dtype=bool)]
        if not len(scores) or row.positive_teacher is None:
            continue
        judged += 1
        for positive in row.positive_teacher:
            wins += float((scores < positive).sum()) + 0.5 * float((scores == positive).sum())
            total += len(scores)
        first += max(row.positive_teacher) > scores.max()
    if not judged:
        return {}
    return {"auc": round(wins / total, 4), "positive_first": round(first / judged, 4)}


def score(
    claim: Claim,
    options: ScoreOptions,
    mined_path: Path,
    collection_path: Path,
    teacher: str,
    progress: console.Progress,
) -> None:
    """Score the rows of a mined artifact and write the scored one: same rows, teacher's raw logits, verdicts."""
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    rows = mined[: options.limit]
    if not rows:
        raise EmbedtrainError(f"{mined_path} has no rows; mine a split that has queries")
    reranker = Reranker.load(find_model(teacher), options.max_length)
    pairs = [_pairs(row, collection) for row in rows]
    flat = [pair for group in pairs for pair in group]
    scores = reranker.score(flat, progress)
    if not np.isfinite(scores).all():
        raise EmbedtrainError(f"teacher {teacher} gives scores that are not finite; train it again")
    scored: list[MinedRow] = []
    for row, values in zip(rows, np.split(scores, np.cumsum([len(group) for group in pairs])[:-1]), strict=True):
        positive = values[: len(row.positive_ids)].tolist()
        candidates = values[len(row.positive_ids) :].tolist()
        judged = [KEEP] * len(candidates)
        if options.policy == "drop":
            judged = verdicts(positive, candidates, row.selected, options.drop_margin)
        scored.append(
            dataclasses.replace(row, positive_teacher=positive, candidate_teacher=candidates, verdict=judged)
        )
    selected = sum(sum(row.selected) for row in scored)
    taken = sum((row.verdict or []).count(DROP) for row in scored)
    lengths = reranker.token_lengths(list(dict.fromkeys(flat)))
    summary: dict[str, Any] = {
        "queries": len(scored),
        "pairs": len(lengths),
        "negatives_before": selected,
        "negatives_dropped": taken,
        "share_dropped": f"{taken / max(1, selected):.1%}",
        "rows_left_without_negatives": sum(not row.negatives for row in scored),
        "pairs_cut": f"{float((lengths > reranker.max_length).mean()):.1%} at {reranker.max_length} tokens",
    }
    agreement = _agreement(scored)
    if agreement:
        summary["teacher"] = agreement
    if agreement and agreement["auc"] < 0.5:
        summary["notes"] = [
            "the teacher ranks negatives above positives more often than not: do not trust its drops"
        ]
    dropped = {} if options.limit is None else {"over --limit": max(0, len(mined) - options.limit)}
    claim.write_table(
        to_table(scored, "scored"),
        dropped={reason: count for reason, count in dropped.items() if count},
        summary=summary,
    )
