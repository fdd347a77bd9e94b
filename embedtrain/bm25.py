"""Lexical top-k: BM25 by bm25s, with a tokeniser of our own that keeps every script, number and code.

Documents without a token are not part of the index: neither the number of documents in the idf nor the mean length
counts them, as in Lucene.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import bm25s
import bm25s.stopwords
import numpy as np
import Stemmer
from numpy.typing import ArrayLike, NDArray

from embedtrain.console import Progress, silent
from embedtrain.errors import UsageError
from embedtrain.search import Hits, Ties

_STOP_WORDS = {
    "danish": bm25s.stopwords.STOPWORDS_DANISH,
    "dutch": bm25s.stopwords.STOPWORDS_DUTCH,
    "english": bm25s.stopwords.STOPWORDS_EN,
    "french": bm25s.stopwords.STOPWORDS_FRENCH,
    "german": bm25s.stopwords.STOPWORDS_GERMAN,
    "italian": bm25s.stopwords.STOPWORDS_ITALIAN,
    "norwegian": bm25s.stopwords.STOPWORDS_NORWEGIAN,
    "portuguese": bm25s.stopwords.STOPWORDS_PORTUGUESE,
    "russian": bm25s.stopwords.STOPWORDS_RUSSIAN,
    "spanish": bm25s.stopwords.STOPWORDS_SPANISH,
    "swedish": bm25s.stopwords.STOPWORDS_SWEDISH,
    "turkish": bm25s.stopwords.STOPWORDS_TURKISH,
}
_NOT_LANGUAGES = {"porter", "dutch_porter"}  # older stemmers of languages that have a newer one


def languages() -> list[str]:
    """The languages there is a stemmer for (and stop words, for most), and none."""
    return [*sorted(set(Stemmer.algorithms()) - _NOT_LANGUAGES), "none"]


def check_language(language: str) -> None:
    """Raise UsageError, with the languages there are, for one there is no stemmer for."""
    if language not in languages():
        raise UsageError(
            f"--language {language}: the languages are {', '.join(languages())}; "
            "none is right for all others, Chinese, Japanese, Korean and Thai included"
        )


def _ranges(characters: Iterable[int]) -> str:
    """Code points as the inside of a regular expression's character class."""
    points = sorted(characters)
    spans: list[list[int]] = []
    for point in points:
        if spans and spans[-1][1] == point - 1:
            spans[-1][1] = point
        else:
            spans.append([point, point])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in spans)


# A vowel sign of Hindi or Thai is a combining mark, which \w leaves out: it would cut words into pieces.
_MARKS = _ranges(point for point in range(0x300, 0x1F000) if unicodedata.category(chr(point)).startswith("M"))
_RUN = rf"[^\W_][\w{_MARKS}]*"
# What stands together: words, and codes (SSO-4012, 10.1038/nature), numbers (3.5; 10,000) and names (max_length).
_CHUNK = re.compile(rf"{_RUN}(?:(?:[-./:']|(?<=\d),(?=\d)){_RUN})*")
_JOINTS = re.compile(r"[-./:,_]+")
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Scripts without blanks between words, and Hangul, whose words carry particles: Thai and Lao, Myanmar, Hangul
# Jamo, Khmer, Kana, Bopomofo, Hangul, Han with its extensions.
_UNSPACED = (
    r"\u0e01-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3100-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_PIECE = re.compile(rf"([{_UNSPACED}][{_UNSPACED}{_MARKS}]*)")
_CHARACTER = re.compile(rf".[{_MARKS}]*")
# Written alike, meant alike: typographic apostrophe and hyphen; what only steers line breaks and ligatures goes.
_SAME = str.maketrans({"’": "'", "‐": "-", "\u00ad": None, "\u200c": None, "\u200d": None})


class Tokenizer:
    """Texts to tokens: Unicode words in lower case, without stop words, stemmed for a language (or `none`).

    Several words held together by signs, with a digit or an underscore among them (SSO-4012, max_length), are a
    token as they stand, and so is each word; a number with point or comma is one token. Chinese, Japanese, Korean,
    Thai, Lao, Khmer and Burmese give pairs of neighbouring characters.
    """

    def __init__(self, language: str = "english") -> None:
        check_language(language)
        self._stop_words = frozenset(_STOP_WORDS.get(language, ()))
        self._stem: Callable[[str], str] = str if language == "none" else Stemmer.Stemmer(language).stemWord
        self._known: dict[str, list[str]] = {}

    def __call__(self, text: str) -> list[str]:
        """The tokens of a text, in order, repeats included."""
        tokens: list[str] = []
        for chunk in _CHUNK.findall(unicodedata.normalize("NFKC", text).translate(_SAME).lower()):
            found = self._known.get(chunk)
            if found is None:
                found = self._expand(chunk)
                if len(chunk) <= 32:  # a whole sentence of Chinese is one chunk, and does not come again
                    self._known[chunk] = found
            tokens += found
        return tokens

    def _expand(self, chunk: str) -> list[str]:
        pieces = _PIECE.split(chunk)
        if len(pieces) > 1:
            tokens: list[str] = []
            for index, piece in enumerate(pieces):
                if index % 2:
                    tokens += _pairs(piece)
                else:
                    tokens += [token for part in _CHUNK.findall(piece) for token in self._expand(part)]
            return tokens
        if _NUMBER.fullmatch(chunk):
            return [chunk]
        words = [word for word in _JOINTS.split(chunk) if word]
        whole = [chunk] if len(words) > 1 and ("_" in chunk or _DIGIT.search(chunk)) else []
        return whole + [self._word(word) for word in words if word not in self._stop_words]

    def _word(self, word: str) -> str:
        return word if _DIGIT.search(word) else self._stem(word)


def _pairs(run: str) -> list[str]:
    characters = _CHARACTER.findall(run)
    return [a + b for a, b in pairwise(characters)] or characters


class BM25:
    """An index of texts, scored as Lucene does ("accurate" in Kamphuis et al., ECIR 2020, table 1).

    The sum over the query's tokens, repeats included, of idf * tf / (tf + k1 * (1 - b + b * length / mean length))
    with idf = ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative. k1 = 0.9 and b = 0.4 are what Anserini
    measures BEIR with. `without_tokens` counts documents that hold no token and so can never be found. Raises
    UsageError for a language that is not known.
    """

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        *,
        language: str = "english",
        k1: float = 0.9,
        b: float = 0.4,
        progress: Progress = silent,
    ) -> None:
        self.tokenize = Tokenizer(language)
        self._ties = Ties(ids)
        self._vocabulary: dict[str, int] = {}
        documents: list[list[int]] = []
        positions: list[int] = []
        for position, text in enumerate(texts):
            numbers = [self._vocabulary.setdefault(token, len(self._vocabulary)) for token in self.tokenize(text)]
            if numbers:
                documents.append(numbers)
                positions.append(position)
            if position % 1000 == 999:
                progress("index for BM25", position + 1, len(texts), "")
        progress("index for BM25", len(texts), len(texts), "")
        self.without_tokens = len(texts) - len(documents)
        self._documents = len(texts)
        self._positions = np.array(positions, dtype=np.int64)
        self._engine: bm25s.BM25 | None = None
        if documents:
            self._engine = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy")
            # Tokens are numbered here, in the order they are first seen; bm25s would go by the order of a set.
            self._engine.index((documents, self._vocabulary), create_empty_token=False, show_progress=False)

    def search(self, queries: Sequence[str], k: int, progress: Progress = silent) -> Hits:
        """The k best documents of every query that share a token with it, and no others."""
        found = []
        for number, query in enumerate(queries, start=1):
            found.append(self._search(query, k))
            if number % 100 == 0 or number == len(queries):
                progress("search with BM25", number, len(queries), "")
        return Hits([positions for positions, _ in found], [scores for _, scores in found])

    def scores(self, query: str, positions: ArrayLike) -> NDArray[np.float32]:
        """The score of the documents at corpus `positions`; 0 where no token is shared."""
        everything = np.zeros(self._documents, dtype=np.float32)
        everything[self._positions] = self._scores(query)
        return everything[np.asarray(positions, dtype=np.int64)]

    def _scores(self, query: str) -> NDArray[np.float32]:
        """The score of every document of the index."""
        tokens = [self._vocabulary[token] for token in self.tokenize(query) if token in self._vocabulary]
        if self._engine is None or not tokens:
            return np.zeros(len(self._positions), dtype=np.float32)
        return self._engine.get_scores_from_ids(tokens)

    def _search(self, query: str, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        scores = self._scores(query)
        hits = np.flatnonzero(scores)
        return self._ties.best(self._ties.keys(scores[hits], self._positions[hits]), k)
