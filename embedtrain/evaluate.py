"""`eval`: models, BM25, mixtures and runs on one split: per-query values, intervals, paired tests, a verdict."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from embedtrain import advice, conventions, guarding, metrics, slices, standings, trec
from embedtrain.artifacts import Claim, read_record
from embedtrain.atomic import atomic_folder
from embedtrain.collection import Collection
from embedtrain.comparison import Results, all_pairs, as_dict, measure_all, verdict_sentences
from embedtrain.config import EvalOptions
from embedtrain.console import Progress
from embedtrain.errors import UsageError
from embedtrain.models import find_model
from embedtrain.retrieval import retrieved
from embedtrain.searched import Documents, Passages
from embedtrain.statistics import Comparison
from embedtrain.systems import Names, Questions, System, file_name, from_file, recipe
from embedtrain.tokens import settle_language

PAIRS = pa.schema(
    [(name, pa.string()) for name in ("first", "second", "measure")]
    + [(name, pa.float64()) for name in ("difference", "low", "high", "p_ttest", "p_randomization", "p_holm")]
    + [(name, pa.float64()) for name in ("effect", "detectable")]
    + [(name, pa.int64()) for name in ("queries_needed", "wins", "ties", "losses")]
)


def evaluate(
    claim: Claim,
    options: EvalOptions,
    collection_path: Path,
    passages: Path | None,
    models: Sequence[str],
    seeds: Mapping[str, Sequence[str]],
    rerank: str | None,
    runs: Sequence[Path],
    guards: Sequence[Path],
    sts: Sequence[Path],
    progress: Progress,
) -> None:
    """Measure systems on a split and write the evaluation folder.

    It holds `runs/SYSTEM.trec`, `per_query.parquet` (query_id, system, measure, value), `pairs.parquet` (every pair of
    systems in the first measure) and `summary.json`. The first model is the base that all others are compared with;
    without a model it is the first system. `seeds` are recipes by their names, each with models that differ in their seed
    alone. `passages` is a collection whose documents are searched in the place of the documents they were cut from.
    """
    conventions.check(options)
    measures = _measures(options, searches=bool(models or options.bm25))
    files = [trec.read_run(path) for path in runs]
    watched = guarding.Guards.read(guards, sts, options)
    collection = Collection(collection_path)
    trec.check_ids([*collection.corpus.ids, *collection.queries.ids])
    questions = Questions.of(
        collection, options.split, options.limit, no_relevant=options.no_relevant, keep_self=options.keep_self
    )
    language = settle_language(options.language, collection.corpus, collection.corpus.ids).name
    parts, unmade = slices.of(collection, questions, options.slices, language)
    corpus = collection.corpus
    searched = Passages(corpus, passages, options.passage_column) if passages else Documents(corpus)
    names = Names()
    every = [*models, *(model for members in seeds.values() for model in members)]
    systems = [
        *retrieved(options, collection, searched, questions, every, rerank, names, progress),
        *(from_file(path, run, collection, questions, names) for path, run in zip(runs, files, strict=True)),
    ]
    of_models = [system.name for system in systems if "model" in system.about]
    base = of_models[0] if of_models else systems[0].name
    systems += _recipes(systems, seeds, len(models), names, len(questions.ids))
    stood_for = [name for system in systems for name in system.about.get("seeds", ())]
    copies = conventions.Copies(collection.corpus)
    deepest = max(measure.cutoff for measure in measures)
    results = measure_all(
        *conventions.applied(systems, questions, copies, options, deepest),
        measures,
        base,
        resamples=options.resamples,
        seed=options.seed,
    )
    first = str(measures[0])
    pairs = all_pairs(results, first, options.seed, stood_for)
    summary = _summary(systems, results, base, collection, questions, copies, options)
    if isinstance(searched, Passages):
        summary["passages"] = searched.about()
        summary["notes"] += [*searched.said(), *searched.too_few(systems, deepest)]
    if options.advise:
        tuned = _tuned(dict(zip(of_models, every, strict=True)))
        given = advice.advise(
            systems, results, first, tuned, len(questions.ids), len(collection.corpus), options.seed
        )
        summary["advice"] = given
        summary["tables"].append(given["table"])
        summary["notes"] += [sentence for sentence in (given["first"], given["reason"]) if sentence]
    _add_slices(summary, parts, results, base, first, options.seed)
    summary["notes"] += unmade
    if guards or sts:
        sources = dict(zip(of_models, map(find_model, every), strict=True))
        groups = {system.name: system.about["seeds"] for system in systems if "seeds" in system.about}
        found = watched.measured(sources, groups, measures[0], options, progress)
        summary["guards"] = found
        summary["tables"].append(guarding.table(found))
        summary["notes"] += guarding.sentences(found)
    dropped = {
        "queries without a relevant document": questions.left_out,
        "hits that are the query itself": sum(system.about["self_hits"] for system in systems),
        **questions.beyond_limit,
    }
    with atomic_folder(claim.out) as folder:
        _write(folder, systems, results, pairs, questions, summary)
        claim.write_folder(
            folder,
            rows=len(questions.ids),
            dropped={reason: count for reason, count in dropped.items() if count},
            summary=summary,
        )


def _add_slices(
    summary: dict[str, Any], parts: Sequence[slices.Slice], results: Results, base: str, first: str, seed: int
) -> None:
    """Put the base and the judged system on parts of the queries into the summary."""
    name = summary["judged_system"]
    own, other = results[base][first], results[name][first] if name != base else None
    found = slices.compared(parts, own.values, None if other is None else other.values, seed)
    summary["slices"] = found
    if found:
        summary["tables"].append(slices.table(found, base, name, first))
    if other is not None:
        summary["notes"][:0] = slices.sentences(found, name, other.mean - own.mean)


def _tuned(models: dict[str, str]) -> dict[str, int | None]:
    """Of models by their names as systems, those that were trained, with the rows they were trained on.

    By their records; where none of them has one, the last is taken for the tuned one. The base is never one.
    """
    others = list(models)[1:]
    records = {name: read_record(find_model(models[name]).path) for name in others}
    known = {
        name: record["rows"]
        for name, record in records.items()
        if record and record.get("kind") == "model" and record.get("stage") in ("pretrain", "finetune")
    }
    return known or dict.fromkeys(others[-1:])


def _recipes(
    systems: Sequence[System], seeds: Mapping[str, Sequence[str]], models: int, names: Names, queries: int
) -> list[System]:
    """A system for each recipe; its seeds are the models after the first `models`, in their order."""
    members = [system for system in systems if "model" in system.about][models:]
    found = []
    for name, paths in seeds.items():
        own, members = members[: len(paths)], members[len(paths) :]
        found.append(recipe(names(name), own, queries))
    return found


def judged(systems: Sequence[System]) -> str:
    """The system that requirements are about where they name none: the last recipe or model, or else the last system."""
    return next(
        (system.name for system in reversed(systems) if {"model", "seeds"} & set(system.about)), systems[-1].name
    )


def _measures(options: EvalOptions, *, searches: bool) -> list[metrics.Measure]:
    measures = [metrics.parse(text) for text in dict.fromkeys(options.measures)]
    if not measures[0].quality:
        raise UsageError(
            f"--measure {measures[0]} says how much of a ranking nobody judged, not how good it is; name another first"
        )
    deepest = max(measures, key=lambda measure: measure.cutoff)
    if searches and deepest.cutoff > options.top_k:
        raise UsageError(
            f"--measure {deepest} looks at {deepest.cutoff} documents a query and --top-k is {options.top_k}; "
            f"give --top-k {deepest.cutoff}"
        )
    return measures


def _summary(
    systems: Sequence[System],
    results: Results,
    base: str,
    collection: Collection,
    questions: Questions,
    copies: conventions.Copies,
    options: EvalOptions,
) -> dict[str, Any]:
    described = {}
    for system in systems:
        measured = results[system.name]
        entry: dict[str, Any] = {name: value.as_dict() for name, value in measured.items()}
        entry["about"] = system.about
        compared = {name: as_dict(value.versus) for name, value in measured.items() if value.versus}
        described[system.name] = entry | ({"versus_base": compared} if compared else {})
    base_system = next(system for system in systems if system.name == base)
    return {
        "split": options.split,
        "queries": len(questions.ids),
        "queries_left_out": questions.left_out,
        "documents": len(collection.corpus),
        "duplicate_texts": copies.groups,
        "judged_system": judged(systems),
        "base": base_system.about.get("model", base),
        "conventions": conventions.said(options),
        "systems": described,
        "table": standings.table(systems, results, base),
        "tables": [],
        "guards": [],
        "notes": verdict_sentences(results, base, len(questions.ids))
        + [f"{system.name}: {text}" for system in systems for text in system.said],
    }


def _write(
    folder: Path,
    systems: Sequence[System],
    results: Results,
    pairs: Sequence[tuple[str, str, Comparison]],
    questions: Questions,
    summary: dict[str, Any],
) -> None:
    (folder / "runs").mkdir()
    columns: dict[str, list[Any]] = {"query_id": [], "system": [], "measure": [], "value": []}
    for system in systems:
        if "seeds" not in system.about:
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
    first = next(iter(results[systems[0].name]))
    compared = [{"first": one, "second": other, "measure": first, **as_dict(found)} for one, other, found in pairs]
    table = pa.Table.from_pylist(compared, schema=PAIRS)
    pyarrow.parquet.write_table(table, folder / "pairs.parquet", compression="zstd")
    text = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
