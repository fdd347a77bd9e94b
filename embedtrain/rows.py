"""What training reads: rows from collections and mined artifacts, and the texts behind their ids."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from embedtrain.batching import Row, guarded
from embedtrain.collection import Collection
from embedtrain.duplicates import normalised
from embedtrain.mined import NOT_NEGATIVE, MinedRow
from embedtrain.negatives import JUDGED, LIKE_A_POSITIVE


class Sources:
    """Collections that are trained on together; with several of them an id says which one it is of."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._collections = list(collections)
        self.names = [str(number) for number in range(len(collections))]

    def key(self, source: int, identifier: str) -> str:
        """The id by which a query or document of a source is known here."""
        return f"{source}/{identifier}" if len(self._collections) > 1 else identifier

    def _find(self, key: str) -> tuple[Collection, str]:
        if len(self._collections) == 1:
            return self._collections[0], key
        source, _, identifier = key.partition("/")
        return self._collections[int(source)], identifier

    def query(self, key: str) -> str:
        """The text of a query."""
        collection, identifier = self._find(key)
        return collection.queries.by_id(identifier)

    def document(self, key: str) -> str:
        """The text of a document, its title before it."""
        collection, identifier = self._find(key)
        return collection.corpus.by_id(identifier)

    def groups(self, column: str) -> dict[str, str]:
        """The group of each document by a corpus column; documents without one are left out."""
        found: dict[str, str] = {}
        for source, collection in enumerate(self._collections):
            values = collection.corpus_column(column)
            for identifier, value in zip(collection.corpus.ids, values, strict=True):
                if value:
                    found[self.key(source, identifier)] = f"{source}/{value}"
        return found

    def pairs(self, split: str) -> tuple[list[Row], dict[str, int]]:
        """A row for every query of a split that has a text and a positive with one; what is left out is counted.

        Documents judged not relevant are negatives picked by hand.
        """
        rows: list[Row] = []
        dropped: Counter[str] = Counter()
        for source, collection in enumerate(self._collections):
            for query, judged in collection.qrels(split).items():
                filled = {d: grade for d, grade in judged.items() if normalised(collection.corpus.by_id(d))}
                positives = tuple(self.key(source, d) for d, grade in filled.items() if grade > 0)
                negatives = tuple(self.key(source, d) for d, grade in filled.items() if grade <= 0)
                if not any(grade > 0 for grade in judged.values()):
                    dropped["query without a positive"] += 1
                elif not normalised(collection.queries.by_id(query)) or not positives:
                    dropped["pair without text"] += 1
                else:
                    name = self.names[source]
                    rows.append(
                        Row(self.key(source, query), positives, negatives, explicit=negatives, source=name)
                    )
        return rows, dict(dropped)


def of_mined(mined: MinedRow) -> Row:
    """A training row of a mined or scored one.

    What the miner or the teacher took for a positive is no negative of the query in any batch; what was promoted is one
    of its positives, and what is masked stays among its documents. What was judged not relevant is picked by hand, and no
    score speaks against it.
    """
    verdicts = mined.verdict or ["keep"] * len(mined.candidate_ids)
    judged = list(zip(mined.candidate_ids, mined.reason, verdicts, strict=True))
    not_negatives = tuple(
        document for document, why, verdict in judged if why in LIKE_A_POSITIVE or verdict in NOT_NEGATIVE
    )
    negatives = tuple(mined.shown)
    by_hand = {document for document, why, _ in judged if why == JUDGED}
    teacher = None
    if mined.positive_teacher is not None and mined.candidate_teacher is not None:
        scores = zip(
            [*mined.positive_ids, *mined.candidate_ids],
            [*mined.positive_teacher, *mined.candidate_teacher],
            strict=True,
        )
        teacher = {document: score for document, score in scores if score is not None}
    return Row(
        mined.query_id,
        (*mined.positive_ids, *mined.promoted),
        negatives,
        not_negatives,
        teacher,
        explicit=tuple(document for document in negatives if document in by_hand),
        scores=_difficulty(mined),
    )


def _difficulty(mined: MinedRow) -> dict[str, float] | None:
    """How hard a candidate is: the nearer to the first rank of the fused order the harder; drawn at random, it has none."""
    ranked = zip(mined.candidate_ids, mined.candidate_ranks, strict=True)
    return {document: -float(rank) for document, rank in ranked if rank is not None} or None


def first(rows: Sequence[Row], limit: int | None) -> list[Row]:
    """The first rows, `limit` at most: of several sources as many of each, as far as they go, in the order they stand."""
    if limit is None or len(rows) <= limit:
        return list(rows)
    turns: Counter[str] = Counter()
    places = []
    for place, row in enumerate(rows):
        places.append((turns[row.source], place))
        turns[row.source] += 1
    return [rows[place] for _, place in sorted(sorted(places)[:limit], key=lambda item: item[1])]


def labelled(rows: Iterable[Row]) -> list[Row]:
    """Rows whose label is their first positive: queries that share it are of one class."""
    numbers: dict[str, int] = {}
    return [dataclasses.replace(row, label=numbers.setdefault(row.positives[0], len(numbers))) for row in rows]


def guard(rows: Sequence[Row], sources: Sources) -> list[Row]:
    """Rows to which the positives of every other row that asks the same, in the same words, are known."""
    return guarded(rows, sources.query)
