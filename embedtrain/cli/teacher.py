"""`embedtrain train-teacher` and `embedtrain score-teacher`."""

from pathlib import Path
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
    NegativesOrMined,
    OutFile,
    OutFolder,
    Precision,
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
    loss: Annotated[
        str, typer.Option("--loss", help="listwise (a softmax over each row), binary or margin (pair by pair).")
    ] = config.TrainTeacherOptions.loss,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds", help="2: the first teacher cleans its negatives, and a second is trained.", min=1, max=3
        ),
    ] = config.TrainTeacherOptions.rounds,
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
        loss=loss,
        rounds=rounds,
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
    mined: Annotated[Path, typer.Argument(help="A mined or scored artifact.", metavar="MINED")],
    out: OutFile,
    teacher: Annotated[
        list[str] | None,
        typer.Option(
            "--teacher",
            help="Who judges: folder or hub name; any number of times. Without: the scores of a scored artifact.",
            metavar="MODEL",
        ),
    ] = None,
    teacher_kind: Annotated[
        list[str] | None,
        typer.Option(
            "--teacher-kind", help="cross or bi (a bi-encoder): once, or for each teacher. [default: cross]"
        ),
    ] = None,
    collection: CollectionOption = None,
    candidates: Annotated[
        str,
        typer.Option(
            "--candidates", help="Who is scored: selected (the negatives), all, or a number: the first ranks too."
        ),
    ] = config.ScoreOptions.candidates,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="What a suspected positive becomes: keep (a negative), drop (nothing), promote (a positive), mask (no negative).",
        ),
    ] = config.ScoreOptions.policy,
    drop_margin: Annotated[
        float | None,
        typer.Option(
            "--drop-margin", help="Suspect what scores above the row's lowest positive less this. [default: 0]"
        ),
    ] = config.ScoreOptions.drop_margin,
    drop_ratio: Annotated[
        float | None,
        typer.Option(
            "--drop-ratio", help="Suspect what scores above this share of the row's lowest positive.", min=0.0
        ),
    ] = config.ScoreOptions.drop_ratio,
    drop_above: Annotated[
        float | None, typer.Option("--drop-above", help="Suspect what has this probability or more.")
    ] = config.ScoreOptions.drop_above,
    keep_below: Annotated[
        float | None,
        typer.Option("--keep-below", help="Drop what lies between this probability and --drop-above."),
    ] = config.ScoreOptions.keep_below,
    calibrate: Annotated[
        str, typer.Option("--calibrate", help="Fit probabilities to labels: temperature or platt.")
    ] = config.ScoreOptions.calibrate,
    sample: Annotated[
        str,
        typer.Option(
            "--sample",
            help="Who are the negatives then: rank (the mined, the next in place of others), stratified (over the scores).",
        ),
    ] = config.ScoreOptions.sample,
    negatives: NegativesOrMined = config.ScoreOptions.negatives,
    review: Annotated[
        Path | None,
        typer.Option("--review", help="Write the most doubtful negatives here, for a person to label (CSV)."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", help="A labelled review: its word stands before the teacher's.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Go on with a teacher that is worse than the retriever it corrects.")
    ] = config.ScoreOptions.trust,
    precision: Precision = config.ScoreOptions.precision,
    max_length: MaxPairLengthOrOwn = config.ScoreOptions.max_length,
    limit: Limit = config.ScoreOptions.limit,
    seed: Seed = config.ScoreOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let teachers score candidates and judge negatives."""
    options = config.ScoreOptions(
        kinds=tuple(teacher_kind or config.ScoreOptions.kinds),
        candidates=candidates,
        policy=policy,
        drop_margin=drop_margin,
        drop_ratio=drop_ratio,
        drop_above=drop_above,
        keep_below=keep_below,
        calibrate=calibrate,
        sample=sample,
        negatives=negatives,
        trust=trust,
        precision=precision,
        max_length=max_length,
        limit=limit,
        seed=seed,
    )
    names = teacher or []
    scoring = {
        "--teacher-kind": teacher_kind,
        "--max-length": max_length,
        "--candidates": candidates != config.ScoreOptions.candidates,
        "--precision": precision != config.ScoreOptions.precision,
    }
    if not names and (useless := [flag for flag, given in scoring.items() if given]):
        raise UsageError(f"{useless[0]} is for scoring, and no teacher is named; add --teacher, or leave it out")

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input
        from embedtrain.models import find_model
        from embedtrain.review import check as check_review
        from embedtrain.score import check

        check(options, len(names))
        if review:
            check_review(review, labels)
        _, inputs = mined_inputs(mined, collection, "mined", "scored")
        inputs += [find_model(name).as_input("teacher") for name in names]
        if labels:
            inputs.append(Input.of("labels", labels))
        return Claim(out, kind="scored", stage="score-teacher", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.score import score

        score(claim, options, mined, claim.inputs[1].path, names, labels, progress)

    made = run_stage(claim, work, as_json, quiet)
    if review:
        from embedtrain.score import write_review

        shown = write_review(review, out, made.inputs[1].path, labels)
        if not as_json:
            print(
                f"  {review}: {shown:,} doubtful negatives; write positive or negative into the column label, then --labels {review}"
            )
