"""`eval`: models, BM25, mixtures and runs on one split: per-query values, intervals, paired tests, a verdict."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from embedtrain import metrics, statistics, trec
from embedtrain.artifacts import Claim
from embedtrain.atomic import atomic_folder
from embedtrain.collection import Collection
from embedtrain.config import EvalOptions
from embedtrain.console import Progress
from embedtrain.errors import UsageError
from embedtrain.statistics import Comparison, Interval
from embedtrain.store import text_key
from embedtrain.systems import BASE, Names, Questions, System, file_name, from_file, retrieved

SIGNIFICANT = 0.05  # of the sign-flip test, below which a difference is called one

# What could be defined otherwise, said with every result.
CONVENTIONS = (
    "as trec_eval: linear gain, MAP over all relevant documents; ties by score, then document id ascending"
)


@dataclasses.dataclass(frozen=True)
class Measured:
    """One measure of one system: per query, its mean with an interval, and the comparison with the base."""

    values: np.ndarray  # (queries,) float64
    mean: float
    interval: Interval | None
    versus: Comparison | None  # None for the base itself

    def as_dict(self) -> dict[str, float | None]:
        """The mean and its interval, for JSON."""
        return {"mean": self.mean, **_ends(self.interval)}


Results = dict[str, dict[str, Measured]]  # by system, by measure as typed


def evaluate(
    claim: Claim,
    options: EvalOptions,
    collection_path: Path,
    models: Sequence[str],
    rerank: str | None,
    runs: Sequence[Path],
    progress: Progress,
) -> None:
    """Measure systems on a split and write the evaluation folder.

    It holds `runs/SYSTEM.trec`, `per_query.parquet` (query_id, system, measure, value) and `summary.json`. The
    first model is the base that all others are compared with; without a model it is the first system.
    """
    measures = _measures(options, searches=bool(models or options.bm25))
    files = [trec.read_run(path) for path in runs]
    collection = Collection(collection_path)
    questions = Questions.of(collection, options.split, options.limit)
    names = Names()
    systems = [
        *retrieved(options, collection, questions, models, rerank, names, progress),
        *(from_file(path, run, collection, questions, names) for path, run in zip(runs, files, strict=True)),
    ]
    base = next((system.name for system in systems if "model" in system.about), systems[0].name)
    results = measure_all(systems, questions, measures, base, options)
    summary = _summary(systems, results, base, collection, questions, options)
    dropped = {
        "queries without a relevant document": questions.left_out,
        "hits that are the query itself": sum(system.about["self_hits"] for system in systems),
        **questions.beyond_limit,
    }
    with atomic_folder(claim.out) as folder:
        _write(folder, systems, results, questions, summary)
        claim.write_folder(
            folder,
            rows=len(questions.ids),
            dropped={reason: count for reason, count in dropped.items() if count},
            summary=summary,
        )


def _measures(options: EvalOptions, *, searches: bool) -> list[metrics.Measure]:
    measures = [metrics.parse(text) for text in dict.fromkeys(options.measures)]
    deepest = max(measures, key=lambda measure: measure.cutoff)
    if searches and deepest.cutoff > options.top_k:
        raise UsageError(
            f"--measure {deepest} looks at {deepest.cutoff} documents a query and --top-k is {options.top_k}; "
            f"give --top-k {deepest.cutoff}"
        )
    return measures


def measure_all(
    systems: Sequence[System],
    questions: Questions,
    measures: Sequence[metrics.Measure],
    base: str,
    options: EvalOptions,
) -> Results:
    """Every measure of every system, and its comparison with the system named `base`, on the same resamples."""
    names = [system.name for system in systems]
    graded = [metrics.grade(system.hits, system.ids, questions.qrels) for system in systems]
    results: Results = {name: {} for name in names}
    for measure in measures:
        values = np.stack([measure.of(item) for item in graded], axis=1)
        means = statistics.bootstrap_means(values, options.resamples, options.seed)
        against = names.index(base)
        for column, name in enumerate(names):
            versus = None
            if column != against:
                versus = statistics.compare(
                    values[:, column], values[:, against], means[:, column], means[:, against], options.seed
                )
            own = values[:, column]
            interval = statistics.bca_interval(own, means[:, column])
            results[name][str(measure)] = Measured(own, float(own.mean()), interval, versus)
    return results


def _ends(interval: Interval | None) -> dict[str, float | None]:
    return {"low": interval.low, "high": interval.high} if interval else {"low": None, "high": None}


def _versus(found: Comparison) -> dict[str, Any]:
    values = dataclasses.asdict(found)
    del values["interval"]
    return {"difference": values.pop("difference"), **_ends(found.interval), **values}


def _summary(
    systems: Sequence[System],
    results: Results,
    base: str,
    collection: Collection,
    questions: Questions,
    options: EvalOptions,
) -> dict[str, Any]:
    copies = Counter(text_key(text) for text in collection.corpus)
    described = {}
    for system in systems:
        measured = results[system.name]
        entry: dict[str, Any] = {name: value.as_dict() for name, value in measured.items()}
        entry["about"] = system.about
        compared = {name: _versus(value.versus) for name, value in measured.items() if value.versus}
        described[system.name] = entry | ({"versus_base": compared} if compared else {})
    base_system = next(system for system in systems if system.name == base)
    return {
        "split": options.split,
        "queries": len(questions.ids),
        "queries_left_out": questions.left_out,
        "documents": len(collection.corpus),
        "duplicate_texts": sum(count > 1 for count in copies.values()),
        "base": base_system.about.get("model", base),
        "conventions": CONVENTIONS,
        "systems": described,
        "table": _table(systems, results, base),
        "notes": verdict_sentences(results, base, len(questions.ids))
        + [f"{system.name}: {text}" for system in systems for text in system.said],
    }


def _table(systems: Sequence[System], results: Results, base: str) -> dict[str, Any]:
    first, *others = results[base]
    columns = ["system", f"{first} [95 %]", *others]
    if len(systems) > 1:
        columns += [f"vs {base}", "p"]
    rows = []
    for system in systems:
        measured = results[system.name]
        label = system.name
        if label == BASE and "model" in system.about:
            label = f"{BASE} ({PurePosixPath(system.about['model']).name})"
        row = [label, _with_interval(measured[first])]
        row += [f"{measured[name].mean:.4f}" for name in others]
        if len(systems) > 1:
            versus = measured[first].versus
            row += [f"{versus.difference:+.4f}", _p(versus.p_randomization)] if versus else ["", ""]
        rows.append(row)
    return {"columns": columns, "rows": rows}


def _with_interval(measured: Measured) -> str:
    if measured.interval is None:
        return f"{measured.mean:.4f}"
    return f"{measured.mean:.4f} [{measured.interval.low:.4f}, {measured.interval.high:.4f}]"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def verdict(found: Comparison) -> str:
    """`better`, `worse` or `no difference`, by the sign-flip test."""
    if found.p_randomization is None or found.p_randomization >= SIGNIFICANT:
        return "no difference"
    return "better" if found.difference > 0 else "worse"


def verdict_sentences(results: Results, base: str, queries: int) -> list[str]:
    """A sentence for each kind of verdict on the first measure."""
    first = next(iter(results[base]))
    groups: dict[str, list[str]] = {"better": [], "worse": [], "no difference": []}
    for name, measured in results.items():
        found = measured[first].versus
        if found is None:
            continue
        kind = verdict(found)
        detail = f"{found.difference:+.4f}"
        if kind == "no difference":
            if found.detectable is not None:
                detail += f", {found.detectable:.4f} could be seen"
        elif found.interval:
            detail += f" [{found.interval.low:+.4f}, {found.interval.high:+.4f}]"
        detail += f", {found.wins} won, {found.ties} even, {found.losses} lost"
        groups[kind].append(f"{name} ({detail})")
    openings = {
        "better": f"better than {base} in {first}",
        "worse": f"worse than {base} in {first}",
        "no difference": f"no difference from {base} in {first} that {queries} queries could show",
    }
    return [f"{openings[kind]}: {'; '.join(members)}" for kind, members in groups.items() if members]


def _write(
    folder: Path,
    systems: Sequence[System],
    results: Results,
    questions: Questions,
    summary: dict[str, Any],
) -> None:
    (folder / "runs").mkdir()
    columns: dict[str, list[Any]] = {"query_id": [], "system": [], "measure": [], "value": []}
    for system in systems:
        path = folder / "runs" / f"{file_name(system.name)}.trec"
        trec.write_run(path, questions.ids, system.ids, system.hits, system.name)
        for measure, measured in results[system.name].items():
            columns["query_id"] += questions.ids
            columns["system"] += [system.name] * len(questions.ids)
            columns["measure"] += [measure] * len(questions.ids)
            columns["value"] += measured.values.tolist()
    schema = pa.schema(
        [("query_id", pa.string()), ("system", pa.string()), ("measure", pa.string()), ("value", pa.float64())]
    )
    table = pa.table(columns, schema=schema)
    pyarrow.parquet.write_table(table, folder / "per_query.parquet", compression="zstd")
    text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
