"""What finds candidates: BM25 and any number of bi-encoders, behind one face; each scores any pair it is asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from embedtrain import approximate, search
from embedtrain.bm25 import BM25
from embedtrain.candidates import Ints
from embedtrain.collection import Texts
from embedtrain.config import LexicalOptions
from embedtrain.console import Progress
from embedtrain.search import Hits

if TYPE_CHECKING:  # torch is loaded where a model is asked for
    from embedtrain.encoder import Encoder

LEXICAL = "bm25"
DENSE = "dense"


class Retriever(Protocol):
    """A way to find documents for the queries it was made with; `facts` are numbers for the summary."""

    name: str
    facts: dict[str, Any]

    def search(self, k: int, progress: Progress) -> Hits:
        """The k best documents of every query."""
        ...

    def score(self, queries: Ints, documents: Ints) -> NDArray[np.float32]:
        """Scores (m,) of query queries[i] (its place) and document documents[i] (its corpus position)."""
        ...


class Lexical:
    """BM25 over a corpus."""

    def __init__(self, queries: Sequence[str], corpus: Texts, options: LexicalOptions, progress: Progress) -> None:
        self.name = LEXICAL
        self._queries = queries
        self._index = BM25(corpus.texts(), corpus.ids, options, progress)
        self.facts: dict[str, Any] = {
            "language": str(self._index.language),
            "documents_without_tokens": self._index.without_tokens,
        }

    def search(self, k: int, progress: Progress) -> Hits:
        """The k best documents of every query; those that share no token with it are none."""
        hits = self._index.search(self._queries, k, progress)
        with_tokens = [bool(self._index.tokenize(text)) for text in self._queries]
        self.facts["queries_without_tokens"] = with_tokens.count(False)
        self.facts["queries_without_lexical_match"] = sum(
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
        index: str,
        seed: int,
        progress: Progress,
    ) -> None:
        self.name = name
        self._ids = corpus.ids
        self._index, self._seed = index, seed
        self._similarity = encoder.similarity
        self._queries = encoder.encode(queries, "query", progress)
        self._documents = encoder.encode(corpus.texts(), "document", progress)
        self.facts: dict[str, Any] = {
            ("model" if name == DENSE else f"model_{name}"): {
                "name": encoder.source.name,
                "similarity": encoder.similarity,
                "prompts": dict(encoder.prompts),
            }
        }

    def search(self, k: int, progress: Progress) -> Hits:
        """The k nearest documents of every query, as far as the index finds them."""
        hits, facts = approximate.dense(
            self._index,
            self._queries,
            self._documents,
            self._ids,
            k,
            similarity=self._similarity,
            seed=self._seed,
            progress=progress,
        )
        self.facts |= (
            facts if self.name == DENSE else {f"{key}_{self.name}": value for key, value in facts.items()}
        )
        return hits

    def score(self, queries: Ints, documents: Ints) -> NDArray[np.float32]:
        """Cosine or dot product."""
        return search.pair_scores(self._queries, self._documents, queries, documents, similarity=self._similarity)


def dense_names(count: int) -> list[str]:
    """Names of `count` dense retrievers: dense, dense2, dense3."""
    return [DENSE if number == 1 else f"{DENSE}{number}" for number in range(1, count + 1)]


def is_dense(name: str) -> bool:
    """Whether a retriever's name is that of a dense one."""
    return name.startswith(DENSE)
