"""Every loss as the obvious loop over one row: lists of columns, sums of exponentials, nothing masked by arithmetic."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from embedtrain.losses import Inputs, Settings


def _documents(batch: Inputs) -> list[Tensor]:
    return [batch.documents[row, column] for row in range(batch.rows) for column in range(batch.width)]


def _surprise(positive: Tensor, others: Sequence[Tensor]) -> Tensor:
    """-log of the positive's share among itself and the others."""
    weights = [positive.exp(), *(other.exp() for other in others)]
    return -(weights[0] / torch.stack(weights).sum()).log()


def infonce(batch: Inputs, settings: Settings, row: int) -> Tensor:
    t = settings.temperature
    queries, documents, own = batch.queries, _documents(batch), row * batch.width
    positive = queries[row] @ documents[own] / t
    others: dict[str, list[Tensor]] = {name: [] for name in settings.directions}
    for column, document in enumerate(documents):
        mine = column // batch.width == row
        if not batch.mask[row, column] or column == own:
            continue
        score = queries[row] @ document
        bonus = settings.hardness * score.detach() if batch.negative.flatten()[column] and mine else 0
        others["q2d"].append(score / t + bonus)
        if "d2d" in others and not mine:
            others["d2d"].append(documents[own] @ document / t)
    for other in range(batch.rows):
        if "d2q" in others and batch.reverse_mask[row, other] and other != row:
            others["d2q"].append(documents[own] @ queries[other] / t)
        if "q2q" in others and batch.query_mask[row, other]:
            others["q2q"].append(queries[row] @ queries[other] / t)
    if settings.joint:
        # The positive pair is a term of query->document and one of document->query.
        twice = [positive] if "d2q" in others else []
        return _surprise(positive, sum(others.values(), twice))
    return torch.stack([_surprise(positive, found) for found in others.values()]).mean()


def multi_infonce(batch: Inputs, settings: Settings, row: int) -> Tensor:
    negatives, positives = [], []
    for column, document in enumerate(_documents(batch)):
        score = batch.queries[row] @ document
        scaled = score / settings.temperature
        if batch.negative.flatten()[column] and column // batch.width == row:
            scaled = scaled + settings.hardness * score.detach()
        if batch.positives[row, column]:
            positives.append(scaled)
        elif batch.mask[row, column]:
            negatives.append(scaled)
    return torch.stack([_surprise(positive, negatives) for positive in positives]).mean()


def supcon(batch: Inputs, settings: Settings, row: int) -> Tensor:
    positives, everything = [], []
    for column, document in enumerate(_documents(batch)):
        other, place = divmod(column, batch.width)
        scaled = batch.queries[row] @ document / settings.temperature
        known = bool(batch.positives[row, column])
        if batch.labels is not None and batch.labels[row] >= 0 and batch.labels[row] == batch.labels[other]:
            known = known or bool(batch.present[other, place] and not batch.negative[other, place])
        if known:
            positives.append(scaled)
        if known or batch.mask[row, column]:
            everything.append(scaled)
    total = torch.stack(everything).exp().sum()
    return -torch.stack([(positive.exp() / total).log() for positive in positives]).mean()


def siglip(batch: Inputs, settings: Settings, row: int) -> Tensor:
    total = batch.queries.new_zeros(())
    for column, document in enumerate(_documents(batch)):
        score = settings.siglip_scale * (batch.queries[row] @ document) + settings.siglip_bias
        if batch.positives[row, column]:
            total = total - (1 / (1 + (-score).exp())).log()
        elif batch.mask[row, column]:
            total = total - (1 / (1 + score.exp())).log()
    return total


def triplet(batch: Inputs, settings: Settings, row: int) -> Tensor:
    scores = batch.documents[row] @ batch.queries[row]
    negatives = [scores[column] for column in range(batch.width) if batch.negative[row, column]]
    hinges = [(settings.margin - scores[0] + negative).clamp(min=0) for negative in negatives]
    return torch.stack(hinges).mean() if hinges else scores[0] * 0


def _known(batch: Inputs, settings: Settings, row: int) -> dict[int, Tensor]:
    assert batch.teacher is not None
    known = {
        column: batch.teacher[row, column]
        for column in range(batch.width)
        if batch.present[row, column] and not batch.teacher[row, column].isnan()
    }
    if settings.standardize and known:
        values = torch.stack(list(known.values()))
        deviation = values.std(correction=0)
        known = {c: (v - values.mean()) / (deviation if deviation > 0 else 1) for c, v in known.items()}
    return {column: value / settings.teacher_temperature for column, value in known.items()}


def kl(batch: Inputs, settings: Settings, row: int) -> Tensor:
    known = _known(batch, settings, row)
    scores = {column: batch.documents[row, column] @ batch.queries[row] / settings.temperature for column in known}
    total = batch.queries[row].sum() * 0
    for column in known:
        p = known[column].exp() / sum(value.exp() for value in known.values())
        q = scores[column].exp() / sum(value.exp() for value in scores.values())
        total = total + p * (p / q).log()
    return total


def margin_mse(batch: Inputs, settings: Settings, row: int) -> Tensor:
    known = _known(batch, settings, row)
    scores = batch.documents[row] @ batch.queries[row] / settings.temperature
    squares = [
        ((scores[0] - scores[column]) - (known[0] - known[column])) ** 2
        for column in known
        if column > 0 and 0 in known
    ]
    return torch.stack(squares).mean() if squares else scores[0] * 0


def cosine(batch: Inputs, settings: Settings, row: int) -> Tensor:
    assert batch.teacher_queries is not None
    assert batch.teacher_documents is not None
    pairs = [(batch.queries[row], batch.teacher_queries[row])]
    for column in range(batch.width):
        if batch.present[row, column]:
            pairs.append((batch.documents[row, column], batch.teacher_documents[row, column]))
    return torch.stack([1 - ours @ theirs / (ours.norm() * theirs.norm()) for ours, theirs in pairs]).mean()


def score(batch: Inputs, settings: Settings, row: int) -> Tensor:
    assert batch.teacher_queries is not None
    assert batch.teacher_documents is not None
    squares = []
    for other in range(batch.rows):
        for column in range(batch.width):
            if batch.present[other, column]:
                ours = batch.queries[row] @ batch.documents[other, column]
                theirs = batch.teacher_queries[row] @ batch.teacher_documents[other, column]
                squares.append((ours - theirs) ** 2)
    return torch.stack(squares).mean()


ORACLES: dict[str, Callable[[Inputs, Settings, int], Tensor]] = {
    "infonce": infonce,
    "multi-infonce": multi_infonce,
    "siglip": siglip,
    "triplet": triplet,
    "supcon": supcon,
    "margin-mse": margin_mse,
    "kl": kl,
    "cosine": cosine,
    "score": score,
}
