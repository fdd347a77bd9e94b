"""Which queries find their document again, by BM25, by a bi-encoder, or by several of them.

The round trip of generated queries (Promptagator, Dai et al., ICLR 2023, 3.2, k = 1; InPars-v2) and the consistency of weak
pairs (E5, Wang et al. 2022, 3.1) are both this question.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from embedtrain.collection import Texts
from embedtrain.config import LEXICAL, LexicalOptions
from embedtrain.console import Progress
from embedtrain.errors import UsageError
from embedtrain.hits import Hits

BM25 = LEXICAL
NEED = ("any", "all")


def round_trip(pairs: Sequence[tuple[int, int]], hits: Hits, k: int) -> NDArray[np.bool_]:
    """For each (row of `hits`, corpus position): is that document among the first k hits of that query? (n,)"""
    return np.array([document in hits.positions[query][:k] for query, document in pairs], dtype=bool)


class Finder(Protocol):
    """A search over all documents."""

    name: str

    def search(self, queries: Sequence[str], k: int, progress: Progress) -> Hits:
        """The k best documents of every query."""
        ...


class _Lexical:
    def __init__(self, corpus: Texts, language: str, progress: Progress) -> None:
        from embedtrain.bm25 import BM25 as Index

        self._index = Index(corpus, corpus.ids, LexicalOptions(language=language), progress)
        self.name = f"BM25 ({self._index.language})"

    def search(self, queries: Sequence[str], k: int, progress: Progress) -> Hits:
        return self._index.search(queries, k, progress)


class _Dense:
    def __init__(self, model: str, corpus: Texts, progress: Progress) -> None:
        from embedtrain.encoder import Encoder
        from embedtrain.models import find_encoder
        from embedtrain.search import Exact

        self._encoder = Encoder.load(find_encoder(model))
        vectors = self._encoder.encode(corpus, "document", progress)
        self._index = Exact(vectors, corpus.ids, self._encoder.similarity, device=self._encoder.gpu)
        self.name = self._encoder.source.name

    def search(self, queries: Sequence[str], k: int, progress: Progress) -> Hits:
        return self._index.search(self._encoder.encode(queries, "query", progress), k, progress)


def check_names(names: Sequence[str], flag: str) -> None:
    """Raise UsageError for no name, or one twice."""
    if not all(names) or not names or len(set(names)) < len(names):
        raise UsageError(f"{flag} {' '.join(names)}: name {BM25}, a model, or each of several once")


def open_finders(names: Sequence[str], corpus: Texts, language: str, progress: Progress) -> list[Finder]:
    """A search for each name: bm25, or a bi-encoder by folder or hub name."""
    return [
        _Lexical(corpus, language, progress) if name == BM25 else _Dense(name, corpus, progress) for name in names
    ]


def found_again(
    pairs: Sequence[tuple[str, int]], finders: Sequence[Finder], k: int, need: str, progress: Progress
) -> NDArray[np.bool_]:
    """Whether any, or all, of the finders find the document of each (query text, corpus position). (n,)"""
    queries = list(dict.fromkeys(query for query, _ in pairs))
    rows = {query: row for row, query in enumerate(queries)}
    asked = [(rows[query], document) for query, document in pairs]
    found = np.array([round_trip(asked, finder.search(queries, k, progress), k) for finder in finders]).reshape(
        len(finders), len(pairs)
    )
    return np.asarray(found.all(axis=0) if need == "all" else found.any(axis=0))
