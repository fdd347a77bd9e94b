"""What is exported: queries with their positives and negatives, of a split's qrels or of a mined or scored artifact."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from embedtrain.collection import Collection
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow, iter_mined

_BATCH = 256  # rows of an artifact in memory


class Judged(NamedTuple):
    """A document of a query: its id, its grade, and what a teacher said of it, raw, where one was asked."""

    id: str
    grade: float
    score: float | None = None


class Example(NamedTuple):
    """A query and its documents: positives in their order, negatives hardest first."""

    query: str
    positives: list[Judged]
    negatives: list[Judged]


def of_qrels(collection: Collection, split: str) -> Iterator[Example]:
    """The queries of a split: grades above 0 are positives, the others negatives."""
    for query, judged in collection.qrels(split).items():
        documents = [Judged(identifier, grade) for identifier, grade in judged.items()]
        yield Example(query, [d for d in documents if d.grade > 0], [d for d in documents if d.grade <= 0])


def of_mined(path: Path, collection: Collection) -> Iterator[Example]:
    """The rows of a mined or scored artifact: promoted candidates are positives, masked and dropped ones are nothing.

    Raises EmbedtrainError for ids that are not in the collection.
    """
    for row in iter_mined(path, _BATCH):
        if row.query_id not in collection.queries.position:
            raise EmbedtrainError(f"{path} names the query {row.query_id}, which is not in {collection.path}")
        example = _example(row)
        for document in (*example.positives, *example.negatives):
            if document.id not in collection.corpus.position:
                raise EmbedtrainError(
                    f"{path} names the document {document.id}, which is not in {collection.path}"
                )
        yield example


def _example(row: MinedRow) -> Example:
    said: Sequence[float | None] = row.positive_teacher or [None] * len(row.positive_ids)
    asked: Sequence[float | None] = row.candidate_teacher or [None] * len(row.candidate_ids)
    scores = dict(zip(row.candidate_ids, asked, strict=True))
    positives = [Judged(d, 1.0, score) for d, score in zip(row.positive_ids, said, strict=True)]
    positives += [Judged(d, 1.0, scores[d]) for d in row.promoted]
    return Example(row.query_id, positives, [Judged(d, 0.0, scores[d]) for d in row.negatives])
