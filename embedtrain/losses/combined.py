"""The losses by name: what `--loss` may say, what each needs, and their weighted sum."""

import difflib
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from embedtrain.errors import UsageError
from embedtrain.losses import contrastive, distillation
from embedtrain.losses.inputs import Inputs
from embedtrain.losses.settings import Settings
from embedtrain.losses.wrappers import Loss, matryoshka, spread_out

LOSSES: dict[str, Loss] = {
    "infonce": contrastive.infonce,
    "multi-infonce": contrastive.multi_infonce,
    "siglip": contrastive.siglip,
    "triplet": contrastive.triplet,
    "supcon": contrastive.supcon,
    "margin-mse": distillation.margin_mse,
    "kl": distillation.kl,
    "cosine": distillation.cosine,
    "score": distillation.score,
}
NAMES = tuple(LOSSES)
# Teacher scores of the row's documents.
NEEDS_TEACHER = ("kl", "margin-mse")
# Vectors of a bigger bi-encoder, of queries and documents.
NEEDS_VECTORS = ("cosine", "score")
# Labels, or queries with more than one positive: else it is infonce.
NEEDS_LABELS = ("supcon",)
# More documents in a row than the positive: else they are 0.
NEEDS_NEGATIVES = ("triplet", "margin-mse", "kl")
# The temperature acts on these.
TEMPERED = ("infonce", "multi-infonce", "supcon", "margin-mse", "kl")


def parse(text: str) -> dict[str, float]:
    """Parse a weighted sum, as `infonce:0.2,kl:1.0`, into {name: weight}; a weight left out is 1.

    Raises UsageError for an unknown name, a weight that is no finite number above 0, a repeated name.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        if name not in LOSSES:
            near = difflib.get_close_matches(name, NAMES, 1)
            hint = f", did you mean {near[0]}" if near else ""
            raise UsageError(f"--loss {text}: {name!r} is no loss{hint}; the losses are {', '.join(NAMES)}")
        if name in weights:
            raise UsageError(f"--loss {text}: {name} stands twice; give it one weight")
        try:
            weights[name] = float(weight) if weight else 1.0
        except ValueError as error:
            raise UsageError(f"--loss {text}: {weight!r} is no number; write {name}:0.5") from error
        if not 0 < weights[name] < math.inf:
            raise UsageError(f"--loss {text}: the weight of {name} must be above 0; leave the loss out instead")
    return weights


def combined(weights: Mapping[str, float], inputs: Inputs, settings: Settings) -> dict[str, Tensor]:
    """Each named loss as its mean over rows, over the prefixes where there are any, unweighted: {name: scalar}.

    With `settings.gor` also "gor", unweighted. Never under autocast: a matmul in half precision would undo it.
    """
    with torch.autocast(inputs.queries.device.type, enabled=False):
        parts = {
            name: matryoshka(LOSSES[name], inputs, settings, teacher=name == "cosine").mean() for name in weights
        }
        if settings.gor:
            parts["gor"] = spread_out(inputs, settings)
    return parts


def total(weights: Mapping[str, float], parts: Mapping[str, Tensor], settings: Settings) -> Tensor:
    """The weighted sum of what `combined` gives. Scalar"""
    weighed = {"gor": settings.gor, **weights}
    return torch.stack([weighed[name] * value for name, value in parts.items()]).sum()
