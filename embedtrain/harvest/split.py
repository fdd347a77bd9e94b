"""Who is in which split, and what a smaller collection keeps; every choice is a stable hash, never a row number.

A hash of (seed, id) instead of a shuffled list: what is added later does not move what was there before.
"""

import hashlib
import re
from collections.abc import Hashable

from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.draft import Draft, document_key, query_key

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


def stable_unit(seed: int, purpose: str, key: str) -> float:
    """A number in [0, 1) that depends on nothing but its arguments; uniform over keys."""
    digest = hashlib.sha256(f"{seed}\0{purpose}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def parse_shares(text: str) -> dict[str, float]:
    """Read `dev=0.2,test=0.1`; UsageError for anything else. What is not cut stays in train."""
    shares: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            share = float(value)
        except ValueError:
            share = 0.0
        if not _NAME.match(name) or not 0 < share < 1:
            raise UsageError(f"--split {text}: {part!r} is no NAME=SHARE with a share between 0 and 1, as dev=0.2")
        if name == "train" or name in shares:
            raise UsageError(f"--split {text}: name each new split once; what is not cut stays in train")
        shares[name] = share
    if sum(shares.values()) >= 1:
        raise UsageError(f"--split {text}: the shares leave nothing for train; they must be below 1 together")
    return shares


class _Groups:
    """Which things belong together: sets that are joined (union-find with path halving)."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def find(self, node: Hashable) -> Hashable:
        parent = self._parent
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(self, left: Hashable, right: Hashable) -> None:
        self._parent[self.find(right)] = self.find(left)


def components(draft: Draft, split: str) -> list[list[str]]:
    """The queries of a split in groups that share nothing, in the order of their first query.

    Two queries are in one group when they have the same words, a positive in common, positives of the same text,
    or positives cut from the same page; and so on through others.
    """
    groups = _Groups()
    qrels = draft.splits[split]
    for query, judged in qrels.items():
        node = ("query", query)
        groups.join(("query text", query_key(draft.queries[query].text)), node)
        for document, grade in judged.items():
            if grade > 0:
                groups.join(("document", document), node)
                groups.join(("text", document_key(*draft.documents[document][:2])), node)
    for document, page in draft.groups:
        groups.join(("page", page), ("document", document))
    found: dict[Hashable, list[str]] = {}
    for query in qrels:
        found.setdefault(groups.find(("query", query)), []).append(query)
    return list(found.values())


def cut(draft: Draft, shares: dict[str, float], seed: int) -> None:
    """Cut splits off train by whole groups (see `components`), each by the stable hash of one of its members.

    That member is the positive with the smallest hash (the query, where there is none): a group moves to another
    split only when new rows join it to another group or bring such a smaller positive.
    Raises EmbedtrainError where a split would be empty.
    """
    if not shares:
        return
    if "train" not in draft.splits:
        raise UsageError("--split cuts from the train split and the source has none; leave it out")
    for name in shares:
        if name in draft.splits:
            raise UsageError(f"--split {name}: the source has a split {name} already; choose another name")
    train = draft.splits["train"]
    groups = components(draft, "train")
    chosen: dict[str, str] = {}
    counts = dict.fromkeys((*shares, "train"), 0)
    for queries in groups:
        positives = {document for query in queries for document, grade in train[query].items() if grade > 0}
        member = min(positives or queries, key=lambda key: (stable_unit(seed, "member", key), key))
        point = stable_unit(seed, "split", member)
        name = "train"
        for candidate, share in shares.items():
            if point < share:
                name = candidate
                break
            point -= share
        counts[name] += 1
        chosen |= dict.fromkeys(queries, name)
    for name, count in counts.items():
        if not count:
            raise EmbedtrainError(
                f"--split would leave {name} empty: the {len(train)} train queries form {len(groups)} groups, and "
                "queries that share documents are never parted; give other shares or another --seed"
            )
    for name in shares:
        part = {query: judged for query, judged in train.items() if chosen[query] == name}
        draft.splits[name] = part
        draft.notes.append(
            f"{name} was cut from train: {len(part):,} of {len(train):,} queries, "
            f"{counts[name]:,} of {len(groups):,} groups that share no document"
        )
    draft.splits["train"] = {query: judged for query, judged in train.items() if chosen[query] == "train"}


def limit_queries(draft: Draft, limit: int) -> None:
    """Keep the first `limit` queries of each split, in file order; queries of no split leave too. All counted."""
    for split, qrels in draft.splits.items():
        draft.splits[split] = dict(list(qrels.items())[:limit])
    kept = {query for qrels in draft.splits.values() for query in qrels}
    draft.dropped["query beyond --limit"] += len(draft.queries) - len(kept)
    draft.queries = {query: row for query, row in draft.queries.items() if query in kept}


def sample_documents(draft: Draft, count: int, seed: int) -> None:
    """Keep the judged documents and, up to `count` in all, those others whose stable hash is smallest.

    Raises UsageError where the judged ones alone are more.
    """
    judged = {document for qrels in draft.splits.values() for row in qrels.values() for document in row}
    if len(judged) > count:
        raise UsageError(
            f"--documents {count}: {len(judged)} documents are judged and must stay; "
            f"give at least {len(judged)}, or fewer queries with --limit"
        )
    others = [identifier for identifier in draft.documents if identifier not in judged]
    others.sort(key=lambda identifier: (stable_unit(seed, "documents", identifier), identifier))
    kept = judged | set(others[: count - len(judged)])
    draft.dropped["document outside the sample"] += len(draft.documents) - len(kept)
    draft.documents = {identifier: row for identifier, row in draft.documents.items() if identifier in kept}
