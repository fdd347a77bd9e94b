"""Negatives that may be right: what the teacher and dense retrievers say of those that training would see."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain.audit import SUSPICIOUS_RATIO
from embedtrain.candidates import Ints
from embedtrain.collection import Collection, Texts
from embedtrain.config import is_dense
from embedtrain.console import opening
from embedtrain.denoise import Rules
from embedtrain.diagnose.section import Section, Table, counted, limited, share
from embedtrain.findings import BAND_NAMES, band_of
from embedtrain.mined import MinedRow
from embedtrain.negatives import JUDGED, ratio_threshold

# With 7 negatives a row half of the rows then have a doubtful one: 1 - 0.9 ** 7 = 0.52.
SUSPECTED_LIMIT = 0.1
# Above every positive is worse than near the lowest: with 7 negatives it is in three rows of ten (1 - 0.95 ** 7).
ABOVE_LIMIT = 0.05
TEACHER = "teacher"
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Negatives:
    """The negatives of some rows, one behind the other. All (n,)

    By judge (a dense retriever, the teacher): `known`, whether it has an opinion of a negative and its row's positives;
    `near`, whether it suspects it; `above`, whether it scores it above all of them.
    """

    rows: Ints
    documents: Ints  # corpus positions
    found_by: list[str]
    band: Ints  # place in BAND_NAMES
    known: dict[str, NDArray[np.bool_]]
    near: dict[str, NDArray[np.bool_]]
    above: dict[str, NDArray[np.bool_]]
    over: dict[str, NDArray[np.float64]]  # score less that of the best positive; NaN where not known

    @classmethod
    def of(cls, rows: Sequence[MinedRow], corpus: Texts) -> "Negatives":
        """Gather them. The judges suspect as `mine` and `score-teacher` do: a dense retriever what it scores above 0.95
        of the row's lowest positive, a teacher what it scores above it. What was judged not relevant nobody suspects."""
        judges = list(dict.fromkeys(name for row in rows for name, *_ in _judged(row)))
        numbers: list[int] = []
        documents: list[int] = []
        found_by: list[str] = []
        bands: list[int] = []
        parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in judges}
        for number, row in enumerate(rows):
            chosen = row.negative_indices
            numbers += [number] * len(chosen)
            documents += [corpus.position[row.candidate_ids[index]] for index in chosen]
            found_by += [row.candidate_retrievers[index] for index in chosen]
            bands += [band_of(row.candidate_ranks[index]) for index in chosen]
            by_hand = np.array([row.reason[index] == JUDGED for index in chosen], dtype=bool)
            own = dict.fromkeys(judges, np.full((3, len(chosen)), np.nan))
            for name, positives, candidates, bound in _judged(row):
                scores = np.where(by_hand, np.nan, candidates[chosen])
                own[name] = np.stack([scores, np.full(len(chosen), bound), scores - positives.max()])
            for name in judges:
                parts[name].append(own[name])
        joined = {name: np.concatenate(part, axis=1) for name, part in parts.items()}
        with np.errstate(invalid="ignore"):  # what is not known is above nothing
            return cls(
                np.array(numbers, dtype=np.int64),
                np.array(documents, dtype=np.int64),
                found_by,
                np.array(bands, dtype=np.int64),
                {name: ~np.isnan(part[0]) for name, part in joined.items()},
                {name: part[0] > part[1] for name, part in joined.items()},
                {name: part[2] > 0 for name, part in joined.items()},
                {name: part[2] for name, part in joined.items()},
            )

    @property
    def judge(self) -> str | None:
        """Whose word counts: the teacher's, else that of the first dense retriever; None where there is neither."""
        return TEACHER if TEACHER in self.known else next(iter(self.known), None)


def _judged(row: MinedRow) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64], float]]:
    """Judges of a row: name, scores of its positives, of its candidates, and the score above which it is suspected."""
    if row.positive_teacher and row.candidate_teacher is not None:
        positives = np.array(row.positive_teacher, dtype=np.float64)
        candidates = np.array(row.candidate_teacher, dtype=np.float64)
        yield TEACHER, positives, candidates, Rules().bound(row.positive_teacher)
    for name, scores in row.scores.items():
        own = np.array(row.positive_scores[name], dtype=np.float64)
        own = own[~np.isnan(own)]
        if is_dense(name) and len(own):
            bound = float(ratio_threshold(float(own.min()), SUSPICIOUS_RATIO))
            yield name, own, np.array(scores, dtype=np.float64), bound


def add_suspects(found: Section, rows: Sequence[MinedRow], negatives: Negatives, collection: Collection) -> None:
    """Negatives that may be right: how many, by who found them and at which rank, and the clearest of them."""
    judge = negatives.judge
    if judge is None:
        found.notes.append(
            "Nobody can say which negatives may be right: BM25's scores do not tell. Mine with a dense retriever, or "
            "run score-teacher."
        )
        return
    known, near, above = negatives.known[judge], negatives.near[judge], negatives.above[judge]
    count = int(known.sum())
    beaten = len(np.unique(negatives.rows[above]))
    who = "the teacher" if judge == TEACHER else f"the retriever {judge}"
    bar = "above" if judge == TEACHER else f"above {SUSPICIOUS_RATIO:g} of"
    several = float(np.mean([len(row.positive_ids) for row in rows])) > 2
    found.measures.extend(
        [
            limited(
                "suspected_negatives",
                "suspected negatives",
                share(int(near.sum()), count),
                SUSPECTED_LIMIT,
                f"{counted(near.sum(), count)} of {count:,} negatives score {bar} their row’s lowest positive, by {who}."
                + (" Rows with many positives have a low one: see those above every positive." if several else ""),
                "Mine with --max-ratio 0.95 or from deeper ranks (--ranks 30:), or let a teacher drop them (score-teacher "
                "--policy drop).",
            ),
            limited(
                "negatives_above_positives",
                "negatives above every positive",
                share(int(above.sum()), count),
                ABOVE_LIMIT,
                f"{counted(above.sum(), count)} negatives in {beaten:,} rows score above every positive, by {who}.",
                "Read those below: either the labels miss answers, or this judge does not know the subject.",
            ),
        ]
    )
    found.numbers["judge"] = judge
    found.numbers["suspected"] = {
        name: {
            "scored": int(seen.sum()),
            "near_or_above_the_lowest_positive": int(negatives.near[name].sum()),
            "above_every_positive": int(negatives.above[name].sum()),
        }
        for name, seen in negatives.known.items()
    }
    table, by_band = [], []
    finders = np.array(negatives.found_by, dtype=object)
    for finder, band in sorted(set(zip(negatives.found_by, negatives.band.tolist(), strict=True))):
        there = (finders == finder) & (negatives.band == band)
        entry: dict[str, Any] = {"found_by": finder, "rank": BAND_NAMES[band], "negatives": int(there.sum())}
        cells = [finder, BAND_NAMES[band], f"{there.sum():,}"]
        for name, seen in negatives.known.items():
            suspected, scored = int((there & negatives.near[name]).sum()), int((there & seen).sum())
            entry[f"suspected by {name}"] = suspected
            entry[f"scored by {name}"] = scored
            cells.append(counted(suspected, scored) if scored else "not scored")
        cells.append(counted((there & above).sum(), (there & known).sum()))
        table.append(cells)
        by_band.append(entry)
    found.numbers["suspected_by_rank"] = by_band
    found.tables.append(
        Table(
            "Suspected negatives, by who found them and at which rank",
            [
                "found by",
                "rank",
                "negatives",
                *(f"suspected by {name}" for name in negatives.known),
                f"above every positive, by {judge}",
            ],
            table,
            "Suspected: scored above 0.95 of the row’s lowest positive by a dense retriever, above it by the teacher.",
        )
    )
    over = np.where(above, negatives.over[judge], -np.inf)
    first = [place for place in np.argsort(-over, kind="stable")[:_SHOWN].tolist() if above[place]]
    examples = []
    for place in first:
        row = rows[int(negatives.rows[place])]
        document = collection.corpus.ids[int(negatives.documents[place])]
        examples.append(
            [
                opening(collection.queries.by_id(row.query_id)),
                opening(collection.corpus.by_id(row.positive_ids[0])),
                f"{document}: {opening(collection.corpus.by_id(document))}",
                f"{negatives.over[judge][place]:+.3f}".replace("-", "−"),
            ]
        )
    if examples:
        columns = ["query", "its first positive", "the negative", f"over its best positive, by {judge}"]
        found.tables.append(Table("Negatives most likely to be right", columns, examples))
