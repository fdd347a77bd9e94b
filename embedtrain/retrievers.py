"""What finds candidates: BM25 and any number of bi-encoders, behind one face; each scores any pair it is asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from embedtrain import approximate
from embedtrain.bm25 import BM25
from embedtrain.candidates import Ints
from embedtrain.collection import Texts
from embedtrain.config import DENSE, LEXICAL, LexicalOptions, MineOptions
from embedtrain.console import Progress
from embedtrain.hits import Hits
from embedtrain.vectors import pair_scores

if TYPE_CHECKING:  # torch is loaded where a model is asked for
    from embedtrain.encoder import Encoder


class Retriever(Protocol):
    """A way to find documents for the queries it was made with; `facts` are numbers for the summary."""

    name: str
    facts: dict[str, Any]

    def search(self, rows: slice, k: int, progress: Progress) -> Hits:
        """The k best documents of some of the queries."""
        ...

    def score(self, queries: Ints, documents: Ints) -> NDArray[np.float32]:
        """Scores (m,) of query queries[i] (its place) and document documents[i] (its corpus position)."""
        ...


class Lexical:
    """BM25 over a corpus."""

    def __init__(
        self,
        queries: Sequence[str],
        corpus: Texts,
        options: LexicalOptions,
        progress: Progress,
        allowed: int | None = None,
    ) -> None:
        """`allowed`: bytes of memory for the index."""
        self.name = LEXICAL
        self._queries = queries
        self._index = BM25(corpus, corpus.ids, options, progress, allowed)
        self.facts: dict[str, Any] = {
            "language": str(self._index.language),
            "documents_without_tokens": self._index.without_tokens,
            "queries_without_tokens": 0,
            "queries_without_lexical_match": 0,
        }

    def search(self, rows: slice, k: int, progress: Progress) -> Hits:
        """The k best documents of some of the queries; those that share no token with one are none."""
        queries = self._queries[rows]
        hits = self._index.search(queries, k, progress)
        with_tokens = [bool(self._index.tokenize(text)) for text in queries]
        self.facts["queries_without_tokens"] += with_tokens.count(False)
        self.facts["queries_without_lexical_match"] += sum(
            tokens and not len(found) for tokens, found in zip(with_tokens, hits.positions, strict=True)
        )
        return hits

    def score(self, queries: Ints, documents: Ints) -> NDArray[np.float32]:
        """BM25 scores; 0 where no token is shared."""
        found = np.empty(len(queries), dtype=np.float32)
        if not len(queries):
            return found
        order = np.argsort(queries, kind="stable")
        asked, starts = np.unique(queries[order], return_index=True)
        for query, rows in zip(asked.tolist(), np.split(order, starts[1:]), strict=True):
            found[rows] = self._index.scores(self._queries[query], documents[rows])
        return found


class Dense:
    """A bi-encoder over a corpus, by its own similarity."""

    def __init__(
        self,
        name: str,
        encoder: "Encoder",
        queries: Sequence[str],
        corpus: Texts,
        options: MineOptions,
        progress: Progress,
        allowed: int | None = None,
    ) -> None:
        """`allowed`: bytes of memory for the search."""
        self.name = name
        self._similarity = encoder.similarity
        self._queries = encoder.encode(queries, "query", progress)
        self._documents = encoder.encode(corpus, "document", progress)
        self.dimension = int(self._queries.shape[1])
        self._index, facts = approximate.open_index(
            options.index,
            self._queries,
            self._documents,
            corpus.ids,
            options.top_k,
            similarity=self._similarity,
            allowed=allowed,
            device=encoder.gpu,
            seed=options.seed,
            progress=progress,
        )
        facts["model"] = {
            "name": encoder.source.name,
            "similarity": encoder.similarity,
            "precision": encoder.precision,
            "prompts": dict(encoder.prompts),
        }
        self.facts = facts if name == DENSE else {f"{key}_{name}": value for key, value in facts.items()}

    def search(self, rows: slice, k: int, progress: Progress) -> Hits:
        """The k nearest documents of some of the queries, as far as the index finds them."""
        return self._index.search(self._queries[rows], k, progress)

    def score(self, queries: Ints, documents: Ints) -> NDArray[np.float32]:
        """Cosine or dot product."""
        return pair_scores(self._queries, self._documents, queries, documents, similarity=self._similarity)
