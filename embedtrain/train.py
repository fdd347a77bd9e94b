"""`pretrain` and `finetune`: what each brings to the training of a bi-encoder."""

from collections.abc import Sequence
from pathlib import Path

from embedtrain import batching, console, losses, rows
from embedtrain.artifacts import Claim, beyond_limit
from embedtrain.collection import Collection
from embedtrain.config import DISTILLED, LOSS, FinetuneOptions, PretrainOptions
from embedtrain.drawing import parse_mix
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mined import read_mined
from embedtrain.rows import Sources
from embedtrain.tuning import Tuning, Work


def pretrain(
    claim: Claim, options: PretrainOptions, collections: Sequence[Path], model: str, progress: console.Progress
) -> None:
    """Train on every query and its positives of a split with in-batch negatives; write a model folder.

    Each of several collections is a source of its own.
    """
    opened = [Collection(path) for path in collections]
    sources = Sources(opened)
    found, dropped = sources.pairs(options.split)
    dropped |= beyond_limit(len(found), options.limit)
    found = rows.first(found, options.limit)
    for name, path in zip(sources.names, collections, strict=True):
        if not any(row.source == name for row in found):
            raise EmbedtrainError(
                f"{path} gives no pair to train on in split {options.split}; leave it out, or raise --limit where it is given"
            )
    weights = losses.parse(options.loss or LOSS)
    if wanting := [name for name in weights if name in losses.NEEDS_TEACHER]:
        raise UsageError(f"--loss {wanting[0]} follows a teacher's scores of mined candidates; that is finetune's")
    work = Work(
        sources,
        found,
        dropped,
        weights,
        negatives=options.negatives,
        mixing=_mixing(options, sources),
        dev_collection=opened[0],
    )
    Tuning(claim, options, work, model, progress).run()


def _mixing(options: PretrainOptions, sources: Sources) -> batching.Mixing | None:
    if not options.sources:
        return None
    name, colon, number = options.sources.partition(":")
    if name == "temperature":
        try:
            return batching.Mixing(temperature=float(number) if colon else -1.0)
        except ValueError as error:
            raise UsageError(f"--sources {options.sources}: {number!r} is no number; as temperature:2") from error
    try:
        weights = [float(part) for part in options.sources.split(",")]
    except ValueError:
        weights = []
    if len(weights) != len(sources.names):
        raise UsageError(
            f"--sources {options.sources}: give {len(sources.names)} numbers, one a collection, as 2,1, or temperature:2"
        )
    return batching.Mixing(dict(zip(sources.names, weights, strict=True)))


def finetune(
    claim: Claim,
    options: FinetuneOptions,
    mined_path: Path,
    collection_path: Path,
    model: str,
    progress: console.Progress,
) -> None:
    """Train on the rows of a mined or scored artifact; write a model folder."""
    collection = Collection(collection_path)
    mined = read_mined(mined_path)
    found = [rows.of_mined(row) for row in mined[: options.limit]]
    scored = bool(found) and all(row.teacher is not None for row in found)
    weights = losses.parse(options.loss or (DISTILLED if scored else LOSS))
    wanting = [name for name in weights if name in losses.NEEDS_TEACHER]
    if wanting and not scored:
        raise EmbedtrainError(
            f"--loss {wanting[0]} needs a teacher's scores and {mined_path} has none; "
            "score it with: embedtrain score-teacher"
        )
    comparing = [name for name in weights if name in losses.NEEDS_NEGATIVES]
    if comparing and not options.negatives:
        raise UsageError(f"--negatives 0 leaves {comparing[0]} nothing to compare; give 1 or more")
    mix = parse_mix(options.mix)
    if comparing and not mix.mined:
        raise UsageError(f"--mix {options.mix} leaves {comparing[0]} nothing to compare; name mined too")
    work = Work(
        Sources([collection]),
        found,
        beyond_limit(len(mined), options.limit),
        weights,
        negatives=options.negatives,
        mix=mix,
        curriculum=options.curriculum,
        teacher_temperature=options.teacher_temperature,
        standardize=options.standardize,
        dev_collection=collection,
    )
    Tuning(claim, options, work, model, progress).run()
