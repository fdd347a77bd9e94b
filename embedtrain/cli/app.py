"""The command line's app, and how every command runs its stage: claim the output, work, print."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from embedtrain import console
from embedtrain.errors import UsageError

app = typer.Typer(
    name="embedtrain",
    help="From documents and logs to a better retrieval embedding model, in one pipeline: "
    "harvest, mine, train-teacher, score-teacher, pretrain, finetune, eval, diagnose.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show(claim: Any, more: Callable[[Any], dict[str, Any]], *, as_json: bool) -> None:
    """Print what a stage made: its summary, its drops, and where it is; then see what is `more`, which only JSON holds."""
    record = claim.record
    if as_json:
        result = {
            "stage": claim.stage,
            "out": str(claim.out),
            "up_to_date": claim.up_to_date,
            "rows": record["rows"],
            "dropped": record["dropped"],
            **record["summary"],
            **more(claim),
        }
        console.print_json(result)
        return
    if claim.up_to_date:
        print(f"{claim.stage}: up to date: {claim.out}")
    else:
        print(f"{claim.stage}: {claim.out}")
    console.summary(record["summary"], record["dropped"])
    more(claim)


def run_stage(
    make_claim: Callable[[], Any],
    work: Callable[[Any, console.Progress], None],
    as_json: bool,
    quiet: bool,
    *,
    together: bool = False,
    more: Callable[[Any], dict[str, Any]] = lambda claim: {},
) -> Any:
    """Claim an output, make it unless it is up to date, print what it is; returns the claim.

    Of several processes of a launch one claims, writes and prints; the others only help, where the stage shares its
    work (`together`). What `more` makes of the claim, made or found, stands in the JSON too. Raises UsageError for several processes of another stage: each would do the whole of it.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not together:
        raise UsageError("this command works in one process; only pretrain and finetune are started by a launcher")
    if os.environ.get("RANK", "0") != "0":
        claim = make_claim()
        if not claim.up_to_date:
            work(claim, console.silent)
        return claim
    claim = make_claim()
    if claim.up_to_date:
        claim.close()  # a run may have died between its last rename and this
    else:
        try:
            with console.progress(quiet) as progress:
                work(claim, progress)
        except BaseException:
            claim.abandon()
            raise
        claim.close()
    _show(claim, more, as_json=as_json)
    return claim


def mined_inputs(mined: Path, collection: Path | None, *kinds: str) -> tuple[Path, list[Any]]:
    """The collection a mined or scored artifact belongs to, and both as inputs of a stage."""
    from embedtrain import artifacts

    record = artifacts.require_kind(mined, *kinds)
    path = collection or artifacts.find_input(record, "collection", mined)
    given = artifacts.Input.of("collection", path)
    artifacts.check_same_input(record, "collection", given.sha256, mined)
    return path, [artifacts.Input.of(record["kind"], mined), given]
