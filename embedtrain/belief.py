"""Whether a teacher is worth believing: what it says of documents whose labels are known.

A candidate is taken for not relevant here unless a label says otherwise, which some are; a teacher that finds those out
looks a little worse for it. What a rule on scores or ranks took from the negatives counts too, where it was scored:
there the retriever errs, and without it its order would look better than it is.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import metrics, statistics
from embedtrain.mined import MinedRow
from embedtrain.negatives import ELIGIBLE, JUDGED, OPEN, SELECTED

MEASURE = "nDCG@10"
RESAMPLES = 2_000

# Reasons by which the retriever's own scores and ranks took a candidate away.
RULED_OUT = OPEN - {SELECTED, ELIGIBLE}

# A score within this of 0 or 1 after a sigmoid is at its end.
END = 0.01


@dataclasses.dataclass(frozen=True)
class Belief:
    """A teacher beside the retriever whose order it corrects, on rows that it has scored.

    auc: a positive scores above a candidate of its row, as a share of such pairs, ties half, a mean over queries with its
    interval. positive_first: share of queries whose best positive is above every candidate. teacher, retriever: nDCG@10 of
    their orders of the same documents, and `difference` the one less the other, paired by query. spread: standard
    deviation of the scores of a row, as a mean. saturated: share of scores within 1 % of the ends after a sigmoid; None
    where they are no logits. unseen: candidates that rules left out and no teacher saw, ranked before the last that one
    did: the retriever looks better without them.
    """

    queries: int
    auc: float
    auc_interval: statistics.Interval | None
    positive_first: float
    teacher: float
    retriever: float
    difference: statistics.Comparison
    spread: float
    saturated: float | None
    unseen: int

    def summary(self) -> dict[str, Any]:
        """The numbers under the names they are printed and recorded by."""
        ends = self.difference.interval
        found: dict[str, Any] = {
            "auc": round(self.auc, 4),
            "auc_high": None if self.auc_interval is None else round(self.auc_interval.high, 4),
            "positive_first": round(self.positive_first, 4),
            f"{MEASURE}_teacher": round(self.teacher, 4),
            f"{MEASURE}_retriever": round(self.retriever, 4),
            "difference": round(self.difference.difference, 4),
            "low": None if ends is None else round(ends.low, 4),
            "high": None if ends is None else round(ends.high, 4),
            "spread": round(self.spread, 4),
            "unseen": self.unseen,
        }
        return found if self.saturated is None else {**found, "saturated": round(self.saturated, 4)}


def doubt(summary: Mapping[str, Any] | None, on: str) -> tuple[str, bool] | None:
    """What speaks against a teacher by its `summary`, in a sentence, and whether it is certain; None: nothing does.

    Certain: it ranks positives below candidates more often than not, or is worse than the retriever, and the interval
    says so too. Where rules took candidates away that it never saw, that it is worse is not certain.
    """
    if not summary:
        return None
    doubts = []
    if summary["auc"] < 0.5:
        doubts.append(
            (
                f"the teacher ranks negatives above positives more often than not {on} (AUC {summary['auc']:.2f})",
                summary["auc_high"] is not None and summary["auc_high"] < 0.5,
            )
        )
    if summary["difference"] < 0:
        ends = "" if summary["low"] is None else f" [{summary['low']:+.3f}, {summary['high']:+.3f}]"
        doubts.append(
            (
                f"the teacher is worse than the retriever it is to correct {on} ({MEASURE} "
                f"{summary[f'{MEASURE}_teacher']:.3f} against {summary[f'{MEASURE}_retriever']:.3f}, difference "
                f"{summary['difference']:+.3f}{ends}{_unseen(summary['unseen'])})",
                summary["high"] is not None and summary["high"] < 0 and not summary["unseen"],
            )
        )
    # What is certain is said first: an AUC just below a half must not hide a difference that is sure.
    return max(doubts, key=lambda one: one[1], default=None)


def _unseen(count: int) -> str:
    return (
        f"; {count:,} candidates that rules left out are not among them, which flatters the retriever"
        if count
        else ""
    )


def measure(
    rows: Sequence[MinedRow],
    *,
    logits: bool,
    labels: Mapping[str, Mapping[str, bool]] | None = None,
    seed: int = 0,
) -> Belief | None:
    """The belief that scored rows give reason for; None where no row has a candidate with a score."""
    right = labels or {}
    judged = [found for row in rows if (found := _Judged.of(row, right.get(row.query_id, {}))) is not None]
    if not judged:
        return None
    shares = np.array([row.wins / (len(row.positives) * len(row.candidates)) for row in judged])
    scores = [np.concatenate([row.positives, row.candidates]) for row in judged]
    teacher, retriever = (_ndcg([order(row) for row in judged]) for order in (_Judged.by_teacher, _Judged.by_rank))
    means = [statistics.bootstrap_means(values[:, None], RESAMPLES, seed) for values in (teacher, retriever)]
    saturated = None
    if logits:
        chances = 1 / (1 + np.exp(-np.concatenate(scores).clip(-700, 700)))
        saturated = float(((chances < END) | (chances > 1 - END)).mean())
    return Belief(
        queries=len(judged),
        auc=float(shares.mean()),
        auc_interval=statistics.bca_interval(
            shares, statistics.bootstrap_means(shares[:, None], RESAMPLES, seed)[:, 0]
        ),
        positive_first=float(np.mean([row.positives.max() > row.candidates.max() for row in judged])),
        teacher=float(teacher.mean()),
        retriever=float(retriever.mean()),
        difference=statistics.compare(teacher, retriever, means[0][:, 0], means[1][:, 0], seed),
        spread=float(np.mean([values.std() for values in scores])),
        saturated=saturated,
        unseen=sum(row.unseen for row in judged),
    )


@dataclasses.dataclass(frozen=True)
class _Judged:
    """The scores of a row's positives and candidates, and their documents and ranks (positives first)."""

    positives: NDArray[np.float64]
    candidates: NDArray[np.float64]
    documents: list[str]
    ranks: list[float]
    unseen: int

    @classmethod
    def of(cls, row: MinedRow, labels: Mapping[str, bool]) -> "_Judged | None":
        if row.positive_teacher is None or row.candidate_teacher is None:
            return None
        rank = dict(zip(row.candidate_ids, row.candidate_ranks, strict=True))
        counted = [
            index
            for index, (document, why) in enumerate(zip(row.candidate_ids, row.reason, strict=True))
            if (why in OPEN or why == JUDGED) and not labels.get(document) and document not in row.positive_ids
        ]
        used = [index for index in counted if row.candidate_teacher[index] is not None]
        if not used:
            return None
        last = max((row.candidate_ranks[index] or 0 for index in used), default=0)
        ruled = [i for i in counted if row.reason[i] in RULED_OUT and row.candidate_teacher[i] is None]
        documents = [*row.positive_ids, *(row.candidate_ids[index] for index in used)]
        # What no retriever found stands behind all that one did.
        places = (rank.get(document) for document in documents)
        return cls(
            np.array(row.positive_teacher, dtype=np.float64),
            np.array([row.candidate_teacher[index] for index in used], dtype=np.float64),
            documents,
            [float("inf") if place is None else place for place in places],
            sum((row.candidate_ranks[index] or last) < last for index in ruled),
        )

    @property
    def wins(self) -> float:
        above = (self.positives[:, None] > self.candidates).sum()
        return float(above + 0.5 * (self.positives[:, None] == self.candidates).sum())

    def by_teacher(self) -> tuple[list[bool], int]:
        """Whether the document at each rank is a positive, in the teacher's order, and how many there are."""
        return self._order((-np.concatenate([self.positives, self.candidates])).tolist())

    def by_rank(self) -> tuple[list[bool], int]:
        """The same in the retriever's."""
        return self._order(self.ranks)

    def _order(self, keys: list[float]) -> tuple[list[bool], int]:
        order = sorted(range(len(keys)), key=lambda place: (keys[place], self.documents[place]))
        return [place < len(self.positives) for place in order], len(self.positives)


def _ndcg(orders: Sequence[tuple[list[bool], int]]) -> NDArray[np.float64]:
    gains = np.zeros((len(orders), max(len(order) for order, _ in orders)))
    ideal = np.zeros((len(orders), max(count for _, count in orders)))
    for row, (order, count) in enumerate(orders):
        gains[row, : len(order)] = order
        ideal[row, :count] = 1.0
    return metrics.parse(MEASURE).of(metrics.Graded(gains, ideal, np.zeros_like(gains, dtype=bool)))
