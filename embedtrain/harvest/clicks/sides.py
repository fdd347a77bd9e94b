"""The queries and documents of a click log as numbers: texts, or ids of a collection."""

from collections.abc import Callable, Sequence
from typing import Any

from embedtrain import readers
from embedtrain.collection import is_blank
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.identity import document_id, query_key
from embedtrain.harvest.tables.lookup import Lookup

Drop = Callable[..., None]  # as `Draft.drop`

DROPPED = -1


class Sides:
    """The queries and documents of a log, numbered in the order in which they are first seen.

    In memory stay the texts of the queries and the ids of the documents. A document that is a text goes into the
    draft when it is first seen.
    """

    def __init__(self, draft: Draft, known: Lookup | None, drop: Drop) -> None:
        self.texts: list[str] = []  # of queries, as first written
        self.ids: list[str] = []  # of documents
        self.query_ids = False  # whether queries are ids of the collection
        self.unknown: dict[str, list[str]] = {"query": [], "document": []}  # ids that it lacks, the first four
        self._queries: dict[str, int] = {}
        self._documents: dict[str, int] = {}
        self._last: tuple[Any, int] = (None, DROPPED)
        self._draft, self._known, self._drop = draft, known, drop

    def recognise_queries(self, values: Sequence[Any]) -> None:
        """Take queries for ids where every one of `values`, the first of the log, is one of the collection."""
        known = self._known
        if known is not None and values and all(isinstance(value, str | int) for value in values):
            self.query_ids = all(known.query(value) is not None for value in dict.fromkeys(map(str, values)))

    def _miss(self, noun: str, identifier: str, where: str) -> int:
        self._drop(f"unknown {noun} id", **{noun: identifier}, where=where)
        first = self.unknown[noun]
        if len(first) < 4 and identifier not in first:
            first.append(identifier)
        return DROPPED

    def query(self, value: Any, where: str) -> int:
        """The number of a query, or DROPPED; one that has the words of another is that one."""
        # The rows of a page follow each other.
        if value == self._last[0] and self._last[1] != DROPPED:
            return self._last[1]
        number = self._query(value, where)
        self._last = (value, number)
        return number

    def _query(self, value: Any, where: str) -> int:
        if self.query_ids and self._known is not None:
            identifier = readers.as_id(value, where)
            found = self._known.query(identifier)
            if found is None:
                return self._miss("query", identifier, where)
            text = found
        else:
            text = readers.as_text(value, where)
        key = query_key(text)
        number = self._queries.get(key)
        if number is not None:
            return number
        if is_blank(text):
            self._drop("empty query", where=where)
            return DROPPED
        self._queries[key] = len(self.texts)
        self.texts.append(text)
        return len(self.texts) - 1

    def document(self, value: Any, where: str) -> int:
        """The number of a document, or DROPPED."""
        if self._known is not None:
            identifier = readers.as_id(value, where)
        elif isinstance(value, str):
            identifier = document_id("", value)
        elif value is None:
            self._drop("empty document", where=where)
            return DROPPED
        else:
            raise EmbedtrainError(
                f"{where} is {value!r}, not text; where it holds ids, say with --texts what they stand for"
            )
        number = self._documents.get(identifier)
        if number is not None:
            return number
        if self._known is None:
            if is_blank(value):
                self._drop("empty document", where=where)
                return DROPPED
            self._draft.add_weak_document("", value, {})
        else:
            found = self._known.document(identifier)
            if found is None:
                return self._miss("document", identifier, where)
            if is_blank(found.title) and is_blank(found.text):
                self._drop("impression of an empty document", document=identifier, where=where)
                return DROPPED
        self._documents[identifier] = len(self.ids)
        self.ids.append(identifier)
        return len(self.ids) - 1
