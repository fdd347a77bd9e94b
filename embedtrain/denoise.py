"""What a teacher's scores make of mined candidates: pure functions of scores, labels and a policy.

A candidate is suspected of being right where a rule says so; the policy says what becomes of it. Documents that were
judged not relevant are picked by hand: no score speaks against them.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from embedtrain.calibration import Calibration
from embedtrain.errors import UsageError
from embedtrain.mined import MinedRow
from embedtrain.negatives import ELIGIBLE, JUDGED, SELECTED, ratio_threshold
from embedtrain.sampling import generator, stratified

KEEP, DROP, PROMOTE, MASK = "keep", "drop", "promote", "mask"
POLICIES = (KEEP, DROP, PROMOTE, MASK)

BY_RANK, STRATIFIED = "rank", "stratified"
WAYS = (BY_RANK, STRATIFIED)

Probabilities = Sequence[float | None]


@dataclasses.dataclass(frozen=True)
class Rules:
    """When a candidate is suspected; those that are None say nothing.

    `margin`, `ratio`: scored above the row's lowest positive less `margin`, or above `ratio` of it (RocketQA, Qu et al.
    2021, section 3.2, with a positive of the row as yardstick). `above`: a probability of at least this. `below`: one
    above this and under `above` is neither right nor wrong, and goes.
    """

    margin: float | None = 0.0
    ratio: float | None = None
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("--drop-above", self.above), ("--keep-below", self.below)):
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"{name} {value:g}: it is a probability, from 0 to 1")
        if self.below is not None and (self.above is None or self.below > self.above):
            raise UsageError(
                "--keep-below is the lower end of a band that --drop-above ends; give both, it the smaller"
            )

    @property
    def absolute(self) -> bool:
        """Whether probabilities are asked for."""
        return self.above is not None

    def bound(self, positives: Sequence[float]) -> float:
        """The score above which a candidate of a row with these positives is suspected; infinite where no rule says."""
        lowest = min(positives)
        bounds = [math.inf]
        if self.margin is not None:
            bounds.append(lowest - self.margin)
        if self.ratio is not None:
            bounds.append(float(ratio_threshold(lowest, self.ratio)))
        return min(bounds)


def probabilities(row: MinedRow, chances: Calibration | None) -> list[float | None] | None:
    """The probability of each candidate of a row, None without a score; None where nothing makes probabilities."""
    if chances is None or row.candidate_teacher is None:
        return None
    values = np.array([np.nan if score is None else score for score in row.candidate_teacher], dtype=np.float64)
    return [None if math.isnan(value) else value for value in chances(values).tolist()]


def as_mined(row: MinedRow) -> list[bool]:
    """Which candidates the miner selected, whoever stands in their place now."""
    verdicts = row.verdict or [KEEP] * len(row.candidate_ids)
    return [
        why == SELECTED or (why == JUDGED and (used or verdict == PROMOTE))
        for used, why, verdict in zip(row.selected, row.reason, verdicts, strict=True)
    ]


def verdicts(
    row: MinedRow,
    rules: Rules,
    policy: str,
    *,
    probabilities: Probabilities | None = None,
    labels: Mapping[str, bool] | None = None,
) -> list[str]:
    """What becomes of each candidate of a scored row.

    Only candidates that serve as negatives, or would do, and have a score are judged. `labels` say of documents whether
    somebody found them right; that word stands before the teacher's, whatever the policy. Known positives stay as they are.
    """
    if row.positive_teacher is None or row.candidate_teacher is None:
        raise ValueError(f"the row of query {row.query_id} has no scores")
    bound = rules.bound(row.positive_teacher)
    found = []
    for index, (document, score) in enumerate(zip(row.candidate_ids, row.candidate_teacher, strict=True)):
        label = labels.get(document) if labels and document not in row.positive_ids else None
        if label is not None:
            found.append(PROMOTE if label else KEEP)
        elif score is None or row.reason[index] not in (SELECTED, ELIGIBLE):
            found.append(KEEP)
        else:
            chance = None if probabilities is None else probabilities[index]
            likely = rules.above is not None and chance is not None and chance >= rules.above
            unclear = rules.below is not None and chance is not None and chance > rules.below
            found.append(_fate(policy, suspected=score > bound or likely, unclear=unclear))
    return found


def _fate(policy: str, *, suspected: bool, unclear: bool) -> str:
    if policy == KEEP or not (suspected or unclear):
        return KEEP
    return policy if suspected else DROP


def chosen(row: MinedRow, found: Sequence[str], wanted: int | None, way: str, seed: int) -> list[bool]:
    """Which candidates of a scored row stand for its negatives, given its verdicts: `wanted` at most, None: as many as mined.

    rank: those the miner selected and nothing took back, masked ones among them; in the place of others the next by rank
    that the teacher has seen and nothing speaks against. stratified: all chosen anew among the survivors, one from each
    of as many equal shares by the teacher's score: fed with the hardest alone, a loss on the teacher's scores may
    collapse (arXiv 2604.04734). Documents judged not relevant stay in either; nothing is filled up with others.
    """
    scores = row.candidate_teacher or [None] * len(row.candidate_ids)
    mined = as_mined(row)
    free, taken = [], set()
    for index, (why, verdict, score) in enumerate(zip(row.reason, found, scores, strict=True)):
        if verdict == KEEP and why in (SELECTED, ELIGIBLE) and score is not None:
            free.append(index)
        elif mined[index] and verdict in (KEEP, MASK):
            taken.add(index)  # picked by hand, masked, or never scored
    count = sum(mined) if wanted is None else wanted
    taken = set(sorted(taken, key=row.place)[:count])
    room = count - len(taken)
    if way == STRATIFIED:
        values = np.array([scores[index] for index in free], dtype=np.float64)
        rng = generator(seed, row.query_id, "by the teacher")
        places: list[int] = stratified(values, 0.0, room, rng).tolist() if room and free else []
        taken |= {free[place] for place in places}
    else:
        stay = [index for index in free if mined[index]]
        more = [index for index in free if not mined[index] and row.candidate_ranks[index] is not None]
        taken |= set([*stay, *more][:room])
    return [index in taken for index in range(len(found))]
