"""`embedtrain inspect` and `embedtrain doctor`: what is there."""

from pathlib import Path
from typing import Annotated

import typer

from embedtrain import console
from embedtrain.cli.app import app
from embedtrain.cli.flags import CollectionOption, Json


@app.command(epilog="Example: embedtrain inspect mined.parquet")
def inspect(
    file: Annotated[Path, typer.Argument(help="Any artifact: file or folder.", metavar="FILE")],
    collection: CollectionOption = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="How many rows to show with texts.")] = 3,
    as_json: Json = False,
) -> None:
    """Say what an artifact is, and what it was made from."""
    from embedtrain.inspection import inspect_artifact

    found = inspect_artifact(file, collection, examples)
    if as_json:
        console.print_json(found.as_dict())
    else:
        print(found.as_text())


@app.command(epilog="Example: embedtrain doctor")
def doctor(as_json: Json = False) -> None:
    """Say what this machine offers: cores, GPU, models, hub."""
    from embedtrain.doctor import examine

    found = examine()
    if as_json:
        console.print_json(found)
    else:
        console.pairs([(name, str(value)) for name, value in found.items()])
