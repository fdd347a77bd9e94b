"""Which candidate may be a negative, and why not: pure functions of labels, texts and scores."""

import unicodedata
from collections.abc import Callable, Collection, Sequence

SELECTED = "selected"
ELIGIBLE = "eligible"  # would do, and is not needed
KNOWN_POSITIVE = "known positive"
SAME_AS_POSITIVE = "same text as a positive"
THE_QUERY = "the query itself"
SAME_AS_QUERY = "same text as the query"
NO_TEXT = "no text"
ABOVE_MAX_RATIO = "above max ratio"

# Every reason, in the order the rules are asked.
REASONS = (
    SELECTED,
    ELIGIBLE,
    KNOWN_POSITIVE,
    NO_TEXT,
    SAME_AS_POSITIVE,
    THE_QUERY,
    SAME_AS_QUERY,
    ABOVE_MAX_RATIO,
)

# Format characters: zero-width blanks and joiners, soft hyphens, marks of direction, tags.
_INVISIBLE = frozenset(
    chr(point) for point in (*range(0x20000), *range(0xE0000, 0xE0080)) if unicodedata.category(chr(point)) == "Cf"
)


def normalised(text: str) -> str:
    """A text as it is compared with others: NFKC, case folded, invisible signs gone, white space collapsed."""
    text = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    for sign in _INVISIBLE.intersection(text):
        text = text.replace(sign, "")
    return " ".join(unicodedata.normalize("NFKC", text).split())


def ratio_threshold(positive_score: float, max_ratio: float) -> float:
    """The highest score a negative may have beside a positive.

    For a score above 0 it is `max_ratio * positive_score` (TopK-PercPos in NV-Retriever, Moreira et al. 2024). For
    one below 0 that product would lie above the positive itself, so the distance is taken from the size of the
    score: s - (1 - max_ratio) * |s|, which is the same above 0 and falls with `max_ratio` everywhere.
    """
    return positive_score - (1.0 - max_ratio) * abs(positive_score)


def judge(
    candidates: Sequence[str],
    scores: Sequence[float] | None,
    *,
    query_id: str,
    query: str,
    positives: Collection[str],
    lowest_positive: float,
    text_of: Callable[[str], str],
    max_ratio: float | None,
) -> list[str]:
    """For every candidate id, ELIGIBLE or the first reason against it.

    `positives` are all known positives of the query. `query` and what `text_of` gives for an id are normalised
    texts, or fingerprints of such: equal where these are equal, empty where these are empty. `scores` are those of
    one dense retriever and `lowest_positive` is the lowest it gives a positive. Without scores (BM25 was alone) or
    without `max_ratio` no score is looked at.
    """
    known = set(positives)
    positive_texts = {text_of(identifier) for identifier in positives}
    threshold = None if scores is None or max_ratio is None else ratio_threshold(lowest_positive, max_ratio)

    def reason(index: int, identifier: str) -> str:
        if identifier in known:
            return KNOWN_POSITIVE
        text = text_of(identifier)
        if not text:
            return NO_TEXT
        if text in positive_texts:
            return SAME_AS_POSITIVE
        if identifier == query_id:
            return THE_QUERY
        if text == query:
            return SAME_AS_QUERY
        if threshold is not None and scores is not None and scores[index] > threshold:
            return ABOVE_MAX_RATIO
        return ELIGIBLE

    return [reason(index, identifier) for index, identifier in enumerate(candidates)]


def select(reasons: Sequence[str], count: int) -> list[str]:
    """The reasons with the first `count` ELIGIBLE ones, in the given order, turned into SELECTED.

    Where there are fewer, fewer are selected: nothing is ever filled up.
    """
    chosen = []
    for reason in reasons:
        if reason == ELIGIBLE and count > 0:
            reason, count = SELECTED, count - 1
        chosen.append(reason)
    return chosen
