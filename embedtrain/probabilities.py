"""What makes probabilities of an artifact's scores: a calibration fitted to its labels, or the teacher's own sigmoid."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embedtrain import calibration, review, scoring
from embedtrain.calibration import Calibration
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mined import MinedRow
from embedtrain.negatives import JUDGED

# Labelled pairs of each kind without which nothing is fitted.
LEAST_LABELS = 10


def check_labels(rows: Sequence[MinedRow], candidates: str, labels: review.Labels) -> None:
    """Say before any scoring that there will be too few documents judged not relevant for a calibration."""
    there = sum(
        labels.get(row.query_id, {}).get(row.candidate_ids[index], row.reason[index] != JUDGED) is False
        for row in rows
        for index in scoring.wanted(row, candidates)
    )
    if there < 2 * LEAST_LABELS:
        raise EmbedtrainError(_too_few(there))


def _too_few(there: int) -> str:
    return (
        f"--calibrate fits to one half of the queries and is measured on the other: each needs {LEAST_LABELS} positives and "
        f"{LEAST_LABELS} documents judged not relevant with a score, and {there} are there; judge some with --review and "
        "--labels, score more with --candidates all, or leave the flag out"
    )


def fitted(
    rows: Sequence[MinedRow], way: str, labels: review.Labels, seed: int
) -> tuple[Calibration, dict[str, Any]]:
    """A calibration fitted to half of the queries, and what the other half says of it, for the summary.

    Right are known positives and what a label says; not right is what was judged not relevant, by qrels or a label.
    """
    half = np.random.default_rng([seed, len(rows)]).permutation(len(rows)) % 2 == 0
    parts: dict[bool, list[tuple[float, bool]]] = {True: [], False: []}
    for fits, row in zip(half.tolist(), rows, strict=True):
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


def known(scale: str, found: Mapping[str, Any] | None) -> tuple[Calibration, list[str]]:
    """The probabilities of an earlier calibration, or else the teacher's own."""
    if found:
        return Calibration(found["slope"], found["intercept"]), []
    if scale != scoring.LOGIT:
        raise UsageError(none_of(scale))
    return Calibration(), [
        "probabilities are the teacher's own sigmoid, fitted to no labels (--calibrate platt does)"
    ]


def none_of(scale: str) -> str:
    """What is said where scores of a scale are no probabilities."""
    return f"--drop-above compares probabilities, and a {scale} score is none; add --calibrate platt"
