"""Settings far outside what is known to work: a sentence each with the reason, before any time is spent on them."""

import math
from collections.abc import Iterable

from embedtrain.drawing import Row
from embedtrain.schedule import Schedule

# With 1,000 pairs DPR was better than BM25 already (Karpukhin et al. 2020, figure 1); nothing below is shown there.
FEW_PAIRS = 1_000
# Rates of tuned transformers lie between 1e-6 and 5e-4; a fresh head alone is given 1e-3.
HIGH_RATE = 1e-3
# A loss that a perfect model cannot get below this is mostly floor.
HIGH_FLOOR = 0.1


def loss_floor(negatives: float, temperature: float) -> float:
    """The least that infonce can be on unit vectors: positive at cosine 1, negatives at -1 (P40). ln(1 + n e^(-2/t))"""
    return math.log1p(negatives * math.exp(-2.0 / temperature))


def warnings_for(
    *,
    pairs: int,
    batch_size: int,
    negatives: int,
    temperature: float | None,
    normalised: bool,
    schedule: Schedule,
    transformer: bool = True,
    contrastive: bool = True,
) -> list[str]:
    """What to say before training on `pairs` rows, `negatives` of their own each, in batches of `batch_size`.

    `temperature` is None where no loss has one; `contrastive`: the other rows of a batch are compared with.
    `transformer` is False for a model without layers (static embeddings), which takes far higher rates.
    """
    found = []
    batch = min(batch_size, pairs)
    if contrastive and batch == 1 and not negatives:
        found.append(
            "a batch of 1 without negatives has nothing to compare: the loss is exactly 0 at every step and nothing "
            "is learned, however many steps are added up; give a larger --batch-size"
        )
    elif contrastive and batch <= 2 and not negatives:
        found.append(
            f"a batch of {batch} compares each query with {batch - 1} other document; what it learns grows with "
            "--batch-size (any size fits in memory), not with the number of steps"
        )
    if pairs < FEW_PAIRS:
        found.append(
            f"{pairs:,} pairs are few: below {FEW_PAIRS:,} a model rather learns them by heart than what is behind "
            "them; harvest more, and look at a dev split (--dev-split)"
        )
    if transformer and schedule.rate >= HIGH_RATE:
        found.append(
            f"--learning-rate {schedule.rate:g} destroys a pretrained transformer; 1e-5 (large) to 2e-4 (raw) are known "
            "to work"
        )
    compared = max(0, batch - 1) * (1 + negatives) + negatives if contrastive else negatives
    if temperature is not None and normalised and compared:
        floor = loss_floor(compared, temperature)
        if floor > HIGH_FLOOR:
            found.append(
                f"--temperature {temperature:g} on vectors of length 1: with {compared:,} negatives the loss cannot go "
                f"below {floor:.4f} (ln(1 + {compared} e^-{2 / temperature:g})), however good the model; 0.01 to 0.1 "
                "are known to work"
            )
    if (doubt := schedule.doubt()) is not None:
        found.append(doubt)
    return found


def margins(rows: Iterable[Row], temperature: float, teacher_temperature: float) -> tuple[str, bool] | None:
    """The range of the teacher's margins, positive over another document, beside that of a model's unit vectors (P37).

    In a sentence, and whether the teacher's lies outside: margin-mse has a floor then. None where no margin is known.
    """
    found = [
        (row.teacher[positive] - row.teacher[negative]) / teacher_temperature
        for row in rows
        if row.teacher
        for positive in row.positives
        for negative in row.negatives
        if positive in row.teacher and negative in row.teacher
    ]
    if not found:
        return None
    reach = 2.0 / temperature
    sentence = f"margins of the teacher from {min(found):.4g} to {max(found):.4g}, of the model from {-reach:.4g} to {reach:.4g}"
    outside = max(abs(margin) for margin in found) > reach
    if outside:
        sentence += ": it cannot reach the teacher's; lower --temperature, or raise --teacher-temperature"
    return sentence, outside
