"""What a step's curve shows of the query->document softmax: is there still something to learn, and from whom?"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from embedtrain.losses.contrastive import HIDDEN, harden, scaled
from embedtrain.losses.inputs import Inputs, blocks
from embedtrain.losses.settings import Settings


@dataclass(frozen=True)
class Rows:
    """One number a row (B,), NaN where a row has none; nats where logarithms are."""

    candidates: Tensor  # unmasked columns, the positive among them
    accuracy: Tensor  # 1 where the positive scores above all of its negatives (a tie is a miss), else 0
    hardest: Tensor  # the hardest negative's share of the gradient that pushes negatives away
    entropy: Tensor  # of those shares
    relative_entropy: Tensor  # the same over its ceiling log(negatives): 1 when all push alike
    loss: Tensor  # -log p of the positive, plain q2d without hardness
    masked: Tensor  # share of the present columns, the own positive aside, that are hidden


@torch.no_grad()
def curves_by_row(inputs: Inputs, settings: Settings) -> Rows:
    """The curve's numbers before they are averaged."""
    found: list[list[Tensor]] = []
    for rows in blocks(inputs.rows, inputs.rows * inputs.width):
        with torch.autocast(inputs.queries.device.type, enabled=False):
            scores = scaled(inputs, settings, rows)
        found.append(_block(scores, inputs, settings, rows))
    return Rows(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _block(scores: Tensor, inputs: Inputs, settings: Settings, rows: slice) -> list[Tensor]:
    own = inputs.own(rows)[:, None]
    mask = inputs.mask[rows]
    negatives = mask.scatter(1, own, torch.zeros_like(own, dtype=torch.bool))
    count = negatives.sum(1)
    some, several = count > 0, count > 1
    nothing = torch.full_like(scores[:, 0], float("nan"))

    positive = scores.gather(1, own)[:, 0]
    best = scores.masked_fill(~negatives, HIDDEN).amax(1)
    loss = -scores.masked_fill(~mask, HIDDEN).log_softmax(1).gather(1, own)[:, 0]
    # d loss / d s_j = p_j / t: the shares of the push are a softmax over the negatives alone.
    shares = harden(scores, inputs, settings, rows).masked_fill(~negatives, HIDDEN).log_softmax(1)
    weights = torch.where(negatives, shares.exp(), 0)
    entropy = -torch.where(negatives, weights * shares, 0).sum(1)
    ceiling = torch.where(several, count, 2).to(scores.dtype).log()
    others = inputs.present.sum() - 1
    hidden = (inputs.present.flatten() & ~mask).sum(1)
    return [
        (count + 1).to(scores.dtype),
        torch.where(some, (positive > best).to(scores.dtype), nothing),
        torch.where(some, weights.amax(1), nothing),
        torch.where(some, entropy, nothing),
        torch.where(several, entropy / ceiling, nothing),
        loss,
        torch.where(others > 0, hidden / others.clamp(min=1), nothing),
    ]


def curve(inputs: Inputs, settings: Settings) -> dict[str, float]:
    """The step's numbers, each the mean over the rows that have it; one that no row has is left out.

    information: log(candidates) - loss, a lower bound on the mutual information of query and document (van den
    Oord et al. 2018, section 2.3), in nats, never above information_ceiling, the mean of log(candidates).
    no_negatives counts the rows that train on nothing.
    """
    rows = curves_by_row(inputs, settings)
    ceiling = rows.candidates.log()
    means = {field.name: getattr(rows, field.name) for field in fields(Rows) if field.name != "loss"}
    means |= {"information": ceiling - rows.loss, "information_ceiling": ceiling}
    names = {"hardest": "hardest_share", "entropy": "negative_entropy", "masked": "masked_share"}
    names |= {"relative_entropy": "negative_entropy_relative"}
    table = {names.get(name, name): float(values.double().nanmean()) for name, values in means.items()}
    kept = {name: value for name, value in table.items() if value == value}
    return kept | {"no_negatives": int((rows.candidates == 1).sum())}
