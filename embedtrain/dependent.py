"""Flags that mean something beside others only: given alone they would be passed over, so they are refused."""

import dataclasses
import math
from collections.abc import Collection, Mapping

from embedtrain.config import TrainOptions
from embedtrain.errors import UsageError


def _needs(losses: Collection[str]) -> Mapping[str, tuple[bool, str]]:
    """For losses that are used: options by name, whether they would act, and what they act on."""
    return {
        "embedding_teacher": (bool({"cosine", "score"} & set(losses)), "--loss cosine or score"),
        "project": ("cosine" in losses, "--loss cosine"),
        "teacher_temperature": (bool({"kl", "margin-mse"} & set(losses)), "--loss kl or margin-mse"),
        "standardize": (bool({"kl", "margin-mse"} & set(losses)), "--loss kl or margin-mse"),
        "margin": ("triplet" in losses, "--loss triplet"),
        "hardness": (bool({"infonce", "multi-infonce"} & set(losses)), "--loss infonce or multi-infonce"),
        "joint": ("infonce" in losses, "--loss infonce"),
    }


def check(options: TrainOptions, losses: Collection[str], *, words: bool) -> None:
    """Raise UsageError for an option that would do nothing, and for a number that is none.

    `words`: training starts from a file of word vectors.
    """
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{_flag(name)} {value:g}: give a finite number")
    needs = dict(_needs(losses)) | {
        "guide_margin": (bool(options.guide), "--guide"),
        "topics": (options.homogeneous == "topic", "--homogeneous topic"),
        "patience": (bool(options.dev_split), "--dev-split"),
        "dev_documents": (bool(options.dev_split), "--dev-split"),
        "guard": (options.merge == "auto", "--merge auto"),
        "guard_split": (bool(options.guard), "--guard"),
        "pooling": (not (words or options.static), "a transformer; static models average"),
        "static": (not words, "a model's tokenizer, and word vectors bring their own"),
    }
    for field in dataclasses.fields(options):
        acts, on = needs.get(field.name, (True, ""))
        if not acts and values[field.name] != field.default:
            raise UsageError(f"{_flag(field.name)} acts on {on}; leave it out or name that too")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
