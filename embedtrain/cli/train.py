"""`embedtrain pretrain` and `embedtrain finetune`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from embedtrain import config, console
from embedtrain.cli.app import app, mined_inputs, run_stage
from embedtrain.cli.flags import CollectionOption, Force, Json, Model, OutFolder, Quiet
from embedtrain.cli.options import with_options
from embedtrain.cli.training import FINETUNING, PRETRAINING, CollectionsArgument


@app.command(epilog="Example: embedtrain pretrain pairs/ --out pretrained/")
@with_options(config.PretrainOptions, PRETRAINING)
def pretrain(
    collections: CollectionsArgument,
    out: OutFolder,
    options: config.PretrainOptions,
    model: Model = config.MODEL,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on many weak pairs, with in-batch negatives."""

    def claim() -> Any:
        from embedtrain.artifacts import Claim, Input

        inputs = [*(Input.of("collection", path) for path in collections), *_models(model, options)]
        return Claim(out, kind="model", stage="pretrain", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.train import pretrain

        pretrain(claim, options, collections, model, progress)

    run_stage(claim, work, as_json, quiet, together=True)


@app.command(epilog="Example: embedtrain finetune scored.parquet --model pretrained/ --out tuned/")
@with_options(config.FinetuneOptions, FINETUNING)
def finetune(
    mined: Annotated[Path, typer.Argument(help="A mined or scored artifact.", metavar="MINED")],
    out: OutFolder,
    options: config.FinetuneOptions,
    collection: CollectionOption = None,
    model: Model = config.MODEL,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on mined negatives and a teacher's scores."""

    def claim() -> Any:
        from embedtrain.artifacts import Claim

        _, inputs = mined_inputs(mined, collection, "mined", "scored")
        inputs += _models(model, options)
        return Claim(out, kind="model", stage="finetune", options=options, inputs=inputs, force=force)

    def work(claim: Any, progress: console.Progress) -> None:
        from embedtrain.train import finetune

        finetune(claim, options, mined, claim.inputs[1].path, model, progress)

    run_stage(claim, work, as_json, quiet, together=True)


def _models(model: str, options: config.TrainOptions) -> list[Any]:
    """Every model training reads, and the collection that guards merging, as inputs."""
    from embedtrain.artifacts import Input
    from embedtrain.models import find_encoder

    if Path(model).is_file():  # word vectors
        found = [Input.of("model", Path(model))]
    else:
        raw = bool(options.pooling or options.static)
        found = [find_encoder(model, raw=raw).as_input()]
    for role, name in (("guide", options.guide), ("embedding teacher", options.embedding_teacher)):
        if name:
            found.append(find_encoder(name).as_input(role))
    if options.guard:
        found.append(Input.of("guard", Path(options.guard)))
    return found
