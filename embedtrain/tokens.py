"""Texts to tokens for BM25: a tokeniser that keeps every script, number and code, and the choice of a language."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import bm25s.stopwords
import numpy as np
import Stemmer

from embedtrain.errors import UsageError

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
_STOP_SETS = {name: frozenset(words) for name, words in _STOP_WORDS.items()}
_NOT_LANGUAGES = {"porter", "dutch_porter"}  # older stemmers of languages that have a newer one


AUTO = "auto"
_SAMPLE = 1_000  # documents a language is told from, by their first 2,000 characters
_START = 2_000
# Measured on STS benchmark sentences and translated programs: of sentences in a language of the list, 74 to 91 % hold
# 15 % of its stop words or more; of Finnish, Polish, Czech or Romanian ones, 18 % at most for any language.
_SHARE = 0.15
_DOCUMENTS = 0.25


def languages() -> list[str]:
    """The languages there is a stemmer for (and stop words, for most), and none."""
    return [*sorted(set(Stemmer.algorithms()) - _NOT_LANGUAGES), "none"]


def check_language(language: str) -> None:
    """Raise UsageError, with the languages there are, for one there is no stemmer for; auto is let through."""
    if language not in [AUTO, *languages()]:
        raise UsageError(
            f"--language {language}: the languages are {', '.join(languages())}; "
            "none is right for all others, Chinese, Japanese, Korean and Thai included; "
            f"auto chooses among none and {', '.join(_STOP_WORDS)}"
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
_LETTER = re.compile(r"[^\W\d_]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Scripts without blanks between words, and Hangul, whose words carry particles: Thai and Lao, Myanmar, Hangul
# Jamo, Khmer, Kana, Bopomofo, Hangul, Han with its extensions.
_UNSPACED = (
    r"\u0e01-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3100-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_PIECE = re.compile(rf"([{_UNSPACED}][{_UNSPACED}{_MARKS}]*)")
_CHARACTER = re.compile(rf".[{_MARKS}]*")
_WORD = re.compile(rf"[^\W\d_][\w{_MARKS}']*")  # what counts as a word where a language is told
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
        self._stop_words = _STOP_SETS.get(language, frozenset())
        self._stem: Callable[[str], str] = str if language == "none" else Stemmer.Stemmer(language).stemWord
        self._known: dict[str, list[str]] = {}

    def __call__(self, text: str) -> list[str]:
        """The tokens of a text, in order, repeats included."""
        tokens: list[str] = []
        for chunk in _CHUNK.findall(_plain(text)):
            tokens += self._of(chunk)
        return tokens

    def distinct(self, text: str) -> set[str]:
        """The different tokens of a text, faster than by their list."""
        return set().union(*map(self._of, set(_CHUNK.findall(_plain(text)))))

    def _of(self, chunk: str) -> list[str]:
        found = self._known.get(chunk)
        if found is None:
            found = self._expand(chunk)
            if len(chunk) <= 32:  # a whole sentence of Chinese is one chunk, and does not come again
                self._known[chunk] = found
        return found

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


def _plain(text: str) -> str:
    """A text as it is compared: one spelling for what is written alike, lower case."""
    if text.isascii():  # nothing to unify, and most of English
        return text.lower()
    return unicodedata.normalize("NFKC", text).translate(_SAME).lower()


def holds_code(text: str) -> bool:
    """Whether a word of a text is a code or a name: letters and digits together (SSO-4012, p53), or an underscore."""
    return any(
        "_" in chunk or (_DIGIT.search(chunk) and _LETTER.search(chunk)) for chunk in _CHUNK.findall(_plain(text))
    )


def _pairs(run: str) -> list[str]:
    characters = _CHARACTER.findall(run)
    return [a + b for a, b in pairwise(characters)] or characters


@dataclass(frozen=True)
class Language:
    """A language of the list, and how it came to be chosen."""

    name: str
    why: str = ""  # empty: it was named

    def __str__(self) -> str:
        return f"{self.name} ({AUTO}: {self.why})" if self.why else self.name


def settle_language(language: str, texts: Sequence[str], ids: Sequence[str]) -> Language:
    """The language that was named or, for `auto`, the one that most documents show by their stop words.

    The documents are a sample of 1,000 that depends on their ids alone, not on their order. A document speaks for the
    language with the most stop words in it, 15 % of its words or more, or for `none` where most of its letters
    belong to scripts without blanks; it keeps silent on a tie. A language is taken if it has more than half of those
    that speak and a quarter of all; else it is `none`. Languages without a list of stop words are never chosen, but a
    close relative may be in their place (Spanish for Catalan, Russian for Bulgarian): name the language there.
    """
    check_language(language)
    if language != AUTO:
        return Language(language)
    sample = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    if len(sample) > _SAMPLE:
        sample = np.random.default_rng(0).choice(sample, _SAMPLE, replace=False)
    votes = Counter(vote for position in sample if (vote := language_of(texts[position][:_START])))
    size = f"{len(sample):,} documents"
    if not votes:
        return Language("none", f"stop words of no language in {size}")
    # By count, then name: two that tie must not change places with the sample's order.
    ranked = sorted(votes.items(), key=lambda item: (-item[1], item[0]))
    (first, count), total = ranked[0], votes.total()
    if 2 * count <= total or count < _DOCUMENTS * len(sample):
        shares = ", ".join(f"{name} {_percent(number, len(sample))}" for name, number in ranked[:3])
        return Language("none", f"no language shows in enough of {size}: {shares}")
    what = "a script without blanks in " if first == "none" else ""
    return Language(first, f"{what}{_percent(count, len(sample))} of {size}")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"


def language_of(text: str) -> str | None:
    """The language a text shows, `none` for scripts without blanks, None where it shows nothing clearly."""
    words = _WORD.findall(_plain(text))
    letters = "".join(words)
    if 2 * sum(map(len, _PIECE.findall(letters))) > len(letters):
        return "none"
    counts = Counter(words)
    found = {name: sum(counts[word] for word in stop if word in counts) for name, stop in _STOP_SETS.items()}
    most = max(found.values())
    best = [name for name, count in found.items() if count == most]
    return best[0] if len(best) == 1 and most >= _SHARE * len(words) else None
