"""Which candidate may be a negative, and why not: pure functions of labels, texts, ranks and scores.

Candidates, labels and texts are flat arrays over the queries of a block (`candidates.Ragged`); a reason is a place in
`REASONS`. Of the rules that speak against a candidate the first in that order is its reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embedtrain.candidates import Candidates, Ints, Ragged, isin
from embedtrain.config import MineOptions
from embedtrain.duplicates import BLANK, Duplicates
from embedtrain.errors import UsageError

SELECTED = "selected"
ELIGIBLE = "eligible"  # would do, and is not needed
JUDGED = "judged not relevant"  # an explicit negative
KNOWN_POSITIVE = "known positive"
NO_TEXT = "no text"
SAME_AS_POSITIVE = "same text as a positive"
THE_QUERY = "the query itself"
SAME_AS_QUERY = "same text as the query"
NEAR_POSITIVE = "near-duplicate of a positive"
SIBLING = "same group as a positive"
OUTSIDE_RANKS = "outside ranks"
ABOVE_MAX_SCORE = "above max score"
ABOVE_MAX_RATIO = "above max ratio"
WITHIN_MAX_MARGIN = "within max margin"
BELOW_MIN_SCORE = "below min score"

# Every reason. After the first two, which speak for a candidate, in the order the rules are asked.
REASONS = (
    SELECTED,
    ELIGIBLE,
    KNOWN_POSITIVE,
    NO_TEXT,
    SAME_AS_POSITIVE,
    THE_QUERY,
    SAME_AS_QUERY,
    JUDGED,
    NEAR_POSITIVE,
    SIBLING,
    ABOVE_MAX_SCORE,
    ABOVE_MAX_RATIO,
    WITHIN_MAX_MARGIN,
    OUTSIDE_RANKS,
    BELOW_MIN_SCORE,
)
CODE = {reason: code for code, reason in enumerate(REASONS)}

# Reasons that say a candidate is right, or may well be: it is no negative of this query anywhere.
LIKE_A_POSITIVE = frozenset(
    {
        KNOWN_POSITIVE,
        SAME_AS_POSITIVE,
        NEAR_POSITIVE,
        SIBLING,
        ABOVE_MAX_SCORE,
        ABOVE_MAX_RATIO,
        WITHIN_MAX_MARGIN,
    }
)
# Of the candidates that labels and texts leave over, these are the fates: what scores and ranks decide.
OPEN = frozenset(
    {SELECTED, ELIGIBLE, ABOVE_MAX_SCORE, ABOVE_MAX_RATIO, WITHIN_MAX_MARGIN, OUTSIDE_RANKS, BELOW_MIN_SCORE}
)

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Labels:
    """What is known of the queries of a block.

    `positives` and `judged` (grade 0 or less, or shown and not clicked) are those of each query; `known` are all
    documents known to be right: the positives of other queries with the same words, too. `fingerprints` (q,) are
    those of the queries' texts; `own` (q,) is the corpus position of the document with the query's id, or -1.
    """

    ids: list[str]
    positives: Ragged
    known: Ragged
    judged: Ragged
    fingerprints: Ints
    own: Ints


def ratio_threshold(positive: NDArray[np.float32] | float, max_ratio: float) -> NDArray[np.float64]:
    """The highest score a negative may have beside a positive.

    For a score above 0 it is `max_ratio * positive` (TopK-PercPos in NV-Retriever, Moreira et al. 2024). For one
    below 0 that product would lie above the positive itself, so the distance is taken from the size of the score:
    s - (1 - max_ratio) * |s|, which is the same above 0 and falls with `max_ratio` everywhere.
    """
    score = np.asarray(positive, dtype=np.float64)
    return score - (1.0 - max_ratio) * np.abs(score)


def parse_ranks(text: str) -> tuple[int, int] | None:
    """Read `30:100` as the ranks from the 30th to the 100th; either may be left out. UsageError for others."""
    if not text:
        return None
    first, separator, last = text.partition(":")
    try:
        low, high = int(first or 1), int(last or 2**31 - 1)
    except ValueError:
        low, high = 0, 0
    if not separator or not 1 <= low <= high:
        raise UsageError(f"--ranks {text}: FIRST:LAST is needed, counted from 1, as 30:100")
    return low, high


def lowest(scores: NDArray[np.float32], positives: Ragged) -> NDArray[np.float32]:
    """The lowest score of each query's positives (every query has one). (q,)"""
    return np.minimum.reduceat(scores, positives.offsets[:-1]) if len(scores) else scores


def judge(
    candidates: Candidates,
    labels: Labels,
    duplicates: Duplicates,
    groups: Ints | None,
    positive_scores: Mapping[str, NDArray[np.float32]],
    options: MineOptions,
) -> Codes:
    """For every candidate ELIGIBLE, JUDGED, or the first reason against it, as a code.

    `groups` (corpus size,) numbers the documents' groups, 0 for none. `positive_scores` by dense retriever are those
    of `labels.positives`; every rule on scores holds for each of them, and is silent where there is none, or where
    the score is not known. A candidate on a threshold stays.
    """
    owners, values = candidates.owners, candidates.values
    codes = np.full(len(values), CODE[ELIGIBLE], dtype=np.uint8)

    def rule(reason: str, holds: NDArray[np.bool_]) -> None:
        codes[(codes == CODE[ELIGIBLE]) & holds] = CODE[reason]

    # Every candidate beside every known positive of its query.
    which, right = _beside(candidates, labels.known)

    def beside(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        found = np.zeros(len(values), dtype=bool)
        found[which[holds]] = True
        return found

    texts, right_texts = duplicates.fingerprints(values), duplicates.fingerprints(right)
    rule(KNOWN_POSITIVE, beside(values[which] == right))
    rule(NO_TEXT, texts == BLANK)
    rule(SAME_AS_POSITIVE, beside(texts[which] == right_texts))
    rule(THE_QUERY, labels.own[owners] == values)
    rule(SAME_AS_QUERY, labels.fingerprints[owners] == texts)
    rule(JUDGED, isin(candidates, labels.judged))
    if options.near_duplicate:
        left = np.flatnonzero(codes[which] == CODE[ELIGIBLE])
        alike = np.zeros(len(which), dtype=bool)
        alike[left] = duplicates.near(values[which[left]], right[left], options.near_duplicate)
        rule(NEAR_POSITIVE, beside(alike))
    if groups is not None:
        own = groups[values][which]
        rule(SIBLING, beside((own == groups[right]) & (own != 0)))
    for name, of_positives in positive_scores.items():
        scores = candidates.scores[name]
        least = lowest(of_positives, labels.positives)[owners]
        with np.errstate(invalid="ignore"):  # a score that is not known is above and below nothing
            if options.max_score is not None:
                rule(ABOVE_MAX_SCORE, scores > np.float32(options.max_score))
            if options.max_ratio is not None:
                rule(ABOVE_MAX_RATIO, scores > ratio_threshold(least, options.max_ratio))
            if options.max_margin is not None:
                rule(WITHIN_MAX_MARGIN, scores > least.astype(np.float64) - options.max_margin)
    ranks = parse_ranks(options.ranks)
    if ranks is not None:
        inside = (candidates.rank >= ranks[0]) & (candidates.rank <= ranks[1])
        rule(OUTSIDE_RANKS, ~inside & (candidates.rank > 0))
    for name in positive_scores:
        if options.min_score is not None:
            with np.errstate(invalid="ignore"):
                rule(BELOW_MIN_SCORE, candidates.scores[name] < np.float32(options.min_score))
    return codes


def _beside(candidates: Candidates, known: Ragged) -> tuple[Ints, Ints]:
    """Pairs of a candidate (its place) and a known positive of its query (its corpus position)."""
    owners = candidates.owners
    counts = np.diff(known.offsets)[owners]
    which = np.repeat(np.arange(len(owners)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return which, known.values[np.repeat(known.offsets[owners], counts) + np.arange(len(which)) - first]
