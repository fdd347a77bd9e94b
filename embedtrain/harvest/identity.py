"""When two texts are one: what documents and queries are compared by, and the ids of those that came without one."""

import hashlib
import re
from collections.abc import Iterable

from embedtrain.collection import join_title

# What may stand between a copied query and the rest of its document: a line end or punctuation.
_AFTER_COPY = re.compile(r"[ \t]*(?:[.:!?]+(?=\s|$)|[-–—|](?=\s)|(?=\n)|$)\s*")


def document_key(title: str, text: str) -> str:
    """What makes two documents the same: title and text joined, however the words are spaced."""
    return " ".join(join_title(title, text).split())


def query_key(text: str) -> str:
    """What makes two queries the same: their words, however they are spaced and capitalised."""
    return " ".join(text.casefold().split())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _hashed(prefix: str, key: str) -> str:
    # 80 bits: one clash is to be expected among 10**12 texts. The letter keeps an id from looking like a number.
    return prefix + _digest(key).hex()[:20]


def document_id(title: str, text: str) -> str:
    """The id of a document that came without one: a hash of its text, never its place in a file."""
    return _hashed("d", document_key(title, text))


def query_id(text: str) -> str:
    """The id of a query that came without one: a hash of its text."""
    return _hashed("q", query_key(text))


def number(key: str) -> int:
    """A key as a signed number of 64 bits, for comparing many: two of 10 million differ in it but for one chance in 10**5."""
    return int.from_bytes(_digest(key)[:8], "big", signed=True)


def without_copy(queries: Iterable[str], text: str) -> str:
    """A document's text without its queries where it starts with one as a heading or a sentence of its own.

    Learning to find "Layout: a layout is ..." for the query "layout" is learning to copy.
    """
    copies = [words for query in queries if (words := query.strip().rstrip(" .:!?"))]
    cut = True
    while cut:  # once more after each cut: a heading may stand there twice
        cut = False
        for words in copies:
            start = text.lstrip()
            after = _AFTER_COPY.match(start, len(words))
            if after and query_key(start[: len(words)]) == query_key(words):
                text, cut = start[after.end() :], True
    return text
