"""`embedtrain eval`."""

import dataclasses
import glob
from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, run_stage
from embedtrain.cli.flags import (
    K1,
    B,
    Bm25Backend,
    Bm25Variant,
    CollectionArgument,
    Force,
    GuardSplit,
    Json,
    Language,
    Limit,
    OutFolder,
    Precision,
    Quiet,
    Seed,
    Split,
)
from embedtrain.errors import GateError, UsageError


@app.command(
    "eval", epilog="Example: embedtrain eval collection/ --model BASE --model tuned/ --hybrid --out results/"
)
def evaluate(
    collection: CollectionArgument,
    out: OutFolder,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Model to measure; the first is the base the others are compared with."),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seeds",
            help="Models of one recipe trained from several seeds, as one system: 'tuned-*'.",
            metavar="PATTERN",
        ),
    ] = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="Measure BM25 too.")] = False,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Measure the last model fused with BM25 (reciprocal ranks) too.")
    ] = False,
    dev_split: Annotated[
        str,
        typer.Option("--dev-split", help="The split on which --hybrid chooses a weight for the model's scores."),
    ] = config.EvalOptions.dev_split,
    advise: Annotated[
        bool, typer.Option("--advise", help="Measure the steps before a tuned model too, and say where to stop.")
    ] = False,
    dims: Annotated[
        str,
        typer.Option(
            "--dims", help="Measure the last model by the first N dimensions too: 256,128,64.", metavar="N,N"
        ),
    ] = "",
    quantize: Annotated[
        str, typer.Option("--quantize", help="Measure the last model by int8 and binary vectors too: int8,binary.")
    ] = "",
    rerank: Annotated[
        str | None, typer.Option("--rerank", help="Measure the best candidates reranked by this teacher too.")
    ] = None,
    rerank_depth: Annotated[
        int, typer.Option("--rerank-depth", min=1, help="Documents a query that are reranked.")
    ] = config.EvalOptions.rerank_depth,
    run: Annotated[
        list[Path] | None, typer.Option("--run", help="Measure a TREC run file too.", metavar="FILE")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            help="nDCG@k, MAP@k, RR@k, Recall@k, R-cap@k, P@k, Success@k, hole@k [default: nDCG@10 Recall@100].",
        ),
    ] = None,
    split: Split = config.EvalOptions.split,
    top_k: Annotated[
        int, typer.Option("--top-k", min=1, help="Documents a query that are retrieved.")
    ] = config.EvalOptions.top_k,
    ties: Annotated[
        str,
        typer.Option(
            "--ties", help="Document ids among equal scores: ascending, or descending as trec_eval has it."
        ),
    ] = config.EvalOptions.ties,
    no_relevant: Annotated[
        str,
        typer.Option(
            "--no-relevant", help="Queries without a relevant document: leave-out, or zero: they count 0."
        ),
    ] = config.EvalOptions.no_relevant,
    keep_self: Annotated[
        bool, typer.Option("--keep-self", help="Keep hits whose id is the query's; they leave otherwise.")
    ] = False,
    group_duplicates: Annotated[
        bool, typer.Option("--group-duplicates", help="Take documents of one text for one document.")
    ] = False,
    passages: Annotated[
        Path | None,
        typer.Option(
            "--passages",
            help="Search the documents of this collection, and rank what they were cut from by its best one.",
            metavar="COLLECTION",
        ),
    ] = None,
    passage_column: Annotated[
        str, typer.Option("--passage-column", help="The column of --passages with the document each was cut from.")
    ] = config.EvalOptions.passage_column,
    slice_by: Annotated[
        list[str] | None,
        typer.Option("--slice", help="Compare on the values of this column of the queries too.", metavar="COLUMN"),
    ] = None,
    guard: Annotated[
        list[Path] | None,
        typer.Option(
            "--guard", help="A collection no model was tuned for: what was forgotten?", metavar="COLLECTION"
        ),
    ] = None,
    guard_split: GuardSplit = config.EvalOptions.guard_split,
    guard_sts: Annotated[
        list[Path] | None,
        typer.Option(
            "--guard-sts", help="Sentence pairs with scores (score, sentence1, sentence2).", metavar="FILE"
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", help="What must hold, else exit code 3, as in nDCG@10>=0.7 or vs base: nDCG@10 p<0.05."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="An earlier evaluation that must be kept up with.", metavar="EVALUATION"),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            "--max-drop",
            min=0.0,
            help="How far the interval may reach below the baseline, or the base on a guard.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write the requirements as JUnit XML.", metavar="FILE")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write tables and requirements as Markdown.", metavar="FILE")
    ] = None,
    precision: Precision = config.EvalOptions.precision,
    language: Language = config.EvalOptions.language,
    bm25_backend: Bm25Backend = config.EvalOptions.bm25_backend,
    bm25_variant: Bm25Variant = config.EvalOptions.bm25_variant,
    k1: K1 = config.EvalOptions.k1,
    b: B = config.EvalOptions.b,
    limit: Limit = config.EvalOptions.limit,
    seed: Seed = config.EvalOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure models, BM25 and mixtures, with paired tests."""
    models = list(model or [])
    runs = list(run or [])
    recipes = _recipes(seeds or [], models)
    if not (models or bm25 or runs):
        raise UsageError("nothing to measure; give --model, --bm25 or --run")
    if recipes and (advise or hybrid or dims or quantize or rerank):
        raise UsageError(
            "--seeds measures a recipe by its models alone; give one of them as --model for --hybrid, --rerank, --dims, "
            "--quantize and --advise"
        )
    if advise and not models:
        raise UsageError("--advise starts from a base model; give --model, then those that were tuned")
    if (dims or quantize) and not models:
        raise UsageError("--dims and --quantize make a model's vectors smaller; give --model")
    if hybrid and not models:
        raise UsageError("--hybrid mixes a model with BM25; give --model")
    if rerank and not (models or bm25):
        raise UsageError("--rerank needs candidates; give --model or --bm25")
    if passage_column != config.EvalOptions.passage_column and not passages:
        raise UsageError("--passage-column names a column of --passages; give it too")
    if passages and rerank:
        raise UsageError("--rerank judges whole documents and --passages finds parts of them; leave one out")
    if passages and not (models or bm25):
        raise UsageError("--passages is what --model and --bm25 search; a --run ranks documents already")
    guards, sts = list(guard or []), list(guard_sts or [])
    if (guards or sts) and not models:
        raise UsageError("--guard measures models; give --model")
    if baseline and max_drop is None:
        raise UsageError("--baseline needs --max-drop, how far below it is allowed, as in --max-drop 0.01")
    if max_drop is not None and not (baseline or guards or sts):
        raise UsageError("--max-drop is about a --baseline or a --guard, and there is none")
    compared = len(models) > 1 or bool(recipes)
    if max_drop is not None and (guards or sts) and not compared:
        raise UsageError("--max-drop compares the last --model with the first on each guard; give both")
    _check_paths(out, baseline, junit, markdown)
    measures = tuple(measure or config.EvalOptions.measures)
    requirements: list[Any] = []
    if require:
        from embedtrain import requirements as grammar

        requirements += [grammar.parse(text) for text in require]
        from embedtrain.guarding import SPEARMAN, names_of

        by = [measures[0]] * len(guards) + [SPEARMAN] * len(sts)
        watched = dict(zip(names_of([*guards, *sts]), by, strict=True))
        grammar.check(requirements, measures, guards=watched, compared=compared)
    if baseline:
        from embedtrain.requirements import check_baseline

        check_baseline(baseline, measures[0])
    options = config.EvalOptions(
        split=split,
        measures=measures,
        bm25=bm25,
        hybrid=hybrid,
        dev_split=dev_split,
        advise=advise,
        dims=_numbers(dims),
        quantize=tuple(kind.strip() for kind in quantize.split(",") if kind.strip()),
        rerank_depth=rerank_depth,
        top_k=top_k,
        ties=ties,
        no_relevant=no_relevant,
        keep_self=keep_self,
        group_duplicates=group_duplicates,
        passage_column=passage_column,
        guard_split=guard_split,
        recipes=tuple(f"{name}={len(members)}" for name, members in recipes.items()),
        slices=tuple(slice_by or ()),
        precision=precision,
        language=language,
        bm25_backend=bm25_backend,
        bm25_variant=bm25_variant,
        k1=k1,
        b=b,
        limit=limit,
        seed=seed,
    )

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input
        from embedtrain.models import find_encoder, find_model

        inputs = [Input.of("collection", collection)]
        inputs += [Input.of("passages", passages)] if passages else []
        every = [*models, *(name for members in recipes.values() for name in members)]
        inputs += [find_encoder(name).as_input() for name in every]
        inputs += [find_model(rerank).as_input("teacher")] if rerank else []
        inputs += [Input.of("run", path) for path in runs]
        inputs += [Input.of("guard", path) for path in [*guards, *sts]]
        return Claim(out, kind="evaluation", stage="eval", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.evaluate import evaluate

        evaluate(claim, options, collection, passages, models, recipes, rerank, runs, guards, sts, progress)

    outcomes: list[Any] = []

    def judged(claim: Any) -> dict[str, Any]:
        if not (requirements or max_drop is not None):
            return {}
        from embedtrain import requirements as grammar

        summary = claim.record["summary"]
        outcomes.extend(grammar.outcomes(requirements, claim.out, summary))
        if max_drop is not None:
            outcomes.extend(grammar.kept(summary, max_drop))
            if baseline:
                outcomes.append(grammar.not_inferior(claim.out, summary, baseline, max_drop))
        return {"requirements": [dataclasses.asdict(outcome) for outcome in outcomes]}

    claimed = run_stage(claim, work, as_json, quiet, more=judged)
    _reported(claimed.record["summary"], outcomes, junit, markdown, show=not as_json)


def _recipes(patterns: list[str], models: list[str]) -> dict[str, list[str]]:
    """The model folders that patterns match, by the last part of each pattern."""
    if patterns and not models:
        raise UsageError("--seeds compares a recipe with a base; give --model")
    found = {}
    for pattern in patterns:
        folders = sorted(path for path in glob.glob(pattern) if Path(path).is_dir())
        if len(folders) < 2:
            raise UsageError(
                f"--seeds {pattern}: {len(folders)} folders match; a spread needs two models at least"
            )
        name = Path(pattern).name
        if name in found:
            raise UsageError(
                f"--seeds {pattern}: there is a recipe called {name} already; name its folders otherwise"
            )
        found[name] = folders
    return found


def _numbers(dims: str) -> tuple[int, ...]:
    """The numbers of --dims."""
    parts = [part.strip() for part in dims.split(",") if part.strip()]
    if wrong := [part for part in parts if not part.isdecimal()]:
        raise UsageError(f"--dims {dims}: {wrong[0]} is no number of dimensions; give them as in 256,128,64")
    return tuple(dict.fromkeys(map(int, parts)))


def _check_paths(out: Path, baseline: Path | None, junit: Path | None, markdown: Path | None) -> None:
    """Find out before anything is measured where a file could not be written, or would replace another."""
    from embedtrain.atomic import ensure_writable

    if baseline:
        from embedtrain.requirements import evaluation_of

        if evaluation_of(baseline).resolve() == out.resolve():
            raise UsageError(f"--out {out} would replace the --baseline; give another folder")
    for flag, path in (("--junit", junit), ("--markdown", markdown)):
        if path is None:
            continue
        if path.resolve().is_relative_to(out.resolve()):
            raise UsageError(
                f"{flag} {path} lies in --out, which is what was measured and nothing else; put it beside it"
            )
        ensure_writable(path)


def _reported(
    summary: dict[str, Any], outcomes: list[Any], junit: Path | None, markdown: Path | None, *, show: bool
) -> None:
    """Print and write what came of the requirements; GateError where one is not met."""
    if outcomes and show:
        rows = [
            [outcome.text, outcome.what, f"{outcome.value:.4g}", "met" if outcome.met else "NOT MET"]
            for outcome in outcomes
        ]
        console.table(["requirement", "what", "value", ""], rows, "Requirements")
    if junit or markdown:
        from embedtrain import ci

        if junit:
            ci.write_junit(junit, outcomes)
        if markdown:
            ci.write_markdown(markdown, summary, outcomes)
    if failed := [str(outcome) for outcome in outcomes if not outcome.met]:
        raise GateError(f"a requirement was not met: {'; '.join(failed)}; the evaluation was written all the same")
