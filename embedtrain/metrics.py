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
    judged = _Judged.of(ids, qrels)
    depth = max(1, max((len(found) for found in ranking.positions), default=0))
    gains = np.zeros((len(qrels), depth))
    unjudged = np.zeros((len(qrels), depth), dtype=bool)
    # Of every document the rank it has in the query at hand, or had in one before: looked up, not searched for.
    rank = np.zeros(len(ids), dtype=np.int64)
    order = np.arange(depth)
    for row, (found, query) in enumerate(zip(ranking.positions, qrels, strict=True)):
        count = len(found)
        if count == 0:
            continue
        rank[found] = order[:count]
        if (rank[found] != order[:count]).any():
            raise EmbedtrainError(_repeated(found, ids, query))
        unjudged[row, :count] = True
        part = slice(judged.ends[row], judged.ends[row + 1])
        places = judged.places[part]
        at = np.minimum(rank[places], count - 1)
        there = found[at] == places
        at = at[there]
        gains[row, at] = judged.gains[part][there]
        unjudged[row, at] = False
    return Graded(gains, judged.ideal, unjudged)


@dataclass(frozen=True)
class _Judged:
    """Judgements of all queries, flat: those of query i stand from ends[i] to ends[i + 1]."""

    places: np.ndarray  # (judgements,) positions in `ids`; documents that are not there are left out
    gains: np.ndarray  # (judgements,) grades, 0 where not relevant
    ends: list[int]
    ideal: np.ndarray  # (queries, most relevant documents): see `Graded`

    @classmethod
    def of(cls, ids: Sequence[str], qrels: Judgements) -> "_Judged":
        named = {document for judged in qrels.values() for document in judged}
        position = {identifier: index for index, identifier in enumerate(ids) if identifier in named}
        places = [position.get(document, -1) for judged in qrels.values() for document in judged]
        grades = np.array([grade for judged in qrels.values() for grade in judged.values()], dtype=np.float64)
        gains = np.maximum(grades, 0.0)
        query = np.repeat(np.arange(len(qrels)), [len(judged) for judged in qrels.values()])
        best = np.lexsort((-gains, query))
        starts = np.searchsorted(query, np.arange(len(qrels)))
        ideal = np.zeros((len(qrels), max(1, int(np.bincount(query, minlength=1).max(initial=0)))))
        ideal[query[best], np.arange(len(best)) - starts[query[best]]] = gains[best]
        relevant = max(1, int((ideal > 0).sum(axis=1).max(initial=0)))
        there = np.array(places, dtype=np.int64) >= 0
        ends = np.searchsorted(query[there], np.arange(len(qrels) + 1))
        return cls(np.array(places, dtype=np.int64)[there], gains[there], ends.tolist(), ideal[:, :relevant])


def _repeated(found: np.ndarray, ids: Sequence[str], query: str) -> str:
    ordered = np.sort(found)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    names = first_three([ids[index] for index in np.unique(again)])
    return f"query {query} lists a document more than once: {names}; list each once"


def score_run(ranking: Ranking, ids: Sequence[str], qrels: Judgements, measure: Measure | str) -> np.ndarray:
    """The value of one measure for every query of `qrels`, in its order: (queries,) float64. See `grade`."""
    wanted = parse(measure) if isinstance(measure, str) else measure
    return wanted.of(grade(ranking, ids, qrels))
