"""Lines that recur across pages, such as legal footers: they say nothing of the page they stand on."""

import heapq
import re
from collections import Counter

from embedtrain.console import Progress
from embedtrain.harvest import changes
from embedtrain.harvest.draft import Draft
from embedtrain.harvest.identity import number
from embedtrain.harvest.split import stable_unit
from embedtrain.harvest.summary import shorten

_SAMPLE = 100_000  # documents the lines are counted in: what recurs in a share of all does so in a sample of them
_SHORTEST = 25  # characters: shorter lines are labels and cells of tables, which recur and still say something
_FEWEST = 10  # documents; what stands in fewer is a coincidence
_CODE = re.compile(r"[{}<>=;|\\$]")  # a line of code or of a table recurs because it is needed


def _key(line: str) -> str:
    """What lines are compared by; empty for those that are never taken out."""
    key = " ".join(line.casefold().split())
    return "" if len(key) < _SHORTEST or _CODE.search(key) else key


def recurring(draft: Draft, share: float, seed: int) -> dict[str, int]:
    """Lines that stand in `share` of the documents of several lines or more, with the number of those in a sample."""
    counts: Counter[str] = Counter()
    chosen = heapq.nsmallest(
        _SAMPLE,
        (
            (stable_unit(seed, "lines", identifier), n)
            for n, identifier, document in draft.documents()
            if "\n" in document.text.strip()
        ),
    )
    for _, n in chosen:
        counts.update({key for line in draft.text("documents", n).splitlines() if (key := _key(line))})
    fewest = max(_FEWEST, share * len(chosen))
    return {key: count for key, count in counts.items() if count >= fewest}


def take_out(draft: Draft, share: float, seed: int, progress: Progress) -> None:
    """Take recurring lines out of documents without an id of their own, counted; the most frequent ones are told."""
    found = recurring(draft, share, seed)
    if not found:
        return
    numbers = {number(key) for key in found}
    own, total = draft.own("documents"), draft.count("documents")
    taken = 0
    rewritten: dict[int, str] = {}
    for done, (n, _, document) in enumerate(draft.documents(), start=1):
        if not own[done - 1]:
            lines = document.text.splitlines(keepends=True)
            kept = [line for line in lines if not (key := _key(line)) or number(key) not in numbers]
            if len(kept) < len(lines):
                taken += len(lines) - len(kept)
                rewritten[n] = "".join(kept).strip()
        progress("take out recurring lines", done, total, "")
    changes.rewrite(draft, rewritten, "document of recurring lines only")
    if taken:
        shown = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:3]
        told = "; ".join(f"{shorten(key, 60)!r} in {count:,}" for key, count in shown)
        draft.notes.append(f"{taken:,} lines that recur across documents were taken out: {told}")
