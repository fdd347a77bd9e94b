"""nDCG and friends, per query first, by the conventions of trec_eval.

nDCG has linear gain and an ideal list made of all judged documents; MAP@k is divided by the number of relevant
documents, found or not; RR@k sees nothing below rank k; P@k is divided by k. A document is relevant when its grade
is above 0; what is not judged, or judged 0 or less, gains nothing. Ties are the business of whoever ranks: score
descending, then document id ascending (trec_eval itself takes the id descending).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from embedtrain.errors import EmbedtrainError, UsageError, first_three

Judgements = Mapping[str, Mapping[str, float]]


class Ranking(Protocol):
    """What is measured: for every query the corpus positions of its documents, best first."""

    @property
    def positions(self) -> Sequence[np.ndarray]:
        """One int64 array a query."""
        ...


@dataclass(frozen=True)
class Graded:
    """A ranking with its grades put in: all that a measure needs to know."""

    gains: np.ndarray  # (queries, depth) float64: grade of the document at each rank, 0 where not relevant
    ideal: np.ndarray  # (queries, most relevant documents of a query): grades above 0, descending, then 0


def _dcg(gains: np.ndarray) -> np.ndarray:
    # Jarvelin and Kekalainen 2002, discounted as in trec_eval: by log2(rank + 1). Summed rank after rank, so that
    # zeros at the end change no bit and the ideal order has exactly the ideal sum.
    return (gains / np.log2(np.arange(2, gains.shape[1] + 2))).cumsum(axis=1)[:, -1]


def _ndcg(graded: Graded, k: int) -> np.ndarray:
    return np.minimum(_dcg(graded.gains[:, :k]) / _dcg(graded.ideal[:, :k]), 1.0)


def _relevant(graded: Graded, k: int) -> np.ndarray:
    return graded.gains[:, :k] > 0


def _total(graded: Graded) -> np.ndarray:
    return (graded.ideal > 0).sum(axis=1)


def _average_precision(graded: Graded, k: int) -> np.ndarray:
    hit = _relevant(graded, k)
    precision = hit.cumsum(axis=1) / np.arange(1, hit.shape[1] + 1)
    return (precision * hit).sum(axis=1) / _total(graded)


def _reciprocal_rank(graded: Graded, k: int) -> np.ndarray:
    hit = _relevant(graded, k)
    return np.where(hit.any(axis=1), 1.0 / (hit.argmax(axis=1) + 1), 0.0)


def _recall(graded: Graded, k: int) -> np.ndarray:
    return _relevant(graded, k).sum(axis=1) / _total(graded)


def _precision(graded: Graded, k: int) -> np.ndarray:
    return _relevant(graded, k).sum(axis=1) / k


_FORMULAS: dict[str, Callable[[Graded, int], np.ndarray]] = {
    "nDCG": _ndcg,
    "MAP": _average_precision,
    "RR": _reciprocal_rank,
    "Recall": _recall,
    "P": _precision,
}
_SPELLINGS = {name.lower(): name for name in _FORMULAS} | {"mrr": "RR"}


@dataclass(frozen=True)
class Measure:
    """A measure as a value: what it is, and the text that prints it and keys its results."""

    name: str  # nDCG, MAP, RR, Recall or P
    cutoff: int
    text: str  # as the user typed it

    def __str__(self) -> str:
        return self.text

    def of(self, graded: Graded) -> np.ndarray:
        """The value for every query, float64 in [0, 1]."""
        return _FORMULAS[self.name](graded, self.cutoff)


def parse(text: str) -> Measure:
    """Read `nDCG@10`, in capitals or not. Raises UsageError that lists the measures there are."""
    match = re.fullmatch(r"\s*([A-Za-z]+)@0*([1-9][0-9]{0,8})\s*", text)
    name = _SPELLINGS.get(match[1].lower()) if match else None
    if match is None or name is None:
        known = ", ".join(f"{known}@k" for known in _FORMULAS)
        raise UsageError(f"--measure {text}: the measures are {known}, with a number for k, as in nDCG@10")
    return Measure(name, int(match[2]), text.strip())


def answerable(qrels: Judgements) -> dict[str, Mapping[str, float]]:
    """The queries that have a relevant document, in their order; no measure says anything of the others."""
    return {query: judged for query, judged in qrels.items() if any(grade > 0 for grade in judged.values())}


def grade(ranking: Ranking, ids: Sequence[str], qrels: Judgements) -> Graded:
    """Put the grades of `qrels` into a ranking over documents `ids`; both are in the same order of queries.

    A query without documents has an empty array and gets 0. A judged document that is not in `ids` still counts as
    one to be found. Raises EmbedtrainError for a document that is listed twice for a query, and for a query
    without a relevant document (see `answerable`).
    """
    if len(ranking.positions) != len(qrels):
        raise ValueError(f"{len(ranking.positions)} ranked queries and {len(qrels)} judged ones")
    wanted = {document for judged in qrels.values() for document, value in judged.items() if value > 0}
    position = {identifier: index for index, identifier in enumerate(ids) if identifier in wanted}
    depth = max((len(found) for found in ranking.positions), default=0)
    gains = np.zeros((len(qrels), max(depth, 1)))
    grades: list[np.ndarray] = []
    for row, (found, (query, judged)) in enumerate(zip(ranking.positions, qrels.items(), strict=True)):
        relevant = {document: value for document, value in judged.items() if value > 0}
        if not relevant:
            raise EmbedtrainError(f"query {query} has no relevant document; leave it out of the measurement")
        grades.append(np.sort(np.array(list(relevant.values()), dtype=np.float64))[::-1])
        if len(found) == 0:
            continue
        _refuse_repeats(found, ids, query)
        there = sorted((position[document], value) for document, value in relevant.items() if document in position)
        if there:
            places, values = np.array([p for p, _ in there]), np.array([v for _, v in there])
            nearest = np.minimum(np.searchsorted(places, found), len(places) - 1)
            gains[row, : len(found)] = np.where(places[nearest] == found, values[nearest], 0.0)
    ideal = np.zeros((len(qrels), max((len(row) for row in grades), default=1)))
    for row, values in enumerate(grades):
        ideal[row, : len(values)] = values
    return Graded(gains, ideal)


def _refuse_repeats(found: np.ndarray, ids: Sequence[str], query: str) -> None:
    ordered = np.sort(found)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(again):
        names = first_three([ids[index] for index in np.unique(again)])
        raise EmbedtrainError(f"query {query} lists a document more than once: {names}; list each once")


def score_run(ranking: Ranking, ids: Sequence[str], qrels: Judgements, measure: Measure | str) -> np.ndarray:
    """The value of one measure for every query of `qrels`, in its order: (queries,) float64. See `grade`."""
    wanted = parse(measure) if isinstance(measure, str) else measure
    return wanted.of(grade(ranking, ids, qrels))
