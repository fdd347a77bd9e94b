"""`embedtrain export`: what other training code reads."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, mined_inputs, run_stage
from embedtrain.cli.flags import CollectionOption, Force, Json, NegativesOrMined, Quiet, Split


@app.command(epilog="Example: embedtrain export mined.parquet --to flagembedding --out train.jsonl")
def export(
    source: Annotated[
        Path,
        typer.Argument(help="A collection folder, or a mined or scored artifact of one.", metavar="SOURCE"),
    ],
    out: Annotated[Path, typer.Option("--out", help="The file or folder to write.", metavar="PATH")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="beir, msmarco (folders); triplets, tuples, lists, flagembedding, tevatron (files)."
        ),
    ] = config.ExportOptions.to,
    collection: CollectionOption = None,
    split: Split = config.ExportOptions.split,
    negatives: NegativesOrMined = config.ExportOptions.negatives,
    ragged: Annotated[
        bool, typer.Option("--ragged", help="Tuples with a list of negatives, however many a row has.")
    ] = config.ExportOptions.ragged,
    labels: Annotated[
        str, typer.Option("--labels", help="Of lists: grades, or the teacher's scores.")
    ] = config.ExportOptions.labels,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a collection, or mined rows, as other training code reads them."""
    from embedtrain.artifacts import Claim, Input
    from embedtrain.collection import Collection
    from embedtrain.exchange import export as write
    from embedtrain.exchange import summary

    options = config.ExportOptions(to, split, negatives, ragged, labels)
    if source.is_dir() or not source.exists():
        mined, path, inputs = None, source, [Input.of("collection", source)]
    else:
        mined = source
        path, inputs = mined_inputs(source, collection, "mined", "scored")
    if to == "beir" and mined is None:

        def work(claim: Any, progress: console.Progress) -> None:
            write(Collection(path), None, out, options, progress, claim=claim)

        run_stage(
            lambda: Claim(out, kind="collection", stage="export", options=options, inputs=inputs, force=force),
            work,
            as_json,
            quiet,
        )
        return
    with console.progress(quiet) as progress:
        made = write(Collection(path), mined, out, options, progress, force=force)
    told = summary(made, options)
    if as_json:
        console.print_json(
            {"stage": "export", "out": str(out), "rows": made.rows, "dropped": made.dropped, **told}
        )
        return
    print(f"export: {out}")
    console.summary({"rows": made.rows, **told}, made.dropped)
