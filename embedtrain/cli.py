"""The command line: parse, call one stage, print. Commands stand in pipeline order.

Heavy packages are imported inside the functions that need them, after the check for "up to date", so that help,
refusals and finished work answer at once.
"""

import errno
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from embedtrain import __version__, config, console
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.flags import (
    K1,
    B,
    BatchSize,
    Bm25Backend,
    Bm25Variant,
    CollectionArgument,
    CollectionOption,
    DocumentPrompt,
    Dropout,
    Epochs,
    Force,
    Json,
    Language,
    LearningRate,
    Limit,
    MaxDocumentLength,
    MaxPairLength,
    MaxPairLengthOrOwn,
    MaxQueryLength,
    MinedArgument,
    Model,
    Negatives,
    OutFile,
    OutFolder,
    QueryPrompt,
    Quiet,
    Seed,
    Split,
    Temperature,
)

app = typer.Typer(
    name="embedtrain",
    help="From documents and logs to a better retrieval embedding model, in one pipeline: "
    "harvest, mine, train-teacher, score-teacher, pretrain, finetune, eval, diagnose.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show(claim: Any, *, as_json: bool) -> None:
    """Print what a stage made: its summary, its drops, and where it is."""
    record = claim.record
    if as_json:
        result = {
            "stage": claim.stage,
            "out": str(claim.out),
            "up_to_date": claim.up_to_date,
            "rows": record["rows"],
            "dropped": record["dropped"],
            **record["summary"],
        }
        console.print_json(result)
        return
    if claim.up_to_date:
        print(f"{claim.stage}: up to date: {claim.out}")
    else:
        print(f"{claim.stage}: {claim.out}")
    console.summary(record["summary"], record["dropped"])


def _run(
    make_claim: Callable[[], Any], work: Callable[[Any, console.Progress], None], as_json: bool, quiet: bool
) -> Any:
    claim = make_claim()
    if claim.up_to_date:
        claim.close()  # a run may have died between its last rename and this
    else:
        try:
            with console.progress(quiet) as progress:
                work(claim, progress)
        except BaseException:
            claim.abandon()
            raise
        claim.close()
    _show(claim, as_json=as_json)
    return claim


@app.command(epilog="Example: embedtrain harvest docs/ --out collection/")
def harvest(
    sources: Annotated[list[Path], typer.Argument(help="Files or folders to read.", metavar="SOURCE...")],
    out: OutFolder,
    kind: Annotated[
        str,
        typer.Option("--kind", help="auto, beir, table, markdown, or titles (title -> text of a corpus)."),
    ] = config.HarvestOptions.kind,
    query_column: Annotated[
        str, typer.Option("--query-column", help="Column of a table that holds the query.")
    ] = config.HarvestOptions.query_column,
    document_column: Annotated[
        str, typer.Option("--document-column", help="Column of a table that holds the document.")
    ] = config.HarvestOptions.document_column,
    title_column: Annotated[
        str,
        typer.Option("--title-column", help="Column of a table with the document's title, if there is one."),
    ] = config.HarvestOptions.title_column,
    split: Annotated[
        str, typer.Option("--split", help="Shares of the training queries to set apart, as dev=0.2,test=0.1.")
    ] = config.HarvestOptions.split,
    documents: Annotated[
        int | None,
        typer.Option("--documents", min=1, help="Keep the judged documents and a sample of others up to N."),
    ] = config.HarvestOptions.documents,
    format: Annotated[
        str, typer.Option("--format", help="parquet, or jsonl (with TSV qrels).")
    ] = config.HarvestOptions.format,
    limit: Limit = config.HarvestOptions.limit,
    seed: Seed = config.HarvestOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a collection (corpus, queries, qrels) out of what is there."""
    options = config.HarvestOptions(
        kind, query_column, document_column, title_column, split, documents, format, limit, seed
    )

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input, content_sha256

        inputs = []
        for source in sources:
            if not source.exists():
                raise EmbedtrainError(f"source {source} does not exist; check the path")
            inputs.append(Input.of("source", source, sha256=content_sha256(source, skip=frozenset())))
        return Claim(out, kind="collection", stage="harvest", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.harvest import harvest

        harvest(claim, options, sources, progress)

    _run(claim, work, as_json, quiet)


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
        typer.Option("--model", help="Local model folder or hub name; again for a further one.", metavar="MODEL"),
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
    limit: Limit = config.MineOptions.limit,
    seed: Seed = config.MineOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find hard negatives: candidates by BM25 and models, known positives and suspects left out."""
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

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input
        from embedtrain.gates import parse
        from embedtrain.models import find_model

        if fail_if:
            from embedtrain.audit import GATES

            parse(fail_if, GATES)
        if reselect is not None:
            _, inputs = _mined_inputs(reselect, collection, "mined")
        else:
            inputs = [Input.of("collection", collection or Path())]
            wanted = models if any(name != "bm25" for name in options.retrievers) else []
            inputs += [find_model(name).as_input() for name in wanted]
        return Claim(out, kind="mined", stage="mine", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.mine import mine

        path = next(item.path for item in claim.inputs if item.role == "collection")
        mine(claim, options, path, models, progress, again=reselect)

    claimed = _run(claim, work, as_json, quiet)
    _audited(claimed, audit, fail_if or [], show=not (as_json or claimed.up_to_date))


# The options of `mine` that decide what is found; the others decide what is chosen of it.
_SEARCH = ("split", "retrievers", "index", "top_k", "language", "bm25_backend", "bm25_variant", "k1", "b", "limit")


def _retrievers(asked_for: list[str] | None, models: int) -> tuple[str, ...]:
    """The retrievers of a run: bm25, and a dense one for each model."""
    names = dict.fromkeys(asked_for or ("bm25", "dense"))
    unknown = set(names) - {"bm25", "dense"}
    if unknown:
        raise UsageError(f"--retriever {', '.join(sorted(unknown))}: bm25 and dense are the retrievers")
    dense = ["dense", *(f"dense{number}" for number in range(2, models + 1))]
    return tuple(one for name in names for one in (dense if name == "dense" else [name]))


def _search_options(mined: Path) -> dict[str, Any]:
    """The options a mined artifact was searched with."""
    from embedtrain.artifacts import require_kind

    recorded = require_kind(mined, "mined")["options"]
    found = {name: recorded[name] for name in _SEARCH}
    return found | {"retrievers": tuple(found["retrievers"])}


def _audited(claim: Any, file: Path | None, conditions: list[str], *, show: bool) -> None:
    """Print the most suspicious negatives with their texts, keep the audit, and hold its values against gates."""
    from embedtrain import gates
    from embedtrain.audit import GATES, in_words, with_texts

    path = next(item.path for item in claim.inputs if item.role == "collection")
    summary = claim.record["summary"]
    if file is not None or (show and summary["most_suspicious"]):
        report = with_texts(summary, path)
        if show:
            for line in in_words(report):
                print(f"  {line}")
        if file is not None:
            console.write_json(file, report)
    gates.check(gates.parse(conditions, GATES), summary["gates"])


def _mined_inputs(mined: Path, collection: Path | None, *kinds: str) -> tuple[Path, list[Any]]:
    """The collection a mined or scored artifact belongs to, and both as inputs of a stage."""
    from embedtrain import artifacts

    record = artifacts.require_kind(mined, *kinds)
    path = collection or artifacts.find_input(record, "collection", mined)
    given = artifacts.Input.of("collection", path)
    artifacts.check_same_input(record, "collection", given.sha256, mined)
    return path, [artifacts.Input.of(record["kind"], mined), given]


@app.command("train-teacher", epilog="Example: embedtrain train-teacher mined.parquet --out teacher/")
def train_teacher(
    mined: MinedArgument,
    out: OutFolder,
    collection: CollectionOption = None,
    model: Model = config.MODEL,
    negatives: Negatives = config.TrainTeacherOptions.negatives,
    batch_size: BatchSize = config.TrainTeacherOptions.batch_size,
    learning_rate: LearningRate = config.TrainTeacherOptions.learning_rate,
    epochs: Epochs = config.TrainTeacherOptions.epochs,
    max_length: MaxPairLength = config.TrainTeacherOptions.max_length,
    limit: Limit = config.TrainTeacherOptions.limit,
    seed: Seed = config.TrainTeacherOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn an encoder into a cross-encoder that judges candidates."""
    options = config.TrainTeacherOptions(
        negatives=negatives,
        batch_size=batch_size,
        learning_rate=learning_rate,
        epochs=epochs,
        max_length=max_length,
        limit=limit,
        seed=seed,
    )

    def claim() -> Any:
        from embedtrain.artifacts import Claim
        from embedtrain.models import find_model

        _, inputs = _mined_inputs(mined, collection, "mined", "scored")
        inputs.append(find_model(model).as_input())
        return Claim(out, kind="teacher", stage="train-teacher", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.teacher import train_teacher

        train_teacher(claim, options, mined, claim.inputs[1].path, model, progress)

    _run(claim, work, as_json, quiet)


@app.command(
    "score-teacher",
    epilog="Example: embedtrain score-teacher mined.parquet --teacher teacher/ --out scored.parquet",
)
def score_teacher(
    mined: MinedArgument,
    out: OutFile,
    teacher: Annotated[str, typer.Option("--teacher", help="Cross-encoder: folder or hub name.", metavar="MODEL")],
    collection: CollectionOption = None,
    candidates: Annotated[
        str, typer.Option("--candidates", help="Which candidates are scored: selected (the negatives), or all.")
    ] = config.ScoreOptions.candidates,
    policy: Annotated[
        str, typer.Option("--policy", help="keep: scores only; drop: suspected positives lose their place.")
    ] = config.ScoreOptions.policy,
    drop_margin: Annotated[
        float,
        typer.Option("--drop-margin", help="Drop a negative scored above its lowest positive less this (logits)."),
    ] = config.ScoreOptions.drop_margin,
    max_length: MaxPairLengthOrOwn = config.ScoreOptions.max_length,
    limit: Limit = config.ScoreOptions.limit,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let a cross-encoder score every positive and candidate, and judge which negatives are none."""
    if policy not in ("keep", "drop"):
        raise UsageError(f"--policy {policy}: keep and drop are the policies")
    if candidates not in ("selected", "all"):
        raise UsageError(f"--candidates {candidates}: selected and all are the choices")
    options = config.ScoreOptions(candidates, policy, drop_margin, max_length, limit)

    def claim() -> Any:
        from embedtrain.artifacts import Claim
        from embedtrain.models import find_model

        _, inputs = _mined_inputs(mined, collection, "mined", "scored")
        inputs.append(find_model(teacher).as_input("teacher"))
        return Claim(out, kind="scored", stage="score-teacher", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.score import score

        score(claim, options, mined, claim.inputs[1].path, teacher, progress)

    _run(claim, work, as_json, quiet)


@app.command(epilog="Example: embedtrain pretrain pairs/ --out pretrained/")
def pretrain(
    collection: CollectionArgument,
    out: OutFolder,
    model: Model = config.MODEL,
    split: Split = config.PretrainOptions.split,
    batch_size: BatchSize = config.PretrainOptions.batch_size,
    learning_rate: LearningRate = config.PretrainOptions.learning_rate,
    epochs: Epochs = config.PretrainOptions.epochs,
    temperature: Temperature = config.PretrainOptions.temperature,
    max_query_length: MaxQueryLength = config.PretrainOptions.max_query_length,
    max_document_length: MaxDocumentLength = config.PretrainOptions.max_document_length,
    dropout: Dropout = config.PretrainOptions.dropout,
    query_prompt: QueryPrompt = config.PretrainOptions.query_prompt,
    document_prompt: DocumentPrompt = config.PretrainOptions.document_prompt,
    limit: Limit = config.PretrainOptions.limit,
    seed: Seed = config.PretrainOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on many weak pairs, with the other documents of the batch as negatives."""
    options = config.PretrainOptions(
        batch_size=batch_size,
        learning_rate=learning_rate,
        epochs=epochs,
        temperature=temperature,
        max_query_length=max_query_length,
        max_document_length=max_document_length,
        dropout=dropout,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        limit=limit,
        seed=seed,
        split=split,
    )

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input
        from embedtrain.models import find_model

        inputs = [Input.of("collection", collection), find_model(model).as_input()]
        return Claim(out, kind="model", stage="pretrain", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.train import pretrain

        pretrain(claim, options, collection, model, progress)

    _run(claim, work, as_json, quiet)


@app.command(epilog="Example: embedtrain finetune scored.parquet --model pretrained/ --out tuned/")
def finetune(
    mined: Annotated[Path, typer.Argument(help="A mined or scored artifact.", metavar="MINED")],
    out: OutFolder,
    collection: CollectionOption = None,
    model: Model = config.MODEL,
    loss: Annotated[
        str,
        typer.Option(
            "--loss",
            help="Weighted sum of infonce, kl, margin-mse, as infonce:0.2,kl:1.0 "
            "[default: that for a scored artifact, infonce for a mined one].",
        ),
    ] = config.FinetuneOptions.loss,
    negatives: Negatives = config.FinetuneOptions.negatives,
    dev_split: Annotated[
        str, typer.Option("--dev-split", help="Keep the epoch with the best nDCG@10 on this split.")
    ] = config.FinetuneOptions.dev_split,
    batch_size: BatchSize = config.FinetuneOptions.batch_size,
    learning_rate: LearningRate = config.FinetuneOptions.learning_rate,
    epochs: Epochs = config.FinetuneOptions.epochs,
    temperature: Temperature = config.FinetuneOptions.temperature,
    teacher_temperature: Annotated[
        float,
        typer.Option("--teacher-temperature", min=1e-4, help="Temperature of the teacher's scores in kl."),
    ] = config.FinetuneOptions.teacher_temperature,
    max_query_length: MaxQueryLength = config.FinetuneOptions.max_query_length,
    max_document_length: MaxDocumentLength = config.FinetuneOptions.max_document_length,
    dropout: Dropout = config.FinetuneOptions.dropout,
    query_prompt: QueryPrompt = config.FinetuneOptions.query_prompt,
    document_prompt: DocumentPrompt = config.FinetuneOptions.document_prompt,
    limit: Limit = config.FinetuneOptions.limit,
    seed: Seed = config.FinetuneOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on mined negatives, and on the teacher's scores where there are some."""
    options = config.FinetuneOptions(
        batch_size=batch_size,
        learning_rate=learning_rate,
        epochs=epochs,
        temperature=temperature,
        max_query_length=max_query_length,
        max_document_length=max_document_length,
        dropout=dropout,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        limit=limit,
        seed=seed,
        loss=loss,
        negatives=negatives,
        teacher_temperature=teacher_temperature,
        dev_split=dev_split,
    )

    def claim() -> Any:
        from embedtrain.artifacts import Claim
        from embedtrain.models import find_model

        _, inputs = _mined_inputs(mined, collection, "mined", "scored")
        inputs.append(find_model(model).as_input())
        return Claim(out, kind="model", stage="finetune", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.train import finetune

        finetune(claim, options, mined, claim.inputs[1].path, model, progress)

    _run(claim, work, as_json, quiet)


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
        typer.Option("--measure", help="nDCG@k, MAP@k, RR@k, Recall@k, P@k [default: nDCG@10 Recall@100]."),
    ] = None,
    split: Split = config.EvalOptions.split,
    top_k: Annotated[
        int, typer.Option("--top-k", min=1, help="Documents a query that are retrieved.")
    ] = config.EvalOptions.top_k,
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
    """Measure models, BM25 and mixtures on a split, with intervals and paired tests."""
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
        from embedtrain.models import find_model

        inputs = [Input.of("collection", collection)]
        inputs += [find_model(name).as_input() for name in models]
        inputs += [find_model(rerank).as_input("teacher")] if rerank else []
        inputs += [Input.of("run", path) for path in runs]
        return Claim(out, kind="evaluation", stage="eval", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.evaluate import evaluate

        evaluate(claim, options, collection, models, rerank, runs, progress)

    _run(claim, work, as_json, quiet)


@app.command(epilog="Example: embedtrain diagnose tuned/ --collection collection/ --against BASE --out report/")
def diagnose(
    model: Annotated[str, typer.Argument(help="Local model folder or hub name.", metavar="MODEL")],
    collection: Annotated[Path, typer.Option("--collection", help="The collection to look at the model with.")],
    out: OutFolder,
    against: Annotated[
        str | None, typer.Option("--against", help="The base model to set beside it.", metavar="MODEL")
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option("--eval", help="An evaluation whose table goes into the report.", metavar="FOLDER"),
    ] = None,
    split: Split = config.DiagnoseOptions.split,
    sample: Annotated[
        int, typer.Option("--sample", min=10, help="Documents the geometry is measured on.")
    ] = config.DiagnoseOptions.sample,
    limit: Limit = config.DiagnoseOptions.limit,
    seed: Seed = config.DiagnoseOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at a model's space: alignment, uniformity, spectrum; one page to read."""
    options = config.DiagnoseOptions(split, sample, limit, seed)

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input, require_kind
        from embedtrain.models import find_model

        inputs = [Input.of("collection", collection), find_model(model).as_input()]
        inputs += [find_model(against).as_input("base")] if against else []
        if evaluation:
            require_kind(evaluation, "evaluation")
            inputs.append(Input.of("evaluation", evaluation))
        return Claim(out, kind="report", stage="diagnose", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.diagnose import diagnose

        diagnose(claim, options, collection, model, against, evaluation, progress)

    _run(claim, work, as_json, quiet)


@app.command(epilog="Example: embedtrain inspect mined.parquet")
def inspect(
    file: Annotated[Path, typer.Argument(help="Any artifact: file or folder.", metavar="FILE")],
    collection: CollectionOption = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="How many rows to show with texts.")] = 3,
    as_json: Json = False,
) -> None:
    """Say what an artifact is: kind, schema, rows, examples with texts, ancestry."""
    from embedtrain.inspection import inspect_artifact

    found = inspect_artifact(file, collection, examples)
    if as_json:
        console.print_json(found.as_dict())
    else:
        print(found.as_text())


@app.command(epilog="Example: embedtrain doctor")
def doctor(as_json: Json = False) -> None:
    """Say what this machine offers: cores, GPU, precision, versions, models, hub."""
    from embedtrain.doctor import examine

    found = examine()
    if as_json:
        console.print_json(found)
    else:
        console.pairs([(name, str(value)) for name, value in found.items()])


def _version(wanted: bool) -> None:
    if wanted:
        print(f"embedtrain {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _sentence(error: BaseException) -> str:
    if isinstance(error, EmbedtrainError):
        return str(error)
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return (
                f"the disk is full or a limit on file size is reached{where}; make room and run the command again"
            )
        return f"{error.strerror or error}{where}; check the path and its permissions"
    if any(f"os error {number}" in str(error) for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)):
        return "the disk is full or a limit on file size is reached; make room and run the command again"
    if isinstance(error, MemoryError):
        return "out of memory; use a smaller --batch-size or --limit"
    return f"unexpected {type(error).__name__}: {error}; set EMBEDTRAIN_DEBUG=1 for the traceback and report it"


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 a known error, 2 wrong usage, 3 a gate not met, 130 interrupted."""
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="embedtrain", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader went away (`| head`); Python must not complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("EMBEDTRAIN_DEBUG") == "1":
            traceback.print_exc()
        usage = getattr(error, "format_message", None)
        console.hint(f"error: {usage() if usage else _sentence(error)}")
        code = getattr(error, "exit_code", 1)
    if code == 130:
        console.hint("interrupted; run the same command again to go on")
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
