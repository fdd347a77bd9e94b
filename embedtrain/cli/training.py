"""The flags of `pretrain` and `finetune`, by the option they set."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain.cli import flags


def _flag(kind: Any, name: str, text: str, **limits: Any) -> Any:
    return Annotated[kind, typer.Option(name, help=text, **limits)]


_Switch = bool

TRAINING: dict[str, Any] = {
    "loss": _flag(
        str,
        "--loss",
        "Weighted sum of objectives, as infonce:0.2,kl:1.0 [default: that for a scored artifact, infonce without].",
    ),
    "directions": _flag(str, "--directions", "Whose softmax infonce is: q2d, d2q, q2q, d2d, with commas."),
    "joint": _flag(_Switch, "--joint", "One softmax over all directions instead of one each."),
    "temperature": _flag(
        float | None,
        "--temperature",
        "Temperature of the softmax [default: 0.05; 0.02 from batches of 1,024, and for pretrain on a GPU].",
        min=1e-4,
    ),
    "learn_temperature": _flag(_Switch, "--learn-temperature", "Train the temperature too; saved with the model."),
    "hardness": _flag(
        float, "--hardness", "Weight of hard negatives by similarity: exp(N * s); 0: none.", min=0.0
    ),
    "margin": _flag(float, "--margin", "Margin of triplet.", min=0.0),
    "matryoshka": _flag(
        str, "--matryoshka", "Train prefixes of the vectors too: dimensions with weights, as 384,192:0.5."
    ),
    "gor": _flag(float, "--gor", "Weight of the spread-out regulariser.", min=0.0),
    "embedding_teacher": _flag(
        str, "--embedding-teacher", "The bi-encoder whose vectors the losses cosine and score follow."
    ),
    "project": _flag(
        _Switch, "--project", "Add a linear layer to the embedding teacher's dimensions, for the loss cosine."
    ),
    "mask_margin": _flag(
        float | None,
        "--mask-margin",
        "Documents of other rows more similar than the positive by this are no negatives [Qwen3: 0.1].",
    ),
    "guide": _flag(str, "--guide", "A model: what it ranks above the positive is no negative (GISTEmbed)."),
    "guide_margin": _flag(float, "--guide-margin", "How far below the positive others must stay for the guide."),
    "group_column": _flag(
        str, "--group-column", "Corpus column: documents of a positive's group are no negatives."
    ),
    "positives": _flag(int, "--positives", "Positives a row, where a query has several.", min=1),
    "homogeneous": _flag(str, "--homogeneous", "Rows of a batch share their source or their topic."),
    "topics": _flag(int, "--topics", "Number of topics [default: one for 4 batches].", min=0),
    "batch_size": flags.BatchSize,
    "learning_rate": flags.LearningRateOrChosen,
    "epochs": flags.Epochs,
    "max_query_length": flags.MaxQueryLength,
    "max_document_length": flags.MaxDocumentLength,
    "dropout": flags.Dropout,
    "precision": flags.TrainingPrecision,
    "query_prompt": flags.QueryPrompt,
    "document_prompt": flags.DocumentPrompt,
    "pooling": _flag(
        str,
        "--pooling",
        "mean, cls, weightedmean, lasttoken, max; auto for a raw checkpoint [default: the model's].",
    ),
    "two_towers": _flag(_Switch, "--two-towers", "A model of its own for queries and for documents."),
    "lora": _flag(int, "--lora", "Train low-rank matrices of this rank, merged on save; 0: all weights.", min=0),
    "freeze": _flag(str, "--freeze", "Not trained: embeddings, or a number of lower layers with them."),
    "gradient_checkpointing": _flag(
        _Switch, "--gradient-checkpointing", "Compute activations twice instead of keeping them."
    ),
    "static": _flag(
        int, "--static", "Start a static model of so many dimensions with the tokenizer of --model.", min=0
    ),
    "dev_split": _flag(str, "--dev-split", "Keep the weights with the best nDCG@10 on this split."),
    "dev_documents": _flag(
        int,
        "--dev-documents",
        "Measure on the split's judged documents and a sample of others up to so many; 0: on all.",
        min=0,
    ),
    "patience": _flag(int, "--patience", "End after so many evaluations without a gain; 0: never.", min=0),
    "merge": _flag(
        str,
        "--merge",
        "auto, or a share: mix tuned and base weights; auto picks on the dev split [default: none].",
    ),
    "guard": _flag(str, "--guard", "A collection on which merging may lose 0.005 of nDCG@10 at most."),
    "guard_split": _flag(str, "--guard-split", "The guard's split."),
    "max_minutes": _flag(float | None, "--max-minutes", "End cleanly within this time.", min=0.01),
    "track": _flag(str, "--track", "Log to tensorboard, wandb, trackio, mlflow as well."),
    "export": _flag(str, "--export", "onnx: write an ONNX model too, checked against this one."),
    "limit": flags.Limit,
    "seed": flags.Seed,
}

PRETRAINING: dict[str, Any] = TRAINING | {
    "split": flags.Split,
    "negatives": flags.Negatives,
    "sources": _flag(
        str,
        "--sources",
        "How several collections are mixed: weights, as 2,1, or temperature:2, rows^(1/2) [default: by their rows].",
    ),
}

FINETUNING: dict[str, Any] = TRAINING | {
    "negatives": flags.Negatives,
    "curriculum": _flag(str, "--curriculum", "Negatives grow harder: none, linear, stepped."),
    "mix": _flag(str, "--mix", "What negatives are: in-batch, mined, or both, as in-batch:1,mined:3."),
    "teacher_temperature": _flag(
        float, "--teacher-temperature", "Temperature of the teacher's scores in kl.", min=1e-4
    ),
    "standardize": _flag(_Switch, "--standardize", "Bring each row's teacher scores to one scale before kl."),
}

CollectionsArgument = Annotated[
    list[Path],
    typer.Argument(help="One or more collection folders; each is a source.", metavar="COLLECTION..."),
]
