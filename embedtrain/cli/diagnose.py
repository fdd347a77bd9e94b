"""`embedtrain diagnose`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, run_stage
from embedtrain.cli.flags import Force, Json, Limit, OutFolder, Precision, Quiet, Seed, Split


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
    precision: Precision = config.DiagnoseOptions.precision,
    limit: Limit = config.DiagnoseOptions.limit,
    seed: Seed = config.DiagnoseOptions.seed,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at a model's space, and make one page to read."""
    options = config.DiagnoseOptions(split, sample, precision, limit, seed)

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input, require_kind
        from embedtrain.models import find_encoder

        inputs = [Input.of("collection", collection), find_encoder(model).as_input()]
        inputs += [find_encoder(against).as_input("base")] if against else []
        if evaluation:
            require_kind(evaluation, "evaluation")
            inputs.append(Input.of("evaluation", evaluation))
        return Claim(out, kind="report", stage="diagnose", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.diagnose import diagnose

        diagnose(claim, options, collection, model, against, evaluation, progress)

    run_stage(claim, work, as_json, quiet)
