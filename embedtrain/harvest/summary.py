"""What a harvest prints of itself: counts by split and source, what was cleaned, and some pairs to look at."""

from collections import Counter
from typing import Any

import numpy as np

from embedtrain.harvest.clean import MOJIBAKE
from embedtrain.harvest.draft import JUDGED, Draft
from embedtrain.harvest.split import stable_unit

_SHOWN = 3  # sample pairs


def shorten(text: str, length: int) -> str:
    """The start of a text on one line."""
    words = " ".join(text.split())
    return words if len(words) <= length else words[: length - 3].rstrip() + "..."


def _samples(draft: Draft, seed: int) -> list[str]:
    chosen: list[tuple[float, str, str]] = []
    for split in draft.splits():
        for query, document, grade, _, _ in draft.judgements(split):
            if grade > 0:
                chosen.append((stable_unit(seed, "sample", f"{query}\0{document}"), query, document))
                if len(chosen) > 1_000:
                    chosen = sorted(chosen)[:_SHOWN]
    notes = []
    for _, query, document in sorted(chosen)[:_SHOWN]:
        title, text, _ = draft.document(document)
        shown = shorten(f"[{title}] {text}" if title else text, 90)
        notes.append(f"for example: {shorten(draft.query(query).text, 70)} -> {shown}")
    return notes


def _cleaned(draft: Draft) -> list[str]:
    counts = {reason: count for reason, count in sorted(draft.changed.items()) if count}
    broken = counts.pop(MOJIBAKE, 0)
    notes = (
        [f"cleaned texts: {', '.join(f'{reason} {count:,}' for reason, count in counts.items())}"]
        if counts
        else []
    )
    if broken:
        notes.append(f"{broken:,} texts hold what {MOJIBAKE}; --mend-encoding repairs it")
    return notes


def summary(draft: Draft, kinds: list[str], seed: int) -> dict[str, Any]:
    """The numbers and sentences of a finished draft."""
    splits = {name: draft.pairs(name) for name in draft.splits()}
    names = {number: name for name, number in draft.names("source").items()}
    by_source: Counter[str] = Counter()
    negatives = 0
    for pairs in splits.values():
        negatives += int((pairs.grade <= 0).sum())
        for number, count in zip(*np.unique(pairs.source, return_counts=True), strict=True):
            by_source[names[int(number)]] += int(count)
    by_source.pop(JUDGED, None)
    return {
        "kind": " + ".join(dict.fromkeys(kinds)),
        "documents": draft.count("documents"),
        "queries": {name: len(np.unique(pairs.query)) for name, pairs in splits.items()},
        "pairs": {name: len(pairs.p) for name, pairs in splits.items()},
        **({"judged not relevant": negatives} if negatives else {}),
        "sources": dict(sorted(by_source.items())),
        "notes": draft.notes + _cleaned(draft) + _samples(draft, seed),
    }
