"""What rankings made of the queries, and what would mend those that failed.

A query fails where none of its answers is among the first 10, so that its nDCG@10 is 0.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain import metrics, statistics
from embedtrain.diagnose.numbers import rounded
from embedtrain.hits import Hits
from embedtrain.systems import Questions

MEASURE = metrics.parse("nDCG@10")
DEPTH = MEASURE.cutoff
# A reranker reads so many documents and no more; what lies deeper it does not see.
DEEPER = 100

HYBRID, LEXICAL, RERANKER, TRAINING = "hybrid", "bm25", "reranker", "training"
# What would mend a failure, cheapest first; each failure has the first that does.
REMEDIES = {
    HYBRID: "hybrid search finds an answer",
    LEXICAL: "BM25 alone finds one: give it more weight",
    RERANKER: f"one is among the first {DEEPER}: a reranker could",
    TRAINING: "found by neither: only training",
}
RESAMPLES, TESTS = 2_000, 10_000


@dataclasses.dataclass(frozen=True)
class Found:
    """What one ranking made of the queries: nDCG@10, and the rank of the first relevant document (0: none). (q,)"""

    values: NDArray[np.float64]
    rank: NDArray[np.int64]
    graded: metrics.Graded

    @classmethod
    def of(cls, hits: Hits, questions: Questions, ids: Sequence[str]) -> "Found":
        """Put the judgements in."""
        graded = metrics.grade(hits, ids, questions.qrels)
        right = graded.gains > 0
        rank = np.where(right.any(axis=1), right.argmax(axis=1) + 1, 0).astype(np.int64)
        return cls(MEASURE.of(graded), rank, graded)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Queries without an answer among the first 10."""
        return ~self.within(DEPTH)

    def within(self, depth: int) -> NDArray[np.bool_]:
        """Queries with an answer among the first `depth`."""
        return (self.rank > 0) & (self.rank <= depth)


def remedies(model: Found, lexical: Found, hybrid: Found) -> list[str]:
    """What would mend each query, one of REMEDIES; empty where the model does not fail."""
    deeper = model.within(DEEPER) | lexical.within(DEEPER) | hybrid.within(DEEPER)
    chosen = np.select(
        [~model.failed, ~hybrid.failed, ~lexical.failed, deeper], ["", HYBRID, LEXICAL, RERANKER], TRAINING
    )
    return [str(one) for one in chosen]


def interval(values: NDArray[np.float64], seed: int) -> statistics.Interval | None:
    """The 95 % BCa interval of the mean of values (q,)."""
    means = statistics.bootstrap_means(values[:, None], RESAMPLES, seed)[:, 0]
    return statistics.bca_interval(values, means)


def ends(interval: statistics.Interval | None, sign: str = "") -> str:
    """An interval in words, as it stands behind its number."""
    return f" [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]" if interval else ""


def plain(interval: statistics.Interval | None) -> dict[str, float | None]:
    """An interval for JSON."""
    return {
        "low": None if interval is None else rounded(interval.low),
        "high": None if interval is None else rounded(interval.high),
    }
