"""What a model learns from: an audit of a mined or scored artifact and of its texts. No model is needed.

Of every row the negatives that training would see are looked at, whoever made the artifact, and not only what its
miner said of it. The limits stand at the top; above one a number is to be looked at.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from embedtrain import statistics
from embedtrain.artifacts import require_kind
from embedtrain.cautions import FEW_PAIRS
from embedtrain.collection import Collection, Texts
from embedtrain.console import opening
from embedtrain.diagnose.leakage import NEAR, add_leaks
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import INK, MODEL, RANDOM, Picture, label, picture
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table, counted, limited, share
from embedtrain.diagnose.suspects import TEACHER, Negatives, add_suspects
from embedtrain.duplicates import BLANK, Duplicates, fingerprint, normalised
from embedtrain.errors import EmbedtrainError, first_three
from embedtrain.mined import MinedRow, read_mined
from embedtrain.negatives import NEAR_POSITIVE, REASONS, SAME_AS_POSITIVE, SIBLING
from embedtrain.tokens import Tokenizer

MOST = 5_000  # rows that are read; a share of so many is known to 0.014 (two standard errors)
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
# What tuning gains on a split is mostly a few hundredths of nDCG@10: a split that cannot show 0.05 shows little.
DIFFERENCE_LIMIT = 0.05
# Deviation of the paired differences in nDCG@10 of two models: 0.07 to 0.11 on Cranfield, 0.3 on SciFact.
DEVIATION = 0.2

FEWEST_WORDS, FEWEST_QUERY_WORDS = 3, 2  # below which a document, a query, is near-empty
_SHOWN = 5
_FEW = 5  # rows that a document must stand in to be called popular
_CORPUS = 2_000  # documents whose lengths are counted, spread evenly over the corpus
_BINS = 40
_PANELS = 4


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
    add_suspects(found, rows, negatives, collection)
    _popular(found, rows, negatives, collection)
    _words(found, rows, negatives, collection, evaluation)
    if evaluation:
        add_leaks(found, rows, collection, evaluation)
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
        ("with the same words as an earlier one", counted(again, len(rows))),
        ("positives", f"{positives:,}, {positives / len(rows):.1f} a query"),
        ("documents that are a positive", f"{facts['documents_that_are_positives']:,}"),
        ("negatives", f"{count:,}, {count / len(rows):.1f} a query"),
        ("documents that are a negative", f"{facts['documents_that_are_negatives']:,}"),
        ("queries without a negative", counted(without, len(rows))),
        ("negatives that repeat a positive", counted((same | near).sum(), count)),
        ("negatives with the title of a positive", counted(titled.sum(), count)),
    ]
    found.tables.append(Table("What is in it", ["of the rows read", "number"], [list(row) for row in shown]))
    finders = sorted({name for row in rows for name in row.candidate_retrievers})
    by_finder = Counter(pair for row in rows for pair in zip(row.reason, row.candidate_retrievers, strict=True))
    found.tables.append(
        Table(
            "What became of the candidates",
            ["reason", "candidates", *(f"by {name}" for name in finders)],
            [
                [
                    reason,
                    counted(reasons[reason], candidates),
                    *(f"{by_finder[reason, name]:,}" for name in finders),
                ]
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
                share(repeated, count),
                REPEATED_LIMIT,
                f"{counted(repeated, count)} of {count:,} negatives have the words of a positive of their query, or nearly "
                f"(a Jaccard index of {NEAR:g}).",
                f"Mine again with --near-duplicate {NEAR:g}.",
            ),
            limited(
                "same_title",
                "negatives titled like a positive",
                share(int(titled.sum()), count),
                SAME_TITLE_LIMIT,
                f"{counted(titled.sum(), count)} of {count:,} negatives have the title of a positive of their query.",
                "They may be parts of one page, and right as well: mine with --group-column title.",
            ),
            limited(
                "without_negatives",
                "rows without negatives",
                share(without, len(rows)),
                WITHOUT_NEGATIVES_LIMIT,
                f"{counted(without, len(rows))} of {len(rows):,} rows have no negative of their own.",
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
                f"Document {corpus.ids[order[0]]} is a {role} in {counted(counts[order[0]], len(rows))} of {len(rows):,} rows.",
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
            share(len(stubs), len(rows)),
            NEAR_EMPTY_LIMIT,
            f"{counted(len(stubs), len(rows))} of {len(rows):,} rows have a query of fewer than {FEWEST_QUERY_WORDS} words, "
            f"or no positive of {FEWEST_WORDS} words.",
            f"As {shown}: clean them out with harvest.",
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
