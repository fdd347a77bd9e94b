"""`score-teacher`: a cross-encoder scores every positive and candidate, and verdicts follow from the scores."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from embedtrain import console
from embedtrain.artifacts import Claim, beyond_limit, read_record
from embedtrain.collection import Collection
from embedtrain.config import ScoreOptions
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow, read_mined, to_table
from embedtrain.models import find_model
from embedtrain.reranker import Pair, Reranker, doubts

KEEP, DROP = "keep", "drop"


def verdicts(
    positive: list[float], candidates: list[float | None], selected: list[bool], margin: float
) -> list[str]:
    """The verdict of each candidate: "drop" for a selected one the teacher scores like a positive.

    That is a score above the lowest positive's less `margin` (logits): RocketQA's denoising (Qu et al. 2021,
    section 3.2) with the positive of the row as yardstick. All others are "keep".
    """
    limit = min(positive) - margin
    return [
        DROP if used and score is not None and score > limit else KEEP
        for score, used in zip(candidates, selected, strict=True)
    ]


def _wanted(row: MinedRow, candidates: str) -> list[int]:
    """Indices of the candidates that are scored: all, or those that were selected as negatives."""
    return [index for index, used in enumerate(row.selected) if used or candidates == "all"]


def _pairs(row: MinedRow, wanted: list[int], collection: Collection) -> list[Pair]:
    query = collection.queries.by_id(row.query_id)
    documents = [*row.positive_ids, *[row.candidate_ids[index] for index in wanted]]
    return [(query, collection.corpus.by_id(document)) for document in documents]


def _agreement(rows: list[MinedRow]) -> dict[str, float]:
    """How the teacher tells positives from selected negatives: AUC over pairs of a row, share placed first."""
    wins = total = first = 0.0
    judged = 0
    for row in rows:
        if row.positive_teacher is None or row.candidate_teacher is None or not any(row.selected):
            continue
        kept = [score for score, used in zip(row.candidate_teacher, row.selected, strict=True) if used]
        scores = np.asarray(kept, dtype=np.float32)
        judged += 1
        for positive in row.positive_teacher:
            wins += float((scores < positive).sum()) + 0.5 * float((scores == positive).sum())
            total += len(scores)
        first += max(row.positive_teacher) > scores.max()
    if not judged:
        return {}
    return {"auc": round(wins / total, 4), "positive_first": round(first / judged, 4)}


def _trained_on(teacher: Mapping[str, Any], claim: Claim, mined_path: Path) -> bool:
    """Whether a teacher has seen the split of the same collection that these rows were mined for."""
    collection = claim.inputs[1].sha256
    made_from = {item["role"]: item["sha256"] for item in teacher.get("inputs", [])}
    rows = made_from.get("mined") or made_from.get("scored") or ""
    seen = _split(teacher.get("ancestry", {}), rows)
    here = read_record(mined_path) or {}
    asked = _split({**here.get("ancestry", {}), "": here}, "")
    return made_from.get("collection") == collection and seen is not None and seen == asked


def _split(ancestry: Mapping[str, Any], sha256: str) -> str | None:
    """The split a mined artifact, or a scored one made of it, was mined for."""
    record = ancestry.get(sha256)
    if record is None or record.get("kind") == "mined":
        return record["options"]["split"] if record else None
    parents = (item["sha256"] for item in record.get("inputs", []) if item["role"] in ("mined", "scored"))
    return next((split for parent in parents if (split := _split(ancestry, parent))), None)


def score(
    claim: Claim,
    options: ScoreOptions,
    mined_path: Path,
    collection_path: Path,
    teacher: str,
    progress: console.Progress,
) -> None:
    """Score the rows of a mined artifact and write the scored one: same rows, teacher's raw logits, verdicts.

    A candidate that was not asked for (`options.candidates`) has no score and keeps its place.
    """
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    rows = mined[: options.limit]
    if not rows:
        raise EmbedtrainError(f"{mined_path} has no rows; mine a split that has queries")
    source = find_model(teacher)
    reranker = Reranker.load(source, options.max_length)
    wanted = [_wanted(row, options.candidates) for row in rows]
    pairs = [_pairs(row, indices, collection) for row, indices in zip(rows, wanted, strict=True)]
    flat = [pair for group in pairs for pair in group]
    scores = reranker.score(flat, progress)
    if not np.isfinite(scores).all():
        raise EmbedtrainError(f"teacher {teacher} gives scores that are not finite; train it again")
    scored: list[MinedRow] = []
    parts = np.split(scores, np.cumsum([len(group) for group in pairs])[:-1])
    for row, indices, values in zip(rows, wanted, parts, strict=True):
        positive = values[: len(row.positive_ids)].tolist()
        candidates: list[float | None] = [None] * len(row.candidate_ids)
        for index, value in zip(indices, values[len(row.positive_ids) :].tolist(), strict=True):
            candidates[index] = value
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
    notes = []
    if agreement and agreement["auc"] < 0.5:
        notes.append("the teacher ranks negatives above positives more often than not: do not trust its drops")
    record = read_record(source.path) or {}
    if _trained_on(record, claim, mined_path):
        notes.append(
            "the teacher was trained on queries of this split: its agreement with their labels flatters it"
        )
    if doubt := doubts(record.get("summary", {}).get("held_out_mrr")):
        notes.append(doubt)
    if notes:
        summary["notes"] = notes
    claim.write_table(to_table(scored, "scored"), dropped=beyond_limit(len(mined), options.limit), summary=summary)
