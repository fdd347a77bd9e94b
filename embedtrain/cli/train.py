"""`embedtrain pretrain` and `embedtrain finetune`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, mined_inputs, run_stage
from embedtrain.cli.flags import (
    BatchSize,
    CollectionArgument,
    CollectionOption,
    DocumentPrompt,
    Dropout,
    Epochs,
    Force,
    Json,
    LearningRate,
    Limit,
    MaxDocumentLength,
    MaxQueryLength,
    Model,
    Negatives,
    OutFolder,
    QueryPrompt,
    Quiet,
    Seed,
    Split,
    Temperature,
)


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
    """Train on many weak pairs, with in-batch negatives."""
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
        from embedtrain.models import find_encoder

        inputs = [Input.of("collection", collection), find_encoder(model).as_input()]
        return Claim(out, kind="model", stage="pretrain", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.train import pretrain

        pretrain(claim, options, collection, model, progress)

    run_stage(claim, work, as_json, quiet)


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
    """Train on mined negatives and a teacher's scores."""
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
        from embedtrain.models import find_encoder

        _, inputs = mined_inputs(mined, collection, "mined", "scored")
        inputs.append(find_encoder(model).as_input())
        return Claim(out, kind="model", stage="finetune", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.train import finetune

        finetune(claim, options, mined, claim.inputs[1].path, model, progress)

    run_stage(claim, work, as_json, quiet)
