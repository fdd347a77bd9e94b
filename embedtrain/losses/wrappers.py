"""What stands around a loss: prefixes of the vectors, and the regulariser that spreads them out."""

from collections.abc import Callable

import torch
from torch import Tensor

from embedtrain.losses.inputs import Inputs, in_blocks, normalized, wide
from embedtrain.losses.settings import Settings

Loss = Callable[[Inputs, Settings], Tensor]


def matryoshka(loss: Loss, inputs: Inputs, settings: Settings, *, teacher: bool = False) -> Tensor:
    """A loss over prefixes of the vectors, normalised again: the weighted mean over `settings.dimensions`. (B,)

    Kusupati et al. 2022, eq. 1, divided by the sum of the weights, so that neither the value nor the step grows
    with the number of prefixes. The whole vector is taken as it is. `teacher` cuts the teacher's vectors too,
    which only a teacher trained on prefixes bears well. Without dimensions: the loss itself.
    """
    if not settings.dimensions:
        return loss(inputs, settings)
    weights = settings.dimension_weights or (1.0,) * len(settings.dimensions)
    whole = inputs.queries.shape[1]
    values = [
        weight * loss(inputs if size == whole else inputs.prefix(size, teacher=teacher), settings)
        for size, weight in zip(settings.dimensions, weights, strict=True)
    ]
    return torch.stack(values).sum(0) / sum(weights)


def spread_out(inputs: Inputs, settings: Settings) -> Tensor:
    """Global orthogonal regulariser: unrelated vectors should be as far apart as random ones. Scalar

    M1^2 + max(0, M2 - 1/D), M1 and M2 the mean and the mean square of the cosines of unrelated pairs (Zhang et al.
    2017, "Learning Spread-out Local Feature Descriptors"), for queries and for positives apart, averaged
    over the two. Unrelated: not masked from each other. The whole vectors, whatever the prefixes.
    """

    def queries(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
        return _moments(wide(inputs.queries), inputs.query_mask[rows], rows)

    def positives(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
        pairs = inputs.mask[rows, :: inputs.width].clone()
        pairs[torch.arange(len(pairs)), torch.arange(inputs.rows)[rows]] = False
        return _moments(wide(inputs.documents)[:, 0], pairs, rows)

    values = []
    for side in (queries, positives):
        total, squares, count = in_blocks(side, inputs, settings, inputs.rows).sum(0)
        count = count.clamp(min=1)
        values.append((total / count).square() + torch.relu(squares / count - 1 / inputs.queries.shape[1]))
    return torch.stack(values).mean()


def _moments(vectors: Tensor, pairs: Tensor, rows: slice) -> Tensor:
    """Of each row's cosines to its pairs: sum, sum of squares, count. (rows, 3)"""
    unit = normalized(vectors)
    cosines = torch.where(pairs, unit[rows] @ unit.T, 0)
    return torch.stack([cosines.sum(1), cosines.square().sum(1), pairs.sum(1).to(cosines.dtype)], 1)
