"""Who is in which split, and what a smaller collection keeps; every choice is a stable hash, never a row number.

A hash of (seed, id) instead of a shuffled list: what is added later does not move what was there before.
"""

import hashlib
import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import changes
from embedtrain.harvest.draft import TRAIN, Draft, Pairs
from embedtrain.harvest.ledger import Ints

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


def stable_unit(seed: int, purpose: str, key: str) -> float:
    """A number in [0, 1) that depends on nothing but its arguments; uniform over keys."""
    digest = hashlib.sha256(f"{seed}\0{purpose}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def parse_shares(text: str) -> dict[str, float]:
    """Read `dev=0.2,test=0.1`; UsageError for anything else. What is not cut stays in train.

    `train` may be named too; all shares are 1 together then. It is not among what is returned.
    """
    shares: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            share = float(value)
        except ValueError:
            share = 0.0
        if not _NAME.match(name) or not 0 < share < 1:
            raise UsageError(f"--split {text}: {part!r} is no NAME=SHARE with a share between 0 and 1, as dev=0.2")
        if name in shares:
            raise UsageError(f"--split {text}: name each split once")
        shares[name] = share
    whole = math.fsum(shares.values())
    train = shares.pop(TRAIN, None)
    if train is not None and not math.isclose(whole, 1.0, abs_tol=1e-9):
        raise UsageError(
            f"--split {text}: the shares are {whole:g} together; with train among them they must be 1"
        )
    if train is None and whole >= 1:
        raise UsageError(f"--split {text}: the shares leave nothing for train; they must be below 1 together")
    return shares


def _joined(sides: Sequence[tuple[Ints, Ints]], count: int) -> Ints:
    """The component of each of `count` nodes that pairs of nodes connect."""
    left, right = (np.concatenate([side[place] for side in sides]) for place in (0, 1))
    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(count, count))
    return connected_components(graph.tocsr(), directed=False)[1].astype(np.int64)


def components(draft: Draft, pairs: Pairs) -> tuple[Ints, Ints]:
    """Numbers of the queries of some judgements, ascending, and the group of each; groups share nothing. Both (n,)

    Two queries are in one group when they have the same words, a positive in common, positives of the same text,
    or positives that must stay together, as those cut from one page; and so on through others.
    """
    queries = np.unique(pairs.query)
    query_numbers, query_keys = draft.keys("queries")
    document_numbers, document_keys = draft.keys("documents")
    groups, members = draft.together()
    # Nodes in a row: queries, their words, documents, their texts, groups.
    words = np.unique(query_keys, return_inverse=True)[1]
    texts = np.unique(document_keys, return_inverse=True)[1]
    found = np.unique(groups, return_inverse=True)[1]
    sizes = [len(query_numbers), words.max(initial=-1) + 1, len(document_numbers), texts.max(initial=-1) + 1]
    starts = np.cumsum([0, *sizes])
    positive = pairs.grade > 0

    def query_of(numbers: Ints) -> Ints:
        return np.searchsorted(query_numbers, numbers)

    def document_of(numbers: Ints) -> Ints:
        return starts[2] + np.searchsorted(document_numbers, numbers)

    places = query_of(queries)
    used = np.searchsorted(document_numbers, np.unique(pairs.document[positive]))
    label = _joined(
        [
            (places, starts[1] + words[places]),
            (query_of(pairs.query[positive]), document_of(pairs.document[positive])),
            (starts[2] + used, starts[3] + texts[used]),
            (document_of(members), starts[4] + found),
        ],
        int(starts[4] + found.max(initial=-1) + 1),
    )[places]
    return queries, np.unique(label, return_inverse=True)[1]


def units(draft: Draft, table: str, numbers: Ints, seed: int, purpose: str) -> NDArray[np.float64]:
    """The stable unit of each of some documents or queries, by their ids. As long as `numbers`"""
    named, place = np.unique(numbers, return_inverse=True)
    ids = draft.ids(table, named)
    found = np.fromiter((stable_unit(seed, purpose, identifier) for identifier in ids), np.float64, len(named))
    return found[place]


def _smallest(group: Ints, value: NDArray[np.float64], count: int) -> Ints:
    """For each group the place of its smallest value; -1 for a group without one."""
    order = np.lexsort((value, group))
    first = np.full(count, -1, dtype=np.int64)
    named, start = np.unique(group[order], return_index=True)
    first[named] = order[start]
    return first


def _points(draft: Draft, pairs: Pairs, queries: Ints, groups: Ints, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each group, by one of its members: see `cut`."""
    count = int(groups.max(initial=-1)) + 1
    positive = pairs.grade > 0
    documents, index = np.unique(pairs.document[positive], return_index=True)
    of_document = groups[np.searchsorted(queries, pairs.query[positive][index])]
    chosen = _smallest(of_document, units(draft, "documents", documents, seed, "member"), count)
    points = np.empty(count, dtype=np.float64)
    some = chosen >= 0
    points[some] = units(draft, "documents", documents[chosen[some]], seed, "split")
    if not some.all():
        of_query = _smallest(groups, units(draft, "queries", queries, seed, "member"), count)
        points[~some] = units(draft, "queries", queries[of_query[~some]], seed, "split")
    return points


def _by_hash(points: NDArray[np.float64], shares: dict[str, float]) -> NDArray[np.int64]:
    """The split of each group, by its place in `shares`; -1: train."""
    bounds = np.cumsum(list(shares.values()))
    found = np.searchsorted(bounds, points, side="right")
    return np.where(found < len(bounds), found, -1)


def _by_time(latest: NDArray[np.float64], sizes: Ints, shares: dict[str, float]) -> NDArray[np.int64]:
    """The split of each group: the newest in the last one named; groups without a time stay in train.

    A group is as new as its latest judgement, so that train holds nothing that is newer than what it is tested on; and
    each split has at least its share of the queries, as far as groups can be parted.
    """
    found = np.full(len(latest), -1, dtype=np.int64)
    known = np.flatnonzero(~np.isnan(latest))
    order = known[np.argsort(-latest[known], kind="stable")]
    whole, taken, start = int(sizes[known].sum()), 0, 0
    reached = np.cumsum(sizes[order])
    for place, share in reversed(list(enumerate(shares.values()))):
        taken += round(share * whole)
        stop = int(np.searchsorted(reached, taken, side="left")) + 1
        # What happened at the same moment is not parted.
        while 0 < stop < len(order) and latest[order[stop]] == latest[order[stop - 1]]:
            stop += 1
        found[order[start:stop]] = place
        start = max(start, stop)
    return found


def cut(draft: Draft, shares: dict[str, float], seed: int, *, by_time: bool = False) -> None:
    """Cut splits off train by whole groups (see `components`), each by the stable hash of one of its members or by time.

    That member is the positive with the smallest hash (the query, where there is none): a group moves to another
    split only when new rows join it to another group or bring such a smaller positive.
    Raises EmbedtrainError where a split would be empty.
    """
    if not shares:
        return
    there = draft.names("split")
    if TRAIN not in there:
        raise UsageError("--split cuts from the train split and the source has none; leave it out")
    for name in shares:
        if name in there:
            raise UsageError(f"--split {name}: the source has a split {name} already; choose another name")
    pairs = draft.pairs(TRAIN)
    queries, groups = components(draft, pairs)
    sizes = np.bincount(groups)
    if by_time:
        latest = np.full(len(sizes), -np.inf)
        known = ~np.isnan(pairs.time)
        np.maximum.at(latest, groups[np.searchsorted(queries, pairs.query[known])], pairs.time[known])
        latest[np.isinf(latest)] = np.nan
        if np.isnan(latest).all():
            raise UsageError("--split by time: no row has a time; name its column with --time-column")
        if timeless := int(sizes[np.isnan(latest)].sum()):
            draft.notes.append(f"{timeless:,} queries without a time stay in train")
        chosen = _by_time(latest, sizes, shares)
    else:
        chosen = _by_hash(_points(draft, pairs, queries, groups, seed), shares)
    names = [*shares, TRAIN]
    counts = {
        name: int((chosen == place).sum()) for place, name in zip([*range(len(shares)), -1], names, strict=True)
    }
    for name, count in counts.items():
        if not count:
            raise EmbedtrainError(
                f"--split would leave {name} empty: the {len(queries)} train queries form {len(sizes)} groups, and "
                "queries that share documents are never parted; give other shares or another --seed"
            )
    of_query = chosen[groups]
    changes.move(draft, {name: queries[of_query == place] for place, name in enumerate(shares)})
    for place, name in enumerate(shares):
        part = int((of_query == place).sum())
        draft.notes.append(
            f"{name} was cut from train{' by time' if by_time else ''}: {part:,} of {len(queries):,} queries, "
            f"{counts[name]:,} of {len(sizes):,} groups that share no document"
        )


def limit_queries(draft: Draft, limit: int) -> None:
    """Keep the first `limit` queries of each split, in file order; queries of no split leave too. All counted."""
    kept = np.empty(0, dtype=np.int64)
    pairs = [draft.pairs(split) for split in draft.splits()]
    for found in pairs:
        named, first = np.unique(found.query, return_index=True)
        kept = np.union1d(kept, named[np.argsort(first, kind="stable")[:limit]])
    for found in pairs:
        named, first = np.unique(found.query, return_index=True)
        own = named[np.argsort(first, kind="stable")[:limit]]
        changes.forget_pairs(draft, found.p[~np.isin(found.query, own)])
    queries = draft.keys("queries")[0]
    changes.remove(draft, "queries", queries[~np.isin(queries, kept)], "query beyond --limit")


def sample_documents(draft: Draft, count: int, seed: int) -> None:
    """Keep the judged documents and, up to `count` in all, those others whose stable hash is smallest.

    Raises UsageError where the judged ones alone are more.
    """
    documents = draft.keys("documents")[0]
    judged = np.unique(draft.pairs().document)
    if len(judged) > count:
        raise UsageError(
            f"--documents {count}: {len(judged)} documents are judged and must stay; "
            f"give at least {len(judged)}, or fewer queries with --limit"
        )
    others = documents[~np.isin(documents, judged)]
    order = units(draft, "documents", others, seed, "documents")
    left = others[np.argsort(order, kind="stable")][count - len(judged) :]
    changes.remove(draft, "documents", np.sort(left), "document outside the sample")
