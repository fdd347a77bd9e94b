"""The collection in the making: documents, queries and judgements, and the count of what did not get in."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from embedtrain.collection import Qrels, join_title
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.readers import Row

# What may stand between a copied query and the rest of its document: a line end or punctuation.
_AFTER_COPY = re.compile(r"[ \t]*(?:[.:!?]+(?=\s|$)|[-–—|](?=\s)|(?=\n)|$)\s*")


class Document(NamedTuple):
    """A document: its title may be empty; `extra` holds columns of the user's own."""

    title: str
    text: str
    extra: Row


class Query(NamedTuple):
    """A query; `extra` holds columns of the user's own."""

    text: str
    extra: Row


def document_key(title: str, text: str) -> str:
    """What makes two documents the same: title and text joined, however the words are spaced."""
    return " ".join(join_title(title, text).split())


def query_key(text: str) -> str:
    """What makes two queries the same: their words, however they are spaced and capitalised."""
    return " ".join(text.casefold().split())


def _hashed(prefix: str, key: str) -> str:
    # 80 bits: one clash is to be expected among 10**12 texts. The letter keeps an id from looking like a number.
    return prefix + hashlib.sha256(key.encode()).hexdigest()[:20]


def document_id(title: str, text: str) -> str:
    """The id of a document that came without one: a hash of its text, never its place in a file."""
    return _hashed("d", document_key(title, text))


def query_id(text: str) -> str:
    """The id of a query that came without one: a hash of its text."""
    return _hashed("q", query_key(text))


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


@dataclass
class Draft:
    """Everything a harvest has found so far, in the order it was found."""

    documents: dict[str, Document] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    splits: dict[str, Qrels] = field(default_factory=dict)
    sources: dict[tuple[str, str], str] = field(default_factory=dict)  # of weak pairs: where they come from
    groups: list[tuple[str, str]] = field(default_factory=list)  # (document, page it was cut from)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add_document(self, identifier: str, document: Document) -> bool:
        """Add a document under its own id; False where the id stands for another text already."""
        known = self.documents.setdefault(identifier, document)
        if known is document:
            return True
        if known[:2] != document[:2]:
            return False
        self.dropped["repeated document"] += 1
        return True

    def add_query(self, identifier: str, query: Query) -> bool:
        """Add a query under its own id; False where the id stands for another text already."""
        known = self.queries.setdefault(identifier, query)
        if known is query:
            return True
        if known.text != query.text:
            return False
        self.dropped["repeated query"] += 1
        return True

    def judge(self, split: str, query: str, document: str, grade: float, where: str) -> None:
        """Add a judgement; EmbedtrainError where the same pair has another grade already."""
        judged = self.splits.setdefault(split, {}).setdefault(query, {})
        if document not in judged:
            judged[document] = grade
        elif judged[document] == grade:
            self.dropped["repeated judgement"] += 1
        else:
            raise EmbedtrainError(
                f"{where} judges query {query} and document {document} a second time, with another grade; keep one"
            )

    def add_weak_document(self, title: str, text: str, extra: Row) -> str:
        """Add a document that has no id of its own and return the one it gets; the same text is one document."""
        identifier = document_id(title, text)
        self.documents.setdefault(identifier, Document(title, text, extra))
        return identifier

    def add_weak_pair(self, query: str, document: str, source: str) -> None:
        """Add a training pair that nobody judged; `source` says what it was made from."""
        if query_key(query) == query_key(join_title(*self.documents[document][:2])):
            self.dropped["query is its document"] += 1
            return
        identifier = query_id(query)
        self.queries.setdefault(identifier, Query(query, {}))
        if (identifier, document) in self.sources:
            self.dropped["repeated pair"] += 1
            return
        self.sources[identifier, document] = source
        self.splits.setdefault("train", {}).setdefault(identifier, {})[document] = 1.0


def refuse_clashes(noun: str, where: object, clashes: list[str]) -> None:
    """Raise EmbedtrainError where ids stand for several different texts."""
    if clashes:
        ids = list(dict.fromkeys(clashes))
        raise EmbedtrainError(
            f"{where}: {len(ids)} duplicate ids, each with different {noun} texts: {first_three(ids)}; "
            "every id stands for one text"
        )
