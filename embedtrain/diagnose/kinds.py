"""Kinds of queries, and which of them fail more than others do."""

import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import slices, statistics
from embedtrain.collection import Collection
from embedtrain.comparison import SIGNIFICANT
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.remedies import MEASURE, REMEDIES, TESTS, Found, ends, interval, plain
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table, counted
from embedtrain.errors import EmbedtrainError
from embedtrain.slices import Slice
from embedtrain.systems import Questions
from embedtrain.tokens import Tokenizer

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
_AT_ONCE = 1 << 21  # values that are shuffled at a time


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


def add_kinds(
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
                "interval": interval(inside, seed),
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
            f"{entry[MEASURE.text]:.3f}{ends(entry['interval'])}",
            f"{entry['gap']:+.3f}{' *' if entry['worse'] else ''}".replace("-", "−"),
            counted(entry["failed"], entry["queries"]),
            counted(entry["rescued_by_bm25"], entry["failed"]),
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
        **plain(entry["interval"]),
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
