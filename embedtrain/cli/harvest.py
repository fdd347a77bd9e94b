"""`embedtrain harvest`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, run_stage
from embedtrain.cli.flags import Force, Json, Limit, OutFolder, Quiet, Seed
from embedtrain.errors import EmbedtrainError


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
    """Make a collection (corpus, queries, qrels) of your data."""
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

    run_stage(claim, work, as_json, quiet)
