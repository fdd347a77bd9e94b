"""Distillation losses against numbers worked by hand and the field's failure cases.

Deliberate breaks that turn a test here red: the divergence taken the other way round, averaged over documents, of
probabilities instead of logarithms; margins made absolute; teacher and student temperatures exchanged; rows without
teacher scores given a target; a deviation over n - 1.
"""

import math
from dataclasses import replace

import pytest
import torch
from loss_cases import from_scores, one_row, plain, random_batch

from embedtrain import losses
from embedtrain.losses import Settings

torch.set_num_threads(1)

NAN = float("nan")


def teacher(*scores: float) -> torch.Tensor:
    return torch.tensor([scores], dtype=torch.float64)


def test_kl_direction_and_value_p38() -> None:
    # 0.3278 the other way round, -0.9101 of probabilities, 0.0714 averaged over the documents.
    value = losses.kl(one_row([2.0, 1.0, 0.0], teacher=teacher(4, 1, 0)), Settings(1.0))
    assert float(value[0]) == pytest.approx(0.2142, abs=5e-5)


def test_kl_temperatures_stand_apart() -> None:
    batch = one_row([0.4, 0.2], teacher=teacher(4, 2))
    # 0.4/0.1 and 4/1 are the same logits, so the divergence is 0; with teacher temperature 2 they are 4, 2 and 2, 1.
    assert float(losses.kl(batch, Settings(0.1))[0]) == pytest.approx(0.0, abs=1e-12)
    p, q = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    expected = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    found = losses.kl(batch, Settings(0.1, teacher_temperature=2.0))
    assert float(found[0]) == pytest.approx(expected)


def test_standardised_teacher_by_hand() -> None:
    # 7, 4, 1 have mean 4 and deviation sqrt(6): 1.2247, 0, -1.2247. A student with these scores has nothing to learn.
    step = 3 / math.sqrt(6)
    batch = one_row([step, 0.0, -step], teacher=teacher(7, 4, 1))
    assert float(losses.kl(batch, Settings(1.0, standardize=True))[0]) == pytest.approx(0, abs=1e-12)
    assert float(losses.margin_mse(batch, Settings(1.0, standardize=True))[0]) == pytest.approx(0, abs=1e-12)
    # Whatever the teacher's scale and origin.
    moved = one_row([step, 0.0, -step], teacher=teacher(107, 104, 101) * 5)
    assert float(losses.kl(moved, Settings(1.0, standardize=True))[0]) == pytest.approx(0, abs=1e-12)
    # Equal scores stay equal: the target is uniform.
    flat = one_row([0.3, 0.3, 0.3], teacher=teacher(2, 2, 2))
    assert float(losses.kl(flat, Settings(1.0, standardize=True))[0]) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ["kl", "margin-mse"])
def test_rows_without_teacher_scores_train_on_nothing_p36(name: str) -> None:
    # Row 1 has no scores, row 2 none for its second negative.
    known = torch.tensor([[9.1, 2.0, NAN], [NAN, NAN, NAN], [3.0, 1.0, NAN]], dtype=torch.float64)
    present = torch.tensor([[True, True, False], [True, True, False], [True, True, True]])
    negative = present & torch.tensor([False, True, True])
    drawn = random_batch(1, rows=3)
    queries = drawn.queries.requires_grad_()
    batch = plain(queries, drawn.documents, present=present, negative=negative, teacher=known)
    values = losses.LOSSES[name](batch, Settings(0.5))
    assert values[1].item() == 0
    assert values[0].item() > 0
    assert values[2].item() > 0
    (gradient,) = torch.autograd.grad(values.sum(), queries)
    assert torch.isfinite(gradient).all()
    assert not gradient[1].any()
    # Row 2 is what it is without the document the teacher has not scored.
    two = plain(queries[2:], drawn.documents[2:, :2], teacher=known[2:, :2])
    assert values[2].item() == pytest.approx(losses.LOSSES[name](two, Settings(0.5)).item())
    # Without distillation the scores are not looked at.
    assert torch.equal(
        losses.infonce(batch, Settings(0.5)), losses.infonce(replace(batch, teacher=None), Settings(0.5))
    )


def test_margin_mse_keeps_the_sign_p35() -> None:
    # Student margin (0.5 - 0.3) / 0.1 = 2; teacher margin 2 - 5 = -3: squared error 25, not 1.
    batch = one_row([0.5, 0.3], teacher=teacher(2, 5))
    assert float(losses.margin_mse(batch, Settings(0.1))[0]) == pytest.approx(25.0)


def test_margin_mse_of_cosines_cannot_reach_logits_p37() -> None:
    # Margin 6; a cosine margin is 2 at most: the floor (6 - 2)^2. The temperature takes it away: 2 / (1/3) = 6.
    best = one_row([1.0, -1.0], teacher=teacher(8, 2))
    assert float(losses.margin_mse(best, Settings(1.0))[0]) == pytest.approx(16.0)
    assert float(losses.margin_mse(best, Settings(1 / 3))[0]) == pytest.approx(0.0)
    # A sigmoid in front would leave a margin of 0.1189.
    squashed = one_row([0.0, 0.0], teacher=torch.sigmoid(teacher(8, 2)))
    assert float(losses.margin_mse(squashed, Settings(1.0))[0]) == pytest.approx(0.1189**2, abs=1e-5)


def test_margin_mse_of_a_row_without_negatives_is_zero() -> None:
    batch = one_row(
        [0.5, 0.3],
        present=torch.tensor([[True, False]]),
        negative=torch.tensor([[False, False]]),
        teacher=teacher(2, NAN),
    )
    assert float(losses.margin_mse(batch, Settings(0.1))[0]) == 0.0


def test_cosine_and_score_by_hand() -> None:
    # Query [1, 0] and document [0.6, 0.8]; the teacher says [0.8, 0.6] and [0.6, 0.8]: cosines 0.8 and 1,
    # similarities 0.6 and 0.96.
    queries = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    documents = torch.tensor([[[0.6, 0.8]]], dtype=torch.float64)
    wanted = torch.tensor([[0.8, 0.6]], dtype=torch.float64)
    batch = plain(queries, documents, teacher_queries=wanted, teacher_documents=documents)
    assert float(losses.cosine(batch, Settings(1.0))[0]) == pytest.approx(0.1)
    assert float(losses.score(batch, Settings(1.0))[0]) == pytest.approx(0.36**2)
    # The teacher's similarities in more dimensions.
    longer = torch.nn.functional.pad
    wider = replace(batch, teacher_queries=longer(wanted, (0, 3)), teacher_documents=longer(documents, (0, 3)))
    assert float(losses.score(wider, Settings(1.0))[0]) == pytest.approx(0.36**2)
    for settings in (Settings(1.0), Settings(1.0, dimensions=(1,))):
        with pytest.raises(ValueError, match="use --loss score"):
            losses.combined({"cosine": 1.0}, wider, settings)


def test_a_student_equal_to_its_teacher_has_nothing_to_learn() -> None:
    drawn = random_batch(4)
    batch = replace(drawn, teacher_queries=drawn.queries, teacher_documents=drawn.documents)
    assert losses.cosine(batch, Settings(1.0)).abs().max() < 1e-12
    assert losses.score(batch, Settings(1.0)).abs().max() < 1e-12
    # Turned together, similarities are the same and vectors are not.
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    turned = replace(batch, queries=batch.queries @ turn, documents=batch.documents @ turn)
    assert losses.score(turned, Settings(1.0)).abs().max() < 1e-12
    assert losses.cosine(turned, Settings(1.0)).min() > 0.1


def test_what_a_teacher_must_give_is_said() -> None:
    batch = from_scores([[0.9, 0.1], [0.1, 0.9]])
    for name in losses.NEEDS_TEACHER:
        with pytest.raises(ValueError, match="needs teacher scores"):
            losses.LOSSES[name](batch, Settings(1.0))
    for name in losses.NEEDS_VECTORS:
        with pytest.raises(ValueError, match="needs the vectors"):
            losses.LOSSES[name](batch, Settings(1.0))
