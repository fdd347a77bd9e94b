"""Where a model fails: the worst queries, what kinds of queries they are, and what would mend them.

A query fails where none of its answers is among the first 10, so that its nDCG@10 is 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from embedtrain import slices, statistics
from embedtrain.collection import Collection
from embedtrain.comparison import SIGNIFICANT
from embedtrain.console import opening
from embedtrain.diagnose.kinds import add_kinds, kinds_of
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import BASE, INK, MODEL, RANDOM, Picture, picture
from embedtrain.diagnose.remedies import (
    DEEPER,
    DEPTH,
    HYBRID,
    LEXICAL,
    MEASURE,
    REMEDIES,
    RERANKER,
    TESTS,
    TRAINING,
    Found,
    ends,
    interval,
    plain,
    remedies,
)
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table, counted, limited
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits
from embedtrain.slices import Slice
from embedtrain.systems import Questions

# From one query in four without an answer on the first page on, people stop asking.
FAILED_LIMIT = 0.25
# Where BM25 finds one failure in four, it is worth to be asked beside the model.
RESCUED_LIMIT = 0.25
# What nothing at hand finds is left for training; a tenth of all queries is a gap that a mean shows.
UNREACHED_LIMIT = 0.1
# What hybrid search must gain to be worth a second index.
HYBRID_GAIN = 0.01


_SHOWN = 10
_BARS = 12


def section(
    collection: Collection,
    questions: Questions,
    model: Hits,
    lexical: Hits,
    hybrid: Hits,
    *,
    language: str = "none",
    similarities: Sequence[float] | NDArray[np.floating[Any]] | None = None,
    seed: int = 0,
) -> Section:
    """Where `model` fails on the questions, beside BM25 (`lexical`) and the fusion of both (`hybrid`).

    All hits are of the questions in their order, with corpus positions, at least 10 deep, better 100, and without the
    query itself where it is a document (`systems.without_self`). `language` is that of the tokenizer; `similarities`
    (q,) the cosine of each query with its nearest training query, where there is a model to say it. Raises
    EmbedtrainError where numbers of queries differ.
    """
    asked = len(questions.ids)
    for name, given in (("model", model), ("BM25", lexical), ("hybrid", hybrid)):
        if len(given) != asked:
            raise EmbedtrainError(
                f"{name} has hits of {len(given):,} queries and {asked:,} are asked; search again"
            )
    ids = collection.corpus.ids
    own, words, both = (Found.of(hits, questions, ids) for hits in (model, lexical, hybrid))
    found = Section(
        "failures",
        "Where it fails",
        "Queries without an answer among the first 10, of what kind, and what would help.",
    )
    fate = remedies(own, words, both)
    _means(found, own, words, both, seed)
    _mending(found, own, fate, words, both)
    kinds, said = kinds_of(collection, questions, language, similarities)
    found.notes.extend(said)
    judged = add_kinds(found, kinds, own, words, both, fate, seed)
    _worst(found, collection, questions, model, own, words, both, fate)
    drawn = _picture(judged, kinds, own, fate)
    found.pictures.extend([drawn] if drawn else [])
    return found


def _means(found: Section, own: Found, words: Found, both: Found, seed: int) -> None:
    """The means of the three, and whether the model stands behind the others by more than chance."""
    rows, said = [], {}
    for name, one in (("model", own), ("BM25", words), ("hybrid", both)):
        between = interval(one.values, seed)
        failed = int(one.failed.sum())
        rows.append([name, f"{one.values.mean():.3f}{ends(between)}", counted(failed, len(one.values))])
        said[name] = {MEASURE.text: rounded(one.values.mean()), **plain(between), "failed": failed}
    found.numbers["queries"] = len(own.values)
    found.numbers["systems"] = said
    found.tables.append(Table("How often each fails", ["search", f"{MEASURE} [95 %]", "failed"], rows))
    gains = {}
    for name, other in (("BM25", words), ("hybrid", both)):
        difference = other.values - own.values
        between = interval(difference, seed)
        p = statistics.randomization_p(difference, TESTS, seed)
        gains[name] = float(difference.mean()), between, p
    adjusted = statistics.holm([p for _, _, p in gains.values()])
    for (name, (gain, between, _)), p in zip(gains.items(), adjusted, strict=True):
        sure = p is not None and p < SIGNIFICANT
        found.numbers[f"{name.lower()}_gain"] = {
            "difference": rounded(gain),
            **plain(between),
            "p_holm": None if p is None else rounded(p),
        }
        if name == "BM25":
            behind, advice = (
                sure and gain > 0,
                "Words alone do better: look at the truncation, then at the training.",
            )
        else:
            behind, advice = sure and gain > HYBRID_GAIN, "It needs no training: use it, and tune what is left."
        text = f"{name} has {gain:+.3f}{ends(between, '+')} in {MEASURE}".replace("-", "−")
        text += "." if sure else ", which chance explains."
        found.measures.append(
            Measure(
                f"{name.lower()}_gain",
                f"what {name} has more",
                gain,
                None,
                "0 or less" if name == "BM25" else f"watch above {HYBRID_GAIN:g}, if sure",
                WATCH if behind else HEALTHY,
                f"{text} {advice}" if behind else text,
                min(-0.2, gain),
                max(0.2, gain),
                0.0,
            )
        )


def _mending(found: Section, own: Found, fate: Sequence[str], words: Found, both: Found) -> None:
    """How many queries fail, and what would mend them."""
    failed, count = int(own.failed.sum()), len(fate)
    counts = {name: fate.count(name) for name in REMEDIES}
    rescued = int((own.failed & ~words.failed).sum())
    lost = int((~own.failed & both.failed).sum())
    found.numbers["failed"] = failed
    found.numbers["mended_by"] = counts
    found.numbers["rescued_by_bm25"] = rescued
    found.numbers["lost_by_hybrid"] = lost
    found.measures.extend(
        [
            limited(
                "failed_queries",
                "failed queries",
                failed / count,
                FAILED_LIMIT,
                f"{counted(failed, count)} of {count:,} queries have no answer among the first {DEPTH}.",
                "The table of remedies says what to try first.",
            ),
            limited(
                "rescued_by_bm25",
                "failures that BM25 finds",
                rescued / failed if failed else 0.0,
                RESCUED_LIMIT,
                f"{rescued:,} of {failed:,} failures have an answer among BM25’s first {DEPTH}.",
                "Search with both (eval --hybrid).",
                enough=rescued >= slices.LEAST,
            ),
            limited(
                "only_training",
                "only training would help",
                counts[TRAINING] / count,
                UNREACHED_LIMIT,
                f"{counted(counts[TRAINING], count)} of {count:,} queries have an answer that nothing finds among the first "
                f"{DEEPER}.",
                "Harvest pairs that ask as these do, and mine negatives from what came instead.",
            ),
        ]
    )
    if failed:
        rows = [[REMEDIES[name], counted(number, failed)] for name, number in counts.items()]
        note = f"Each failure is counted once, with the cheapest that helps. Hybrid search loses {lost:,} queries that the model answers."
        found.tables.append(Table("What would help", [f"of {failed:,} failures", "queries"], rows, note))


def _worst(
    found: Section,
    collection: Collection,
    questions: Questions,
    hits: Hits,
    own: Found,
    words: Found,
    both: Found,
    fate: Sequence[str],
) -> None:
    """The queries with the lowest nDCG@10: what was asked, what would have been right, and what came first."""
    corpus = collection.corpus
    # Of two that are equally bad the one whose answer lies deeper comes first, then the smaller id.
    depth = np.where(own.rank > 0, own.rank, np.iinfo(np.int64).max)
    order = sorted(range(len(fate)), key=lambda i: (own.values[i], -depth[i], questions.ids[i]))
    shown = [place for place in order if own.values[place] < 1.0][:_SHOWN]
    rows, told = [], []
    for place in shown:
        query = questions.ids[place]
        grades = questions.qrels[query]
        # The answer of the highest grade; of several the first by its id.
        answer = min((d for d, grade in grades.items() if grade > 0), key=lambda d: (-grades[d], d), default=None)
        wrong = [int(p) for p in hits.positions[place] if grades.get(corpus.ids[int(p)], 0) <= 0][:1]
        came = corpus.ids[wrong[0]] if wrong else None
        rows.append(
            [
                opening(questions.texts[place]),
                _text(collection, answer),
                _text(collection, came) if came is not None else "nothing",
                *(_rank(one.rank[place]) for one in (own, words, both)),
                f"{own.values[place]:.3f}",
            ]
        )
        told.append(
            {
                "query": query,
                "answer": answer,
                "instead": came,
                "ranks": {
                    name: int(one.rank[place]) or None
                    for name, one in (("model", own), ("bm25", words), ("hybrid", both))
                },
                MEASURE.text: rounded(own.values[place]),
                "mended_by": fate[place] or None,
            }
        )
    found.numbers["worst"] = told
    if not rows:
        return
    columns = [
        "query",
        "an answer",
        "what came instead",
        "rank of the first answer",
        "by BM25",
        "by hybrid",
        str(MEASURE),
    ]
    found.tables.append(Table("The worst queries", columns, rows, "–: not among those that were searched for."))
    first = [place for place in np.flatnonzero(own.failed).tolist() if len(hits.positions[place])]
    unjudged = int(own.graded.unjudged[first, 0].sum()) if first else 0
    found.numbers["failures_with_an_unjudged_first"] = unjudged
    if first and unjudged > len(first) / 2:
        found.notes.append(
            f"In {unjudged:,} of {len(first):,} failures nobody has judged what came first: some of it may be right. "
            "Read the table before training against it."
        )


def _text(collection: Collection, document: str | None) -> str:
    if document is None:
        return "none"
    place = collection.corpus.position.get(document)
    return (
        f"{document}: {opening(collection.corpus.text(place))}" if place is not None else f"{document} (missing)"
    )


def _rank(rank: int) -> str:
    return f"{rank:,}" if rank else "–"


def _picture(
    judged: Sequence[dict[str, Any]], kinds: Sequence[Slice], own: Found, fate: Sequence[str]
) -> Picture | None:
    """Bars: the share of each kind that fails, cut into what would mend it."""
    if not own.failed.any():
        return None
    whole = {name: fate.count(name) for name in REMEDIES}
    bars = [("all queries", len(fate), whole)]
    ranked = sorted(judged, key=lambda entry: (-entry["failed"] / entry["queries"], entry["place"]))
    bars += [(f"{e['by']}: {e['kind']}", e["queries"], e["mended_by"]) for e in ranked if e["failed"]][: _BARS - 1]
    colours = {HYBRID: MODEL, LEXICAL: MODEL, RERANKER: BASE, TRAINING: RANDOM}
    names = {HYBRID: "hybrid", LEXICAL: "BM25 alone", RERANKER: "a reranker could", TRAINING: "only training"}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, (name, count, parts) in enumerate(bars):
            left = 0.0
            for remedy, colour in colours.items():
                share = 100 * parts[remedy] / count
                faint = 0.45 if remedy == LEXICAL else 0.85
                axes.barh(row, share, left=left, height=0.42, color=colour, alpha=faint, linewidth=0)
                left += share
            axes.text(0, row - 0.27, f"{name} ({count:,})", va="bottom", color=INK, fontsize=9.5)
        present = [remedy for remedy in colours if whole[remedy]]
        for remedy in present:
            faint = 0.45 if remedy == LEXICAL else 0.85
            axes.barh(0, 0, color=colours[remedy], alpha=faint, label=names[remedy])
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, fontsize=9.5, handlelength=1, borderaxespad=0
        )
        axes.set_ylim(len(bars) - 0.6, -0.75)
        axes.set_yticks([])
        axes.grid(axis="x")
        axes.set_xlabel("queries that fail, %")

    return picture(
        "failures",
        "Which queries fail, and what would help",
        f"Share of each kind of query without an answer among the first {DEPTH}, by the cheapest thing that finds one.",
        0.9 + 0.42 * len(bars),
        draw,
    )
