"""`embedtrain train-teacher` and `embedtrain score-teacher`."""

from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, mined_inputs, run_stage
from embedtrain.cli.flags import (
    BatchSize,
    CollectionOption,
    Epochs,
    Force,
    Json,
    LearningRate,
    Limit,
    MaxPairLength,
    MaxPairLengthOrOwn,
    MinedArgument,
    Model,
    Negatives,
    OutFile,
    OutFolder,
    Quiet,
    Seed,
)
from embedtrain.errors import UsageError


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
    """Turn an encoder into a cross-encoder that judges."""
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

        _, inputs = mined_inputs(mined, collection, "mined", "scored")
        inputs.append(find_model(model).as_input())
        return Claim(out, kind="teacher", stage="train-teacher", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.teacher import train_teacher

        train_teacher(claim, options, mined, claim.inputs[1].path, model, progress)

    run_stage(claim, work, as_json, quiet)


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
    """Let a cross-encoder score candidates and judge negatives."""
    if policy not in ("keep", "drop"):
        raise UsageError(f"--policy {policy}: keep and drop are the policies")
    if candidates not in ("selected", "all"):
        raise UsageError(f"--candidates {candidates}: selected and all are the choices")
    options = config.ScoreOptions(candidates, policy, drop_margin, max_length, limit)

    def claim() -> Any:
        from embedtrain.artifacts import Claim
        from embedtrain.models import find_model

        _, inputs = mined_inputs(mined, collection, "mined", "scored")
        inputs.append(find_model(teacher).as_input("teacher"))
        return Claim(out, kind="scored", stage="score-teacher", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.score import score

        score(claim, options, mined, claim.inputs[1].path, teacher, progress)

    run_stage(claim, work, as_json, quiet)
