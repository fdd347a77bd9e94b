"""The audit of a mining run: what was found, what was left out and why, how hard and how doubtful the negatives are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.candidates import Block
from embedtrain.collection import Collection
from embedtrain.console import opening
from embedtrain.negatives import (
    ABOVE_MAX_RATIO,
    CODE,
    JUDGED,
    NEAR_POSITIVE,
    OPEN,
    REASONS,
    SAME_AS_POSITIVE,
    SIBLING,
    Codes,
    lowest,
    ratio_threshold,
)

# A negative above this share of its positive's score is suspected to be positive itself (NV-Retriever's 95 %).
SUSPICIOUS_RATIO = 0.95
SHOWN = 10
PRINTED = 3
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# What a gate can ask for (--fail-if); each is a share from 0 to 1.
GATES = {
    "suspicious": f"negatives that score above {SUSPICIOUS_RATIO:g} of their lowest positive, by a dense retriever",
    "above-positive": "negatives that score above their lowest positive",
    "duplicates": "candidates that repeat a positive, or nearly",
    "missed": "queries none of whose positives is in the window",
    "short": "queries with fewer negatives than were asked for",
    "empty": "queries without a negative",
}
# Those that dense scores answer.
DENSE_GATES = frozenset({"suspicious"})


@dataclass(frozen=True)
class Suspect:
    """A negative that scores close to its positive, or above; `closeness` is (score - positive) / |positive|."""

    closeness: float
    query: str
    positive: str
    negative: str
    retriever: str
    score: float
    positive_score: float


class Audit:
    """Counts over blocks of queries; `add` each block, then ask for the `numbers`."""

    def __init__(self, retrievers: Sequence[str], dense: Sequence[str], wanted: int) -> None:
        self._main = dense[0] if dense else retrievers[0]
        self._dense = list(dense)
        self._wanted = wanted
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._by_retriever: dict[str, Counter[str]] = {name: Counter() for name in retrievers}
        self._found_by: Counter[str] = Counter()
        self._ratios: list[NDArray[np.float32]] = []
        self._suspects: list[Suspect] = []

    def add(self, block: Block, codes: Codes, selected: NDArray[np.bool_], ids: Sequence[str]) -> None:
        """Count the rows of a block; `ids` are those of the corpus."""
        counts, candidates, positives = self._counts, block.candidates, block.positives
        queries = len(block.query_ids)
        counts["queries"] += queries
        counts["positives"] += len(positives.values)
        counts["candidates"] += len(codes)
        counts["negatives"] += int(selected.sum())
        counts["judged negatives"] += int((selected & (codes == CODE[JUDGED])).sum())
        self._reasons.update(_tally(codes))
        for name, own in self._by_retriever.items():
            own.update(_tally(codes[candidates.found_by(name)]))
        names, found = candidates.finders()
        tally = np.bincount(found, minlength=len(names)).tolist()
        self._found_by.update({name: count for name, count in zip(names, tally, strict=True) if name})
        per_query = np.bincount(candidates.owners[selected], minlength=queries)
        counts["short"] += int((per_query < self._wanted).sum())
        counts["shortfall"] += int(np.maximum(self._wanted - per_query, 0).sum())
        counts["empty"] += int((per_query == 0).sum())
        place = candidates.place(positives)
        seen = np.zeros(queries, dtype=bool)
        there = np.flatnonzero(place >= 0)
        seen[positives.owners[there[candidates.rank[place[there]] > 0]]] = True
        counts["missed"] += int((~seen).sum())
        self._measure(block, codes, selected, ids)

    def _measure(self, block: Block, codes: Codes, selected: NDArray[np.bool_], ids: Sequence[str]) -> None:
        counts, candidates = self._counts, block.candidates
        suspected = np.zeros(len(codes), dtype=bool)
        for name in self._dense or [self._main]:
            scores = candidates.scores[name]
            least = lowest(block.positive_scores[name], block.positives)[candidates.owners]
            known = ~np.isnan(scores) & ~np.isnan(least)
            chosen = selected & known & (codes != CODE[JUDGED])
            if name == self._main:
                usable = selected & known & (least > 0)
                self._ratios.append((scores[usable] / least[usable]).astype(np.float32))
                counts["above positive"] += int((scores[selected & known] > least[selected & known]).sum())
                opened = np.isin(codes, [CODE[reason] for reason in OPEN]) & known
                counts["open above positive"] += int((scores[opened] > least[opened]).sum())
            if name in self._dense:
                suspected |= chosen & (scores > ratio_threshold(least, SUSPICIOUS_RATIO))
                self._keep_suspects(name, block, chosen, least, ids)
        counts["suspicious"] += int(suspected.sum())

    def _keep_suspects(
        self, name: str, block: Block, chosen: NDArray[np.bool_], least: NDArray[np.float32], ids: Sequence[str]
    ) -> None:
        candidates, positives = block.candidates, block.positives
        rows = np.flatnonzero(chosen & (least != 0))
        closeness = (candidates.scores[name][rows] - least[rows]) / np.abs(least[rows])
        best = np.argsort(-closeness, kind="stable")[:SHOWN]
        for row, close in zip(rows[best].tolist(), closeness[best].tolist(), strict=True):
            query = int(candidates.owners[row])
            own = slice(int(positives.offsets[query]), int(positives.offsets[query + 1]))
            positive = int(positives.values[own][int(np.argmin(block.positive_scores[name][own]))])
            self._suspects.append(
                Suspect(
                    round(close, 6),
                    block.query_ids[query],
                    ids[positive],
                    ids[int(candidates.values[row])],
                    name,
                    round(float(candidates.scores[name][row]), 6),
                    round(float(least[row]), 6),
                )
            )
        # Sorting is stable: of two that are equally close the earlier row stays.
        self._suspects = sorted(self._suspects, key=lambda suspect: -suspect.closeness)[:SHOWN]

    def gates(self) -> dict[str, float | None]:
        """The values of GATES; None where there is nothing to say it of."""
        counts = self._counts
        duplicates = self._reasons[SAME_AS_POSITIVE] + self._reasons[NEAR_POSITIVE]
        return {
            "suspicious": _share(counts["suspicious"], counts["negatives"]) if self._dense else None,
            "above-positive": _share(counts["above positive"], counts["negatives"]),
            "duplicates": _share(duplicates, counts["candidates"]),
            "missed": _share(counts["missed"], counts["queries"]),
            "short": _share(counts["short"], counts["queries"]),
            "empty": _share(counts["empty"], counts["queries"]),
        }

    def numbers(self) -> dict[str, Any]:
        """The audit as plain values; ids, no texts."""
        counts, reasons = self._counts, self._reasons
        ratios = np.concatenate([*self._ratios, np.empty(0, dtype=np.float32)])
        hardness = (
            {
                f"{q:.0%}": round(float(v), 4)
                for q, v in zip(QUANTILES, np.quantile(ratios, QUANTILES), strict=True)
            }
            if len(ratios)
            else {}
        )
        return {
            "queries": counts["queries"],
            "positives": counts["positives"],
            "candidates": counts["candidates"],
            "negatives": counts["negatives"],
            "negatives_per_query": counts["negatives"] / max(1, counts["queries"]),
            **(
                {"negatives_judged_not_relevant": counts["judged negatives"]} if counts["judged negatives"] else {}
            ),
            "shortfall": {
                "queries": counts["short"],
                "negatives": counts["shortfall"],
                "without any": counts["empty"],
            },
            "candidates_by_reason": {reason: reasons[reason] for reason in REASONS if reasons[reason]},
            "found_by": dict(sorted(self._found_by.items())),
            "by_retriever": {
                name: {reason: own[reason] for reason in REASONS if own[reason]}
                for name, own in self._by_retriever.items()
            },
            "queries_without_their_positive_in_the_window": counts["missed"],
            "candidates_above_their_lowest_positive": counts["open above positive"],
            "negatives_above_their_lowest_positive": counts["above positive"],
            "copies_of_positives_caught": reasons[SAME_AS_POSITIVE] + reasons[NEAR_POSITIVE],
            "siblings_of_positives_caught": reasons[SIBLING],
            f"hardness (score / lowest positive's, {self._main})": hardness,
            "gates": {name: round(value, 6) for name, value in self.gates().items() if value is not None},
            "most_suspicious": [vars(suspect) for suspect in self._suspects],
        }

    def notes(self, max_ratio: float | None) -> list[str]:
        """What a reader of the numbers should know."""
        notes = []
        opened = sum(self._reasons[reason] for reason in OPEN)
        left_out = self._reasons[ABOVE_MAX_RATIO]
        if max_ratio is not None and left_out > opened / 2:
            notes.append(
                f"{left_out / opened:.0%} of the candidates that are no known positive score above {max_ratio:g} of "
                "their positive: many are unlabelled positives, or the model does not tell them apart"
            )
        missed, queries = self._counts["missed"], self._counts["queries"]
        if missed > queries / 2:
            notes.append(
                f"{missed:,} of {queries:,} queries do not have their positive among their candidates: search deeper "
                "with --top-k, try another retriever, or look whether the split's judgements belong to this corpus"
            )
        if self._counts["short"]:
            notes.append(
                f"queries with fewer than {self._wanted} negatives: {self._counts['short']:,}, without any: "
                f"{self._counts['empty']:,}; nothing was filled up; a larger --top-k may find more, "
                "--mix random=N draws some"
            )
        return notes


def _tally(codes: Codes) -> dict[str, int]:
    return {REASONS[code]: int(count) for code, count in enumerate(np.bincount(codes, minlength=len(REASONS)))}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def with_texts(summary: Mapping[str, Any], collection: Collection) -> dict[str, Any]:
    """The audit in a mined artifact's summary, with the texts of its most suspicious negatives."""
    told = [
        {
            **suspect,
            "query_text": collection.queries.by_id(suspect["query"]),
            "positive_text": collection.corpus.by_id(suspect["positive"]),
            "negative_text": collection.corpus.by_id(suspect["negative"]),
        }
        for suspect in summary["most_suspicious"]
    ]
    return {**summary, "most_suspicious": told}


def in_words(report: Mapping[str, Any]) -> list[str]:
    """The most suspicious negatives of a report (see `with_texts`) as lines for people."""
    suspects = report["most_suspicious"]
    if not suspects:
        return []
    shown = suspects[:PRINTED]
    lines = [
        f"the negatives closest to their positives ({len(shown)} of {len(suspects)}; --audit FILE keeps all):"
    ]
    for suspect in shown:
        scores = f"{suspect['score']:.3f} against {suspect['positive_score']:.3f} by {suspect['retriever']}"
        lines += [
            f"query {suspect['query']}: {opening(suspect['query_text'])}",
            f"  + {suspect['positive']}: {opening(suspect['positive_text'])}",
            f"  − {suspect['negative']} ({scores}): {opening(suspect['negative_text'])}",
        ]
    return lines
