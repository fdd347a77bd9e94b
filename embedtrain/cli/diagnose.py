"""`embedtrain diagnose`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, mined_inputs, run_stage
from embedtrain.cli.flags import Force, Json, Limit, OutFolder, Precision, Quiet, Seed, Split
from embedtrain.errors import GateError, UsageError

# From best to worst.
_VERDICTS = ("healthy", "watch", "collapsed")


@app.command(epilog="Example: embedtrain diagnose tuned/ --collection collection/ --against BASE --out report/")
def diagnose(
    out: OutFolder,
    collection: Annotated[Path, typer.Option("--collection", help="The collection to look at the model with.")],
    model: Annotated[
        str | None,
        typer.Argument(
            help="Local model folder or hub name; without one the data are looked at.", metavar="MODEL"
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="The base model to set beside it.", metavar="MODEL")
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option("--eval", help="An evaluation whose table goes into the report.", metavar="FOLDER"),
    ] = None,
    mined: Annotated[
        Path | None,
        typer.Option(
            "--mined", help="The mined or scored rows it was trained on: they are audited.", metavar="MINED"
        ),
    ] = None,
    temperature_lab: Annotated[
        bool,
        typer.Option(
            "--temperature-lab", help="What each temperature would look at among the candidates of --mined."
        ),
    ] = config.DiagnoseOptions.temperature_lab,
    label_column: Annotated[
        str | None,
        typer.Option("--label-column", help="Corpus column whose values are the clusters. [default: k-means]"),
    ] = config.DiagnoseOptions.label_column,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on", help="End with exit code 3 where the verdict is this or worse: watch or collapsed."
        ),
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
    options = config.DiagnoseOptions(split, sample, temperature_lab, label_column, precision, limit, seed)
    _check(model, against, evaluation, mined, options, fail_on)

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input, require_kind
        from embedtrain.models import find_encoder

        inputs = [Input.of("collection", collection)]
        inputs += [find_encoder(model).as_input()] if model else []
        inputs += [find_encoder(against).as_input("base")] if against else []
        if mined:
            inputs.append(mined_inputs(mined, collection, "mined", "scored")[1][0])
        if evaluation:
            require_kind(evaluation, "evaluation")
            inputs.append(Input.of("evaluation", evaluation))
        return Claim(out, kind="report", stage="diagnose", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.diagnose import Subject, diagnose

        diagnose(claim, options, collection, Subject(model, against, evaluation, mined), progress)

    made = run_stage(claim, work, as_json, quiet)
    if fail_on:
        verdict = made.record["summary"]["verdict"]
        if _VERDICTS.index(verdict) >= _VERDICTS.index(fail_on):
            raise GateError(
                f"--fail-on {fail_on}: the verdict is {verdict}; see {made.out / made.record['summary']['report']}"
            )


def _check(
    model: str | None,
    against: str | None,
    evaluation: Path | None,
    mined: Path | None,
    options: config.DiagnoseOptions,
    fail_on: str | None,
) -> None:
    """Raise UsageError for flags that do not go together."""
    if model is None and mined is None:
        raise UsageError("name a model to look at, or rows to audit with --mined")
    if model is None and (against or evaluation):
        raise UsageError(
            f"{'--against' if against else '--eval'} is about a model, and none is named; name it first"
        )
    if options.temperature_lab and (mined is None or model is None):
        raise UsageError(
            "--temperature-lab looks at a model's similarities to mined candidates; name MODEL and --mined"
        )
    if fail_on is not None and fail_on not in _VERDICTS[1:]:
        raise UsageError(f"--fail-on {fail_on}: {' and '.join(_VERDICTS[1:])} are the choices")
