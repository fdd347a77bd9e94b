"""`embedtrain eval`."""

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
    Json,
    Language,
    Limit,
    OutFolder,
    Precision,
    Quiet,
    Seed,
    Split,
)
from embedtrain.errors import UsageError


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
    bm25: Annotated[bool, typer.Option("--bm25", help="Measure BM25 too.")] = False,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Measure the last model fused with BM25 (reciprocal ranks) too.")
    ] = False,
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
    if not (models or bm25 or runs):
        raise UsageError("nothing to measure; give --model, --bm25 or --run")
    if hybrid and not models:
        raise UsageError("--hybrid mixes a model with BM25; give --model")
    if rerank and not (models or bm25):
        raise UsageError("--rerank needs candidates; give --model or --bm25")
    options = config.EvalOptions(
        split=split,
        measures=tuple(measure or config.EvalOptions.measures),
        bm25=bm25,
        hybrid=hybrid,
        rerank_depth=rerank_depth,
        top_k=top_k,
        ties=ties,
        no_relevant=no_relevant,
        keep_self=keep_self,
        group_duplicates=group_duplicates,
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
        inputs += [find_encoder(name).as_input() for name in models]
        inputs += [find_model(rerank).as_input("teacher")] if rerank else []
        inputs += [Input.of("run", path) for path in runs]
        return Claim(out, kind="evaluation", stage="eval", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.evaluate import evaluate

        evaluate(claim, options, collection, models, rerank, runs, progress)

    run_stage(claim, work, as_json, quiet)
