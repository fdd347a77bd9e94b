"""Parts of the queries, and what became better or worse on each: a mean hides who paid for it."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import statistics
from embedtrain.collection import Collection
from embedtrain.comparison import SIGNIFICANT
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.systems import Questions
from embedtrain.tokens import Tokenizer, holds_code

TRAINED_ON = "train"  # the split whose relevant documents training has seen

# Documents that word frequencies are counted in, spread evenly over the corpus.
SAMPLE = 5_000
RESAMPLES = 2_000
TESTS = 10_000
LEAST = 5  # queries of a slice: the interval of fewer says next to nothing
MOST_VALUES = 30  # of a user's column


@dataclasses.dataclass(frozen=True)
class Slice:
    """Some of the queries: what they are sorted by, what these have in common, and which they are."""

    by: str
    name: str
    members: NDArray[np.bool_]  # (queries,)


def of(
    collection: Collection, questions: Questions, columns: Sequence[str], language: str
) -> tuple[list[Slice], list[str]]:
    """All slices of the measured queries: by length, rare words, overlap with their answers, training, columns.

    And a sentence where one of these could not be made.

    `language` is that of the tokenizer. A slice that would hold all queries or fewer than five is left out. Raises
    UsageError for a column with too many different values, EmbedtrainError for one that is not there.
    """
    own = [_by_column(collection, questions, name) for name in columns]  # first: it may not be there
    split = Tokenizer(language)
    words = [split(text) for text in questions.texts]
    trained, said = _by_training(collection, questions)
    found = [
        *_by_length(questions.texts),
        *_by_rare_words(collection, questions, words, split),
        *_by_overlap(collection, questions, words, split),
        *trained,
        *(one for part in own for one in part),
    ]
    return [one for one in found if LEAST <= one.members.sum() < len(questions.ids)], said


def _by_length(texts: Sequence[str]) -> list[Slice]:
    """Thirds by the number of words; queries of one length stay together."""
    split = Tokenizer("none")  # which takes no stop words away
    lengths = np.array([len(split(text)) for text in texts])
    edges = np.unique(np.quantile(lengths, [1 / 3, 2 / 3], method="lower"))
    place = np.searchsorted(edges, lengths)
    found = []
    for number in np.unique(place):
        members = place == number
        low, high = lengths[members].min(), lengths[members].max()
        found.append(Slice("length", f"{low} words" if low == high else f"{low} to {high} words", members))
    return found


def _by_rare_words(
    collection: Collection, questions: Questions, words: Sequence[list[str]], split: Tokenizer
) -> list[Slice]:
    """Queries whose rarest word that the corpus knows is in the bottom tenth of all such words, or that hold a code."""
    asked = {word for tokens in words for word in tokens}
    frequency: Counter[str] = Counter()
    count = len(collection.corpus)
    places = range(count) if count <= SAMPLE else np.linspace(0, count - 1, SAMPLE).astype(int).tolist()
    for place in places:
        frequency.update(asked & split.distinct(collection.corpus[place]))
    if not frequency:
        return []
    tenth = float(np.quantile(list(frequency.values()), 0.1))
    rare = np.array(
        [
            holds_code(text)
            or min((frequency[word] for word in tokens if word in frequency), default=np.inf) <= tenth
            for text, tokens in zip(questions.texts, words, strict=True)
        ],
        dtype=bool,
    )
    return [Slice("words", "a rare word or a code", rare), Slice("words", "common words only", ~rare)]


def _by_overlap(
    collection: Collection, questions: Questions, words: Sequence[list[str]], split: Tokenizer
) -> list[Slice]:
    """Thirds of the share of a query's words that the relevant document with most of them holds."""
    shares = []
    for query, tokens in zip(questions.ids, words, strict=True):
        wanted = set(tokens)
        relevant = [document for document, grade in questions.qrels[query].items() if grade > 0]
        held = [len(wanted & split.distinct(collection.corpus.by_id(document))) for document in relevant]
        shares.append(max(held, default=0) / len(wanted) if wanted else 0.0)
    values = np.array(shares)
    place = np.digitize(values, [1 / 3, 2 / 3])
    names = ("under a third", "a third to two thirds", "two thirds or more")
    return [Slice("words in its answer", name, place == number) for number, name in enumerate(names)]


def _by_training(collection: Collection, questions: Questions) -> tuple[list[Slice], list[str]]:
    """Whether a relevant document of a query is relevant to a training query of the collection too."""
    if TRAINED_ON not in collection.splits:
        return [], []
    try:
        trained_on = collection.positives(TRAINED_ON)
    except EmbedtrainError as error:  # a part of a collection may have lost the documents of another split
        return [], [f"no slices by what training has seen: {error}"]
    seen = {document for documents in trained_on.values() for document in documents}
    known = np.array(
        [
            any(grade > 0 and document in seen for document, grade in questions.qrels[query].items())
            for query in questions.ids
        ],
        dtype=bool,
    )
    return [Slice("its document", "seen in training", known), Slice("its document", "not seen", ~known)], []


def _by_column(collection: Collection, questions: Questions, name: str) -> list[Slice]:
    values = dict(zip(collection.queries.ids, collection.query_column(name), strict=True))
    own = np.array([values[query] for query in questions.ids])
    different = sorted(set(own.tolist()))
    if len(different) > MOST_VALUES:
        raise UsageError(
            f"--slice {name}: the queries have {len(different)} different values in it; at most {MOST_VALUES} make slices, so "
            "give a column that groups them"
        )
    return [Slice(name, value or "(none)", own == value) for value in different]


def compared(
    slices: Sequence[Slice], base: NDArray[np.float64], judged: NDArray[np.float64] | None, seed: int
) -> list[dict[str, Any]]:
    """Means per slice of the base and the judged system, and their paired difference with a 95 % BCa interval.

    Values are per query (queries,); without a judged system it is the base's mean that has the interval.
    """
    found = []
    for one in slices:
        own = base[one.members]
        entry: dict[str, Any] = {"by": one.by, "slice": one.name, "queries": len(own), "base": float(own.mean())}
        values = own if judged is None else judged[one.members] - own
        if judged is not None:
            entry["p_randomization"] = statistics.randomization_p(values, TESTS, seed)
            entry |= {"judged": float(judged[one.members].mean()), "difference": float(values.mean())}
        ends = statistics.bca_interval(values, statistics.bootstrap_means(values[:, None], RESAMPLES, seed)[:, 0])
        found.append(entry | {"low": ends.low if ends else None, "high": ends.high if ends else None})
    if judged is not None:
        adjusted = statistics.holm([entry["p_randomization"] for entry in found])
        found = [{**entry, "p_holm": p} for entry, p in zip(found, adjusted, strict=True)]
    return found


def table(found: Sequence[Mapping[str, Any]], base: str, judged: str, measure: str) -> dict[str, Any]:
    """The slices as a table; those that got worse come first, the others in their order."""
    rows = []
    for one in sorted(found, key=lambda one: not _worse(one)):
        label = f"{one['by']}: {one['slice']}"
        interval = f" [{one['low']:+.4f}, {one['high']:+.4f}]"
        if "judged" in one:
            values = [f"{one['base']:.4f}", f"{one['judged']:.4f}", f"{one['difference']:+.4f}{interval}"]
        else:
            values = [f"{one['base']:.4f} [{one['low']:.4f}, {one['high']:.4f}]"]
        rows.append([label, f"{one['queries']:,}", *values])
    columns = [base, judged, "difference [95 %]"] if found and "judged" in found[0] else [f"{base} [95 %]"]
    return {"title": f"Slices, {measure}", "columns": ["slice", "queries", *columns], "rows": rows}


def _worse(one: Mapping[str, Any]) -> bool:
    """By the sign-flip test, after Holm over the slices: of many small ones some lie below zero by chance."""
    return "difference" in one and one["difference"] < 0 and one["p_holm"] < SIGNIFICANT


def sentences(found: Sequence[Mapping[str, Any]], judged: str, difference: float) -> list[str]:
    """Slices that got worse, where the mean of all did not: first what the mean hides."""
    worse = [one for one in found if _worse(one)]
    if not worse or difference <= 0:
        return []
    parts = [
        f"{one['by']}: {one['slice']} ({one['queries']:,} queries, {one['difference']:+.4f})" for one in worse
    ]
    return [f"{judged} got worse on a part of the queries while the mean rose: {'; '.join(parts)}"]
