"""Where a model fails: the worst queries, what kinds of queries they are, and what would mend them.

A query fails where none of its answers is among the first 10, so that its nDCG@10 is 0.
"""

import dataclasses
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from embedtrain import metrics, slices, statistics
from embedtrain.collection import Collection
from embedtrain.comparison import SIGNIFICANT
from embedtrain.diagnose.data import limited, opening
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import BASE, INK, MODEL, RANDOM, Picture, picture
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits
from embedtrain.slices import Slice
from embedtrain.systems import Questions
from embedtrain.tokens import Tokenizer

MEASURE = metrics.parse("nDCG@10")
DEPTH = MEASURE.cutoff
# A reranker reads so many documents and no more; what lies deeper it does not see.
DEEPER = 100

# From one query in four without an answer on the first page on, people stop asking.
FAILED_LIMIT = 0.25
# Where BM25 finds one failure in four, it is worth to be asked beside the model.
RESCUED_LIMIT = 0.25
# What nothing at hand finds is left for training; a tenth of all queries is a gap that a mean shows.
UNREACHED_LIMIT = 0.1
# What hybrid search must gain to be worth a second index.
HYBRID_GAIN = 0.01
# A kind of queries is to be looked at where it is so much worse than the others, and by more than chance.
KIND_GAP = 0.05

NEGATIONS = {
    language: frozenset(words.split())
    for language, words in {
        "english": "no not nor never none nobody nothing nowhere neither without cannot except",
        "german": "nicht kein keine keinen keinem keiner keines nie niemals nichts niemand ohne außer",
        "french": "ne pas non jamais rien aucun aucune sans ni sauf",
        "spanish": "no nunca jamás nada nadie ningún ninguno ninguna sin ni excepto salvo",
    }.items()
}

# A number that stands alone: 3, 10,000 or 2.5, and not the digits of a code (SSO-4012, p53).
_NUMBER = re.compile(r"(?<![\w./-])\d+(?:[.,]\d+)*(?![\w/-])")

HYBRID, LEXICAL, RERANKER, TRAINING = "hybrid", "bm25", "reranker", "training"
# What would mend a failure, cheapest first; each failure has the first that does.
REMEDIES = {
    HYBRID: "hybrid search finds an answer",
    LEXICAL: "BM25 alone finds one: give it more weight",
    RERANKER: f"one is among the first {DEEPER}: a reranker could",
    TRAINING: "found by neither: only training",
}
RESAMPLES, TESTS = 2_000, 10_000
_SHOWN = 10
_AT_ONCE = 1 << 21  # values that are shuffled at a time
_BARS = 12


@dataclasses.dataclass(frozen=True)
class Found:
    """What one ranking made of the queries: nDCG@10, and the rank of the first relevant document (0: none). (q,)"""

    values: NDArray[np.float64]
    rank: NDArray[np.int64]
    graded: metrics.Graded

    @classmethod
    def of(cls, hits: Hits, questions: Questions, ids: Sequence[str]) -> "Found":
        """Put the judgements in."""
        graded = metrics.grade(hits, ids, questions.qrels)
        right = graded.gains > 0
        rank = np.where(right.any(axis=1), right.argmax(axis=1) + 1, 0).astype(np.int64)
        return cls(MEASURE.of(graded), rank, graded)

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Queries without an answer among the first 10."""
        return ~self.within(DEPTH)

    def within(self, depth: int) -> NDArray[np.bool_]:
        """Queries with an answer among the first `depth`."""
        return (self.rank > 0) & (self.rank <= depth)


def remedies(model: Found, lexical: Found, hybrid: Found) -> list[str]:
    """What would mend each query, one of REMEDIES; empty where the model does not fail."""
    deeper = model.within(DEEPER) | lexical.within(DEEPER) | hybrid.within(DEEPER)
    chosen = np.select(
        [~model.failed, ~hybrid.failed, ~lexical.failed, deeper], ["", HYBRID, LEXICAL, RERANKER], TRAINING
    )
    return [str(one) for one in chosen]


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
    judged = _kinds(found, kinds, own, words, both, fate, seed)
    _worst(found, collection, questions, model, own, words, both, fate)
    drawn = _picture(judged, kinds, own, fate)
    found.pictures.extend([drawn] if drawn else [])
    return found


def kinds_of(
    collection: Collection,
    questions: Questions,
    language: str,
    similarities: Sequence[float] | NDArray[np.floating[Any]] | None,
) -> tuple[list[Slice], list[str]]:
    """Kinds of queries, those of `slices` first: then numbers, negation, and how far they are from training queries.

    And a sentence for what could not be told apart. Kinds of fewer than five queries, or of all but so few, are left out.
    """
    found, said = slices.of(collection, questions, (), language)
    split = Tokenizer("none")  # "not" is a stop word
    tokens = [split(text) for text in questions.texts]
    numbers = np.array([bool(_NUMBER.search(text)) for text in questions.texts], dtype=bool)
    more = [Slice("numbers", "a number", numbers)]
    if language in NEGATIONS:
        words = NEGATIONS[language]
        negated = np.array([any(t in words or t.endswith("n't") for t in own) for own in tokens], dtype=bool)
        more.append(Slice("negation", "negated", negated))
    else:
        said = [*said, f"Negation was not looked for: its words are known for {', '.join(NEGATIONS)}."]
    if similarities is not None:
        more += _by_similarity(np.asarray(similarities, dtype=np.float64), len(questions.ids))
    count = len(questions.ids)
    # A kind is compared with the queries that are not of it: there must be enough of both.
    return [one for one in (*found, *more) if slices.LEAST <= one.members.sum() <= count - slices.LEAST], said


def _by_similarity(values: NDArray[np.float64], count: int) -> list[Slice]:
    """Thirds by the similarity to the nearest training query."""
    if values.shape != (count,) or not np.isfinite(values).all():
        raise EmbedtrainError(
            f"similarities to training queries have the shape {values.shape} or are not finite; one number for each of "
            f"{count:,} queries is needed"
        )
    edges = np.unique(np.quantile(values, [1 / 3, 2 / 3], method="higher"))
    place = np.digitize(values, edges)
    found = []
    for number in np.unique(place).tolist():
        members = place == number
        name = f"{values[members].min():.2f} to {values[members].max():.2f}"
        found.append(Slice("similarity to training", name, members))
    return found


def _interval(values: NDArray[np.float64], seed: int) -> statistics.Interval | None:
    means = statistics.bootstrap_means(values[:, None], RESAMPLES, seed)[:, 0]
    return statistics.bca_interval(values, means)


def _ends(interval: statistics.Interval | None, sign: str = "") -> str:
    return f" [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]" if interval else ""


def _plain(interval: statistics.Interval | None) -> dict[str, float | None]:
    return {
        "low": None if interval is None else rounded(interval.low),
        "high": None if interval is None else rounded(interval.high),
    }


def _means(found: Section, own: Found, words: Found, both: Found, seed: int) -> None:
    """The means of the three, and whether the model stands behind the others by more than chance."""
    rows, said = [], {}
    for name, one in (("model", own), ("BM25", words), ("hybrid", both)):
        interval = _interval(one.values, seed)
        failed = int(one.failed.sum())
        rows.append([name, f"{one.values.mean():.3f}{_ends(interval)}", _of(failed, len(one.values))])
        said[name] = {MEASURE.text: rounded(one.values.mean()), **_plain(interval), "failed": failed}
    found.numbers["queries"] = len(own.values)
    found.numbers["systems"] = said
    found.tables.append(Table("How often each fails", ["search", f"{MEASURE} [95 %]", "failed"], rows))
    gains = {}
    for name, other in (("BM25", words), ("hybrid", both)):
        difference = other.values - own.values
        interval = _interval(difference, seed)
        p = statistics.randomization_p(difference, TESTS, seed)
        gains[name] = float(difference.mean()), interval, p
    adjusted = statistics.holm([p for _, _, p in gains.values()])
    for (name, (gain, interval, _)), p in zip(gains.items(), adjusted, strict=True):
        sure = p is not None and p < SIGNIFICANT
        found.numbers[f"{name.lower()}_gain"] = {
            "difference": rounded(gain),
            **_plain(interval),
            "p_holm": None if p is None else rounded(p),
        }
        if name == "BM25":
            behind, advice = (
                sure and gain > 0,
                "Words alone do better: look at the truncation, then at the training.",
            )
        else:
            behind, advice = sure and gain > HYBRID_GAIN, "It needs no training: use it, and tune what is left."
        text = f"{name} has {gain:+.3f}{_ends(interval, '+')} in {MEASURE}".replace("-", "−")
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


def _of(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.1f} %)" if whole else f"{part:,}"


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
                f"{_of(failed, count)} of {count:,} queries have no answer among the first {DEPTH}.",
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
                f"{_of(counts[TRAINING], count)} of {count:,} queries have an answer that nothing finds among the first "
                f"{DEEPER}.",
                "Harvest pairs that ask as these do, and mine negatives from what came instead.",
            ),
        ]
    )
    if failed:
        rows = [[REMEDIES[name], _of(number, failed)] for name, number in counts.items()]
        note = f"Each failure is counted once, with the cheapest that helps. Hybrid search loses {lost:,} queries that the model answers."
        found.tables.append(Table("What would help", [f"of {failed:,} failures", "queries"], rows, note))


def random_groups_p(values: NDArray[np.float64], members: NDArray[np.bool_], seed: int) -> list[float]:
    """Two-sided p that the mean of each group is that of as many random queries: values (q,), members (groups, q).

    Pitman's permutation test (1937), from seeded draws that all groups share, the observed one counted in.
    """
    generator = np.random.default_rng([seed, zlib.crc32(b"kinds")])
    groups = members.astype(np.float64)
    expected = groups.sum(axis=1) * values.mean()
    # Sums that are equal on paper differ by rounding.
    reach = np.abs(groups @ values - expected) - 1e-9
    further = np.ones(len(groups))
    step = max(1, _AT_ONCE // len(values))
    for start in range(0, TESTS, step):
        drawn = generator.permuted(np.tile(values, (min(step, TESTS - start), 1)), axis=1)
        further += (np.abs(drawn @ groups.T - expected) >= reach).sum(axis=0)
    return [float(p) for p in further / (TESTS + 1)]


def _kinds(
    found: Section,
    kinds: Sequence[Slice],
    own: Found,
    words: Found,
    both: Found,
    fate: Sequence[str],
    seed: int,
) -> list[dict[str, Any]]:
    """Every kind with its mean, how it compares with the other queries, and what BM25 rescues of it; worst first."""
    found.numbers["kinds"] = []
    if not kinds:
        return []
    with_words = slices.compared(kinds, own.values, words.values, seed)
    with_both = slices.compared(kinds, own.values, both.values, seed)
    judged: list[dict[str, Any]] = []
    chances = random_groups_p(own.values, np.array([one.members for one in kinds]), seed)
    for place, (one, lexical, hybrid, p) in enumerate(zip(kinds, with_words, with_both, chances, strict=True)):
        inside, outside = own.values[one.members], own.values[~one.members]
        failures = one.members & own.failed
        judged.append(
            {
                "place": place,
                "by": one.by,
                "kind": one.name,
                "queries": len(inside),
                MEASURE.text: float(inside.mean()),
                "interval": _interval(inside, seed),
                "gap": float(inside.mean() - outside.mean()),
                "p": p,
                "failed": int(failures.sum()),
                "rescued_by_bm25": int((failures & ~words.failed).sum()),
                "bm25": lexical,
                "hybrid": hybrid,
                "mended_by": {
                    name: sum(fate[i] == name for i in np.flatnonzero(failures).tolist()) for name in REMEDIES
                },
            }
        )
    for entry, adjusted in zip(judged, statistics.holm([entry["p"] for entry in judged]), strict=True):
        entry["p_holm"] = adjusted
        entry["worse"] = adjusted is not None and adjusted < SIGNIFICANT and entry["gap"] < -KIND_GAP
    judged.sort(key=lambda entry: (not entry["worse"], entry["gap"], entry["place"]))
    found.numbers["kinds"] = [_as_plain(entry) for entry in judged]
    rows = [
        [
            f"{entry['by']}: {entry['kind']}",
            f"{entry['queries']:,}",
            f"{entry[MEASURE.text]:.3f}{_ends(entry['interval'])}",
            f"{entry['gap']:+.3f}{' *' if entry['worse'] else ''}".replace("-", "−"),
            _of(entry["failed"], entry["queries"]),
            _of(entry["rescued_by_bm25"], entry["failed"]),
            _change(entry["bm25"]),
            _change(entry["hybrid"]),
        ]
        for entry in judged
    ]
    columns = [
        "kind",
        "queries",
        f"{MEASURE} [95 %]",
        "less the others’",
        "failed",
        "rescued by BM25",
        "BM25’s change [95 %]",
        "hybrid’s change [95 %]",
    ]
    note = "* worse than the other queries by more than chance explains (groups of random queries, Holm over all kinds). Kinds overlap."
    found.tables.append(Table("Failures by kind of query", columns, rows, note))
    worse = [entry for entry in judged if entry["worse"]]
    lowest = judged[0]
    names = "; ".join(f"{entry['by']}: {entry['kind']} ({entry['gap']:+.3f})" for entry in worse).replace("-", "−")
    sentence = (
        f"Worse than the other queries: {names}."
        if worse
        else f"The weakest, {lowest['by']}: {lowest['kind']}, may be so by chance: no kind is surely worse."
    )
    found.measures.append(
        Measure(
            "weakest_kind",
            "gap of the weakest kind",
            lowest["gap"],
            None,
            f"watch below −{KIND_GAP:g}, if sure",
            WATCH if worse else HEALTHY,
            sentence,
            min(-0.5, lowest["gap"]),
            max(0.1, lowest["gap"]),
            0.0,
        )
    )
    found.notes.extend(_advice(worse))
    return judged


def _change(entry: dict[str, Any]) -> str:
    ends = "" if entry["low"] is None else f" [{entry['low']:+.3f}, {entry['high']:+.3f}]"
    return f"{entry['difference']:+.3f}{ends}".replace("-", "−")


def _as_plain(entry: dict[str, Any]) -> dict[str, Any]:
    changes = {
        f"{name}_change": {
            key: None if entry[name][key] is None else rounded(entry[name][key])
            for key in ("difference", "low", "high", "p_holm")
        }
        for name in ("bm25", "hybrid")
    }
    return {
        "by": entry["by"],
        "kind": entry["kind"],
        "queries": entry["queries"],
        MEASURE.text: rounded(entry[MEASURE.text]),
        **_plain(entry["interval"]),
        "gap": rounded(entry["gap"]),
        "p_holm": None if entry["p_holm"] is None else rounded(entry["p_holm"]),
        "worse": bool(entry["worse"]),
        "failed": entry["failed"],
        "rescued_by_bm25": entry["rescued_by_bm25"],
        **changes,
        "mended_by": entry["mended_by"],
    }


def _advice(worse: Sequence[dict[str, Any]]) -> list[str]:
    """What to do about each kind that is worse, once a kind."""
    known = {
        "words": "Rare words and codes: a model has no vector for what it never read. Search with both, and pretrain on "
        "the collection’s own texts.",
        "similarity to training": "Queries far from those of training: harvest pairs of their kind; a split drawn from "
        "training alone would not have shown it.",
        "length": "Queries of one length: see whether training has such, and whether they are cut.",
        "numbers": "Numbers: embeddings tell them apart badly. Search with both, and mine negatives that differ in the "
        "number only.",
        "negation": "Negation: embeddings hardly see a “not”. Train on negatives that say the opposite.",
        "words in its answer": "Queries in other words than their answers: this is what training is for; harvest such "
        "pairs.",
        "its document": "Documents that training has not seen: the model knows its training documents; use more of them, "
        "fewer epochs.",
    }
    return [known[by] for by in dict.fromkeys(entry["by"] for entry in worse) if by in known]


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
