"""Which documents say the same, and which nearly: fingerprints and shingles of normalised texts.

Both are made when asked for, of those documents only that are asked for, and kept by corpus position.
"""

import hashlib
import unicodedata

import numpy as np
from numpy.typing import NDArray

from embedtrain.candidates import Ints
from embedtrain.collection import Texts, is_blank

BLANK = 0

# Format characters: zero-width blanks and joiners, soft hyphens, marks of direction, tags.
_INVISIBLE = frozenset(
    chr(point) for point in (*range(0x20000), *range(0xE0000, 0xE0080)) if unicodedata.category(chr(point)) == "Cf"
)

_WINDOW = 8  # bytes of a shingle: one uint64
_BUCKETS = 64
_BLOCK = 1 << 16  # pairs compared at once
# An odd multiplier spreads neighbouring byte patterns over the buckets (Knuth, TAOCP 3, section 6.4).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - 6)


def normalised(text: str) -> str:
    """A text as it is compared with others: NFKC, case folded, invisible signs gone, white space collapsed."""
    if text.isascii():  # which has none of what the rest is about
        return " ".join(text.casefold().split())
    text = unicodedata.normalize("NFKC", text).casefold()
    for sign in _INVISIBLE.intersection(text):
        text = text.replace(sign, "")
    return " ".join(unicodedata.normalize("NFKC", text).split())


def fingerprint(text: str) -> int:
    """A number for a normalised text, equal where the texts are (63 bits of BLAKE2b); BLANK for a blank one."""
    if is_blank(text):
        return BLANK
    digest = hashlib.blake2b(normalised(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1


def shingles(text: str) -> NDArray[np.uint64]:
    """The set of all runs of 8 bytes of a normalised text in UTF-8, sorted; a shorter text is one shingle.

    Shingles of characters need no words, so they serve every script (Leskovec, Rajaraman and Ullman, Mining of
    Massive Datasets, section 3.2, with 9 for long documents).
    """
    raw = np.frombuffer(normalised(text).encode("utf-8", "surrogatepass"), dtype=np.uint8)
    if len(raw) < _WINDOW:
        raw = np.concatenate([raw, np.zeros(_WINDOW - len(raw), dtype=np.uint8)])
    windows = np.lib.stride_tricks.sliding_window_view(raw, _WINDOW)
    found = np.sort(np.ascontiguousarray(windows).view("<u8").ravel().astype(np.uint64))
    return found[np.concatenate([[True], found[1:] != found[:-1]])]


def jaccard(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> float:
    """Shared members of two sets over all their members."""
    shared = len(np.intersect1d(left, right, assume_unique=True))
    return shared / (len(left) + len(right) - shared)


class Duplicates:
    """Fingerprints and near-duplicates of the documents of a corpus, by position."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._fingerprints = np.full(len(texts), -1, dtype=np.int64)
        self._sizes = np.zeros(len(texts), dtype=np.int32)  # 0: not counted yet
        self._counts = np.zeros((0, _BUCKETS), dtype=np.uint16)

    def fingerprints(self, positions: Ints) -> Ints:
        """The fingerprint of the document at each position."""
        for position in np.unique(positions[self._fingerprints[positions] < 0]).tolist():
            self._fingerprints[position] = fingerprint(self._texts.text(position))
        return self._fingerprints[positions]

    def _count(self, positions: Ints) -> None:
        if not len(self._counts):
            self._counts = np.zeros((len(self._texts), _BUCKETS), dtype=np.uint16)
        for position in np.unique(positions[self._sizes[positions] == 0]).tolist():
            found = shingles(self._texts.text(position))
            self._sizes[position] = len(found)
            buckets = np.bincount(((found * _SPREAD) >> _SHIFT).astype(np.int64), minlength=_BUCKETS)
            self._counts[position] = np.minimum(buckets, np.iinfo(np.uint16).max)

    def near(self, left: Ints, right: Ints, threshold: float) -> NDArray[np.bool_]:
        """Whether the shingles of the documents at left[i] and right[i] have a Jaccard index of `threshold` or more.

        The smaller of two counts, summed over buckets, bounds what two sets share from above; only pairs whose bound
        reaches the threshold are compared in full.
        """
        self._count(np.concatenate([left, right]))
        found = np.zeros(len(left), dtype=bool)
        for start in range(0, len(left), _BLOCK):
            part = slice(start, start + _BLOCK)
            one, other = left[part], right[part]
            sizes = self._sizes[one].astype(np.int64) + self._sizes[other]
            shared = np.minimum(self._counts[one], self._counts[other]).sum(axis=1, dtype=np.int64)
            # A saturated bucket bounds nothing.
            full = (self._counts[one].max(axis=1) | self._counts[other].max(axis=1)) == np.iinfo(np.uint16).max
            hopeful = full | (shared >= threshold * (sizes - shared) - 1e-9)
            for index in np.flatnonzero(hopeful).tolist():
                pair = shingles(self._texts.text(int(one[index]))), shingles(self._texts.text(int(other[index])))
                found[start + index] = jaccard(*pair) >= threshold
        return found
