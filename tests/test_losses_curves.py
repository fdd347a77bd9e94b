"""The step's curve against numbers worked by hand and the obvious loop.

Deliberate breaks that turn a test here red: the positive counted among the negatives, ties counted as right, entropy
of masked columns (0 log 0), the bound from a loss with hardness, own positives counted as masked.
"""

import math
from dataclasses import fields, replace

import pytest
import torch
from loss_cases import from_scores, one_row, plain, random_batch

from embedtrain import losses
from embedtrain.losses import Settings

torch.set_num_threads(1)


def test_a_hard_negative_takes_all_of_the_push() -> None:
    batch = one_row([0.80, 0.75, 0.30])
    sharp = losses.curve(batch, Settings(0.05))
    # 1 / (1 + e^-9) and, at temperature 1, 1 / (1 + e^-0.45): 99.99 % and 61 %.
    assert sharp["hardest_share"] == pytest.approx(0.99988, abs=1e-5)
    assert losses.curve(batch, Settings(1.0))["hardest_share"] == pytest.approx(0.6106, abs=1e-4)
    assert sharp["candidates"] == 3
    assert sharp["accuracy"] == 1
    # Three candidates and a loss of 0.3133: 0.785 nats of at most 1.0986.
    assert sharp["information"] == pytest.approx(math.log(3) - math.log(1 + math.exp(-1) + math.exp(-10)))
    assert sharp["information_ceiling"] == pytest.approx(math.log(3))
    assert sharp["masked_share"] == 0
    assert sharp["no_negatives"] == 0


def test_equal_vectors_say_nothing_and_are_no_hit() -> None:
    found = losses.curve(from_scores([[0.5] * 5] * 5), Settings(0.05))
    assert found["accuracy"] == 0
    assert found["hardest_share"] == pytest.approx(1 / 4)
    assert found["negative_entropy"] == pytest.approx(math.log(4))
    assert found["negative_entropy_relative"] == pytest.approx(1)
    assert found["information"] == pytest.approx(0, abs=1e-12)
    assert found["information_ceiling"] == pytest.approx(math.log(5))


def test_entropy_by_hand() -> None:
    # Negatives at 0.3 and 0.3 + ln 3 at temperature 1: weights 1/4 and 3/4.
    batch = one_row([2.0, 0.3, 0.3 + math.log(3)])
    found = losses.curve(batch, Settings(1.0))
    expected = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert found["hardest_share"] == pytest.approx(0.75)
    assert found["negative_entropy"] == pytest.approx(expected)
    assert found["negative_entropy_relative"] == pytest.approx(expected / math.log(2))


def test_rows_without_negatives_are_counted_and_have_no_say_p49() -> None:
    # Rows 0 and 1 share a positive and see nothing but their own; row 2 sees all three.
    mask = torch.eye(3, dtype=torch.bool)
    mask[2] = True
    found = losses.curve(
        from_scores([[0.9, 0.9, 0.1], [0.8, 0.8, 0.2], [0.1, 0.1, 0.9]], mask=mask), Settings(0.05)
    )
    assert found["no_negatives"] == 2
    assert found["accuracy"] == 1
    assert found["hardest_share"] == pytest.approx(0.5)
    assert found["candidates"] == pytest.approx(5 / 3)
    # Two of two others hidden, twice, and none.
    assert found["masked_share"] == pytest.approx(2 / 3)
    assert found["information_ceiling"] == pytest.approx(math.log(3) / 3)
    # A batch of one: numbers that no row has are left out.
    alone = losses.curve(from_scores([[0.9]]), Settings(0.05))
    assert set(alone) == {"candidates", "information", "information_ceiling", "no_negatives"}


@pytest.mark.parametrize("block", [1 << 26, 1])
@pytest.mark.parametrize("seed", range(3))
def test_rows_equal_the_obvious_loop(seed: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedtrain.losses.inputs.BLOCK", block)
    batch, settings = random_batch(seed), Settings(0.3, hardness=2.0)
    found = losses.curves_by_row(batch, settings)
    flat = batch.documents.flatten(0, 1)
    plain_loss = losses.infonce(batch, replace(settings, hardness=0.0))
    for row in range(batch.rows):
        own = row * batch.width
        positive = float(batch.queries[row] @ flat[own])
        scores, weights = [], []
        for column in range(len(flat)):
            if batch.mask[row, column] and column != own:
                scores.append(float(batch.queries[row] @ flat[column]))
                hard = bool(batch.negative.flatten()[column]) and column // batch.width == row
                weights.append(math.exp(scores[-1] / 0.3 + (2.0 * scores[-1] if hard else 0)))
        shares = [weight / sum(weights) for weight in weights]
        hidden = sum(
            bool(batch.present.flatten()[column]) and not batch.mask[row, column] for column in range(len(flat))
        )
        expected = [
            len(scores) + 1,
            float("nan"),
            float("nan"),
            float("nan"),
            float("nan"),
            float(plain_loss[row]),
        ]
        if scores:
            expected[1:4] = [float(positive > max(scores)), max(shares), -sum(w * math.log(w) for w in shares)]
        if len(scores) > 1:
            expected[4] = expected[3] / math.log(len(scores))
        expected.append(hidden / (int(batch.present.sum()) - 1))
        rows = [float(getattr(found, field.name)[row]) for field in fields(found)]
        assert rows == pytest.approx(expected, nan_ok=True)


def test_curve_takes_half_precision_and_leaves_no_graph() -> None:
    batch = random_batch(1)
    half = plain(batch.queries.half().requires_grad_(), batch.documents.half())
    rows = losses.curves_by_row(half, Settings(torch.tensor(0.05, requires_grad=True)))
    assert rows.loss.dtype == torch.float32
    assert not rows.loss.requires_grad
    assert torch.isfinite(rows.loss).all()
