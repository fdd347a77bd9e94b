"""A model and BM25 as one ranking: by reciprocal ranks, and by their scores with a weight chosen on another split."""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from embedtrain import metrics
from embedtrain.collection import Collection
from embedtrain.config import EvalOptions
from embedtrain.console import Progress
from embedtrain.hits import Hits, Ties, fuse
from embedtrain.systems import Names, Questions, System, system_of, without_self

# Weights of the model's scores that are tried.
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))


def convex(lexical: Hits, dense: Hits, weight: float, ties: Ties, k: int) -> Hits:
    """weight x the model's score + (1 - weight) x BM25's, both scaled to [0, 1] in each query's own list.

    Bruch, Gai and Ingber 2023 (section 3.2, min-max scaling). A document that one list does not hold has 0 there; where
    all scores of a list are equal they are 1.
    """
    positions, scores = [], []
    for query in range(len(lexical)):
        lists = [lexical.positions[query], dense.positions[query]]
        documents, which = np.unique(np.concatenate(lists), return_inverse=True)
        parts = [(1 - weight) * _scaled(lexical.scores[query]), weight * _scaled(dense.scores[query])]
        sums = np.bincount(which, weights=np.concatenate(parts), minlength=len(documents))
        found, score = ties.best(ties.keys(sums, documents), k)
        positions.append(found)
        scores.append(score)
    return Hits(positions, scores)


def _scaled(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    values = scores.astype(np.float64)
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones_like(values)


def best_weight(
    lexical: Hits, dense: Hits, questions: Questions, ids: list[str], measure: metrics.Measure
) -> float:
    """The weight with the highest mean on these questions; of equal ones that nearest to a half."""
    ties = Ties(ids)
    means = {
        weight: float(
            metrics.score_run(
                convex(lexical, dense, weight, ties, measure.cutoff), ids, questions.qrels, measure
            ).mean()
        )
        for weight in WEIGHTS
    }
    return max(means, key=lambda weight: (round(means[weight], 9), -abs(weight - 0.5)))


@dataclasses.dataclass(frozen=True)
class Mixer:
    """BM25 on the questions that are measured and, where there is one, on the split that weights are chosen on."""

    lexical: System
    collection: Collection
    questions: Questions
    chosen_on: str
    other: tuple[Questions, Hits] | None  # the questions of that split, and what BM25 finds for them

    @staticmethod
    def questions_to_choose_on(collection: Collection, options: EvalOptions) -> Questions | None:
        """Those of the dev split; None without one, or where it is the split that is measured."""
        if options.dev_split not in collection.splits or options.dev_split == options.split:
            return None
        return Questions.of(collection, options.dev_split, options.limit, keep_self=options.keep_self)

    @classmethod
    def of(
        cls,
        lexical: System,
        search: Callable[[Questions, int, Progress], Hits],
        collection: Collection,
        questions: Questions,
        asked: Questions | None,
        options: EvalOptions,
        progress: Progress,
    ) -> "Mixer":
        """Let BM25 (`search`) find documents for the questions to choose a weight on too, where there are some."""
        other = None
        if asked is not None:
            found = search(asked, options.top_k, progress)
            other = asked, without_self(found, asked, collection.corpus.ids, options.top_k)[0]
        return cls(lexical, collection, questions, options.dev_split, other)

    def mixed(
        self,
        system: System,
        label: str,
        names: Names,
        k: int,
        measure: metrics.Measure,
        rank: Callable[[Questions], Hits],
    ) -> list[System]:
        """The model's ranking and BM25's fused by ranks and, with a dev split, by weighted scores.

        `rank` gives the model's hits for other questions.
        """
        ids = self.collection.corpus.ids
        ties = Ties(ids)
        about = {"language": self.lexical.about["language"], "of": system.name}
        fused = fuse([self.lexical.hits, system.hits], ties, k)
        how = f"BM25 and {system.name}, reciprocal ranks"
        found = [system_of(names(label), fused, ids, self.questions, k, fused=how, **about)]
        if self.other is None:
            found[0].said.append(
                f"a weight for BM25's and the model's scores needs a split to be chosen on: --dev-split {self.chosen_on} is "
                f"{'what is measured' if self.chosen_on in self.collection.splits else 'not there'}"
            )
            return found
        asked, hits = self.other
        weight = best_weight(hits, rank(asked), asked, ids, measure)
        how = f"{weight:g} of {system.name}'s scores and {1 - weight:g} of BM25's, chosen on {self.chosen_on}"
        weighted = convex(self.lexical.hits, system.hits, weight, ties, k)
        found.append(system_of(names(f"{label}, weighted"), weighted, ids, self.questions, k, fused=how, **about))
        found[-1].said.append(how)
        return found
