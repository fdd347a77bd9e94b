"""Systems measured on the same queries and compared with one of them: intervals, paired tests, a verdict in words."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from embedtrain import metrics, statistics
from embedtrain.statistics import Comparison, Interval
from embedtrain.systems import Questions, System

SIGNIFICANT = 0.05  # of the sign-flip test after Holm, below which a difference is called one
BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference"


@dataclasses.dataclass(frozen=True)
class Measured:
    """One measure of one system: per query, its mean with an interval, and the comparison with the base."""

    values: np.ndarray  # (queries,) float64
    mean: float
    interval: Interval | None
    versus: Comparison | None  # None for the base itself
    means: np.ndarray  # (resamples,) of the bootstrap, on the same draws for all systems
    spread: float | None = None  # of a recipe: the standard deviation of the means of its seeds

    def as_dict(self) -> dict[str, float | None]:
        """The mean and its interval, for JSON."""
        spread = {} if self.spread is None else {"spread_of_seeds": self.spread}
        return {"mean": self.mean, **ends(self.interval), **spread}


Results = dict[str, dict[str, Measured]]  # by system, by measure as typed


def ends(interval: Interval | None) -> dict[str, float | None]:
    """An interval for JSON."""
    return {"low": interval.low, "high": interval.high} if interval else {"low": None, "high": None}


def as_dict(found: Comparison) -> dict[str, Any]:
    """A comparison for JSON."""
    values = dataclasses.asdict(found)
    del values["interval"]
    return {"difference": values.pop("difference"), **ends(found.interval), **values}


def measure_all(
    systems: Sequence[System],
    questions: Questions,
    measures: Sequence[metrics.Measure],
    base: str,
    *,
    resamples: int,
    seed: int,
) -> Results:
    """Every measure of every system, and its comparison with the system named `base`, on the same resamples.

    The p values after Holm are those of one measure's comparisons with the base. A recipe (see `systems.recipe`) has of each
    query the mean of its seeds, and is compared in their place.
    """
    names = [system.name for system in systems]
    seeds = [[names.index(name) for name in system.about.get("seeds", ())] for system in systems]
    stood_for = {column for columns in seeds for column in columns}
    graded = [metrics.grade(system.hits, system.ids, questions.qrels) for system in systems]
    results: Results = {name: {} for name in names}
    against = names.index(base)
    for measure in measures:
        values = np.stack([measure.of(item) for item in graded], axis=1)
        for column, columns in enumerate(seeds):
            if columns:
                values[:, column] = values[:, columns].mean(axis=1)
        means = statistics.bootstrap_means(values, resamples, seed)
        compared = [column for column in range(len(names)) if column != against and column not in stood_for]
        found = [
            statistics.compare(
                values[:, column],
                values[:, against],
                means[:, column],
                means[:, against],
                seed,
                family=len(compared),
            )
            for column in compared
        ]
        family = dict(zip(compared, _after_holm(found), strict=True))
        for column, name in enumerate(names):
            own, drawn = values[:, column], means[:, column]
            versus = family.get(column)
            interval = statistics.bca_interval(own, drawn)
            spread = float(values[:, seeds[column]].mean(axis=0).std(ddof=1)) if seeds[column] else None
            results[name][str(measure)] = Measured(own, float(own.mean()), interval, versus, drawn, spread)
    return results


def all_pairs(
    results: Results, measure: str, seed: int, stood_for: Iterable[str] = ()
) -> list[tuple[str, str, Comparison]]:
    """Every pair of systems in one measure; the p values after Holm are those of all these pairs.

    `stood_for` are the systems that a recipe stands for.
    """
    own = set(stood_for)
    named = list(itertools.combinations([name for name in results if name not in own], 2))
    found = []
    for first, second in named:
        one, other = results[first][measure], results[second][measure]
        found.append(statistics.compare(one.values, other.values, one.means, other.means, seed, family=len(named)))
    return [(*pair, versus) for pair, versus in zip(named, _after_holm(found), strict=True)]


def _after_holm(family: Sequence[Comparison]) -> Iterable[Comparison]:
    adjusted = statistics.holm([one.p_randomization for one in family])
    return [dataclasses.replace(one, p_holm=p) for one, p in zip(family, adjusted, strict=True)]


def verdict(found: Comparison) -> str:
    """`better`, `worse` or `no difference`, by the sign-flip test after Holm."""
    if found.p_holm is None or found.p_holm >= SIGNIFICANT:
        return NO_DIFFERENCE
    return BETTER if found.difference > 0 else WORSE


def verdict_sentences(results: Results, base: str, queries: int) -> list[str]:
    """A sentence for each kind of verdict on the first measure."""
    first = next(iter(results[base]))
    groups: dict[str, list[str]] = {BETTER: [], WORSE: [], NO_DIFFERENCE: []}
    for name, measured in results.items():
        found = measured[first].versus
        if found is not None:
            groups[verdict(found)].append(f"{name} ({_detail(found)})")
    openings = {
        BETTER: f"better than {base} in {first}",
        WORSE: f"worse than {base} in {first}",
        NO_DIFFERENCE: f"no difference from {base} in {first} that {queries:,} queries could show",
    }
    return [f"{openings[kind]}: {'; '.join(members)}" for kind, members in groups.items() if members]


def _detail(found: Comparison) -> str:
    parts = [f"{found.difference:+.4f}"]
    if verdict(found) == NO_DIFFERENCE:
        if found.detectable is not None:
            parts.append(f"{found.detectable:.4f} could be seen")
        if found.queries_needed is not None:
            parts.append(f"this one with about {rounded(found.queries_needed):,} queries")
    elif found.interval:
        parts[0] += f" [{found.interval.low:+.4f}, {found.interval.high:+.4f}]"
    parts += [f"{found.wins} won", f"{found.ties} even", f"{found.losses} lost"]
    return ", ".join(parts)


def rounded(count: int) -> int:
    """A number of queries with two digits that mean something."""
    step = 10 ** max(0, len(str(count)) - 2)
    return -(-count // step) * step
