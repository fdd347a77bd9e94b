"""`embedtrain mine`: search and choice, the audit and its gates."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, mined_inputs, run_stage
from embedtrain.cli.flags import (
    K1,
    B,
    Bm25Backend,
    Bm25Variant,
    Force,
    Json,
    Language,
    Limit,
    Negatives,
    OutFile,
    Precision,
    Quiet,
    Seed,
    Split,
)
from embedtrain.errors import UsageError


@app.command(epilog="Example: embedtrain mine collection/ --out mined.parquet")
def mine(
    context: typer.Context,
    out: OutFile,
    collection: Annotated[
        Path | None,
        typer.Argument(
            help="A collection folder (BEIR layout); with --reselect the recorded one.", metavar="[COLLECTION]"
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help=f"Local model folder or hub name; again for a further one [default: {config.MODEL}].",
            metavar="MODEL",
        ),
    ] = None,
    split: Split = config.MineOptions.split,
    retriever: Annotated[
        list[str] | None,
        typer.Option("--retriever", help="bm25 or dense; give it twice for both [default: both]."),
    ] = None,
    top_k: Annotated[
        int, typer.Option("--top-k", min=1, help="Candidates a query and retriever.")
    ] = config.MineOptions.top_k,
    index: Annotated[
        str, typer.Option("--index", help="Dense search: exact, or approximate by ivf or hnsw, recall measured.")
    ] = config.MineOptions.index,
    precision: Precision = config.MineOptions.precision,
    negatives: Negatives = config.MineOptions.negatives,
    mix: Annotated[
        str, typer.Option("--mix", help="Negatives by where they come from, as dense=2,bm25=1,random=1.")
    ] = config.MineOptions.mix,
    sampling: Annotated[
        str,
        typer.Option("--sampling", help="How eligible candidates are chosen: top, random, stratified or softmax."),
    ] = config.MineOptions.sampling,
    ranks: Annotated[
        str, typer.Option("--ranks", help="Only candidates with these ranks in the fused order, as 30:100.")
    ] = config.MineOptions.ranks,
    max_ratio: Annotated[
        float,
        typer.Option(
            "--max-ratio", min=0.0, help="Dense candidates above this share of the positive's score go; 0: off."
        ),
    ] = config.MineOptions.max_ratio or 0.0,
    max_margin: Annotated[
        float | None,
        typer.Option("--max-margin", help="Dense candidates above the positive's score less this go."),
    ] = config.MineOptions.max_margin,
    max_score: Annotated[
        float | None, typer.Option("--max-score", help="Dense candidates above this score go.")
    ] = config.MineOptions.max_score,
    min_score: Annotated[
        float | None, typer.Option("--min-score", help="Dense candidates below this score go.")
    ] = config.MineOptions.min_score,
    near_duplicate: Annotated[
        float,
        typer.Option(
            "--near-duplicate", min=0.0, max=1.0, help="Candidates this alike to a positive (Jaccard) go; 0: off."
        ),
    ] = config.MineOptions.near_duplicate,
    group_column: Annotated[
        str,
        typer.Option("--group-column", help="Corpus column; documents of a positive's group (its page) go."),
    ] = config.MineOptions.group_column,
    min_negatives: Annotated[
        int, typer.Option("--min-negatives", min=0, help="Leave out queries with fewer negatives.")
    ] = config.MineOptions.min_negatives,
    language: Language = config.MineOptions.language,
    bm25_backend: Bm25Backend = config.MineOptions.bm25_backend,
    bm25_variant: Bm25Variant = config.MineOptions.bm25_variant,
    k1: K1 = config.MineOptions.k1,
    b: B = config.MineOptions.b,
    reselect: Annotated[
        Path | None,
        typer.Option("--reselect", help="Choose again from the candidates of this artifact.", metavar="MINED"),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="Keep the audit as JSON, with texts.", metavar="FILE")
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", help="End with exit code 3 when this holds, as suspicious>0.05."),
    ] = None,
    memory: Annotated[
        str,
        typer.Option("--memory", help="Memory for search and choice, as 4GB [default: a quarter of the machine]."),
    ] = "",
    limit: Limit = config.MineOptions.limit,
    seed: Seed = config.MineOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find hard negatives by BM25 and models, suspects left out."""
    choice: dict[str, Any] = {
        "negatives": negatives,
        "mix": mix,
        "sampling": sampling,
        "ranks": ranks,
        "max_ratio": max_ratio or None,
        "max_margin": max_margin,
        "max_score": max_score,
        "min_score": min_score,
        "near_duplicate": near_duplicate,
        "group_column": group_column,
        "min_negatives": min_negatives,
        "seed": seed,
    }
    found: dict[str, Any]
    if reselect is None:
        if collection is None:
            raise UsageError("give the COLLECTION to mine, or --reselect with a mined artifact")
        models = list(dict.fromkeys(model or [config.MODEL]))
        retrievers = _retrievers(retriever, len(models))
        found = {
            "split": split,
            "retrievers": retrievers,
            "index": index,
            "precision": precision,
            "top_k": top_k,
            "language": language,
            "bm25_backend": bm25_backend,
            "bm25_variant": bm25_variant,
            "k1": k1,
            "b": b,
            "limit": limit,
        }
    else:
        for name in ("model", *_SEARCH):
            source = context.get_parameter_source(name.removesuffix("s"))
            if source is not None and source.name == "COMMANDLINE":
                flag = name.replace("_", "-").removesuffix("s")
                raise UsageError(
                    f"--{flag} is part of the search, and --reselect only chooses again; leave one out"
                )
        models, found = [], _search_options(reselect)
    options = config.MineOptions(**found, **choice)

    gates: list[Any] = []
    read: list[Any] = []

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input
        from embedtrain.memory import allowed
        from embedtrain.models import find_encoder

        dense = any(map(config.is_dense, options.retrievers))
        allowed(memory)
        if fail_if:
            gates.extend(_gates(fail_if, dense=dense))
        if reselect is not None:
            _, inputs = mined_inputs(reselect, collection, "mined")
        else:
            inputs = [Input.of("collection", collection or Path())]
            inputs += [find_encoder(name).as_input() for name in (models if dense else [])]
        return Claim(out, kind="mined", stage="mine", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.memory import allowed
        from embedtrain.mine import mine

        path = _collection_path(claim)
        read.append(mine(claim, options, path, models, progress, again=reselect, allowed=allowed(memory)))

    claimed = run_stage(claim, work, as_json, quiet)
    show = not (as_json or claimed.up_to_date)
    if audit or show:
        _audited(claimed, audit, read, show=show)
    if gates:
        from embedtrain.gates import check

        check(gates, claimed.record["summary"]["gates"])


# The options of `mine` that decide what is found; the others decide what is chosen of it.
_SEARCH = (
    "split",
    "retrievers",
    "index",
    "precision",
    "top_k",
    "language",
    "bm25_backend",
    "bm25_variant",
    "k1",
    "b",
    "limit",
)


def _retrievers(asked_for: list[str] | None, models: int) -> tuple[str, ...]:
    """The retrievers of a run: bm25, and a dense one for each model."""
    every = (config.LEXICAL, config.DENSE)
    names = dict.fromkeys(asked_for or every)
    unknown = set(names) - set(every)
    if unknown:
        raise UsageError(f"--retriever {', '.join(sorted(unknown))}: {' and '.join(every)} are the retrievers")
    dense = config.dense_names(models)
    return tuple(one for name in names for one in (dense if name == config.DENSE else [name]))


def _search_options(mined: Path) -> dict[str, Any]:
    """The options a mined artifact was searched with."""
    from embedtrain.artifacts import require_kind

    recorded = require_kind(mined, "mined")["options"]
    found = {name: recorded.get(name, getattr(config.MineOptions, name)) for name in _SEARCH}
    return found | {"retrievers": tuple(found["retrievers"])}


def _collection_path(claim: Any) -> Path:
    return next(item.path for item in claim.inputs if item.role == "collection")


def _gates(conditions: list[str], *, dense: bool) -> list[Any]:
    from embedtrain.audit import DENSE_GATES, GATES
    from embedtrain.gates import parse

    return parse(conditions, {name: what for name, what in GATES.items() if dense or name not in DENSE_GATES})


def _audited(claim: Any, file: Path | None, read: list[Any], *, show: bool) -> None:
    """Print the most suspicious negatives with their texts, and keep the audit."""
    summary = claim.record["summary"]
    if file is None and not summary["most_suspicious"]:
        return
    from embedtrain.audit import in_words, with_texts
    from embedtrain.collection import Collection

    report = with_texts(summary, read[0] if read else Collection(_collection_path(claim)))
    if show:
        for line in in_words(report):
            print(f"  {line}")
    if file is not None:
        console.write_json(file, report)
