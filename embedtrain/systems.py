"""What is measured: rankings of the queries of one split, by whatever made them, and run files among them."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embedtrain import metrics, trec
from embedtrain.artifacts import beyond_limit
from embedtrain.collection import Collection
from embedtrain.config import LEFT_OUT, ZERO
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.hits import Hits

BASE = "base"


@dataclasses.dataclass(frozen=True)
class Questions:
    """The queries that are measured, in the order of the split, with their judgements."""

    ids: list[str]
    texts: list[str]
    qrels: metrics.Judgements
    left_out: int  # judged queries without a relevant document
    beyond_limit: dict[str, int]
    keep_self: bool = False  # whether a hit may be the query itself

    @classmethod
    def of(
        cls,
        collection: Collection,
        split: str,
        limit: int | None,
        *,
        no_relevant: str = LEFT_OUT,
        keep_self: bool = False,
    ) -> "Questions":
        """Read a split. Raises EmbedtrainError where no query of it has a relevant document.

        Those without one are left out, or with `no_relevant` "zero" measured, which gives them 0.
        """
        qrels = collection.qrels(split)
        answerable = metrics.answerable(qrels)
        if not answerable:
            raise EmbedtrainError(f"no query of split {split} of {collection.path} has a relevant document")
        kept: Mapping[str, Mapping[str, float]] = qrels if no_relevant == ZERO else answerable
        ids = list(kept)[:limit]
        texts = [collection.queries.by_id(query) for query in ids]
        return cls(
            ids,
            texts,
            {query: kept[query] for query in ids},
            len(qrels) - len(kept),
            beyond_limit(len(kept), limit),
            keep_self,
        )


@dataclasses.dataclass
class System:
    """One row of the result: its name, what it found over documents `ids`, and what is worth saying of it."""

    name: str
    hits: Hits
    ids: Sequence[str]
    about: dict[str, Any]  # plain values, for JSON
    said: list[str] = dataclasses.field(default_factory=list)  # sentences, for people


class Names:
    """Names of systems: each once, and each with a file name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, wanted: str) -> str:
        name, number = wanted, 1
        while file_name(name).lower() in self._taken:
            number += 1
            name = f"{wanted} ({number})"
        self._taken.add(file_name(name).lower())
        return name


def file_name(system: str) -> str:
    """The name of a system's run file, without its ending."""
    return re.sub(r"[^\w.+-]+", "_", system).strip("._") or "run"


def without_self(hits: Hits, questions: Questions, ids: Sequence[str], k: int | None) -> tuple[Hits, int]:
    """Take out hits whose document id is the query's id, then keep k a query; also how many were taken out.

    Collections made of documents (ArguAna) ask with a document that is in the corpus. A document that is judged
    relevant stays: there the two ids are equal by chance. With `questions.keep_self` none is taken out.
    """
    alike = not questions.keep_self and bool(set(questions.ids) & set(ids))
    place = {identifier: index for index, identifier in enumerate(ids)} if alike else {}
    positions, scores, removed = [], [], 0
    for query, found, values in zip(questions.ids, hits.positions, hits.scores, strict=True):
        own = place.get(query, -1)
        if questions.qrels[query].get(query, 0) <= 0 and own in found:
            keep = found != own
            found, values, removed = found[keep], values[keep], removed + 1
        positions.append(found[:k])
        scores.append(values[:k])
    return Hits(positions, scores), removed


def system_of(
    name: str, hits: Hits, ids: Sequence[str], questions: Questions, k: int | None, **about: Any
) -> System:
    """A ranking as a system: without self-hits, and with what is counted of it."""
    hits, removed = without_self(hits, questions, ids, k)
    counts = {
        "unanswered": sum(len(found) == 0 for found in hits.positions),
        "tied_queries": sum(bool((scores[1:] == scores[:-1]).any()) for scores in hits.scores),
        "self_hits": removed,
    }
    return System(name, hits, ids, {**about, **counts})


def recipe(name: str, seeds: Sequence[System], queries: int) -> System:
    """What was trained from several seeds as one system: it found nothing itself, its values are the means of theirs."""
    return System(name, Hits.nothing(queries), [], {"seeds": [system.name for system in seeds], "self_hits": 0})


def from_file(
    path: Path, run: dict[str, trec.Ranked], collection: Collection, questions: Questions, names: Names
) -> System:
    """A run file as a system. Documents that are not in the corpus keep their ranks, as misses; this is said."""
    shared = [query for query in questions.ids if query in run]
    foreign = [query for query in run if query not in questions.qrels]
    if not shared:
        raise EmbedtrainError(
            f"run {path} has none of the {len(questions.ids)} queries that are measured; it has "
            f"{first_three(list(run))} and the split has {first_three(questions.ids)}; check --split"
        )
    place = dict(collection.corpus.position)
    ids = list(collection.corpus.ids)
    for query in shared:
        for document in run[query].ids:
            if document not in place:
                place[document] = len(ids)
                ids.append(document)
    unknown = ids[len(collection.corpus) :]
    if len(unknown) == len({document for query in shared for document in run[query].ids}):
        raise EmbedtrainError(
            f"run {path} names no document of {collection.path}; it names {first_three(unknown)}: "
            "was it made from another collection?"
        )
    nothing = trec.Ranked([], np.empty(0, dtype=np.float32))
    ranked = [run.get(query, nothing) for query in questions.ids]
    hits = Hits(
        [np.array([place[document] for document in row.ids], dtype=np.int64) for row in ranked],
        [row.scores for row in ranked],
    )
    about: dict[str, Any] = {"run": path.name}
    if foreign:
        about["queries_not_measured"] = len(foreign)
    if unknown:
        about["documents_not_in_corpus"] = len(unknown)
    missing = [query for query in questions.ids if query not in run]
    system = system_of(names(path.name), hits, ids, questions, None, **about)
    system.said = [
        text
        for count, text in (
            (len(missing), f"{len(missing)} measured queries are not in it and count 0: {first_three(missing)}"),
            (len(foreign), f"{len(foreign)} of its queries are not measured: {first_three(foreign)}"),
            (len(unknown), f"{len(unknown)} of its documents are not in the corpus: {first_three(unknown)}"),
        )
        if count
    ]
    return system
