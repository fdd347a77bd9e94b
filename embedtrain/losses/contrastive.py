"""Losses that set the positives of a query against the other texts of the batch; each gives one value a row (B,).

Scores are scaled first, then masked with -inf. Values are computed in float32 at least.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from embedtrain.losses.inputs import Inputs, in_blocks, row_scores, wide
from embedtrain.losses.settings import Settings

HIDDEN = float("-inf")


def scaled(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    """Similarity of some rows' queries to all columns over the temperature, unmasked. (rows, B*K)"""
    return (wide(inputs.queries)[rows] / settings.temperature) @ inputs.columns().T


def harden(scores: Tensor, inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    """Add hardness to the scores of each row's own negatives: their exp is weighed by exp(alpha * sg(s)).

    Schechter Vera et al. 2025 (EmbeddingGemma), the weight w_i of the contrastive loss; s is the similarity before
    the temperature, and sg lets no gradient through, so a weight is a constant of the step. Negatives of other rows
    have none.
    """
    if not settings.hardness:
        return scores
    bonus = torch.where(inputs.negative, settings.hardness * row_scores(inputs).detach(), 0)[rows]
    places = inputs.own(rows)[:, None] + torch.arange(inputs.width, device=scores.device)
    return scores.scatter_add(1, places, bonus.to(scores.dtype))


def infonce(inputs: Inputs, settings: Settings) -> Tensor:
    """Cross-entropy of the positive in a softmax over the batch. (B,)

    q2d: -log(exp(s_i+/t) / sum_c exp(s_ic/t)) over the unmasked documents (van den Oord et al. 2018, eq. 4).
    d2q: the same for row i's positive over the queries. q2q and d2d: the positive pair against the other queries,
    or the positive document against other rows' documents; the positive pair stands in their softmax too, so each
    is a loss with floor 0. Several directions are averaged (Radford et al. 2021 for q2d and d2q), which keeps the
    value comparable with log(candidates); `joint` puts all of them under one sum as the improved contrastive loss
    of Li et al. 2023 (GTE) does, where q2d and d2q each count the positive pair, so that their floor is ln 2.
    A row whose other columns are all masked gives 0.
    """
    return in_blocks(_infonce, inputs, settings, inputs.rows * inputs.width * len(settings.directions))


def _infonce(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    own = inputs.own(rows)
    scores = harden(scaled(inputs, settings, rows), inputs, settings, rows).masked_fill(~inputs.mask[rows], HIDDEN)
    if settings.directions == ("q2d",):
        return cross_entropy(scores, own, reduction="none")
    queries = wide(inputs.queries)
    positives = wide(inputs.documents)[rows, 0] / settings.temperature
    pair = scores.gather(1, own[:, None])
    # Each direction: its scores, and the column of the positive pair, None where it has no such column.
    found: dict[str, tuple[Tensor, Tensor | None]] = {"q2d": (scores, own)}
    if "d2q" in settings.directions:
        place = torch.arange(inputs.rows, device=own.device)[rows]
        found["d2q"] = ((positives @ queries.T).masked_fill(~inputs.reverse_mask[rows], HIDDEN), place)
    if "q2q" in settings.directions:
        other = (queries[rows] / settings.temperature) @ queries.T
        found["q2q"] = (other.masked_fill(~inputs.query_mask[rows], HIDDEN), None)
    if "d2d" in settings.directions:
        mine = torch.arange(inputs.rows * inputs.width, device=own.device) // inputs.width
        kept = inputs.mask[rows] & (mine != (own // inputs.width)[:, None])
        found["d2d"] = ((positives @ inputs.columns().T).masked_fill(~kept, HIDDEN), None)
    if settings.joint:
        return cross_entropy(torch.cat([scores for scores, _ in found.values()], 1), own, reduction="none")
    values = [
        cross_entropy(torch.cat([pair, scores], 1), torch.zeros_like(own), reduction="none")
        if place is None
        else cross_entropy(scores, place, reduction="none")
        for scores, place in found.values()
    ]
    return torch.stack(values).mean(0)


def multi_infonce(inputs: Inputs, settings: Settings) -> Tensor:
    """InfoNCE of each known positive against the negatives alone, averaged over the positives. (B,)

    mean over p of -log(exp(s_p/t) / (exp(s_p/t) + sum_n exp(s_n/t))), n the unmasked columns that show no known
    positive. It is infonce where a row has one positive, and its floor is 0: positives do not compete as they do
    in supcon, whose floor is log(positives).
    """
    return in_blocks(_multi_infonce, inputs, settings, inputs.rows * inputs.width)


def _multi_infonce(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    scores = harden(scaled(inputs, settings, rows), inputs, settings, rows)
    positives = inputs.positives[rows]
    negatives = inputs.mask[rows] & ~positives
    # The sum over no negatives is exp(-inf); taken over all columns first, for its gradient would be NaN.
    some = negatives.any(1, keepdim=True)
    against = scores.masked_fill(~(negatives | ~some), HIDDEN).logsumexp(1, keepdim=True)
    against = torch.where(some, against, HIDDEN)
    values = torch.logaddexp(torch.zeros_like(scores), against - scores)
    return torch.where(positives, values, 0).sum(1) / positives.sum(1)


def supcon(inputs: Inputs, settings: Settings) -> Tensor:
    """Supervised contrastive loss, query against documents. (B,)

    mean over p of -log(exp(s_p/t) / sum_a exp(s_a/t)) (Khosla et al. 2020, eq. 2, "out"). Positives are the known
    positives of the query and the positive documents of every row with its label; a document that two rows of the
    label share counts in both. a runs over them and the unmasked columns. Negatives of other rows carry no label.
    Without labels, the known positives alone; with one positive it is infonce.
    """
    return in_blocks(_supcon, inputs, settings, inputs.rows * inputs.width)


def _supcon(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    positives = inputs.positives[rows]
    if inputs.labels is not None:
        labels = inputs.labels
        same = (labels[rows, None] == labels[None]) & (labels[rows, None] >= 0)
        shown = (inputs.present & ~inputs.negative).flatten()
        positives = positives | (same.repeat_interleave(inputs.width, 1) & shown)
    hidden = ~(inputs.mask[rows] | positives)
    shares = scaled(inputs, settings, rows).masked_fill(hidden, HIDDEN).log_softmax(1)
    return -torch.where(positives, shares, 0).sum(1) / positives.sum(1)


def siglip(inputs: Inputs, settings: Settings) -> Tensor:
    """Pairwise sigmoid: each unmasked column is a question of its own, relevant or not. (B,)

    -sum_c log sigmoid(z_ic (scale * s_ic + bias)), z 1 for known positives and -1 for the rest (Zhai et al. 2023,
    section 3.2, whose mean is over rows, not over pairs).
    """
    return in_blocks(_siglip, inputs, settings, inputs.rows * inputs.width)


def _siglip(inputs: Inputs, settings: Settings, rows: slice) -> Tensor:
    positives = inputs.positives[rows]
    scores = (wide(inputs.queries)[rows] * settings.siglip_scale) @ inputs.columns().T + settings.siglip_bias
    values = -logsigmoid(torch.where(positives, scores, -scores))
    return torch.where(inputs.mask[rows] | positives, values, 0).sum(1)


def triplet(inputs: Inputs, settings: Settings) -> Tensor:
    """Hinge of the positive over each of the row's own negatives, averaged over them. (B,)

    max(0, margin - s+ + s-): with unit vectors the cosine form of Schroff et al. 2015 (FaceNet), section 3.1. A row without
    negatives of its own gives 0.
    """
    scores = row_scores(inputs)
    hinges = torch.relu(settings.margin - scores[:, :1] + scores)
    return torch.where(inputs.negative, hinges, 0).sum(1) / inputs.negative.sum(1).clamp(min=1)
