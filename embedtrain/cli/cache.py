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
    """Show the vectors, scores and replies that are kept between runs, model by model, or remove them."""
    from embedtrain import cache as kept
    from embedtrain.models import cache_folder

    entries = kept.contents(model, older_than)
    stays: list[str] = []
    if clear:
        cleared = kept.clear(entries)
        entries, stays = cleared.entries, cleared.stays
    total = sum(entry.bytes for entry in entries)
    if as_json:
        listed = [entry.as_dict() for entry in entries]
        where = str(cache_folder())
        console.print_json({"folder": where, "bytes": total, "cleared": clear, "entries": listed, "stays": stays})
    else:
        rows = [
            [entry.model, entry.what, f"{entry.count:,}"]
            + (["-", "-"] if entry.replies else [str(entry.dimension), entry.precision])
            + [console.size(entry.bytes), entry.last_used.isoformat()]
            for entry in entries
        ]
        if rows:
            console.table(["model", "of", "count", "dimension", "precision", "size", "last used"], rows)
        verb = "removed" if clear else "cache"
        vectors = sum(entry.vectors for entry in entries)
        replies = sum(entry.count for entry in entries if entry.replies)
        print(f"{verb}: {vectors:,} vectors, {replies:,} replies, {console.size(total)}, in {cache_folder()}")
    for sentence in stays:
        console.hint(sentence)
