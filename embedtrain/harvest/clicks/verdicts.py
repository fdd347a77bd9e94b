"""Counts of a click log -> which pairs are positives, which negatives, and why others are neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.harvest.clicks.log import Counts
from embedtrain.harvest.clicks.model import Floats, Prior, filled, fit_prior, fit_propensities, posterior
from embedtrain.harvest.clicks.options import ClickOptions, parse_propensities
from embedtrain.harvest.clicks.rows import Log
from embedtrain.harvest.identity import query_id

_SHOWN = 10  # propensities in a note

# Why a pair is not among the positives or negatives it might have been among, by code.
POSITIVE, NEGATIVE, FEW_CLICKS, UNSURE, CAPPED, ALONE = 1, 2, 3, 4, 5, 6
REASONS = {
    FEW_CLICKS: "pair clicked under --min-clicks times",
    UNSURE: "pair whose relevance is not surely above --min-relevance",
    CAPPED: "pair beyond --max-queries-per-document",
    ALONE: "skipped pair of a query without a positive",
}


@dataclass(frozen=True)
class Beliefs:
    """What a log says of looking and clicking.

    `propensities[k - 1]` is that of rank k, `prior` the relevance of pairs before their clicks are seen, `least` the
    relevance that a positive is surely above.
    """

    propensities: Floats
    prior: Prior
    least: float
    notes: list[str]


@dataclass(frozen=True)
class Verdicts:
    """Pairs that are something or might have been, by query and then document as the log first names them.

    `kind` is POSITIVE, NEGATIVE or why it is neither; `weight` is the relevance of a positive and 1 for others;
    `since` is in seconds, NaN where no time is known. All (pairs,).
    """

    query: NDArray[np.uint32]
    document: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    weight: Floats
    since: Floats


def _by_rank(values: Floats, ranks: NDArray[Any]) -> str:
    shown = ", ".join(f"{rank}:{values[rank - 1]:.3f}" for rank in ranks[:_SHOWN])
    return shown + (", ..." if len(ranks) > _SHOWN else "")


def _propensities(log: Log, options: ClickOptions) -> tuple[Floats | None, list[str]]:
    """Propensities by rank, None where nothing is known of them, and what is to be said."""
    counts = log.counts
    ranks = np.unique(counts.rank)
    if options.propensities:
        given = parse_propensities(options.propensities)
        values = filled(np.array(list(given)), np.array(list(given.values())), int(ranks[-1]))
        return values, [f"propensities by rank, as given and read off between: {_by_rank(values, ranks)}"]
    if log.columns.position is None:
        return None, ["the log has no positions: click rates are not corrected for them"]
    found = fit_propensities(counts.pair, counts.rank, counts.shown, counts.clicked)
    if found is None:
        return None, [
            "too few clicked pairs were shown at several positions to compare any two: click rates are not corrected for "
            "position; give --propensities where they are known"
        ]
    own = np.flatnonzero(found.estimated) + 1
    notes = [
        f"propensities by rank, from {found.pairs:,} clicked pairs shown at several: {_by_rank(found.values, own)}"
    ]
    if len(own) < len(ranks):
        notes.append(
            f"{len(ranks) - len(own):,} of {len(ranks):,} ranks have too few clicks to be compared; their propensities are "
            "read off between the others"
        )
    if found.steps is None:
        notes.append("the propensities did not converge: hardly anything compares some of the ranks")
    return found.values, notes


def believe(log: Log, options: ClickOptions) -> Beliefs:
    """Estimate propensities, unless they are given, and the prior of relevance."""
    counts = log.counts
    known, notes = _propensities(log, options)
    values = np.ones(int(counts.rank.max())) if known is None else known
    table = (counts.pair, counts.rank, values[counts.rank - 1], counts.shown, counts.clicked)
    prior = fit_prior(*table, by_rank=known is not None)
    by_rank = f"; by rank: {_by_rank(prior.by_rank, np.unique(counts.rank))}" if known is not None else ""
    notes.append(
        f"relevance of what is shown: mean {prior.mean:.4f}, which weighs as much as {prior.strength:.1f} impressions of a "
        f"pair at the rank most looked at{by_rank}"
    )
    return Beliefs(values, prior, prior.mean if options.min_relevance is None else options.min_relevance, notes)


def _relevance(counts: Counts, beliefs: Beliefs, asked: NDArray[np.bool_]) -> Floats:
    """Mean, low and high end of the relevance of the pairs that are `asked` for, NaN for others; (3, pairs)."""
    relevance = np.full((3, len(asked)), np.nan)
    pair, theta = counts.pair, beliefs.propensities[counts.rank - 1]
    rows = asked[pair]
    if rows.any():
        means = beliefs.prior.means(pair, counts.rank, theta, counts.shown)[asked]
        table = ((np.cumsum(asked) - 1)[pair[rows]], theta[rows], counts.shown[rows], counts.clicked[rows])
        found = posterior(*table, means, beliefs.prior.strength)
        relevance[:, asked] = found.mean, found.low, found.high
    return relevance


def judge(log: Log, beliefs: Beliefs, options: ClickOptions) -> Verdicts:
    """Say of every pair that was clicked, or skipped often enough, what it is or why it is nothing."""
    counts = log.counts
    starts = np.flatnonzero(np.diff(counts.pair, prepend=-1))
    query, document = counts.query[starts], counts.document[starts]
    clicks = np.add.reduceat(counts.clicked, starts, dtype=np.int64)
    skips = np.add.reduceat(counts.skipped, starts, dtype=np.int64)
    # Counts say nothing of skips: there it is the relevance alone that makes a negative.
    passed = skips >= options.min_skips if log.events else np.ones(len(starts), dtype=bool)
    enough = clicks >= options.min_clicks
    below = options.negatives_below
    mean, low, high = _relevance(counts, beliefs, enough if below is None else enough | passed)
    kind = np.zeros(len(starts), dtype=np.uint8)
    kind[(clicks > 0) & ~enough] = FEW_CLICKS
    kind[enough] = UNSURE
    if below is not None:
        kind[passed & (high < min(below, beliefs.least))] = NEGATIVE
    if log.events:
        kind[passed & (clicks == 0)] = NEGATIVE
    kind[enough & (low > beliefs.least)] = POSITIVE
    if options.max_queries_per_document:
        positives = np.flatnonzero(kind == POSITIVE)
        ids = [query_id(log.texts[number]) for number in query[positives]]
        beyond = beyond_cap(document[positives], mean[positives], ids, options.max_queries_per_document)
        kind[positives[beyond]] = CAPPED
    answered = np.zeros(len(log.texts), dtype=bool)
    answered[query[kind == POSITIVE]] = True
    kind[(kind == NEGATIVE) & ~answered[query]] = ALONE
    since = np.full(len(starts), np.nan)
    if counts.since is not None:
        since = np.minimum.reduceat(counts.since, starts)
        since[np.isinf(since)] = np.nan
    said = kind > 0
    weight = np.where(kind == POSITIVE, mean, 1.0)
    return Verdicts(query[said], document[said], kind[said], weight[said], since[said])


def beyond_cap(
    document: NDArray[Any], relevance: Floats, query_ids: Sequence[str], most: int
) -> NDArray[np.bool_]:
    """Which pairs are not the `most` relevant ones of their document; of equal ones later ids go first."""
    order = np.lexsort((np.array(query_ids, dtype=np.str_), -relevance, document))
    ordered = document[order].astype(np.int64)
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    number = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    beyond = np.zeros(len(order), dtype=bool)
    beyond[order[number >= most]] = True
    return beyond
