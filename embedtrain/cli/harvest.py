"""`embedtrain harvest`."""

import dataclasses
import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, run_stage
from embedtrain.cli.flags import Force, Json, Quiet
from embedtrain.cli.harvesting import HARVEST
from embedtrain.cli.options import with_options
from embedtrain.errors import EmbedtrainError, GateError, UsageError


@app.command(epilog="Example: embedtrain harvest docs/ --out collection/")
@with_options(config.HarvestOptions, HARVEST)
def harvest(
    options: config.HarvestOptions,
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Files, patterns or folders to read; - for standard input.", metavar="SOURCE..."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write.", metavar="FOLDER")] = None,
    exclude: Annotated[
        list[Path] | None,
        typer.Option(
            "--exclude",
            help="A collection you measure on (or COLLECTION:SPLIT): its queries and answers leave train; may be given "
            "again.",
            metavar="COLLECTION",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", help="Only report what this collection shares with --against.", metavar="COLLECTION"
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", help="The collection you measure on.", metavar="COLLECTION")
    ] = None,
    check_split: Annotated[str, typer.Option("--check-split", help="The split of --check.")] = "train",
    max_leak: Annotated[
        float,
        typer.Option("--max-leak", min=0.0, max=1.0, help="With --check: more shared than this ends with 3."),
    ] = 0.0,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a collection (corpus, queries, qrels) of your data."""
    if check is not None or against is not None:
        if check is None or against is None or sources:
            raise UsageError(
                "--check and --against go together, and without a SOURCE: they report, and make nothing"
            )
        _report(check, against, check_split, max_leak, as_json)
        return
    if not sources:
        raise UsageError("missing SOURCE: name the files or folders to read")
    if out is None:
        raise UsageError("missing --out: name the folder to write")
    options = dataclasses.replace(
        options,
        document_column=tuple(options.document_column),
        negative_column=tuple(options.negative_column),
        round_trip_by=tuple(options.round_trip_by),
    )
    excluded = exclude or []

    from embedtrain import atomic, readers

    with readers.standard_input_stored(sources, options.input_format) as paths:

        def claim() -> Any:
            from embedtrain.artifacts import Claim, Input, content_sha256

            inputs = []
            for path in itertools.chain.from_iterable(map(readers.files, paths)):
                if not path.exists():
                    raise EmbedtrainError(f"source {path} does not exist; check the path")
                inputs.append(Input.of("source", path, sha256=content_sha256(path, skip=frozenset())))
            if options.collection:
                inputs.append(Input.of("collection", Path(options.collection)))
            if Path(options.prompt).is_file():
                inputs.append(Input.of("prompt", Path(options.prompt)))
            inputs += [Input.of("excluded", folder) for folder, _ in map(_with_split, excluded)]
            beside = [Path(options.dropped)] if options.dropped else []
            return Claim(
                out, kind="collection", stage="harvest", options=options, inputs=inputs, beside=beside, force=force
            )

        def work(claim: Any, progress: console.Progress) -> None:
            from embedtrain.harvest import harvest

            if "-" in sources:  # it lies elsewhere each time, and what is half read cannot be told from the rest
                atomic.remove(claim.workspace)
            harvest(claim, options, paths, list(map(_with_split, excluded)), progress)

        run_stage(claim, work, as_json, quiet)


def _with_split(path: Path) -> tuple[Path, str]:
    """A collection and, where COLLECTION:SPLIT was given, its split."""
    if not path.exists() and ":" in path.name:
        name, _, split = path.name.rpartition(":")
        return path.with_name(name), split
    return path, ""


def _report(check: Path, against: Path, split: str, max_leak: float, as_json: bool) -> None:
    from embedtrain.harvest import leaks

    found = leaks.check(check, _with_split(against), split)
    if as_json:
        console.print_json(found)
    else:
        print(f"harvest: {check} against {against}")
        for note in found["notes"]:
            print(f"  {note}")
    worst = max(found[side]["share"] for side in ("queries", "documents"))
    if worst > max_leak:
        raise GateError(
            f"{worst:.1%} of {check}'s {split} is in {against}, more than --max-leak {max_leak:g}; leave it out with: "
            f"embedtrain harvest ... --exclude {against}"
        )
