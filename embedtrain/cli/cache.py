"""`embedtrain cache`: what is kept between runs, and its removal."""

from typing import Annotated

import typer

from embedtrain import console
from embedtrain.cli.app import app
from embedtrain.cli.flags import Json


@app.command(epilog="Example: embedtrain cache --clear --older-than 30")
def cache(
    model: Annotated[
        str | None, typer.Option("--model", help="Only what this model made, by its name in the list.")
    ] = None,
    older_than: Annotated[
        int | None, typer.Option("--older-than", min=0, help="Only what was not used for N days.", metavar="N")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove what is listed.")] = False,
    as_json: Json = False,
) -> None:
    """Show the vectors and scores that are kept between runs, model by model, or remove them."""
    from embedtrain import cache as kept
    from embedtrain.store import stores_folder

    entries = kept.contents(model, older_than)
    total = sum(entry.bytes for entry in entries)
    left = kept.clear(entries) if clear else []
    if as_json:
        listed = [entry.as_dict() for entry in entries]
        where = str(stores_folder())
        console.print_json({"folder": where, "bytes": total, "cleared": clear, "entries": listed})
    else:
        rows = [
            [entry.model, entry.what, f"{entry.vectors:,}", str(entry.dimension), entry.precision]
            + [console.size(entry.bytes), entry.last_used.isoformat()]
            for entry in entries
        ]
        if rows:
            console.table(["model", "of", "vectors", "dimension", "precision", "size", "last used"], rows)
        verb = "removed" if clear else "cache"
        count = sum(entry.vectors for entry in entries)
        print(f"{verb}: {count:,} vectors, {console.size(total)}, in {stores_folder()}")
    for folder in left:
        console.hint(f"{folder} stays: it holds files that are not the cache's")
