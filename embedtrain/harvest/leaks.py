"""What a training set shares with the sets it will be measured on: queries and answers, word for word or nearly."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.collection import Collection
from embedtrain.console import Progress
from embedtrain.duplicates import normalised
from embedtrain.errors import UsageError
from embedtrain.harvest import changes
from embedtrain.harvest.draft import TRAIN, Draft
from embedtrain.harvest.identity import number
from embedtrain.harvest.ledger import Ints
from embedtrain.harvest.near import near_pairs, signatures
from embedtrain.harvest.summary import shorten

NEAR = 0.8  # Jaccard index of shingles from which a text is nearly another
_SHOWN = 3
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Side:
    """Texts of one kind, with what they are compared by."""

    texts: Sequence[str]
    keys: Ints


@dataclass(frozen=True)
class Shared:
    """Which of some texts another set has. Both (n,)"""

    exact: NDArray[np.bool_]
    near: NDArray[np.bool_]  # and not exact
    like: Ints  # the place of the text of the other set; -1 for none

    @property
    def any(self) -> NDArray[np.bool_]:
        """Those it has, word for word or nearly."""
        return self.exact | self.near


def side(texts: Iterable[str]) -> Side:
    """Texts; two are the same word for word whatever their case, spaces and punctuation."""
    found = list(texts)
    return Side(found, np.array([number(_words(text)) for text in found], dtype=np.int64))


def _words(text: str) -> str:
    plain = normalised(text)
    return " ".join(_WORD.findall(plain)) or plain


def shared(own: Side, other: Side, threshold: float = NEAR) -> Shared:
    """Which texts of `own` stand in `other`, or have a Jaccard index of shingles of `threshold` or more with one there."""
    known, first = np.unique(other.keys, return_index=True)
    exact = np.isin(own.keys, known)
    like = np.full(len(own.keys), -1, dtype=np.int64)
    like[exact] = first[np.searchsorted(known, own.keys[exact])]
    near = np.zeros(len(own.keys), dtype=bool)
    if threshold and len(other.texts) and len(own.texts):
        texts = [*other.texts, *own.texts]
        left, right = near_pairs(signatures(texts), texts.__getitem__, threshold)
        across = (left < len(other.texts)) & (right >= len(other.texts))
        places = right[across] - len(other.texts)
        near[places] = True
        near &= ~exact
        like[places] = np.where(exact[places], like[places], left[across])
    return Shared(exact, near, like)


def judged(folder: Path, split: str) -> tuple[Side, Side]:
    """The queries of a split of a collection, of all splits where it is empty, and the documents that answer them."""
    collection = Collection(folder)
    if not collection.splits:
        raise UsageError(f"{folder} has no qrels, so nothing can leak from it; give the collection you measure on")
    queries: dict[str, None] = {}
    documents: dict[str, None] = {}
    for found in [split] if split else collection.splits:
        for query, positives in collection.positives(found).items():
            queries[query] = None
            documents |= dict.fromkeys(positives)
    return (
        side(collection.queries.by_id(query) for query in queries),
        side(collection.corpus.by_id(document) for document in documents),
    )


def exclude(draft: Draft, others: Sequence[tuple[Path, str]], progress: Progress) -> None:
    """Take out of train what evaluation sets (folder, split) have: their queries, and pairs with their answers.

    Documents without an id of their own leave with their pairs; others stay in the corpus, unasked for.
    """
    for done, (path, split) in enumerate(others, start=1):
        asked, answers = judged(path, split)
        pairs = draft.pairs(TRAIN)
        queries, documents = np.unique(pairs.query), np.unique(pairs.document)
        own_queries = side(draft.text("queries", int(n)) for n in queries)
        own_documents = side(draft.text("documents", int(n)) for n in documents)
        found = shared(own_queries, asked), shared(own_documents, answers)
        leaking = queries[found[0].any]
        changes.remove_pairs(
            draft, pairs.p[np.isin(pairs.query, leaking)], "pair with a query of an excluded collection"
        )
        pairs = draft.pairs(TRAIN)
        leaking = documents[found[1].any]
        changes.remove_pairs(
            draft, pairs.p[np.isin(pairs.document, leaking)], "pair with an answer of an excluded collection"
        )
        weak = draft.keys("documents")[0][~draft.own("documents")]
        changes.remove_with_pairs(
            draft, np.intersect1d(leaking, weak), "document that answers a query of an excluded collection"
        )
        changes.forget_unasked(draft)
        draft.notes.append(f"{path.name}: {told(found[0], 'queries')}; {told(found[1], 'documents')} left train")
        draft.notes += examples(found[0], own_queries, asked) + examples(found[1], own_documents, answers)
        progress("leave out evaluation sets", done, len(others), path.name)


def told(found: Shared, noun: str) -> str:
    """How many of some texts another set has, in words."""
    total, exact, near = len(found.exact), int(found.exact.sum()), int(found.near.sum())
    return f"{exact + near:,} of {total:,} {noun} ({exact:,} word for word, {near:,} nearly)"


def examples(found: Shared, own: Side, other: Side) -> list[str]:
    """Some of the near ones beside what they are near to, or of the exact ones where there are none."""
    places = np.flatnonzero(found.near)[:_SHOWN] if found.near.any() else np.flatnonzero(found.exact)[:_SHOWN]
    return [
        f"shared: {shorten(own.texts[place], 60)!r} and {shorten(other.texts[found.like[place]], 60)!r}"
        for place in places
    ]


def check(train: Path, against: tuple[Path, str], split: str) -> dict[str, Any]:
    """What one split of a collection shares with the queries and answers of another: counts, shares, examples."""
    collection = Collection(train)
    positives = collection.positives(split)
    documents = dict.fromkeys(document for found in positives.values() for document in found)
    own = (
        side(collection.queries.by_id(query) for query in positives),
        side(collection.corpus.by_id(document) for document in documents),
    )
    other = judged(*against)
    result: dict[str, Any] = {"split": split, "against": against[0].name, "notes": []}
    for name, mine, theirs in zip(("queries", "documents"), own, other, strict=True):
        found = shared(mine, theirs)
        result[name] = {
            "total": len(mine.texts),
            "word_for_word": int(found.exact.sum()),
            "nearly": int(found.near.sum()),
            "share": float(found.any.mean()) if len(mine.texts) else 0.0,
        }
        result["notes"] += [told(found, name), *examples(found, mine, theirs)]
    return result
