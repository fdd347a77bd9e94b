"""What a tuned model forgot: every model on collections and sentence pairs it was not tuned for, beside the base."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embedtrain import conventions, metrics, readers
from embedtrain.collection import Collection
from embedtrain.comparison import as_dict, ends, measure_all
from embedtrain.config import EvalOptions
from embedtrain.console import Progress
from embedtrain.errors import EmbedtrainError
from embedtrain.models import ModelSource
from embedtrain.retrieval import Ranker
from embedtrain.searched import Documents
from embedtrain.statistics import LEVEL, Interval
from embedtrain.systems import Questions, recipe

SPEARMAN = "Spearman"
STS_COLUMNS = ("score", "sentence1", "sentence2")
LEAST_PAIRS = 10

_RESAMPLES = 2_000
_CHUNK = 2**21  # resampled values held at a time


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs with the similarity that people gave them: what an STS file holds."""

    first: list[str]
    second: list[str]
    scores: NDArray[np.float64]


def _rows(path: Path) -> Iterator[tuple[int, readers.Row]]:
    """Rows of a table. In an STS file with tabs a quotation mark is a quotation mark: none of those there are quotes."""
    if readers.suffix(path).removesuffix(".gz") != ".tsv":
        yield from readers.rows(path)
        return
    if not path.is_file():
        raise EmbedtrainError(f"{path} does not exist; check the path")
    header: list[str] | None = None
    for number, line in readers.lines(path):
        values = line.split("\t")
        if header is None:
            header = values
        elif len(values) != len(header):
            raise EmbedtrainError(
                f"{path} line {number} has {len(values)} columns where the header has {len(header)}"
            )
        else:
            yield number, dict(zip(header, values, strict=True))


def read_pairs(path: Path) -> Pairs:
    """Read an STS file: JSONL, CSV, TSV or Parquet with the columns score, sentence1 and sentence2.

    Raises EmbedtrainError with file and line for a score that is no number, and for a file in which there is nothing
    to correlate.
    """
    first, second, scores = [], [], []
    for number, row in _rows(path):
        where = f"{path} line {number}"
        written, one, other = (readers.column(row, name, path, number) for name in STS_COLUMNS)
        score = readers.as_number(written)
        if score is None:
            raise EmbedtrainError(f"{where} has the score {written!r}; a number is needed")
        first.append(readers.as_text(one, f"{where} column sentence1"))
        second.append(readers.as_text(other, f"{where} column sentence2"))
        scores.append(score)
    if len(scores) < LEAST_PAIRS or len(set(scores)) == 1:
        raise EmbedtrainError(
            f"{path} has {len(scores)} pairs with {len(set(scores))} different scores; a correlation needs at least "
            f"{LEAST_PAIRS} pairs, and scores that differ"
        )
    return Pairs(first, second, np.array(scores))


@dataclasses.dataclass(frozen=True)
class Guards:
    """Collections with their queries, and sentence pairs, each with its name; all read."""

    collections: dict[str, tuple[Collection, Questions]]
    pairs: dict[str, Pairs]

    @classmethod
    def read(cls, collections: Sequence[Path], sts: Sequence[Path], options: EvalOptions) -> "Guards":
        """Read all of them, so that what is wrong with one is said before anything is encoded."""
        named = names_of([*collections, *sts])
        opened = [Collection(path) for path in collections]
        asked = [
            Questions.of(
                each,
                options.guard_split,
                options.limit,
                no_relevant=options.no_relevant,
                keep_self=options.keep_self,
            )
            for each in opened
        ]
        return cls(
            dict(zip(named, zip(opened, asked, strict=True), strict=False)),
            dict(zip(named[len(opened) :], map(read_pairs, sts), strict=True)),
        )

    def measured(
        self,
        models: Mapping[str, ModelSource],
        recipes: Mapping[str, Sequence[str]],
        measure: metrics.Measure,
        options: EvalOptions,
        progress: Progress,
    ) -> list[dict[str, Any]]:
        """Every model, by its name as a system, on every guard; the first is the one the others are compared with.

        `recipes` are names of models that differ in their seed alone: of them the mean is compared. One entry a guard, for
        JSON: name, measure, how many queries or pairs, and of each model its value and what it has more than the first,
        with a 95 % interval: paired over queries, or over pairs.
        """
        found = [
            {"name": name, **_on_collection(collection, questions, models, recipes, measure, options, progress)}
            for name, (collection, questions) in self.collections.items()
        ]
        return found + [
            {"name": name, **_on_pairs(pairs, models, recipes, options, progress)}
            for name, pairs in self.pairs.items()
        ]


def names_of(paths: Sequence[Path]) -> list[str]:
    """A name for each: that of the file or folder, with a number where it is taken."""
    found: list[str] = []
    for path in paths:
        wanted = name = path.resolve().name.removesuffix(readers.suffix(path))
        number = 1
        while name in found:
            number += 1
            name = f"{wanted} ({number})"
        found.append(name)
    return found


def _on_collection(
    collection: Collection,
    questions: Questions,
    models: Mapping[str, ModelSource],
    recipes: Mapping[str, Sequence[str]],
    measure: metrics.Measure,
    options: EvalOptions,
    progress: Progress,
) -> dict[str, Any]:
    systems = {
        name: Ranker.load(source, options.precision, Documents(collection.corpus), progress).system(
            name, questions, measure.cutoff, progress
        )
        for name, source in models.items()
    }
    rows = list(systems.values())
    rows += [recipe(name, [systems[one] for one in seeds], len(questions.ids)) for name, seeds in recipes.items()]
    copies = conventions.Copies(collection.corpus)
    results = measure_all(
        *conventions.applied(rows, questions, copies, options, measure.cutoff),
        [measure],
        next(iter(models)),
        resamples=options.resamples,
        seed=options.seed,
    )
    described: dict[str, Any] = {}
    for name, of_system in results.items():
        measured = of_system[str(measure)]
        versus = {"versus_base": as_dict(measured.versus)} if measured.versus else {}
        described[name] = {**measured.as_dict(), **versus}
    return {"measure": str(measure), "queries": len(questions.ids), "systems": described}


def _on_pairs(
    pairs: Pairs,
    models: Mapping[str, ModelSource],
    recipes: Mapping[str, Sequence[str]],
    options: EvalOptions,
    progress: Progress,
) -> dict[str, Any]:
    similarities = np.stack([_similarities(pairs, source, options, progress) for source in models.values()])
    names = list(models)
    # The models as they are, then the mean of each recipe's.
    parts = [[place] for place in range(len(names))]
    parts += [[names.index(one) for one in seeds] for seeds in recipes.values()]
    own = _spearman(np.concatenate([similarities, pairs.scores[None]]))
    resampled = _resampled(similarities, pairs.scores, options.seed)
    values = np.array([own[part].mean() for part in parts])
    drawn = np.stack([resampled[:, part].mean(axis=1) for part in parts], axis=1)
    stood_for = {one for seeds in recipes.values() for one in seeds}
    described: dict[str, Any] = {}
    for row, name in enumerate([*names, *recipes]):
        described[name] = {"mean": float(values[row]), **ends(_percentiles(drawn[:, row]))}
        if row and name not in stood_for:
            more = {
                "difference": float(values[row] - values[0]),
                **ends(_percentiles(drawn[:, row] - drawn[:, 0])),
            }
            described[name]["versus_base"] = more
    return {"measure": SPEARMAN, "pairs": len(pairs.scores), "systems": described}


def _similarities(
    pairs: Pairs, source: ModelSource, options: EvalOptions, progress: Progress
) -> NDArray[np.float64]:
    """The model's own similarity of every pair; both sentences are encoded as queries, as symmetric tasks are."""
    from embedtrain.encoder import Encoder

    encoder = Encoder.load(source, wanted=options.precision)
    one, other = (np.asarray(encoder.encode(texts, "query", progress)[:]) for texts in (pairs.first, pairs.second))
    scores = (one.astype(np.float64) * other).sum(axis=1)
    if encoder.similarity == "cosine":
        scores /= np.maximum(np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1), 1e-12)
    if not np.isfinite(scores).all():
        raise EmbedtrainError(f"model {source.name} gives vectors that are no numbers; train it again")
    return scores


def _spearman(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's correlation of each of rows (..., models + 1, n) but the last with the last; 0 where one is constant."""
    from scipy.stats import (
        rankdata,  # a second and a half, which evaluations without sentence pairs do not wait for
    )

    ranks = rankdata(rows, axis=-1)
    ranks -= ranks.mean(axis=-1, keepdims=True)
    lengths = np.sqrt((ranks**2).sum(axis=-1))
    products = (ranks[..., :-1, :] * ranks[..., -1:, :]).sum(axis=-1)
    scale = lengths[..., :-1] * lengths[..., -1:]
    return np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)


def _resampled(similarities: NDArray[np.float64], scores: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Correlations (resamples, models) on pairs drawn with replacement, the same draws for all models."""
    rows = np.concatenate([similarities, scores[None]])
    random = np.random.default_rng([seed, 3])
    step = max(1, _CHUNK // rows.size)
    found = []
    for start in range(0, _RESAMPLES, step):
        drawn = random.integers(0, len(scores), size=(min(step, _RESAMPLES - start), len(scores)))
        found.append(_spearman(np.moveaxis(rows[:, drawn], 0, 1)))
    return np.concatenate(found)


def _percentiles(values: NDArray[np.float64]) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))


def table(guards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The guards as a table: a row a guard and model, what the base has, and what the model lost of it."""
    rows = []
    for guard in guards:
        for name, found in guard["systems"].items():
            versus = found.get("versus_base")
            what = f"{guard['measure']} of {guard.get('queries', guard.get('pairs')):,}"
            change = ""
            if versus is not None:
                inside = "" if versus["low"] is None else f" [{versus['low']:+.4f}, {versus['high']:+.4f}]"
                change = f"{versus['difference']:+.4f}{inside}"
            rows.append([guard["name"], name, what, f"{found['mean']:.4f}", change])
    return {"title": "Guards", "columns": ["guard", "model", "measure", "value", "vs base [95 %]"], "rows": rows}


def sentences(guards: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was lost or won for certain: where the interval of a difference is clear of zero."""
    found = []
    for guard in guards:
        for name, measured in guard["systems"].items():
            versus = measured.get("versus_base")
            if versus is None or versus["low"] is None or versus["low"] <= 0 <= versus["high"]:
                continue
            what = "lost" if versus["difference"] < 0 else "won"
            found.append(
                f"{name} {what} {abs(versus['difference']):.4f} of {guard['measure']} on the guard {guard['name']}"
            )
    return found
