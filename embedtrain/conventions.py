"""What evaluations count differently: ties, copies of a text, queries without a relevant document; one choice each.

The defaults are what a fair comparison wants; the others are there to arrive at somebody else's number.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embedtrain.collection import Texts
from embedtrain.config import LEFT_OUT, ZERO, EvalOptions
from embedtrain.duplicates import BLANK, fingerprint
from embedtrain.errors import UsageError
from embedtrain.hits import Hits
from embedtrain.metrics import Judgements
from embedtrain.systems import Questions, System

ASCENDING, DESCENDING = "ascending", "descending"


def check(options: EvalOptions) -> None:
    """UsageError for a choice that there is not."""
    for flag, value, choices in (
        ("--ties", options.ties, (ASCENDING, DESCENDING)),
        ("--no-relevant", options.no_relevant, (LEFT_OUT, ZERO)),
    ):
        if value not in choices:
            raise UsageError(f"{flag} {value}: {' and '.join(choices)} are the choices")


def said(options: EvalOptions) -> str:
    """The conventions of an evaluation in a line."""
    parts = [
        "as trec_eval: linear gain, MAP over all relevant documents",
        f"ties by score, then document id {options.ties}",
    ]
    if options.no_relevant == ZERO:
        parts.append("queries without a relevant document count 0")
    if options.group_duplicates:
        parts.append("documents of one text are one document")
    return "; ".join(parts)


def applied(
    systems: Sequence[System], questions: Questions, copies: "Copies", options: EvalOptions, deepest: int
) -> tuple[list[System], Questions]:
    """Systems and questions as they are measured; what they hold themselves stays.

    `deepest` is the largest cutoff: where copies leave fewer documents than that of a list that had so many, it is said.
    """
    measured = []
    judged = questions
    if options.group_duplicates:
        judged = dataclasses.replace(questions, qrels=copies.of_qrels(questions.qrels))
    for system in systems:
        hits = descending(system.hits, system.ids) if options.ties == DESCENDING else system.hits
        if options.group_duplicates:
            before, hits = hits, copies.of_hits(hits, judged)
            short = sum(
                len(found) < deepest <= len(all_of_them)
                for found, all_of_them in zip(hits.positions, before.positions, strict=True)
            )
            if short:
                system.said.append(
                    f"copies leave {short:,} queries with fewer than {deepest} documents; a larger --top-k gives more"
                )
        measured.append(dataclasses.replace(system, hits=hits))
    return measured, judged


def descending(hits: Hits, ids: Sequence[str]) -> Hits:
    """Hits in the order trec_eval reads them in: score descending, then document id descending."""
    positions, scores = [], []
    for found, values in zip(hits.positions, hits.scores, strict=True):
        keys = [(score, ids[place]) for score, place in zip(values.tolist(), found.tolist(), strict=True)]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__, reverse=True), dtype=np.int64)
        positions.append(found[order])
        scores.append(values[order])
    return Hits(positions, scores)


class Copies:
    """Documents with the same normalised text as the one of them that comes first in the corpus."""

    def __init__(self, corpus: Texts) -> None:
        prints = np.fromiter((fingerprint(text) for text in corpus), dtype=np.int64, count=len(corpus))
        _, first, group = np.unique(prints, return_index=True, return_inverse=True)
        own = np.arange(len(corpus))
        self._first: NDArray[np.int64] = np.where(prints == BLANK, own, first[group])
        self._ids = corpus.ids
        self._position = corpus.position

    @property
    def groups(self) -> int:
        """How many texts several documents have."""
        repeated = self._first[self._first != np.arange(len(self._first))]
        return len(np.unique(repeated))

    def of_hits(self, hits: Hits, questions: Questions) -> Hits:
        """Each document as the first of its text, where the first of them stood; positions beyond the corpus stay.

        A copy of the query's own document leaves as the document itself does (see `systems.without_self`); the qrels of
        `questions` are those of `of_qrels`.
        """
        positions, scores = [], []
        for query, found, values in zip(questions.ids, hits.positions, hits.scores, strict=True):
            inside = found < len(self._first)
            named = found.copy()
            named[inside] = self._first[found[inside]]
            kept = np.sort(np.unique(named, return_index=True)[1])
            own = self._position.get(query)
            if own is not None and not questions.keep_self:
                first = int(self._first[own])
                if questions.qrels[query].get(self._ids[first], 0) <= 0:
                    kept = kept[named[kept] != first]
            positions.append(named[kept])
            scores.append(values[kept])
        return Hits(positions, scores)

    def of_qrels(self, qrels: Judgements) -> dict[str, dict[str, float]]:
        """Judgements of the first of each text: the highest grade that one of them has."""
        found: dict[str, dict[str, float]] = {}
        for query, judged in qrels.items():
            row = found.setdefault(query, {})
            for document, grade in judged.items():
                place = self._position.get(document)
                name = document if place is None else self._ids[int(self._first[place])]
                row[name] = max(grade, row.get(name, grade))
        return found
