"""A model's own similarities to the candidates of mined rows, and which of these are suspected to be positives."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embedtrain import console, denoise
from embedtrain.audit import SUSPICIOUS_RATIO
from embedtrain.collection import Collection
from embedtrain.encoder import Encoder
from embedtrain.mined import MinedRow
from embedtrain.negatives import ELIGIBLE, JUDGED, SELECTED, ratio_threshold
from embedtrain.vectors import directions

_STREAM = zlib.crc32(b"mined similarities")


@dataclass(frozen=True)
class Similarities:
    """Of each row (a query): cosine or dot product with its first positive, and with its candidates, any number."""

    positives: NDArray[np.float64]  # (rows,)
    candidates: list[NDArray[np.float64]]
    suspected: list[NDArray[np.bool_]]
    by_teacher: bool  # whether a teacher suspects, or the similarities themselves
    left_out: int  # rows that were not drawn, or have no candidate


def of(
    encoder: Encoder,
    rows: Sequence[MinedRow],
    collection: Collection,
    most: int,
    seed: int,
    progress: console.Progress,
) -> Similarities:
    """Look at `most` rows at most, drawn by `seed`: those that have a candidate that could be a negative.

    Suspected is what a teacher scores above the row's lowest positive or, in rows without a teacher's scores, what the
    model itself puts above 95 % of the positive (NV-Retriever).
    """
    usable = [row for row in rows if _candidates(row)]
    drawn = np.random.default_rng([seed, _STREAM]).permutation(len(usable))[:most]
    chosen = [usable[place] for place in sorted(drawn.tolist())]
    wanted = [[row.positive_ids[0], *(row.candidate_ids[index] for index in _candidates(row))] for row in chosen]
    distinct = list(dict.fromkeys(document for documents in wanted for document in documents))
    place = {document: number for number, document in enumerate(distinct)}
    queries = encoder.encode([collection.queries.by_id(row.query_id) for row in chosen], "query", progress)[:]
    documents = encoder.encode([collection.corpus.by_id(d) for d in distinct], "document", progress)[:]
    if encoder.similarity == "cosine":
        queries, documents = directions(queries), directions(documents)
    taught = all(row.candidate_teacher is not None for row in chosen)
    positives, candidates, suspected = np.empty(len(chosen)), [], []
    for number, (row, names) in enumerate(zip(chosen, wanted, strict=True)):
        own = documents[[place[name] for name in names]].astype(np.float64) @ queries[number].astype(np.float64)
        positives[number], others = own[0], own[1:]
        candidates.append(others)
        if taught:
            verdicts = denoise.verdicts(row, denoise.Rules(), denoise.DROP)
            suspected.append(np.array([verdicts[index] == denoise.DROP for index in _candidates(row)]))
        else:
            suspected.append(others > ratio_threshold(own[0], SUSPICIOUS_RATIO))
    return Similarities(positives, candidates, suspected, taught, len(rows) - len(chosen))


def _candidates(row: MinedRow) -> list[int]:
    """Indices of the candidates that are negatives, or would do."""
    return [index for index, why in enumerate(row.reason) if why in (SELECTED, ELIGIBLE, JUDGED)]
