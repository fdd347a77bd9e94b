"""What a model learns from: an audit of a mined or scored artifact and of its texts. No model is needed.

Of every row the negatives that training would see are looked at, whoever made the artifact, and not only what its
miner said of it. The limits stand at the top; above one a number is to be looked at.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from embedtrain import statistics
from embedtrain.artifacts import require_kind
from embedtrain.audit import SUSPICIOUS_RATIO
from embedtrain.candidates import Ints
from embedtrain.cautions import FEW_PAIRS
from embedtrain.collection import Collection, Texts
from embedtrain.config import MineOptions, is_dense
from embedtrain.denoise import Rules
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import INK, MODEL, RANDOM, Picture, label, picture
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table
from embedtrain.duplicates import BLANK, Duplicates, fingerprint, normalised, shingles
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.findings import BANDS
from embedtrain.mined import MinedRow, read_mined
from embedtrain.negatives import JUDGED, NEAR_POSITIVE, REASONS, SAME_AS_POSITIVE, SIBLING, ratio_threshold
from embedtrain.tokens import Tokenizer

MOST = 5_000  # rows that are read; a share of so many is known to 0.014 (two standard errors)
# With 7 negatives a row half of the rows then have a doubtful one: 1 - 0.9 ** 7 = 0.52.
SUSPECTED_LIMIT = 0.1
# Above every positive is worse than near the lowest: with 7 negatives it is in three rows of ten (1 - 0.95 ** 7).
ABOVE_LIMIT = 0.05
# What says the same as a positive is one: there should be none.
REPEATED_LIMIT = 0.0
# Parts of one page are often right together; from one negative in twenty on it is worth to group them.
SAME_TITLE_LIMIT = 0.05
# One stub in a hundred is noise; more of them teach what stubs look like.
NEAR_EMPTY_LIMIT = 0.01
WITHOUT_NEGATIVES_LIMIT = 0.05  # such rows see the other documents of their batch only
# From such a share of rows on, one document is pushed from (drawn to) everything. Where few documents share all rows
# among them, three times an even share.
POPULAR_NEGATIVE_LIMIT, POPULAR_POSITIVE_LIMIT, POPULAR_TIMES_EVEN = 0.1, 0.05, 3.0
# A query in a hundred that is known by heart lifts a mean over the split by 0.01 at most.
LEAK_LIMIT = 0.01
# What tuning gains on a split is mostly a few hundredths of nDCG@10: a split that cannot show 0.05 shows little.
DIFFERENCE_LIMIT = 0.05
# Deviation of the paired differences in nDCG@10 of two models: 0.07 to 0.11 on Cranfield, 0.3 on SciFact.
DEVIATION = 0.2

FEWEST_WORDS, FEWEST_QUERY_WORDS = 3, 2  # below which a document, a query, is near-empty
NEAR = MineOptions().near_duplicate
TEACHER = "teacher"
WIDTH = 90  # characters of a text that are shown
_SHOWN = 5
_FEW = 5  # rows that a document must stand in to be called popular
_CORPUS = 2_000  # documents whose lengths are counted, spread evenly over the corpus
_BLOCK = 256
_BINS = 40
_PANELS = 4


def opening(text: str, width: int = WIDTH) -> str:
    """The start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def limited(
    key: str, name: str, value: float, limit: float, sentence: str, advice: str = "", *, enough: bool = True
) -> Measure:
    """A share that is to be looked at above `limit`, with what to do then; not where it is made of too few."""
    watch = value > limit and enough
    text = f"{sentence} {advice}" if watch and advice else sentence
    most = min(1.0, max(5.0 * limit, value) or 1.0)
    verdict = WATCH if watch else HEALTHY
    reference = f"watch above {limit:.2g}" if limit else "none should be"
    return Measure(key, name, value, None, reference, verdict, text, 0.0, most, limit)


@dataclasses.dataclass(frozen=True)
class Negatives:
    """The negatives of some rows, one behind the other. All (n,)

    By judge (a dense retriever, the teacher): `known`, whether it has an opinion of a negative and its row's positives;
    `near`, whether it suspects it; `above`, whether it scores it above all of them.
    """

    rows: Ints
    documents: Ints  # corpus positions
    found_by: list[str]
    band: Ints  # place in the names of `bands`
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
        ranks: list[float] = []
        parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in judges}
        for number, row in enumerate(rows):
            chosen = row.negative_indices
            numbers += [number] * len(chosen)
            documents += [corpus.position[row.candidate_ids[index]] for index in chosen]
            found_by += [row.candidate_retrievers[index] for index in chosen]
            found = (row.candidate_ranks[index] for index in chosen)
            ranks += [np.inf if rank is None else rank for rank in found]
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
                _bands(np.array(ranks, dtype=np.float64)),
                {name: ~np.isnan(part[0]) for name, part in joined.items()},
                {name: part[0] > part[1] for name, part in joined.items()},
                {name: part[2] > 0 for name, part in joined.items()},
                {name: part[2] for name, part in joined.items()},
            )

    @property
    def judge(self) -> str | None:
        """Whose word counts: the teacher's, else that of the first dense retriever; None where there is neither."""
        return TEACHER if TEACHER in self.known else next(iter(self.known), None)


BAND_NAMES = [*(f"{low}-{high}" for low, high in BANDS), f"after {BANDS[-1][1]}", "none"]


def _bands(ranks: NDArray[np.float64]) -> Ints:
    """Places in BAND_NAMES; what no retriever found has an infinite rank."""
    place = np.searchsorted([high for _, high in BANDS], ranks)
    return np.where(np.isinf(ranks), len(BANDS) + 1, place).astype(np.int64)


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


def section(artifact: Path, collection: Collection, evaluation: str = "", most: int = MOST) -> Section:
    """Audit a mined or scored artifact of a collection; `evaluation` is the split that a model of it is measured on.

    The first `most` rows are read; it is said where there are more. Raises EmbedtrainError for another kind of file,
    an empty one, ids that are not in the collection, a split that is not there.
    """
    record = require_kind(artifact, "mined", "scored")
    rows = read_mined(artifact, most)
    if not rows:
        raise EmbedtrainError(f"{artifact} has no rows, so there is nothing to audit; mine it again")
    _check(artifact, rows, collection)
    total = int(record["rows"])
    negatives = Negatives.of(rows, collection.corpus)
    found = Section("data", "The data", "What the model learns from, and whether it says what it should.")
    if total > len(rows):
        found.notes.append(f"The first {len(rows):,} of {total:,} rows were read; all shares are of these.")
    found.numbers["kind"] = record["kind"]
    _support(found, total, collection, evaluation)
    _contents(found, rows, negatives, collection)
    _suspects(found, rows, negatives, collection)
    _popular(found, rows, negatives, collection)
    _words(found, rows, negatives, collection, evaluation)
    if evaluation:
        _leaks(found, rows, collection, evaluation)
    found.pictures.extend(_scores(found, rows))
    return found


def _check(artifact: Path, rows: Sequence[MinedRow], collection: Collection) -> None:
    asked = [row.query_id for row in rows if row.query_id not in collection.queries.position]
    named = dict.fromkeys(document for row in rows for document in (*row.positive_ids, *row.candidate_ids))
    missing = [document for document in named if document not in collection.corpus.position]
    for noun, ids in (("queries", asked), ("documents", missing)):
        if ids:
            raise EmbedtrainError(
                f"{artifact}: {len(ids):,} of its {noun} are not in {collection.path}: {first_three(ids)}; give the "
                "collection that it was mined from"
            )


def _of(part: float, whole: float) -> str:
    """A count and its share, in words."""
    return f"{int(part):,} ({100 * part / whole:.1f} %)" if whole else f"{int(part):,}"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _support(found: Section, total: int, collection: Collection, evaluation: str) -> None:
    """How many rows there are, and what that number can support; what the evaluation can show."""
    few = total < FEW_PAIRS
    sentence = (
        f"{total:,} queries to train on: so few are rather learned by heart. Harvest more, train few epochs at a low "
        "rate, and believe a dev split only."
        if few
        else f"{total:,} queries to train on: enough to adapt a pretrained model to this collection."
    )
    if FEW_PAIRS <= total < 10 * FEW_PAIRS:
        sentence += " To change what it knows of language, tens of thousands of weak pairs come first (pretrain)."
    verdict = WATCH if few else HEALTHY
    reference = f"{FEW_PAIRS:,} and more"
    found.measures.append(
        Measure(
            "training_queries",
            "training queries",
            total,
            None,
            reference,
            verdict,
            sentence,
            0,
            max(total, 5 * FEW_PAIRS),
            FEW_PAIRS,
            digits=0,
        )
    )
    found.numbers["training_queries"] = total
    if not evaluation:
        return
    count = len(collection.positives(evaluation))
    least = statistics.detectable_difference(np.resize([DEVIATION, -DEVIATION], count))
    found.numbers["evaluation"] = {
        "split": evaluation,
        "queries": count,
        "smallest_difference": None if least is None else rounded(least),
    }
    if least is not None:
        found.measures.append(
            limited(
                "smallest_difference",
                "smallest difference",
                least,
                DIFFERENCE_LIMIT,
                f"The {count:,} queries of {evaluation} show a difference of {least:.3f} in nDCG@10 four times of five, "
                f"where two models differ by {DEVIATION:g} from query to query.",
                "Judge more queries before small differences are believed.",
            )
        )


def _contents(found: Section, rows: Sequence[MinedRow], negatives: Negatives, collection: Collection) -> None:
    """Counts, what became of the candidates, and negatives that say the same as a positive."""
    count, positives = len(negatives.rows), sum(len(row.positive_ids) for row in rows)
    without = len(rows) - len(np.unique(negatives.rows))
    prints = [fingerprint(collection.queries.by_id(row.query_id)) for row in rows]
    again = len(prints) - len(set(prints))
    reasons = Counter(reason for row in rows for reason in row.reason)
    same, near, titled = _repeats(rows, negatives, collection.corpus)
    candidates = reasons.total()
    facts = {
        "rows": len(rows),
        "queries_with_the_words_of_an_earlier_one": again,
        "positives": positives,
        "documents_that_are_positives": len({document for row in rows for document in row.positive_ids}),
        "candidates": candidates,
        "negatives": count,
        "documents_that_are_negatives": len(np.unique(negatives.documents)),
        "rows_without_negatives": without,
        "copies_of_positives_caught": reasons[SAME_AS_POSITIVE] + reasons[NEAR_POSITIVE],
        "siblings_of_positives_caught": reasons[SIBLING],
        "negatives_with_the_words_of_a_positive": int(same.sum()),
        "negatives_near_a_positive": int(near.sum()),
        "negatives_with_the_title_of_a_positive": int(titled.sum()),
    }
    found.numbers["counts"] = facts
    found.numbers["candidates_by_reason"] = {reason: reasons[reason] for reason in REASONS if reasons[reason]}
    shown = [
        ("queries", f"{len(rows):,}"),
        ("with the same words as an earlier one", _of(again, len(rows))),
        ("positives", f"{positives:,}, {positives / len(rows):.1f} a query"),
        ("documents that are a positive", f"{facts['documents_that_are_positives']:,}"),
        ("negatives", f"{count:,}, {count / len(rows):.1f} a query"),
        ("documents that are a negative", f"{facts['documents_that_are_negatives']:,}"),
        ("queries without a negative", _of(without, len(rows))),
        ("negatives that repeat a positive", _of((same | near).sum(), count)),
        ("negatives with the title of a positive", _of(titled.sum(), count)),
    ]
    found.tables.append(Table("What is in it", ["of the rows read", "number"], [list(row) for row in shown]))
    finders = sorted({name for row in rows for name in row.candidate_retrievers})
    by_finder = Counter(pair for row in rows for pair in zip(row.reason, row.candidate_retrievers, strict=True))
    found.tables.append(
        Table(
            "What became of the candidates",
            ["reason", "candidates", *(f"by {name}" for name in finders)],
            [
                [reason, _of(reasons[reason], candidates), *(f"{by_finder[reason, name]:,}" for name in finders)]
                for reason in REASONS
                if reasons[reason]
            ],
            "Copies and siblings of positives were found and left out by the miner; what it missed is counted above.",
        )
    )
    repeated = int((same | near).sum())
    found.measures.extend(
        [
            limited(
                "repeated_positives",
                "negatives that repeat a positive",
                _share(repeated, count),
                REPEATED_LIMIT,
                f"{_of(repeated, count)} of {count:,} negatives have the words of a positive of their query, or nearly "
                f"(a Jaccard index of {NEAR:g}).",
                f"Mine again with --near-duplicate {NEAR:g}.",
            ),
            limited(
                "same_title",
                "negatives titled like a positive",
                _share(int(titled.sum()), count),
                SAME_TITLE_LIMIT,
                f"{_of(titled.sum(), count)} of {count:,} negatives have the title of a positive of their query.",
                "They may be parts of one page, and right as well: mine with --group-column title.",
            ),
            limited(
                "without_negatives",
                "rows without negatives",
                _share(without, len(rows)),
                WITHOUT_NEGATIVES_LIMIT,
                f"{_of(without, len(rows))} of {len(rows):,} rows have no negative of their own.",
                "Mine deeper (--top-k), or draw some at random (--mix).",
            ),
        ]
    )


def _repeats(
    rows: Sequence[MinedRow], negatives: Negatives, corpus: Texts
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which negatives have the words, nearly the words, the title of a positive of their row. Three (n,)"""
    positives = [[corpus.position[document] for document in row.positive_ids] for row in rows]
    beside = [(n, p) for n, row in enumerate(negatives.rows.tolist()) for p in positives[row]]
    which, right = np.array(beside, dtype=np.int64).reshape(-1, 2).T
    own = negatives.documents[which]
    texts = Duplicates(corpus)
    prints = texts.fingerprints(own)
    equal = (prints == texts.fingerprints(right)) & (prints != BLANK)
    alike = ~equal & texts.near(own, right, NEAR)
    titles = {place: normalised(corpus.title(place)) for place in np.unique(np.concatenate([own, right])).tolist()}
    titled = np.array(
        [bool(titles[a]) and titles[a] == titles[b] for a, b in zip(own.tolist(), right.tolist(), strict=True)],
        dtype=bool,
    )
    same, near, titles_shared = (np.zeros(len(negatives.rows), dtype=bool) for _ in range(3))
    for marks, holds in ((same, equal), (near, alike), (titles_shared, titled)):
        marks[which[holds]] = True
    return same, near & ~same, titles_shared


def _suspects(found: Section, rows: Sequence[MinedRow], negatives: Negatives, collection: Collection) -> None:
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
                _share(int(near.sum()), count),
                SUSPECTED_LIMIT,
                f"{_of(near.sum(), count)} of {count:,} negatives score {bar} their row’s lowest positive, by {who}."
                + (" Rows with many positives have a low one: see those above every positive." if several else ""),
                "Mine with --max-ratio 0.95 or from deeper ranks (--ranks 30:), or let a teacher drop them (score-teacher "
                "--policy drop).",
            ),
            limited(
                "negatives_above_positives",
                "negatives above every positive",
                _share(int(above.sum()), count),
                ABOVE_LIMIT,
                f"{_of(above.sum(), count)} negatives in {beaten:,} rows score above every positive, by {who}.",
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
            cells.append(_of(suspected, scored) if scored else "not scored")
        cells.append(_of((there & above).sum(), (there & known).sum()))
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


def _popular(found: Section, rows: Sequence[MinedRow], negatives: Negatives, collection: Collection) -> None:
    """Documents that stand in more rows than others."""
    corpus = collection.corpus
    wrong = Counter(negatives.documents.tolist())
    right = Counter(corpus.position[document] for row in rows for document in set(row.positive_ids))
    even = {"negative": len(negatives.rows) / len(rows) / len(corpus), "positive": 1 / max(1, len(right))}
    advice = {
        "negative": "It is pushed away from everything: a hub, or a page of no content; look at it, and drop it.",
        "positive": "A model learns to give it always: cap it with harvest --max-queries-per-document.",
    }
    shown: list[list[str]] = []
    for role, counts, limit in (
        ("negative", wrong, POPULAR_NEGATIVE_LIMIT),
        ("positive", right, POPULAR_POSITIVE_LIMIT),
    ):
        # Of two that are equally frequent the one with the smaller id comes first.
        order = sorted(counts, key=lambda place: (-counts[place], corpus.ids[place]))[:_SHOWN]
        found.numbers[f"popular_{role}s"] = {corpus.ids[place]: counts[place] for place in order}
        if not order:
            continue
        top = counts[order[0]] / len(rows)
        found.measures.append(
            limited(
                f"popular_{role}",
                f"most frequent {role}",
                top,
                round(min(1.0, max(limit, POPULAR_TIMES_EVEN * even[role])), 6),
                f"Document {corpus.ids[order[0]]} is a {role} in {_of(counts[order[0]], len(rows))} of {len(rows):,} rows.",
                advice[role],
                enough=counts[order[0]] >= _FEW,
            )
        )
        shown += [
            [
                corpus.ids[place],
                f"{right[place]:,}",
                f"{wrong[place]:,}",
                opening(corpus.text(place)),
            ]
            for place in order
            if counts[place] > 1 and corpus.ids[place] not in {row[0] for row in shown}
        ]
    columns = ["document", "positive in rows", "negative in rows", "text"]
    if shown:
        found.tables.append(Table("Popular documents", columns, shown))


def _words(
    found: Section, rows: Sequence[MinedRow], negatives: Negatives, collection: Collection, evaluation: str
) -> None:
    """Lengths in words, and rows with next to no text."""
    split = Tokenizer("none")  # which takes no stop words away
    corpus = collection.corpus
    count = len(corpus)
    places = {corpus.position[document] for row in rows for document in row.positive_ids}
    whole = range(count) if count <= _CORPUS else np.linspace(0, count - 1, _CORPUS).astype(int).tolist()
    asked = {row.query_id for row in rows}
    held = set(collection.positives(evaluation)) if evaluation else set()
    words = {place: len(split(corpus.text(place))) for place in {*places, *negatives.documents.tolist(), *whole}}
    query_words = {query: len(split(collection.queries.by_id(query))) for query in {*asked, *held}}
    kinds = {
        "queries": [query_words[query] for query in asked],
        f"queries of {evaluation}": [query_words[query] for query in held],
        "positives": [words[place] for place in places],
        "negatives": [words[place] for place in set(negatives.documents.tolist())],
        "corpus": [words[place] for place in whole],
    }
    quantiles = (0.05, 0.5, 0.95, 1.0)
    lengths = {
        kind: np.quantile(values, quantiles, method="lower").astype(int).tolist()
        for kind, values in kinds.items()
        if values
    }
    found.numbers["words"] = {
        kind: dict(zip(map(str, quantiles), values, strict=True)) for kind, values in lengths.items()
    }
    found.tables.append(
        Table(
            "Lengths in words",
            ["texts", "5 % have at most", "half", "95 %", "longest"],
            [[kind, *(f"{value:,}" for value in values)] for kind, values in lengths.items()],
            f"Of the corpus {len(whole):,} of {count:,} documents." if len(whole) < count else "",
        )
    )
    stubs = [
        row
        for row in rows
        if query_words[row.query_id] < FEWEST_QUERY_WORDS
        or all(words[corpus.position[document]] < FEWEST_WORDS for document in row.positive_ids)
    ]
    shown = "; ".join(
        f"{opening(collection.queries.by_id(row.query_id), 40)!r} and {opening(corpus.by_id(row.positive_ids[0]), 40)!r}"
        for row in stubs[:3]
    )
    found.numbers["near_empty_rows"] = len(stubs)
    found.measures.append(
        limited(
            "near_empty",
            "near-empty rows",
            _share(len(stubs), len(rows)),
            NEAR_EMPTY_LIMIT,
            f"{_of(len(stubs), len(rows))} of {len(rows):,} rows have a query of fewer than {FEWEST_QUERY_WORDS} words, "
            f"or no positive of {FEWEST_WORDS} words.",
            f"As {shown}: clean them out with harvest.",
        )
    )


def nearly(own: Sequence[str], other: Sequence[str], threshold: float = NEAR) -> Ints:
    """For each text of `other` the place of the first text of `own` that it is nearly the same as; -1 for none. (n,)

    That is, whose shingles have a Jaccard index of `threshold` or more with its own. Every pair is compared: what two
    texts share is the product of two rows of a sparse matrix.
    """
    found = np.full(len(other), -1, dtype=np.int64)
    if not own or not other:
        return found
    from scipy import sparse

    sets = [shingles(text) for text in (*own, *other)]
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    _, columns = np.unique(np.concatenate(sets), return_inverse=True)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    matrix = sparse.csr_array((np.ones(len(columns), dtype=np.int32), columns, ends))
    mine = matrix[: len(own)].T.tocsr()
    for start in range(0, len(other), _BLOCK):
        shared = (matrix[len(own) + start : len(own) + start + _BLOCK] @ mine).tocoo()
        texts, places = shared.row.astype(np.int64) + start, shared.col.astype(np.int64)
        union = sizes[len(own) + texts] + sizes[places] - shared.data
        holds = shared.data >= threshold * union - 1e-9
        for text, place in sorted(zip(texts[holds].tolist(), places[holds].tolist(), strict=True), reverse=True):
            found[text] = place
    return found


def _leaks(found: Section, rows: Sequence[MinedRow], collection: Collection, evaluation: str) -> None:
    """What the evaluation split shares with the rows: queries word for word or nearly, and answers."""
    queries, corpus = collection.queries, collection.corpus
    held = collection.positives(evaluation)
    own = [queries.by_id(row.query_id) for row in rows]
    other = [queries.by_id(query) for query in held]
    seen = {fingerprint(text): place for place, text in reversed(list(enumerate(own)))}
    seen.pop(BLANK, None)
    exact = np.array([seen.get(fingerprint(text), -1) for text in other], dtype=np.int64)
    like = np.where(exact >= 0, exact, nearly(own, other))
    near = (like >= 0) & (exact < 0)
    trained = {fingerprint(corpus.by_id(document)) for row in rows for document in row.positive_ids} - {BLANK}
    answered = [any(fingerprint(corpus.by_id(d)) in trained for d in documents) for documents in held.values()]
    same_ids = len(set(held) & {row.query_id for row in rows})
    count, leaked = len(held), int((like >= 0).sum())
    found.numbers["leakage"] = {
        "split": evaluation,
        "queries": count,
        "queries_word_for_word": int((exact >= 0).sum()),
        "queries_nearly": int(near.sum()),
        "queries_of_the_same_id": same_ids,
        "queries_with_an_answer_trained_on": sum(answered),
    }
    advice = "Harvest with --exclude, so that they leave train: a score on them says what was learned by heart."
    if same_ids:
        advice = f"{same_ids:,} are the very queries that are trained on: measure on another split."
    found.measures.append(
        limited(
            "leaked_queries",
            "evaluation queries in train",
            _share(leaked, count),
            LEAK_LIMIT,
            f"{_of(leaked, count)} of the {count:,} queries of {evaluation} are trained on, {int(near.sum()):,} of them "
            "nearly word for word.",
            advice,
        )
    )
    table = [
        ["queries trained on, word for word", _of((exact >= 0).sum(), count)],
        ["queries trained on, nearly", _of(near.sum(), count)],
        ["queries with an answer that is a positive in training", _of(sum(answered), count)],
    ]
    # The near ones are worth a look; equal ones say nothing new.
    table += [
        [f"{evaluation}: {opening(other[place], 60)}", f"train: {opening(own[int(like[place])], 60)}"]
        for place in np.flatnonzero(near)[:3].tolist()
    ]
    found.tables.append(
        Table(
            f"What {evaluation} shares with training",
            [f"of {count:,} queries of {evaluation}", "number"],
            table,
            "An answer that training has seen with another question is no leak, but such queries are easier: eval shows "
            "both kinds apart.",
        )
    )


def _scores(found: Section, rows: Sequence[MinedRow]) -> list[Picture]:
    """Histograms of the scores of positives and negatives, the teacher's first, then those of each retriever."""
    panels: list[tuple[str, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]] = []
    told: dict[str, Any] = {}
    names = list(dict.fromkeys(name for row in rows for name in row.scores))
    for name in [TEACHER, *names][:_PANELS]:
        right: list[float | None] = []
        wrong: list[float | None] = []
        for row in rows:
            own = row.positive_teacher if name == TEACHER else row.positive_scores[name]
            all_of_them = row.candidate_teacher if name == TEACHER else row.scores[name]
            right += own or []
            wrong += [all_of_them[index] for index in row.negative_indices] if all_of_them else []
        sides = [np.array(values, dtype=np.float64) for values in (right, wrong)]
        close, far = (values[~np.isnan(values)] for values in sides)
        if not len(close) or not len(far):
            continue
        edges = np.histogram_bin_edges(np.concatenate([close, far]), _BINS)
        panels.append((name, close, far, edges))
        told[name] = {
            "edges": [rounded(edge) for edge in edges],
            "positives": np.histogram(close, edges)[0].tolist(),
            "negatives": np.histogram(far, edges)[0].tolist(),
        }
    found.numbers["scores"] = told
    if not panels:
        return []

    def draw(figure: Figure) -> None:
        axes_of = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"hspace": 0.12})[:, 0]
        for axes, (name, close, far, edges) in zip(axes_of, panels, strict=True):
            for values, colour in ((far, RANDOM), (close, MODEL)):
                heights = np.histogram(values, edges)[0] / len(values)
                axes.stairs(heights, edges, fill=True, color=colour, alpha=0.5, linewidth=0)
                axes.stairs(heights, edges, color=colour, linewidth=1.2)
            top = axes.get_ylim()[1] * 1.35
            low_first = sorted(
                [(far, RANDOM, "negatives"), (close, MODEL, "positives")], key=lambda p: p[0].mean()
            )
            for (values, colour, kind), side in zip(low_first, ("right", "left"), strict=True):
                mean = float(values.mean())
                axes.axvline(mean, color=colour, linewidth=1, linestyle=(0, (3, 2)))
                offset = {"textcoords": "offset points", "xytext": (-3 if side == "right" else 3, 0)}
                label(axes, mean, top, f"{kind} {mean:.2f}", va="top", ha=side, color=colour, **offset)
            axes.set_ylim(0, top)
            axes.set_yticks([])
            axes.set_title(name, loc="left", fontsize=10.5, color=INK)

    return [
        picture(
            "scores",
            "Scores of positives and negatives in the training data",
            "Share of the positives and of the negatives at each score, with their means. Where negatives lie with the "
            "positives they are hard, or right and not labelled; far below, they teach nothing.",
            0.5 + 1.3 * len(panels),
            draw,
        )
    ]
