"""Every objective as a pure function of `Inputs` and `Settings`; losses never know of processes or of chunks."""

from embedtrain.losses.combined import (
    LOSSES,
    NAMES,
    NEEDS_LABELS,
    NEEDS_NEGATIVES,
    NEEDS_TEACHER,
    NEEDS_VECTORS,
    combined,
    parse,
    total,
)
from embedtrain.losses.contrastive import infonce, multi_infonce, siglip, supcon, triplet
from embedtrain.losses.curves import Rows, curve, curves_by_row
from embedtrain.losses.distillation import cosine, kl, margin_mse, score, unequal
from embedtrain.losses.inputs import Inputs, normalized, row_scores
from embedtrain.losses.objective import Objective
from embedtrain.losses.reranking import RERANKING
from embedtrain.losses.settings import DIRECTIONS, Settings, parse_dimensions
from embedtrain.losses.wrappers import matryoshka, spread_out

__all__ = [
    "DIRECTIONS",
    "LOSSES",
    "NAMES",
    "NEEDS_LABELS",
    "NEEDS_NEGATIVES",
    "NEEDS_TEACHER",
    "NEEDS_VECTORS",
    "RERANKING",
    "Inputs",
    "Objective",
    "Rows",
    "Settings",
    "combined",
    "cosine",
    "curve",
    "curves_by_row",
    "infonce",
    "kl",
    "margin_mse",
    "matryoshka",
    "multi_infonce",
    "normalized",
    "parse",
    "parse_dimensions",
    "row_scores",
    "score",
    "siglip",
    "spread_out",
    "supcon",
    "total",
    "triplet",
    "unequal",
]
