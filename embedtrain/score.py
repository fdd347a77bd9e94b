"""`score-teacher`: teachers score every positive and candidate, and verdicts follow from the scores."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import belief, calibration, console, denoise, findings, review, scoring, teachers
from embedtrain.artifacts import Claim, beyond_limit, read_record
from embedtrain.calibration import Calibration
from embedtrain.collection import Collection
from embedtrain.config import ScoreOptions
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mined import MinedRow, read_mined, to_table
from embedtrain.models import find_model
from embedtrain.negatives import ELIGIBLE, JUDGED

# What the scores of an artifact are: raw logits, similarities of a bi-encoder, or means of standardised ones.
LOGIT, SIMILARITY, STANDARDISED = "logit", "similarity", "standardised"

# Labelled pairs of each kind without which nothing is fitted.
LEAST_LABELS = 10


def check(options: ScoreOptions, teachers_named: int) -> denoise.Rules:
    """The rules of the options; UsageError for what no policy, way or number of teachers goes with."""
    for flag, value, choices in (
        ("--policy", options.policy, denoise.POLICIES),
        ("--sample", options.sample, denoise.WAYS),
        ("--calibrate", options.calibrate, ("", *calibration.WAYS)),
    ):
        if value not in choices:
            raise UsageError(f"{flag} {value}: {', '.join(filter(None, choices))} are the choices")
    if not (options.candidates in ("selected", "all") or _is_count(options.candidates)):
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
        raise UsageError(_no_probability(STANDARDISED if teachers_named > 1 else SIMILARITY))
    relative = options.drop_margin is not None or options.drop_ratio is not None
    margin = options.drop_margin if relative or options.drop_above is not None else 0.0
    return denoise.Rules(margin, options.drop_ratio, options.drop_above, options.keep_below)


def _is_count(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


@dataclasses.dataclass(frozen=True)
class _Scores:
    """Scored rows, what their scores are, and what is to be said of the teachers that made them."""

    rows: list[MinedRow]
    scale: str
    said: dict[str, Any]


def _wanted(row: MinedRow, candidates: str) -> list[int]:
    """Indices of the candidates that are scored: all, or those selected as negatives and the first ranks."""
    first = int(candidates) if _is_count(candidates) else 0
    mined = denoise.as_mined(row)  # whoever took their places may have been seen by another teacher alone
    return [
        index
        for index, (used, rank) in enumerate(zip(row.selected, row.candidate_ranks, strict=True))
        if used or mined[index] or candidates == "all" or (rank is not None and rank <= first)
    ]


def _score(
    rows: list[MinedRow],
    collection: Collection,
    names: Sequence[str],
    options: ScoreOptions,
    progress: console.Progress,
) -> _Scores:
    """Let every teacher score the rows' positives and wanted candidates."""
    wanted = [_wanted(row, options.candidates) for row in rows]
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
        return _Scores(scored, LOGIT if logits else SIMILARITY, said)
    parts = [teachers.standardised(scores, flat, name) for scores, name in zip(found, names, strict=True)]
    together = np.stack(parts).mean(axis=0, dtype=np.float64).astype(np.float32)
    each = zip(*(scoring.in_rows(rows, wanted, scores) for scores in found), strict=True)
    scored = [
        dataclasses.replace(row, teachers=list(one))
        for row, one in zip(scoring.with_scores(rows, scoring.in_rows(rows, wanted, together)), each, strict=True)
    ]
    return _Scores(scored, STANDARDISED, said)


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


def _check_labels(rows: Sequence[MinedRow], candidates: str, labels: review.Labels) -> None:
    """Say before any scoring that there will be too few documents judged not relevant for a calibration."""
    there = sum(
        labels.get(row.query_id, {}).get(row.candidate_ids[index], row.reason[index] != JUDGED) is False
        for row in rows
        for index in _wanted(row, candidates)
    )
    if there < 2 * LEAST_LABELS:
        raise EmbedtrainError(_too_few(there))


def _too_few(there: int) -> str:
    return (
        f"--calibrate fits to one half of the queries and is measured on the other: each needs {LEAST_LABELS} positives and "
        f"{LEAST_LABELS} documents judged not relevant with a score, and {there} are there; judge some with --review and "
        "--labels, score more with --candidates all, or leave the flag out"
    )


def _calibrated(scores: _Scores, way: str, labels: review.Labels, seed: int) -> tuple[Calibration, dict[str, Any]]:
    """A calibration fitted to half of the queries, and what the other half says of it, for the summary.

    Right are known positives and what a label says; not right is what was judged not relevant, by qrels or a label.
    """
    half = np.random.default_rng([seed, len(scores.rows)]).permutation(len(scores.rows)) % 2 == 0
    parts: dict[bool, list[tuple[float, bool]]] = {True: [], False: []}
    for fits, row in zip(half.tolist(), scores.rows, strict=True):
        parts[fits] += _judged(row, labels.get(row.query_id, {}))
    values, right = ({fits: np.array([pair[n] for pair in part]) for fits, part in parts.items()} for n in (0, 1))
    fewest = min(
        int((right[fits] == kind).sum()) if len(right[fits]) else 0 for fits in parts for kind in (True, False)
    )
    if fewest < LEAST_LABELS:
        raise EmbedtrainError(_too_few(fewest))
    found = calibration.fit(values[True], right[True].astype(bool), way)
    held, answers = values[False], right[False].astype(bool)
    return found, {
        "calibration": {
            "way": way,
            "slope": found.slope,
            "intercept": found.intercept,
            "labels": len(right[True]),
            "held_out": len(answers),
            "error_before": round(calibration.error(Calibration()(held), answers), 4),
            "error_after": round(calibration.error(found(held), answers), 4),
        },
        "calibration_curve": calibration.curve(found(held), answers),
    }


def _judged(row: MinedRow, labels: Mapping[str, bool]) -> list[tuple[float, bool]]:
    """Scores of a row's documents that somebody judged, and whether they are right."""
    found = [(score, True) for score in row.positive_teacher or ()]
    for document, score, why in zip(row.candidate_ids, row.candidate_teacher or (), row.reason, strict=True):
        label = labels.get(document, False if why == JUDGED else None)
        if score is not None and label is not None and document not in row.positive_ids:
            found.append((score, label))
    return found


def _trained_on(teacher: Mapping[str, Any], collection: str, mined_path: Path) -> bool:
    """Whether a teacher has seen the split of the same collection that these rows were mined for."""
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


def _teachers_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is recorded of the teachers that a scored artifact, or the one it was judged anew from, was made with."""
    ancestry = record.get("ancestry", {})
    inputs = record.get("inputs", [])
    named = [item["sha256"] for item in inputs if item["role"] == "teacher"]
    if not named:
        parents = [
            ancestry[item["sha256"]] for item in inputs if item["role"] == "scored" and item["sha256"] in ancestry
        ]
        return [one for parent in parents for one in _teachers_of({**parent, "ancestry": ancestry})]
    return [{**ancestry[sha256], "ancestry": ancestry} for sha256 in named if sha256 in ancestry]


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
    records = [read_record(find_model(name).path) or {} for name in names] or _teachers_of(record)
    held_out = [one.get("summary", {}).get("held_out") for one in records]
    if not names:
        held_out = record.get("summary", {}).get("held_out", [])
    notes = []
    if any(_trained_on(one, claim.inputs[1].sha256, mined_path) for one in records):
        notes.append("a teacher was trained on queries of this split: its agreement with their labels flatters it")
    notes += _doubts(held_out, "on its held-out queries", trust=options.trust)
    if options.calibrate and names:
        _check_labels(rows, options.candidates, labels)
    scores = _score(rows, collection, names, options, progress) if names else _known(rows, record, mined_path)
    summary: dict[str, Any] = {"queries": len(rows), "scale": scores.scale, **scores.said, "held_out": held_out}
    found = belief.measure(scores.rows, logits=scores.scale == LOGIT, labels=labels, seed=options.seed)
    trusted = found.summary() if found else {}
    notes += _doubts([trusted], "on these rows", trust=options.trust)
    if not names:
        summary["calibration"] = record["summary"].get("calibration")
    if trusted:
        summary["teacher"] = trusted
    chances: Calibration | None = None
    if options.calibrate:
        chances, measured = _calibrated(scores, options.calibrate, labels, options.seed)
        summary |= measured
    elif rules.absolute:
        chances, said = _own_probabilities(scores.scale, summary.get("calibration"))
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


def _own_probabilities(scale: str, known: Mapping[str, Any] | None) -> tuple[Calibration, list[str]]:
    """The probabilities of an earlier calibration, or else the teacher's own."""
    if known:
        return Calibration(known["slope"], known["intercept"]), []
    if scale != LOGIT:
        raise UsageError(_no_probability(scale))
    return Calibration(), [
        "probabilities are the teacher's own sigmoid, fitted to no labels (--calibrate platt does)"
    ]


def _no_probability(scale: str) -> str:
    return f"--drop-above compares probabilities, and a {scale} score is none; add --calibrate platt"


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
