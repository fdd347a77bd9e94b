"""BM25 as rank-bm25 computes it: the readable reference, one query and every document at a time."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25L, BM25Okapi, BM25Plus

VARIANTS = {"okapi": BM25Okapi, "l": BM25L, "plus": BM25Plus}


class RankBM25:
    """Documents as lists of token numbers, scored by rank-bm25 with its own constants (epsilon, delta).

    As rank-bm25 0.2.2 has them: Okapi gives words in more than half of the documents a quarter of the mean idf, which
    may be negative; L has the number of a word's occurrences as a factor once more than Lv and Zhai (SIGIR 2011); Plus
    adds idf * delta for words a document lacks, too, which is the same for all documents of a query.
    """

    def __init__(self, documents: Sequence[Sequence[int]], variant: str, k1: float, b: float) -> None:
        self._engine = VARIANTS[variant](documents, k1=k1, b=b)

    def scores(self, queries: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(queries, documents): the scores as they are, 0 where no token is shared."""
        return np.array([self._scores(query) for query in queries], dtype=np.float32)

    def _scores(self, query: Sequence[int]) -> NDArray[np.float64]:
        scores = self._engine.get_scores(query)
        shared = [any(token in document for token in query) for document in self._engine.doc_freqs]
        return np.where(shared, scores, 0.0)
