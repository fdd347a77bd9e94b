"""nDCG and friends, per query first, by the conventions of trec_eval.

nDCG has linear gain and an ideal list made of all judged documents; MAP@k is divided by the number of relevant
documents, found or not; RR@k sees nothing below rank k; P@k is divided by k. A document is relevant when its grade
is above 0; what is not judged, or judged 0 or less, gains nothing. Where others define a measure otherwise, theirs
is an option in its name: nDCG(gain=exp)@10, MAP(norm=cutoff)@10. Ties are the business of whoever ranks: score
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
    unjudged: np.ndarray  # (queries, depth) bool: whether nothing is known of the document at a rank


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, and 0 where there is nothing to be found: a query without a relevant document."""
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _dcg(gains: np.ndarray) -> np.ndarray:
    # Jarvelin and Kekalainen 2002, discounted as in trec_eval: by log2(rank + 1). Summed rank after rank, so that
    # zeros at the end change no bit and the ideal order has exactly the ideal sum.
    return (gains / np.log2(np.arange(2, gains.shape[1] + 2))).cumsum(axis=1)[:, -1]


def _ndcg(graded: Graded, k: int) -> np.ndarray:
    return np.minimum(_share(_dcg(graded.gains[:, :k]), _dcg(graded.ideal[:, :k])), 1.0)


def _ndcg_exp(graded: Graded, k: int) -> np.ndarray:
    # Burges et al. 2005: a grade g gains 2^g - 1.
    return _ndcg(Graded(np.exp2(graded.gains) - 1, np.exp2(graded.ideal) - 1, graded.unjudged), k)


def _relevant(graded: Graded, k: int) -> np.ndarray:
    return graded.gains[:, :k] > 0


def _total(graded: Graded) -> np.ndarray:
    return (graded.ideal > 0).sum(axis=1)


def _precisions(graded: Graded, k: int) -> np.ndarray:
    """The sum over the relevant documents in the first k of the precision at their ranks."""
    hit = _relevant(graded, k)
    return (hit.cumsum(axis=1) / np.arange(1, hit.shape[1] + 1) * hit).sum(axis=1)


def _average_precision(graded: Graded, k: int) -> np.ndarray:
    return _share(_precisions(graded, k), _total(graded))


def _average_precision_cutoff(graded: Graded, k: int) -> np.ndarray:
    return _share(_precisions(graded, k), np.minimum(_total(graded), k))


def _reciprocal_rank(graded: Graded, k: int) -> np.ndarray:
    hit = _relevant(graded, k)
    return np.where(hit.any(axis=1), 1.0 / (hit.argmax(axis=1) + 1), 0.0)


def _recall(graded: Graded, k: int) -> np.ndarray:
    return _share(_relevant(graded, k).sum(axis=1), _total(graded))


def _recall_capped(graded: Graded, k: int) -> np.ndarray:
    # Thakur et al. 2021 (BEIR): of as many as there was room for.
    return _share(_relevant(graded, k).sum(axis=1), np.minimum(_total(graded), k))


def _precision(graded: Graded, k: int) -> np.ndarray:
    return _relevant(graded, k).sum(axis=1) / k


def _success(graded: Graded, k: int) -> np.ndarray:
    return np.where(_relevant(graded, k).any(axis=1), 1.0, 0.0)


def _hole(graded: Graded, k: int) -> np.ndarray:
    return graded.unjudged[:, :k].sum(axis=1) / k


Formula = Callable[[Graded, int], np.ndarray]

# By name, then by option; the first option is the one that is meant where none is written.
_FORMULAS: dict[str, dict[str, Formula]] = {
    "nDCG": {"gain=linear": _ndcg, "gain=exp": _ndcg_exp},
    "MAP": {"norm=all": _average_precision, "norm=cutoff": _average_precision_cutoff},
    "RR": {"": _reciprocal_rank},
    "Recall": {"": _recall},
    "R-cap": {"": _recall_capped},
    "P": {"": _precision},
    "Success": {"": _success},
    "hole": {"": _hole},
}
NAMES = tuple(_FORMULAS)
_SPELLINGS = {name.lower(): name for name in _FORMULAS} | {"mrr": "RR", "r_cap": "R-cap"}
_FORM = re.compile(r"\s*(?P<name>[A-Za-z_-]+)(?:\((?P<option>[a-z]+=[a-z]+)\))?@0*(?P<cutoff>[1-9][0-9]{0,8})\s*")


@dataclass(frozen=True)
class Measure:
    """A measure as a value: what it is, and the text that prints it and keys its results."""

    name: str  # one of NAMES
    cutoff: int
    text: str  # as the user typed it
    option: str = ""  # one of the name's options, as in gain=exp; "": the first

    def __str__(self) -> str:
        return self.text

    @property
    def quality(self) -> bool:
        """Whether more of it is better; the share of unjudged documents says how far the others can be believed."""
        return self.name != "hole"

    def of(self, graded: Graded) -> np.ndarray:
        """The value for every query, float64 in [0, 1]."""
        formulas = _FORMULAS[self.name]
        return formulas[self.option or next(iter(formulas))](graded, self.cutoff)


def parse(text: str) -> Measure:
    """Read `nDCG@10` or `nDCG(gain=exp)@10`, in capitals or not. Raises UsageError that lists the measures there are."""
    match = _FORM.fullmatch(text)
    name = _SPELLINGS.get(match["name"].lower()) if match else None
    if match is None or name is None:
        known = ", ".join(f"{known}@k" for known in _FORMULAS)
        raise UsageError(f"--measure {text}: the measures are {known}, with a number for k, as in nDCG@10")
    option = match["option"] or ""
    if option and option not in _FORMULAS[name]:
        there = [f"{name}({known})@{match['cutoff']}" for known in _FORMULAS[name] if known]
        choices = f"; {' and '.join(there)} are" if there else ""
        raise UsageError(f"--measure {text}: {option} is no option of {name}{choices}")
    return Measure(name, int(match["cutoff"]), text.strip(), option)


def answerable(qrels: Judgements) -> dict[str, Mapping[str, float]]:
    """The queries that have a relevant document, in their order; no measure says anything of the others."""
    return {query: judged for query, judged in qrels.items() if any(grade > 0 for grade in judged.values())}


def grade(ranking: Ranking, ids: Sequence[str], qrels: Judgements) -> Graded:
    """Put the grades of `qrels` into a ranking over documents `ids`; both are in the same order of queries.

    A query without documents has an empty array and gets 0, as does one without a relevant document (see
    `answerable`). A judged document that is not in `ids` still counts as one to be found. Raises EmbedtrainError for a
    document that is listed twice for a query.
    """
    if len(ranking.positions) != len(qrels):
        raise ValueError(f"{len(ranking.positions)} ranked queries and {len(qrels)} judged ones")
    named = {document for judged in qrels.values() for document in judged}
    position = {identifier: index for index, identifier in enumerate(ids) if identifier in named}
    depth = max(1, max((len(found) for found in ranking.positions), default=0))
    gains = np.zeros((len(qrels), depth))
    unjudged = np.zeros((len(qrels), depth), dtype=bool)
    grades: list[np.ndarray] = []
    for row, (found, (query, judged)) in enumerate(zip(ranking.positions, qrels.items(), strict=True)):
        relevant = [value for value in judged.values() if value > 0]
        grades.append(np.sort(np.array(relevant, dtype=np.float64))[::-1])
        if len(found) == 0:
            continue
        _refuse_repeats(found, ids, query)
        unjudged[row, : len(found)] = True
        there = sorted((position[document], value) for document, value in judged.items() if document in position)
        if there:
            places, values = np.array([p for p, _ in there]), np.array([v for _, v in there])
            nearest = np.minimum(np.searchsorted(places, found), len(places) - 1)
            known = places[nearest] == found
            gains[row, : len(found)] = np.where(known, np.maximum(values[nearest], 0.0), 0.0)
            unjudged[row, : len(found)] = ~known
    ideal = np.zeros((len(qrels), max(1, max((len(row) for row in grades), default=1))))
    for row, values in enumerate(grades):
        ideal[row, : len(values)] = values
    return Graded(gains, ideal, unjudged)


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
