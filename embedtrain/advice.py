"""Should one have finetuned? The steps before it and after it, in the order of their cost, and the one to stop at.

Hybrid search needs no training, a reranker none of one's own, another model only a download; a tuned model needs data,
training, and encoding the corpus again at every change. A step is worth its cost where it is better than what one has
without it by more than chance explains.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from embedtrain.comparison import SIGNIFICANT, Results, all_pairs, rounded
from embedtrain.statistics import Comparison
from embedtrain.systems import BASE, System

LEXICAL, DENSE, HYBRID, RERANKED, OTHER, TUNED = "lexical", "base", "hybrid", "reranked", "another model", "tuned"

# From this share of documents that a model does not read to their ends, what they are cut into comes first.
CUT = 0.1


@dataclasses.dataclass(frozen=True)
class Rung:
    """One step: a system, and what kind of step it is."""

    system: str
    kind: str
    tuned: bool


def ladder(systems: Sequence[System], tuned: Sequence[str]) -> list[Rung]:
    """The systems in the order of what they cost; those made of one of the `tuned` models come last."""
    found = []
    for system in systems:
        about = system.about
        root = about.get("of", system.name)
        if "run" in about or "compressed" in about:
            continue  # whoever made the one; the other saves memory, not work
        if "teacher" in about:
            kind = RERANKED
        elif "fused" in about:
            kind = HYBRID
        elif "model" in about:
            kind = TUNED if root in tuned else DENSE if root == BASE else OTHER
        else:
            kind = LEXICAL
        found.append(Rung(system.name, kind, root in tuned))
    order = (LEXICAL, DENSE, HYBRID, RERANKED, OTHER, TUNED)
    after = (TUNED, HYBRID, RERANKED)
    return sorted(found, key=lambda rung: (rung.tuned, (after if rung.tuned else order).index(rung.kind)))


def climb(
    rungs: Sequence[Rung], pairs: Mapping[tuple[str, str], Comparison]
) -> list[tuple[Rung, Rung | None, Comparison | None, bool]]:
    """From the first step up: each with the one that stood before it, how it compares, and whether it was taken.

    One that is better than where one stands (sign-flip test after Holm over all pairs of steps) is where one stands then. BM25 and
    the base are both starting points: the better of them is taken, the base where there is no telling.
    """
    found: list[tuple[Rung, Rung | None, Comparison | None, bool]] = []
    stands: Rung | None = None
    for rung in rungs:
        if stands is None:
            found.append((rung, None, None, True))
            stands = rung
            continue
        versus = _versus(pairs, rung.system, stands.system)
        better = versus.p_holm is not None and versus.p_holm < SIGNIFICANT
        taken = versus.difference > 0 if better else (stands.kind, rung.kind) == (LEXICAL, DENSE)
        found.append((rung, stands, versus, taken))
        if taken:
            stands = rung
    return found


def _versus(pairs: Mapping[tuple[str, str], Comparison], one: str, other: str) -> Comparison:
    if (one, other) in pairs:
        return pairs[one, other]
    turned = pairs[other, one]
    ends = turned.interval
    return dataclasses.replace(
        turned,
        difference=-turned.difference,
        interval=None if ends is None else type(ends)(-ends.high, -ends.low),
        wins=turned.losses,
        losses=turned.wins,
    )


def advise(
    systems: Sequence[System],
    results: Results,
    measure: str,
    tuned: Mapping[str, int | None],
    queries: int,
    documents: int,
    seed: int,
) -> dict[str, Any]:
    """The ladder as a table, one recommendation with its reason, and what else these numbers say; for JSON.

    `tuned` are the names of the models that were trained, with the number of rows they were trained on where it is known.
    p values are adjusted for the pairs of the ladder, whatever else was measured.
    """
    rungs = ladder(systems, list(tuned))
    pairs = all_pairs({rung.system: results[rung.system] for rung in rungs}, measure, seed)
    steps = climb(rungs, {(one, other): found for one, other, found in pairs})
    rows = []
    for rung, before, versus, taken in steps:
        change = ""
        if before is not None and versus is not None:
            ends = versus.interval
            inside = f" [{ends.low:+.4f}, {ends.high:+.4f}]" if ends else ""
            change = f"{versus.difference:+.4f}{inside} on {before.system}"
        rows.append(
            [rung.system, rung.kind, f"{results[rung.system][measure].mean:.4f}", change, "yes" if taken else "no"]
        )
    columns = ["step", "kind", measure, "gain [95 %]", "worth it"]
    return {
        "table": {"title": "Should one finetune? Steps by their cost", "columns": columns, "rows": rows},
        **_recommended(steps, results, measure, tuned, queries),
        "first": _cut(systems, documents),
    }


def _recommended(
    steps: Sequence[tuple[Rung, Rung | None, Comparison | None, bool]],
    results: Results,
    measure: str,
    tuned: Mapping[str, int | None],
    queries: int,
) -> dict[str, Any]:
    stands = [rung for rung, *_, taken in steps if taken][-1]
    value = f"{measure} {results[stands.system][measure].mean:.4f}"
    rows = "; ".join(
        f"{name} was trained on {count:,} rows"
        if count is not None
        else f"{name}, whose record says nothing, is taken for it"
        for name, count in tuned.items()
    )
    trained = f" ({rows})" if rows else ""
    if stands.tuned:
        (before, versus) = next((before, versus) for rung, before, versus, _ in steps if rung is stands)
        assert before is not None
        assert versus is not None
        return {
            "recommendation": "finetune",
            "system": stands.system,
            "reason": f"finetune: {stands.system} ({value}) is {versus.difference:+.4f} on {before.system}, more than "
            f"chance explains with {queries:,} queries{trained}",
        }
    if not tuned:
        return {
            "recommendation": "no tuned model was measured",
            "system": stands.system,
            "reason": f"stop at {stands.system} ({value}) until a tuned --model beats it: that is what one has without training",
        }
    best, versus = max(
        ((rung, versus) for rung, _, versus, _ in steps if rung.tuned and versus is not None),
        key=lambda step: results[step[0].system][measure].mean,
    )
    if versus.p_holm is not None and versus.p_holm < SIGNIFICANT:
        why = f"the best tuned system, {best.system}, is {versus.difference:+.4f} on it"
    else:
        why = f"the best tuned system, {best.system}, is {versus.difference:+.4f} on it, which chance explains"
        if versus.detectable is not None:
            why += f"; {queries:,} queries show {versus.detectable:.4f} or more"
        if versus.queries_needed is not None and versus.difference > 0:
            why += f", and about {rounded(versus.queries_needed):,} would show this"
    return {
        "recommendation": "do not finetune",
        "system": stands.system,
        "reason": f"do not finetune: stop at {stands.system} ({value}); {why}{trained}",
    }


def _cut(systems: Sequence[System], documents: int) -> str | None:
    """What comes before all steps: documents that a model does not read to their ends."""
    most = max((system.about.get("documents_cut", 0) for system in systems), default=0)
    if most < CUT * documents:
        return None
    return (
        f"first of all, cut documents into passages: {most:,} of {documents:,} are longer than a model reads, and what is "
        "beyond is not searched"
    )
