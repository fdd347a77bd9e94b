"""Flags that several commands share: declared once, here, and meaning the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from embedtrain.precision import check_precision, check_training_precision

OutFile = Annotated[Path, typer.Option("--out", help="The Parquet file to write.", metavar="FILE")]
OutFolder = Annotated[Path, typer.Option("--out", help="The folder to write.", metavar="FOLDER")]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of everything random; the same seed, the same bytes."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Work on the first N queries only.")]
Force = Annotated[bool, typer.Option("--force", help="Do it again even when the output is up to date.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no hints on standard error.")]
CollectionArgument = Annotated[
    Path,
    typer.Argument(help="A collection folder (BEIR layout: corpus, queries, qrels).", metavar="COLLECTION"),
]
CollectionOption = Annotated[
    Path | None,
    typer.Option("--collection", help="The collection the ids belong to [default: the recorded one]."),
]
Model = Annotated[str, typer.Option("--model", help="Local model folder or hub name.", metavar="MODEL")]
Split = Annotated[str, typer.Option("--split", help="The split whose queries are used.")]
GuardSplit = Annotated[str, typer.Option("--guard-split", help="The guard's split.")]
_PRECISION = "What layers compute in: float32, bfloat16, or auto: bfloat16 where the processor or GPU has it; float16 in training."
Precision = Annotated[str, typer.Option("--precision", callback=check_precision, help=_PRECISION)]
TrainingPrecision = Annotated[str, typer.Option("--precision", callback=check_training_precision, help=_PRECISION)]
Language = Annotated[
    str,
    typer.Option(
        "--language", help="Language of stemmer and stop words for BM25; none; auto: what most documents show."
    ),
]
Bm25Backend = Annotated[
    str, typer.Option("--bm25-backend", help="bm25s, or rank-bm25, which is slow and easy to read.")
]
Bm25Variant = Annotated[
    str,
    typer.Option("--bm25-variant", help="lucene (bm25s), okapi (both), l (rank-bm25) or plus (both)."),
]
K1 = Annotated[
    float, typer.Option("--k1", min=0.01, help="BM25: how much more a word's further occurrences count.")
]
B = Annotated[float, typer.Option("--b", min=0.0, max=1.0, help="BM25: how much a document's length counts.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=2, help="Queries a step.")]
_RATE = typer.Option(
    "--learning-rate", min=0.0, help="Highest learning rate; training chooses by stage and model size."
)
LearningRate = Annotated[float, _RATE]
LearningRateOrChosen = Annotated[float | None, _RATE]
Epochs = Annotated[float, typer.Option("--epochs", min=0.001, help="Passes over the rows; fractions are allowed.")]
_NEGATIVES = typer.Option("--negatives", min=0, help="Negatives of its own a query has, at most.")
Negatives = Annotated[int, _NEGATIVES]
NegativesOrMined = Annotated[int | None, _NEGATIVES]
MaxPairLength = Annotated[int, typer.Option("--max-length", min=8, help="Tokens of query and document together.")]
MaxPairLengthOrOwn = Annotated[
    int | None,
    typer.Option(
        "--max-length", min=8, help="Tokens of query and document together [default: the teacher's own]."
    ),
]
Temperature = Annotated[float, typer.Option("--temperature", min=1e-4, help="Temperature of the softmax.")]
MaxQueryLength = Annotated[int, typer.Option("--max-query-length", min=4, help="Tokens of a query in training.")]
MaxDocumentLength = Annotated[
    int, typer.Option("--max-document-length", min=4, help="Tokens of a document in training.")
]
Dropout = Annotated[float, typer.Option("--dropout", min=0.0, max=0.9, help="Dropout in training.")]
QueryPrompt = Annotated[
    str | None, typer.Option("--query-prompt", help="Text put before every query; saved with the model.")
]
DocumentPrompt = Annotated[
    str | None,
    typer.Option("--document-prompt", help="Text put before every document; saved with the model."),
]
MinedArgument = Annotated[Path, typer.Argument(help="A mined artifact.", metavar="MINED")]
