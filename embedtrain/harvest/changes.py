"""What goes out of a draft again, or stands elsewhere in it: every step after reading is made of these."""

from collections.abc import Mapping

import numpy as np

from embedtrain.collection import is_blank
from embedtrain.harvest.draft import TRAIN, Draft
from embedtrain.harvest.identity import document_id, document_key, number
from embedtrain.harvest.ledger import Ints


def remove_pairs(draft: Draft, numbers: Ints, reason: str) -> None:
    """Take out judgements by their `p`, each counted."""
    if not len(numbers):
        return
    if draft.keep_dropped:
        draft.choose(numbers)
        rows = draft.read(
            "SELECT queries.text, documents.id, documents.title, documents.text, pairs.grade FROM pairs"
            " JOIN chosen ON chosen.n = pairs.p JOIN queries ON queries.n = pairs.query"
            " JOIN documents ON documents.n = pairs.document ORDER BY p"
        )
        for query, identifier, title, text, grade in list(rows):
            draft.drop(reason, query=query, document=identifier, title=title, text=text, grade=grade)
    else:
        draft.dropped[reason] += len(numbers)
    forget_pairs(draft, numbers)


def forget_pairs(draft: Draft, numbers: Ints) -> None:
    """Take out judgements by their `p` that are counted as something else."""
    draft.choose(numbers)
    draft.db.execute("DELETE FROM pairs WHERE p IN (SELECT n FROM chosen)")


def remove(draft: Draft, table: str, numbers: Ints, reason: str) -> None:
    """Take out documents or queries that no judgement names any more, each counted."""
    if not len(numbers):
        return
    draft.choose(numbers)
    if draft.keep_dropped:
        noun = {"documents": "document", "queries": "query"}[table]
        for identifier, text in list(draft.read(f"SELECT id, text FROM {table} JOIN chosen USING (n) ORDER BY n")):
            draft.drop(reason, **{noun: identifier, "text": text})
    else:
        draft.dropped[reason] += len(numbers)
    draft.db.execute(f"DELETE FROM {table} WHERE n IN (SELECT n FROM chosen)")
    if table == "documents":
        draft.db.execute("DELETE FROM together WHERE document IN (SELECT n FROM chosen)")


def merge(draft: Draft, into: Mapping[int, int], reason: str) -> None:
    """Let documents stand in for others that leave: {number of the one that leaves: number of the one that stays}.

    Pairs that are the same then are one, with the higher of their grades.
    """
    if not into:
        return
    draft.choose(np.array(sorted(into), dtype=np.int64))
    draft.db.executemany("UPDATE chosen SET value = ? WHERE n = ?", ((kept, n) for n, kept in into.items()))
    before = draft.count("pairs")
    draft.db.execute(
        "INSERT INTO pairs (split, query, document, grade, source, weight, time)"
        " SELECT split, query, chosen.value, grade, source, weight, time"
        " FROM pairs JOIN chosen ON chosen.n = pairs.document WHERE true ORDER BY p"
        " ON CONFLICT (query, document, split) DO UPDATE SET grade = MAX(grade, excluded.grade)"
    )
    draft.db.execute("DELETE FROM pairs WHERE document IN (SELECT n FROM chosen)")
    if repeated := before - draft.count("pairs"):
        draft.dropped["repeated pair"] += repeated
    draft.db.execute(
        "INSERT OR IGNORE INTO together SELECT grp, chosen.value FROM together JOIN chosen ON chosen.n = document"
    )
    remove(draft, "documents", np.array(sorted(into), dtype=np.int64), reason)


def rewrite(draft: Draft, texts: Mapping[int, str], reason: str) -> None:
    """Give documents that have no id of their own another text, and the id that follows from it.

    One that becomes another's equal leaves for it; one that becomes blank leaves with its pairs.
    """
    into: dict[int, int] = {}
    blank: list[int] = []
    for n, text in texts.items():
        (title,) = draft.db.execute("SELECT title FROM documents WHERE n = ?", (n,)).fetchone()
        if is_blank(text):
            blank.append(n)
            continue
        identifier = document_id(title, text)
        known = draft.db.execute("SELECT n FROM documents WHERE id = ? AND n != ?", (identifier, n)).fetchone()
        if known:
            into[n] = known[0]
            continue
        draft.db.execute(
            "UPDATE documents SET id = ?, key = ?, text = ? WHERE n = ?",
            (identifier, number(document_key(title, text)), text, n),
        )
    merge(draft, into, "repeated document")
    remove_with_pairs(draft, np.array(blank, dtype=np.int64), reason)


def remove_with_pairs(draft: Draft, documents: Ints, reason: str) -> None:
    """Take out documents and the judgements that name them, both counted, and queries that nothing names any more."""
    pairs = draft.pairs()
    remove_pairs(draft, pairs.p[np.isin(pairs.document, documents)], "pair with a document that was left out")
    forget_unasked(draft)
    remove(draft, "documents", documents, reason)


def forget_unasked(draft: Draft) -> None:
    """Take out queries without an id of their own that no judgement names any more; their pairs were counted."""
    draft.db.execute("DELETE FROM queries WHERE NOT own AND n NOT IN (SELECT query FROM pairs)")


def move(draft: Draft, queries: Mapping[str, Ints], source: str = TRAIN) -> None:
    """Move all judgements of queries, by their numbers, from one split to others."""
    for split, numbers in queries.items():
        draft.choose(numbers)
        draft.db.execute(
            "UPDATE pairs SET split = ? WHERE split = ? AND query IN (SELECT n FROM chosen)",
            (draft.name("split", split), draft.name("split", source)),
        )
