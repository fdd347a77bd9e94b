"""`score-teacher`: teachers score every positive and candidate, and verdicts follow from the scores."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import (
    belief,
    calibration,
    console,
    denoise,
    findings,
    probabilities,
    provenance,
    review,
    scoring,
    teachers,
)
from embedtrain.artifacts import Claim, beyond_limit, read_record
from embedtrain.calibration import Calibration
from embedtrain.collection import Collection
from embedtrain.config import ScoreOptions
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mined import MinedRow, read_mined, to_table
from embedtrain.models import find_model
from embedtrain.negatives import ELIGIBLE


def check(options: ScoreOptions, teachers_named: int) -> denoise.Rules:
    """The rules of the options; UsageError for what no policy, way or number of teachers goes with."""
    for flag, value, choices in (
        ("--policy", options.policy, denoise.POLICIES),
        ("--sample", options.sample, denoise.WAYS),
        ("--calibrate", options.calibrate, ("", *calibration.WAYS)),
    ):
        if value not in choices:
            raise UsageError(f"{flag} {value}: {', '.join(filter(None, choices))} are the choices")
    if not (options.candidates in ("selected", "all") or scoring.is_count(options.candidates)):
        raise UsageError(f"--candidates {options.candidates}: give selected, all, or a number of ranks")
    if len(options.kinds) > 1 and len(options.kinds) != teachers_named:
        raise UsageError(
            f"--teacher-kind is given {len(options.kinds)} times for {teachers_named} teachers; once, or for each"
        )
    for kind in options.kinds:
        teachers.check_kind(kind)
    if options.max_length is not None and teachers.CROSS not in options.kinds:
        raise UsageError(
            "--max-length counts query and document together, which a bi-encoder never sees; leave it out"
        )
    logits = teachers_named == 1 and options.kinds == (teachers.CROSS,)
    if options.drop_above is not None and teachers_named and not logits and not options.calibrate:
        raise UsageError(probabilities.none_of(scoring.STANDARDISED if teachers_named > 1 else scoring.SIMILARITY))
    relative = options.drop_margin is not None or options.drop_ratio is not None
    margin = options.drop_margin if relative or options.drop_above is not None else 0.0
    return denoise.Rules(margin, options.drop_ratio, options.drop_above, options.keep_below)


@dataclasses.dataclass(frozen=True)
class _Scores:
    """Scored rows, what their scores are, and what is to be said of the teachers that made them."""

    rows: list[MinedRow]
    scale: str
    said: dict[str, Any]


def _score(
    rows: list[MinedRow],
    collection: Collection,
    names: Sequence[str],
    options: ScoreOptions,
    progress: console.Progress,
) -> _Scores:
    """Let every teacher score the rows' positives and wanted candidates."""
    wanted = [scoring.wanted(row, options.candidates) for row in rows]
    flat = scoring.pairs_of(rows, wanted, collection)
    kinds = options.kinds * len(names) if len(options.kinds) == 1 else options.kinds
    found: list[NDArray[np.float32]] = []
    said: dict[str, Any] = {"pairs": len(dict.fromkeys(flat))}
    logits = True
    # All are loaded before one scores: what is wrong with the last is said at once.
    loaded = [
        teachers.load(name, kind, options.max_length, options.precision)
        for name, kind in zip(names, kinds, strict=True)
    ]
    for number, (name, teacher) in enumerate(zip(names, loaded, strict=True), start=1):
        scores = teacher.score(flat, progress)
        if not np.isfinite(scores).all():
            raise EmbedtrainError(f"teacher {name} gives scores that are not finite; train it again")
        found.append(scores)
        logits &= teacher.logits
        said["pairs_cut" if len(names) == 1 else f"pairs_cut_by_teacher_{number}"] = str(teacher.cut(flat))
    if len(names) == 1:
        scored = scoring.with_scores(rows, scoring.in_rows(rows, wanted, found[0]))
        return _Scores(scored, scoring.LOGIT if logits else scoring.SIMILARITY, said)
    parts = [teachers.standardised(scores, flat, name) for scores, name in zip(found, names, strict=True)]
    together = np.stack(parts).mean(axis=0, dtype=np.float64).astype(np.float32)
    each = zip(*(scoring.in_rows(rows, wanted, scores) for scores in found), strict=True)
    scored = [
        dataclasses.replace(row, teachers=list(one))
        for row, one in zip(scoring.with_scores(rows, scoring.in_rows(rows, wanted, together)), each, strict=True)
    ]
    return _Scores(scored, scoring.STANDARDISED, said)


def _known(rows: list[MinedRow], record: Mapping[str, Any], path: Path) -> _Scores:
    """The scores an artifact has already."""
    summary = record["summary"]
    if record["kind"] != "scored" or "scale" not in summary:
        raise UsageError(f"{path} has no scores yet; name who gives them: --teacher")
    whole = len(rows) == record["rows"]
    kept = {k: v for k, v in summary.items() if whole and (k == "pairs" or k.startswith("pairs_cut"))}
    return _Scores(rows, summary["scale"], kept)


def _has_others(row: MinedRow) -> bool:
    """Whether a candidate that the miner did not select has a score and would do as a negative."""
    scores = row.candidate_teacher or ()
    return any(why == ELIGIBLE and score is not None for why, score in zip(row.reason, scores, strict=True))


def _doubts(summaries: Sequence[Mapping[str, Any] | None], on: str, *, trust: bool) -> list[str]:
    """What speaks against teachers; EmbedtrainError where it is certain that they are not to be believed."""
    notes = []
    for sentence, certain in filter(None, (belief.doubt(summary, on) for summary in summaries)):
        if certain and not trust:
            raise EmbedtrainError(
                f"{sentence}: train it on more, leave it out, or go on with --trust (--policy keep drops nothing); what was "
                "scored is kept and costs nothing then"
            )
        notes.append(f"{sentence}: use its scores with care (--policy keep, --loss infonce)")
    return notes


def score(
    claim: Claim,
    options: ScoreOptions,
    mined_path: Path,
    collection_path: Path,
    names: Sequence[str],
    labels_path: Path | None,
    progress: console.Progress,
) -> None:
    """Write a scored artifact: the rows of a mined or scored one, teachers' raw scores, verdicts, and who is a negative.

    `names` are the teachers; without any the scores of a scored artifact are judged anew. A candidate that was not
    asked for (`options.candidates`) has no score and keeps its place.
    """
    rules = check(options, len(names))
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    rows = mined[: options.limit]
    if not rows:
        raise EmbedtrainError(f"{mined_path} has no rows; mine a split that has queries")
    labels, dropped = review.read(labels_path) if labels_path else ({}, {})
    record = read_record(mined_path) or {}
    records = [read_record(find_model(name).path) or {} for name in names] or provenance.teachers_of(record)
    held_out = [one.get("summary", {}).get("held_out") for one in records]
    if not names:
        held_out = record.get("summary", {}).get("held_out", [])
    notes = []
    if any(provenance.trained_on(one, claim.inputs[1].sha256, mined_path) for one in records):
        notes.append("a teacher was trained on queries of this split: its agreement with their labels flatters it")
    notes += _doubts(held_out, "on its held-out queries", trust=options.trust)
    if options.calibrate and names:
        probabilities.check_labels(rows, options.candidates, labels)
    scores = _score(rows, collection, names, options, progress) if names else _known(rows, record, mined_path)
    summary: dict[str, Any] = {"queries": len(rows), "scale": scores.scale, **scores.said, "held_out": held_out}
    found = belief.measure(scores.rows, logits=scores.scale == scoring.LOGIT, labels=labels, seed=options.seed)
    trusted = found.summary() if found else {}
    notes += _doubts([trusted], "on these rows", trust=options.trust)
    if not names:
        summary["calibration"] = record["summary"].get("calibration")
    if trusted:
        summary["teacher"] = trusted
    chances: Calibration | None = None
    if options.calibrate:
        chances, measured = probabilities.fitted(scores.rows, options.calibrate, labels, options.seed)
        summary |= measured
    elif rules.absolute:
        chances, said = probabilities.known(scores.scale, summary.get("calibration"))
        notes += said
    judged = [_verdict(row, rules, options, chances, labels.get(row.query_id, {})) for row in scores.rows]
    summary |= findings.counts(judged)
    summary["estimated_false_negatives"] = findings.false_negatives(judged, rules, chances, labels, options.seed)
    summary["table"] = findings.table(judged)
    if options.sample == denoise.STRATIFIED and not any(map(_has_others, scores.rows)):
        notes.append("only mined negatives were scored, so --sample stratified had no others to choose from")
    if unknown := findings.strangers(judged, labels):
        notes.append(f"{unknown:,} labels are of pairs that are not among these candidates, or of known positives")
    if notes:
        summary["notes"] = notes
    left_out = beyond_limit(len(mined), options.limit) | dropped
    claim.write_table(to_table(judged, "scored"), dropped=left_out, summary=summary)


def _verdict(
    row: MinedRow,
    rules: denoise.Rules,
    options: ScoreOptions,
    chances: Calibration | None,
    labels: Mapping[str, bool],
) -> MinedRow:
    """The row with its verdicts, and with those who stand for its negatives."""
    probabilities = denoise.probabilities(row, chances)
    verdicts = denoise.verdicts(row, rules, options.policy, probabilities=probabilities, labels=labels)
    selected = denoise.chosen(row, verdicts, options.negatives, options.sample, options.seed)
    return dataclasses.replace(row, verdict=verdicts, selected=selected)


def write_review(path: Path, scored: Path, collection: Path, labels_path: Path | None) -> int:
    """Write the doubtful negatives of a scored artifact for a person to judge; how many there are."""
    labels, _ = review.read(labels_path) if labels_path else ({}, {})
    return review.write(path, read_mined(scored), Collection(collection), labels)
