"""What scoring found, counted: verdicts by retriever and rank, and how many of the mined negatives may be positives."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embedtrain import statistics
from embedtrain.calibration import Calibration
from embedtrain.denoise import DROP, KEEP, MASK, POLICIES, PROMOTE, Rules, as_mined, probabilities, verdicts
from embedtrain.mined import MinedRow
from embedtrain.negatives import ELIGIBLE, JUDGED, SELECTED

# Ranks that are counted together; what no retriever found has none.
BANDS = ((1, 10), (11, 30), (31, 100))
BAND_NAMES = [*(f"{low}-{high}" for low, high in BANDS), f"after {BANDS[-1][1]}", "none"]
RESAMPLES = 2_000


def counts(rows: Sequence[MinedRow]) -> dict[str, Any]:
    """How many negatives there were, what became of them, and how many there are."""
    before = [[index for index, used in enumerate(as_mined(row)) if used] for row in rows]
    fates = Counter(
        (row.verdict or [])[index] for row, indices in zip(rows, before, strict=True) for index in indices
    )
    total = sum(map(len, before))
    beaten = sum(_beats(row, indices) for row, indices in zip(rows, before, strict=True))
    found = {
        "negatives_before": total,
        "negatives_dropped": fates[DROP],
        "share_dropped": f"{fates[DROP] / max(1, total):.1%}",
    }
    for verdict, name in ((PROMOTE, "negatives_promoted"), (MASK, "negatives_masked")):
        if fates[verdict]:
            found[name] = fates[verdict]
    if others := sum(len(row.promoted) for row in rows) - fates[PROMOTE]:
        found["others_promoted"] = others
    found["negatives_after"] = sum(len(row.negatives) for row in rows)
    found["rows_left_without_negatives"] = sum(not row.negatives for row in rows)
    found["rows_where_a_negative_beats_the_positives"] = beaten
    return found


def _beats(row: MinedRow, indices: Sequence[int]) -> bool:
    """Whether one of these candidates is scored above every positive of the row."""
    scores = [score for index in indices if (score := (row.candidate_teacher or [])[index]) is not None]
    return bool(scores and row.positive_teacher) and max(scores) > max(row.positive_teacher or ())


def false_negatives(
    rows: Sequence[MinedRow],
    rules: Rules,
    chances: Calibration | None,
    labels: Mapping[str, Mapping[str, bool]],
    seed: int,
) -> dict[str, float | None] | None:
    """The share of mined negatives that are right, as the rules and labels say: mean over the queries, with its interval.

    What was judged not relevant does not count. None where no row has a mined negative with a score.
    """
    shares = []
    for row in rows:
        found = verdicts(
            row,
            Rules(rules.margin, rules.ratio, rules.above),
            PROMOTE,
            probabilities=probabilities(row, chances),
            labels=labels.get(row.query_id, {}),
        )
        mined = [
            found[index] == PROMOTE
            for index, score in enumerate(row.candidate_teacher or ())
            if row.reason[index] == SELECTED and score is not None
        ]
        if mined:
            shares.append(float(np.mean(mined)))
    if not shares:
        return None
    values = np.array(shares)
    ends = statistics.bca_interval(values, statistics.bootstrap_means(values[:, None], RESAMPLES, seed)[:, 0])
    return {
        "rate": round(float(values.mean()), 4),
        "low": None if ends is None else round(ends.low, 4),
        "high": None if ends is None else round(ends.high, 4),
    }


def table(rows: Sequence[MinedRow]) -> dict[str, Any]:
    """Verdicts of scored candidates by who found them and at which rank."""
    found: dict[tuple[str, int], Counter[str]] = {}
    for row in rows:
        for index, score in enumerate(row.candidate_teacher or ()):
            if score is not None and row.reason[index] in (SELECTED, ELIGIBLE, JUDGED):
                band = band_of(row.candidate_ranks[index])
                key = row.candidate_retrievers[index], band
                found.setdefault(key, Counter())[(row.verdict or [KEEP])[index]] += 1
    return {
        "columns": ["found by", "rank", "scored", "kept", "dropped", "promoted", "masked"],
        "rows": [
            [who, BAND_NAMES[band], *(f"{n:,}" for n in (sum(verdict.values()), *(verdict[v] for v in POLICIES)))]
            for (who, band), verdict in sorted(found.items())
        ],
    }


def strangers(rows: Sequence[MinedRow], labels: Mapping[str, Mapping[str, bool]]) -> int:
    """Labels that say nothing here: of pairs that are no candidates of these rows, or of known positives."""
    there = {row.query_id: set(row.candidate_ids) - set(row.positive_ids) for row in rows}
    return sum(document not in there.get(query, ()) for query, judged in labels.items() for document in judged)


def band_of(rank: int | None) -> int:
    """The place of a rank in BAND_NAMES; None is that of what no retriever found."""
    if rank is None:
        return len(BANDS) + 1
    return next((number for number, (_, high) in enumerate(BANDS) if rank <= high), len(BANDS))
