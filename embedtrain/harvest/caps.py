"""Popular documents and templates: what has too many partners says little about each of them."""

import numpy as np
from numpy.typing import NDArray

from embedtrain.harvest import changes
from embedtrain.harvest.draft import JUDGED, TRAIN, Draft, Pairs
from embedtrain.harvest.ledger import Ints
from embedtrain.harvest.split import units
from embedtrain.harvest.summary import shorten

_SHOWN = 3


def _beyond(of: Ints, order: NDArray[np.float64], weight: NDArray[np.float64], most: int) -> NDArray[np.bool_]:
    """Whether an entry is not among the `most` of its group: those with the highest weight, then the lowest `order`."""
    places = np.lexsort((order, -weight, of))
    group = of[places]
    new = np.concatenate([[True], group[1:] != group[:-1]])[: len(group)]
    start = np.maximum.accumulate(np.where(new, np.arange(len(group)), 0))
    beyond = np.empty(len(of), dtype=bool)
    beyond[places] = np.arange(len(group)) - start >= most
    return beyond


def _weak(draft: Draft) -> Pairs:
    pairs = draft.pairs(TRAIN)
    chosen = (pairs.source != draft.name("source", JUDGED)) & (pairs.grade > 0)
    return Pairs(*(column[chosen] for column in vars(pairs).values()))


def cap(draft: Draft, per_document: int, per_query: int, seed: int) -> None:
    """Keep so many positive pairs of a document and of a query at most; 0: all. What people judged is never capped.

    Those with the highest weight stay, among equal ones those with the smallest stable hash. The most popular are told.
    """
    rules = (
        ("document", per_document, "pair of a popular document", "queries a document"),
        ("query", per_query, "pair of a query for many documents", "documents a query"),
    )
    for side, most, reason, noun in rules:
        if not most:
            continue
        pairs = _weak(draft)
        of = getattr(pairs, side)
        named, counts = np.unique(of, return_counts=True)
        popular = np.isin(of, named[counts > most])
        if not popular.any():
            continue
        other = "queries" if side == "document" else "documents"
        partners = getattr(pairs, "query" if side == "document" else "document")[popular]
        order = units(draft, other, partners, seed, "cap")
        beyond = np.zeros(len(of), dtype=bool)
        beyond[popular] = _beyond(of[popular], order, pairs.weight[popular], most)
        top = np.lexsort((named, -counts))[:_SHOWN]
        table = "documents" if side == "document" else "queries"
        told = "; ".join(
            f"{shorten(draft.text(table, int(named[place])), 60)!r} has {counts[place]:,}"
            for place in top
            if counts[place] > most
        )
        draft.notes.append(f"{int(beyond.sum()):,} pairs beyond {most} {noun} were left out: {told}")
        changes.remove_pairs(draft, np.sort(pairs.p[beyond]), reason)
    changes.forget_unasked(draft)
