"""A draft of a harvest as plain dictionaries, and the other way round."""

from collections.abc import Mapping

import numpy as np

from embedtrain.collection import Qrels
from embedtrain.harvest.draft import Document, Draft, Query


def documents(draft: Draft) -> dict[str, Document]:
    """Documents by id, in the order in which they came."""
    return {identifier: document for _, identifier, document in draft.documents()}


def queries(draft: Draft) -> dict[str, Query]:
    """Queries by id, in the order in which they came."""
    return {identifier: query for _, identifier, query in draft.queries()}


def qrels(draft: Draft) -> dict[str, Qrels]:
    """Grades by split, query and document."""
    found: dict[str, Qrels] = {}
    for split in draft.splits():
        for query, document, grade, _, _ in draft.judgements(split):
            found.setdefault(split, {}).setdefault(query, {})[document] = grade
    return found


def pairs(draft: Draft) -> list[tuple[str, str]]:
    """(query text, document text) of all splits."""
    return [
        (draft.query(query).text, draft.document(document).text)
        for split in draft.splits()
        for query, document, *_ in draft.judgements(split)
    ]


def sources(draft: Draft) -> list[tuple[str, str, str]]:
    """(query text, document text, source) of all splits."""
    return [
        (draft.query(query).text, draft.document(document).text, source)
        for split in draft.splits()
        for query, document, _, source, _ in draft.judgements(split)
    ]


def triples(draft: Draft) -> list[tuple[str, str, str]]:
    """(source, query, document text), in the order in which they came."""
    names = {number: name for name, number in draft.names("source").items()}
    pairs = draft.pairs()
    queries, documents = (
        dict(zip(numbers.tolist(), draft.ids(table, numbers), strict=True))
        for table, numbers in (("queries", np.unique(pairs.query)), ("documents", np.unique(pairs.document)))
    )
    return [
        (names[int(source)], draft.query(queries[int(query)]).text, draft.document(documents[int(document)]).text)
        for source, query, document in zip(pairs.source, pairs.query, pairs.document, strict=True)
    ]


def draft_of(
    documents: Mapping[str, Document], queries: Mapping[str, Query], splits: Mapping[str, Qrels] | None = None
) -> Draft:
    """A draft that holds these."""
    draft = Draft()
    for identifier, document in documents.items():
        draft.add_document(identifier, document)
    for identifier, query in queries.items():
        draft.add_query(identifier, query)
    for split, judged in (splits or {}).items():
        for query, grades in judged.items():
            for name, grade in grades.items():
                draft.judge(split, query, name, grade, "here")
    return draft
