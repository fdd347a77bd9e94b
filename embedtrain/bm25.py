"""Lexical top-k: an index by bm25s (or rank-bm25, the slow reference), queries answered in blocks.

Documents without a token are not part of the index: neither the number of documents in the idf nor the mean length
counts them, as in Lucene. A hit shares a token with the query and has a score above 0.
"""

from collections.abc import Sequence
from typing import Protocol

import bm25s
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from embedtrain import okapi
from embedtrain.config import LexicalOptions
from embedtrain.console import Progress, silent, size
from embedtrain.errors import UsageError
from embedtrain.hits import Hits, Ties
from embedtrain.tokens import Tokenizer, check_language, settle_language

# The method of bm25s for term frequencies, and that for idf.
_METHODS = {"lucene": ("lucene", "lucene"), "okapi": ("atire", "lucene"), "plus": ("bm25+", "bm25+")}
_VARIANTS = {"bm25s": list(_METHODS), "rank-bm25": list(okapi.VARIANTS)}
_EPSILON = 0.25  # rank-bm25: share of the mean idf that a word with a negative idf gets
_DELTA = 1.0  # rank-bm25: what BM25+ adds to a term frequency
_BLOCK = 1 << 18  # scores held at once: 1 MB, which stays near the processor
_QUERIES = 1024  # at most so many queries a block, so that progress is seen
_TOKEN = 56  # bytes of a token of the corpus while bm25s builds its index (measured on 4 and 12 million)
_ABOVE_ZERO = np.finfo(np.float32).smallest_subnormal


def check_options(options: LexicalOptions) -> None:
    """Raise UsageError for a language, backend or variant that is not known, and a variant the backend lacks."""
    check_language(options.language)
    backend, variant = options.bm25_backend, options.bm25_variant
    if backend not in _VARIANTS:
        raise UsageError(f"--bm25-backend {backend}: the backends are {' and '.join(_VARIANTS)}")
    has = _VARIANTS[backend]
    if variant in has:
        return
    others = [name for name, variants in _VARIANTS.items() if variant in variants]
    if not others:
        every = dict.fromkeys(name for variants in _VARIANTS.values() for name in variants)
        raise UsageError(f"--bm25-variant {variant}: the variants are {', '.join(every)}")
    why = "the BM25L of bm25s is another formula than that of rank-bm25" if variant == "l" else ""
    raise UsageError(
        f"--bm25-variant {variant} is not there with --bm25-backend {backend}{': ' if why else ''}{why}; "
        f"add --bm25-backend {others[0]}, or choose among {', '.join(has)}"
    )


def _check_memory(tokens: int, seen: int, documents: int, allowed: int | None) -> None:
    expected = tokens if 20 * seen < documents else round(tokens / max(1, seen) * documents)
    if allowed is not None and _TOKEN * expected > allowed:
        raise UsageError(
            f"the BM25 index of {documents:,} documents needs about {size(_TOKEN * expected)} to be built, and "
            f"{size(allowed)} are allowed; give more with --memory, or leave BM25 out with --retriever dense"
        )


class _Engine(Protocol):
    def scores(self, queries: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(queries, at least as many columns as documents): scores, 0 or less where there is no hit."""


class BM25:
    """An index of texts, scored as Lucene does ("accurate" in Kamphuis et al., ECIR 2020, table 1).

    The sum over the query's tokens, repeats included, of idf * tf / (tf + k1 * (1 - b + b * length / mean length))
    with idf = ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative. k1 = 0.9 and b = 0.4 are what Anserini
    measures BEIR with. `bm25_variant` of the options names another formula: rank-bm25's Okapi, L or Plus.

    `without_tokens` counts documents that hold no token and so can never be found; `language` is what `--language`
    came to. Raises UsageError as `check_options` does.
    """

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        options: LexicalOptions,
        progress: Progress = silent,
        allowed: int | None = None,
    ) -> None:
        """`allowed`: bytes of memory; UsageError once it is clear that the index needs more to be built."""
        check_options(options)
        self.language = settle_language(options.language, texts, ids)
        self.tokenize = Tokenizer(self.language.name)
        self._ties = Ties(ids)
        # Tokens are numbered in the order they are first seen; bm25s would go by the order of a set.
        self._vocabulary: dict[str, int] = {}
        documents: list[list[int]] = []
        positions: list[int] = []
        tokens = 0
        progress("index for BM25", 0, len(texts), "")
        for position, text in enumerate(texts):
            numbers = [self._vocabulary.setdefault(token, len(self._vocabulary)) for token in self.tokenize(text)]
            if numbers:
                documents.append(numbers)
                positions.append(position)
                tokens += len(numbers)
            if position % 1000 == 999 and position + 1 < len(texts):
                _check_memory(tokens, position + 1, len(texts), allowed)
                progress("index for BM25", position + 1, len(texts), "")
        _check_memory(tokens, len(texts), len(texts), allowed)
        progress("index for BM25", len(texts), len(texts), "")
        self.without_tokens = len(texts) - len(documents)
        self._positions = np.array(positions, dtype=np.int64)
        self._place = np.full(len(texts), -1, dtype=np.int64)
        self._place[self._positions] = np.arange(len(positions))
        self._engine: _Engine | None = None
        progress("weigh tokens for BM25", 0, tokens, "")
        if documents and options.bm25_backend == "rank-bm25":
            self._engine = okapi.RankBM25(documents, options.bm25_variant, options.k1, options.b)
        elif documents:
            self._engine = _Sparse(documents, self._vocabulary, options)
        progress("weigh tokens for BM25", tokens, tokens, "")

    def search(self, queries: Sequence[str], k: int, progress: Progress = silent) -> Hits:
        """The k best documents of every query that share a token with it, and no others.

        Memory: 1 MB or 4 bytes a document, whichever is more, a few times over, and 8 bytes for every entry of the
        index that a block of queries meets: with documents in the millions, blocks are single queries.
        """
        found = []
        progress("search with BM25", 0, len(queries), "")
        step = min(_QUERIES, max(1, _BLOCK // max(1, len(self._positions))))
        for start in range(0, len(queries), step):
            found.append(self._search(queries[start : start + step], k))
            progress("search with BM25", min(start + step, len(queries)), len(queries), "")
        return Hits.joined(found)

    def scores(self, query: str, positions: ArrayLike) -> NDArray[np.float32]:
        """The score of the documents at corpus `positions`; 0 for one that is no hit."""
        places = self._place[np.asarray(positions, dtype=np.int64)]
        numbers = self._numbers(query)
        if self._engine is None or not numbers:
            return np.zeros(len(places), dtype=np.float32)
        scores = self._engine.scores([numbers])[0]
        return np.where(places >= 0, np.maximum(scores[places], 0), np.float32(0))

    def _numbers(self, query: str) -> list[int]:
        return [self._vocabulary[token] for token in self.tokenize(query) if token in self._vocabulary]

    def _search(self, queries: Sequence[str], k: int) -> Hits:
        numbers = [self._numbers(query) for query in queries]
        if self._engine is None or not any(numbers):
            return Hits.nothing(len(queries))
        scores = self._engine.scores(numbers)
        rows, columns = np.divmod(np.flatnonzero(scores >= _bar(scores, k)[:, None]), scores.shape[1])
        keys = self._ties.keys(scores[rows, columns], self._positions[columns])
        return self._ties.best_of_each(keys, np.bincount(rows, minlength=len(queries)), k)


def _bar(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """For every row a number above 0 that its k best hits reach, and few others.

    The columns are dealt out to 4 k groups. Where the best scores of k groups are s or more, so are those of k columns:
    the k-th largest of the groups' best scores is such a number, and it costs one pass over the row.
    """
    groups = 4 * k
    deep = scores.shape[1] // groups
    if deep > 1:
        best = scores[:, : deep * groups].reshape(len(scores), deep, groups).max(axis=1)
        bar = np.partition(best, groups - k, axis=1)[:, groups - k]
    elif k < scores.shape[1]:
        bar = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k]
    else:
        bar = np.zeros(len(scores), dtype=np.float32)
    return np.maximum(bar, _ABOVE_ZERO)


class _Sparse:
    """bm25s's index, tokens by documents, whose rows are added up for a block of queries together.

    The sums are those of bm25s, bit for bit: float32, token by token in the query's order.
    """

    def __init__(
        self, documents: Sequence[Sequence[int]], vocabulary: dict[str, int], options: LexicalOptions
    ) -> None:
        method, idf = _METHODS[options.bm25_variant]
        engine = bm25s.BM25(
            k1=options.k1, b=options.b, delta=_DELTA, method=method, idf_method=idf, backend="numpy"
        )
        engine.index((documents, vocabulary), create_empty_token=False, show_progress=False)
        data, indices, starts = (engine.scores[name] for name in ("data", "indices", "indptr"))
        if options.bm25_variant == "okapi":
            data = data * np.repeat(_okapi_share(np.diff(starts), len(documents)), np.diff(starts))
        shape = (len(vocabulary), len(documents))
        if len(data) < 2**31:  # scipy would take the wider of two integer types for both
            indices, starts = indices.astype(np.int32), starts.astype(np.int32)
        self._index = sparse.csr_array((data.astype(np.float32), indices, starts), shape=shape)
        # What BM25+ gives to a document that lacks the token; bm25s keeps it apart to have a sparse index.
        self._absent: NDArray[np.float32] | None = engine.nonoccurrence_array

    def scores(self, queries: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        tokens = np.fromiter((token for query in queries for token in query), dtype=np.int64)
        ends = np.cumsum([0] + [len(query) for query in queries])
        rows = self._index[tokens]
        # The rows of a query's tokens, one behind the other, are one row that names a document several times.
        shape = (len(queries), self._index.shape[1])
        scores = sparse.csr_array((rows.data, rows.indices, rows.indptr[ends]), shape=shape).toarray()
        if self._absent is not None:
            absent = np.array([self._absent[part].sum() for part in np.split(tokens, ends[1:-1])])
            scores = np.where(scores > 0, scores + absent[:, None], 0)
        return scores


def _okapi_share(counts: NDArray[np.int64], documents: int) -> NDArray[np.float64]:
    """Okapi's idf as rank-bm25 floors it, divided by Lucene's, for words that stand in `counts` documents.

    idf = ln((N - n + 0.5) / (n + 0.5)); where it is negative, epsilon times the mean of all of them takes its place.
    """
    idf = np.log(documents - counts + 0.5) - np.log(counts + 0.5)
    lucene = np.log1p((documents - counts + 0.5) / (counts + 0.5))
    return np.where(idf < 0, _EPSILON * idf.mean(), idf) / lucene
