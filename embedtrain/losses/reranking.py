"""Losses of a cross-encoder over its rows: logits (B, 1+N), the positive in column 0, one value a row (B,)."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from embedtrain.losses.contrastive import HIDDEN
from embedtrain.losses.inputs import wide

# How far, in logits, a positive shall stand above each negative.
MARGIN = 1.0


def _check(scores: Tensor, present: Tensor) -> None:
    if present.dtype != torch.bool or present.shape != scores.shape:
        raise ValueError(
            f"present must be boolean {tuple(scores.shape)}, not {present.dtype} {tuple(present.shape)}"
        )


def _mean(values: Tensor, present: Tensor) -> Tensor:
    """Mean over the row's negatives; 0 where there is none. values, present (B, 1+N) -> (B,)"""
    return torch.where(present, values, 0)[:, 1:].sum(1) / present[:, 1:].sum(1).clamp(min=1)


def listwise(scores: Tensor, present: Tensor) -> Tensor:
    """Cross-entropy of the positive in the softmax over its row.

    The loss of cross-encoders trained on groups (Gao et al. 2021, "Rethink Training of BERT Rerankers").
    """
    _check(scores, present)
    targets = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return cross_entropy(wide(scores).masked_fill(~present, HIDDEN), targets, reduction="none")


def binary(scores: Tensor, present: Tensor) -> Tensor:
    """Log loss of each pair by itself: -log sigmoid(s+), and the mean of -log(1 - sigmoid(s-)), half each.

    Half each, so that a row's many negatives do not pull every logit down (Nogueira and Cho 2019 sum over all pairs).
    """
    _check(scores, present)
    values = wide(scores)
    return (softplus(-values[:, 0]) + _mean(softplus(values), present)) / 2


def margin(scores: Tensor, present: Tensor) -> Tensor:
    """Mean over the negatives of max(0, 1 - s+ + s-), in logits (the pairwise hinge of a ranking SVM, Joachims 2002)."""
    _check(scores, present)
    values = wide(scores)
    return _mean(torch.relu(MARGIN - values[:, :1] + values), present)


RERANKING = {"listwise": listwise, "binary": binary, "margin": margin}
