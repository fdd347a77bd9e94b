"""Mined rows as pairs for a teacher, and its scores back in their places."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from embedtrain import denoise
from embedtrain.collection import Collection
from embedtrain.mined import MinedRow

if TYPE_CHECKING:  # judging stored scores anew needs no model
    from embedtrain.reranker import Pair

# What the scores of an artifact are: raw logits, similarities of a bi-encoder, or means of standardised ones.
LOGIT, SIMILARITY, STANDARDISED = "logit", "similarity", "standardised"

# Scores of a row's positives, and of its candidates: None where one was not asked for.
Scores = tuple[list[float], list[float | None]]


def is_count(text: str) -> bool:
    """Whether a choice of candidates is a number of ranks."""
    return text.isdecimal() and int(text) > 0


def wanted(row: MinedRow, candidates: str) -> list[int]:
    """Indices of the candidates that are scored: all, or those selected as negatives and the first ranks."""
    first = int(candidates) if is_count(candidates) else 0
    mined = denoise.as_mined(row)  # whoever took their places may have been seen by another teacher alone
    return [
        index
        for index, (used, rank) in enumerate(zip(row.selected, row.candidate_ranks, strict=True))
        if used or mined[index] or candidates == "all" or (rank is not None and rank <= first)
    ]


def pairs_of(rows: Sequence[MinedRow], wanted: Sequence[Sequence[int]], collection: Collection) -> list["Pair"]:
    """Query and document of every row's positives, then of its `wanted` candidates, row after row."""
    pairs = []
    for row, indices in zip(rows, wanted, strict=True):
        query = collection.queries.by_id(row.query_id)
        documents = [*row.positive_ids, *(row.candidate_ids[index] for index in indices)]
        pairs += [(query, collection.corpus.by_id(document)) for document in documents]
    return pairs


def in_rows(
    rows: Sequence[MinedRow], wanted: Sequence[Sequence[int]], scores: NDArray[np.float32]
) -> list[Scores]:
    """The scores (n,) of `pairs_of`, one entry a row."""
    values = iter(scores.tolist())
    found = []
    for row, indices in zip(rows, wanted, strict=True):
        positives = [next(values) for _ in row.positive_ids]
        candidates: list[float | None] = [None] * len(row.candidate_ids)
        for index in indices:
            candidates[index] = next(values)
        found.append((positives, candidates))
    return found


def with_scores(rows: Sequence[MinedRow], scores: Sequence[Scores]) -> list[MinedRow]:
    """Rows with what a teacher, or several together, say of them."""
    return [
        dataclasses.replace(row, positive_teacher=positives, candidate_teacher=candidates, teachers=[])
        for row, (positives, candidates) in zip(rows, scores, strict=True)
    ]
