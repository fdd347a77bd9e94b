"""Contrastive losses against numbers worked by hand: those of the field and those of its failure cases.

Deliberate breaks that turn a test here red: temperature dropped, mask by zero instead of -inf, columns swapped (the
positive looked for in column 1), hardness given to other rows' negatives or with a gradient, the floor of several
positives (positives competing in multi-infonce), siglip's mean over pairs, a hinge on distances the wrong way round.
"""

import math

import pytest
import torch
from loss_cases import from_scores, one_row, plain, random_batch
from torch import Tensor

from embedtrain import losses
from embedtrain.losses import Settings

torch.set_num_threads(1)

WHOLE = [[0.9, 0.1, 0.2, 0.3], [0.2, 0.8, 0.1, 0.4], [0.3, 0.2, 0.7, 0.1], [0.1, 0.5, 0.2, 0.6]]


def mean(values: Tensor) -> float:
    return float(values.mean())


@pytest.mark.parametrize(
    ("scores", "temperature", "expected"),
    [
        # The positive 0.80 against 0.30 and 0.20 at 0.05: p = 1 / (1 + e^-10 + e^-12) = 0.99995.
        ([0.80, 0.30, 0.20], 0.05, -math.log(0.9999485)),
        # A hard negative at 0.75 added: 1 / (1 + e^-1 + ...) -> loss 0.31.
        ([0.80, 0.75, 0.30, 0.20], 0.05, 0.31329),
        # p 0.69, loss 0.37.
        ([0.9, 0.2, 0.1], 0.5, 0.370524),
        # P40: one positive at 1 and three negatives at -1: the floor ln(1 + 3 e^-2); two negatives; temperature 0.05.
        ([1.0, -1.0, -1.0, -1.0], 1.0, 0.3408),
        ([1.0, -1.0, -1.0], 1.0, 0.2395),
        ([1.0, -1.0, -1.0, -1.0], 0.05, 0.0),
        # P04: one negative, the same three times, and the positive twice among them: ln(1 + 2 + e^-6).
        ([0.8, 0.2], 0.1, 0.00248),
        ([0.8, 0.2, 0.2, 0.2], 0.1, 0.00741),
        ([0.8, 0.8, 0.8, 0.2], 0.1, 1.0994),
    ],
)
def test_infonce_worked_rows(scores: list[float], temperature: float, expected: float) -> None:
    assert mean(losses.infonce(one_row(scores), Settings(temperature))) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("temperature", "expected"), [(0.05, 0.0000454), (1.0, 0.4741), (20.0, 0.6807)])
def test_infonce_temperature_is_the_inverse_of_scale_p39(temperature: float, expected: float) -> None:
    batch = from_scores([[0.8, 0.3], [0.2, 0.7]])
    assert mean(losses.infonce(batch, Settings(temperature))) == pytest.approx(expected, rel=1e-3)


def test_infonce_one_batch_is_not_two_halves_p41_p45() -> None:
    values = losses.infonce(from_scores(WHOLE), Settings(0.05))
    # Rows 0-1 and 2-3 as two processes see them, with all columns; their mean is the batch's.
    assert mean(values[:2]) == pytest.approx(0.000175, abs=5e-7)
    assert mean(values[2:]) == pytest.approx(0.063825, abs=5e-7)
    assert mean(values) == pytest.approx(0.03200, abs=5e-6)
    halves = [from_scores([row[part] for row in WHOLE[part]]) for part in (slice(0, 2), slice(2, 4))]
    apart = sum(mean(losses.infonce(half, Settings(0.05))) for half in halves) / 2
    assert apart == pytest.approx(0.000087, abs=5e-7)


def test_infonce_value_hangs_on_the_batch_p42() -> None:
    def equal(rows: int) -> Tensor:
        return losses.infonce(from_scores([[0.3] * rows] * rows), Settings(0.05))

    assert mean(equal(5)) == pytest.approx(1.6094, abs=5e-5)
    assert mean(torch.stack([equal(2).mean(), equal(2).mean(), equal(1).mean()])) == pytest.approx(
        0.4621, abs=5e-5
    )
    assert mean(torch.cat([equal(2), equal(2), equal(1)])) == pytest.approx(0.5545, abs=5e-5)


def test_infonce_shared_positive_masked_or_not_p01() -> None:
    scores = [[0.9, 0.9, 0.1], [0.8, 0.8, 0.2], [0.1, 0.1, 0.9]]
    assert mean(losses.infonce(from_scores(scores), Settings(0.05))) == pytest.approx(0.4621, abs=1e-4)
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[0, 1] = mask[1, 0] = False
    masked = losses.infonce(from_scores(scores, mask=mask), Settings(0.05))
    assert mean(masked) == pytest.approx(2.2e-6, abs=5e-8)
    # The two rows alone: ln 2 at any scale, 0 when masked.
    for temperature in (0.02, 1.0):
        pair = losses.infonce(from_scores([[0.9, 0.9], [0.8, 0.8]]), Settings(temperature))
        assert mean(pair) == pytest.approx(math.log(2))


def test_infonce_two_positives_of_one_query_p02() -> None:
    scores = [[0.8, 0.7], [0.8, 0.7]]
    # (ln(1 + e^-2) + ln(1 + e^2)) / 2
    assert mean(losses.infonce(from_scores(scores), Settings(1 / 20))) == pytest.approx(1.1269, abs=5e-5)
    masked = from_scores(scores, mask=torch.eye(2, dtype=torch.bool))
    assert mean(losses.infonce(masked, Settings(1 / 20))) == 0


def test_infonce_all_negatives_masked_is_zero_without_gradient_p49() -> None:
    for name in ("infonce", "multi-infonce", "supcon"):
        batch = from_scores([[0.9, 0.9], [0.8, 0.8]], mask=torch.eye(2, dtype=torch.bool))
        batch.queries.requires_grad_()
        value = losses.LOSSES[name](batch, Settings(0.05))
        value.sum().backward()
        assert value.tolist() == [0.0, 0.0]
        assert batch.queries.grad is not None
        assert batch.queries.grad.abs().max() == 0


def test_infonce_ragged_rows_have_3_1_and_2_candidates_p11() -> None:
    present = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    negative = present.clone()
    negative[:, 0] = False
    own_row = torch.eye(3, dtype=torch.bool).repeat_interleave(3, 1)
    batch = plain(
        torch.ones(3, 4, dtype=torch.float64),
        torch.ones(3, 3, 4, dtype=torch.float64),
        present=present,
        negative=negative,
        mask=own_row & present.flatten(),
    )
    # Equal vectors, so that each loss is the log of the row's candidates.
    values = losses.infonce(batch, Settings(0.05))
    assert values.exp().tolist() == pytest.approx([3, 1, 2])
    assert losses.curve(batch, Settings(0.05))["no_negatives"] == 1


@pytest.mark.parametrize("joint", [False, True])
def test_equal_embeddings_give_log_of_candidates(joint: bool) -> None:
    batch = plain(torch.ones(3, 5, dtype=torch.float64), torch.ones(3, 4, 5, dtype=torch.float64))
    assert losses.infonce(batch, Settings(0.02)).tolist() == pytest.approx([math.log(12)] * 3)
    assert losses.multi_infonce(batch, Settings(0.02)).tolist() == pytest.approx([math.log(12)] * 3)
    assert losses.supcon(batch, Settings(0.02)).tolist() == pytest.approx([math.log(12)] * 3)
    # Directions: 12 documents, 3 queries, the pair and 2 queries, the pair and 8 documents of other rows.
    every = losses.infonce(batch, Settings(0.02, directions=losses.DIRECTIONS, joint=joint))
    expected = math.log(12 + 3 + 2 + 8) if joint else (math.log(12) + 2 * math.log(3) + math.log(9)) / 4
    assert every.tolist() == pytest.approx([expected] * 3)


def test_joint_directions_have_a_floor_of_ln_2() -> None:
    batch = from_scores([[1.0, -1.0], [-1.0, 1.0]])
    both = ("q2d", "d2q")
    assert mean(losses.infonce(batch, Settings(0.01, directions=both, joint=True))) == pytest.approx(math.log(2))
    assert mean(losses.infonce(batch, Settings(0.01, directions=both))) == pytest.approx(0, abs=1e-12)


def test_half_precision_stays_finite_p48() -> None:
    queries = torch.tensor([[1.0, 0.0], [0.9, math.sqrt(1 - 0.81)], [0.0, 0.0]], dtype=torch.float16)
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[:2, 2] = False
    batch = plain(queries, queries[:, None, :].clone(), mask=mask)
    value = losses.infonce(batch, Settings(0.01))
    assert torch.isfinite(value).all()
    assert value.dtype == torch.float32
    # 0.9 in half precision is 0.89990: 4.6e-5 instead of 4.54e-5.
    assert float(value[0]) == pytest.approx(0.0000454, rel=0.02)
    exact = from_scores([[1.0, 0.9], [0.9, 1.0]])
    small = plain(exact.queries.float(), exact.documents.float())
    assert mean(losses.infonce(small, Settings(0.01))) == pytest.approx(0.0000454, rel=3e-3)


def test_infonce_gradient_of_scores() -> None:
    # d loss / d s_i = p_i / t for a negative and -(1 - p+) / t for the positive.
    scores = [0.8, 0.75, 0.3]
    batch = one_row(scores)
    batch.queries.requires_grad_()
    losses.infonce(batch, Settings(0.05)).sum().backward()
    p = torch.softmax(torch.tensor(scores, dtype=torch.float64) / 0.05, 0)
    expected = p / 0.05
    expected[0] = -(1 - p[0]) / 0.05
    assert batch.queries.grad is not None
    assert torch.allclose(batch.queries.grad[0], expected)


def test_hardness_weighs_own_negatives_alone_and_takes_no_gradient() -> None:
    # Row 0 has a negative at 0.5 of its own and row 1's texts at 0.1 and 0.2; alpha 5, temperature 1:
    # e^0.5 becomes e^(0.5 + 5 * 0.5), the others stay.
    eye = torch.eye(4, dtype=torch.float64).reshape(2, 2, 4)
    queries = torch.tensor([[0.9, 0.5, 0.1, 0.2], [0.0, 0.0, 0.9, 0.4]], dtype=torch.float64, requires_grad=True)
    settings = Settings(1.0, hardness=5.0)
    value = losses.infonce(plain(queries, eye), settings)[0]
    weights = torch.tensor([0.9, 3.0, 0.1, 0.2], dtype=torch.float64).exp()
    assert value.item() == pytest.approx(float(-(weights[0] / weights.sum()).log()))
    value.backward()
    p = weights / weights.sum()
    p[0] -= 1
    assert queries.grad is not None
    assert torch.allclose(queries.grad[0], p)


def test_positives_do_not_compete_in_multi_infonce_and_do_in_supcon() -> None:
    # Two positives at 0.8 and 0.6, a negative at 0.5, temperature 0.1: e^8, e^6 and e^5.
    positives = torch.tensor([[True, True, False]])
    negative = torch.tensor([[False, False, True]])
    mask = torch.tensor([[True, False, True]])
    batch = one_row([0.8, 0.6, 0.5], positives=positives, negative=negative, mask=mask)
    apart = (math.log(1 + math.exp(-3)) + math.log(1 + math.exp(-1))) / 2
    assert mean(losses.multi_infonce(batch, Settings(0.1))) == pytest.approx(apart)
    total = math.log(math.exp(8) + math.exp(6) + math.exp(5))
    assert mean(losses.supcon(batch, Settings(0.1))) == pytest.approx(total - 7)


def test_supcon_takes_documents_of_the_label_and_no_hard_negatives() -> None:
    # Queries of one label, a document and a hard negative each: the label's documents are columns 0 and 2.
    scores = [[0.9, 0.2, 0.5, 0.1], [0.5, 0.2, 0.9, 0.1]]
    eye = torch.eye(4, dtype=torch.float64).reshape(2, 2, 4)
    queries = torch.tensor(scores, dtype=torch.float64)
    value = losses.supcon(plain(queries, eye, labels=torch.tensor([7, 7])), Settings(1.0))
    expected = [float(torch.tensor(row).exp().sum().log()) - (row[0] + row[2]) / 2 for row in scores]
    assert value.tolist() == pytest.approx(expected)
    unknown = losses.supcon(plain(queries, eye, labels=torch.tensor([-1, -1])), Settings(1.0))
    assert torch.allclose(unknown, losses.infonce(plain(queries, eye), Settings(1.0)))


def test_siglip_by_hand() -> None:
    # scale 10, bias -10: the positive at 0.9 gives -log sigmoid(-1), the other at 0.2 -log sigmoid(8).
    batch = from_scores([[0.9, 0.2], [0.2, 0.9]])
    expected = math.log(1 + math.exp(1)) + math.log(1 + math.exp(-8))
    assert losses.siglip(batch, Settings(1.0)).tolist() == pytest.approx([expected] * 2)


def test_triplet_by_hand() -> None:
    # Margin 0.2: negatives at 0.7 and 0.5 under a positive at 0.8 give 0.1 and 0.
    assert mean(losses.triplet(one_row([0.8, 0.7, 0.5]), Settings(1.0, margin=0.2))) == pytest.approx(0.05)
    # The positive alone, in a batch: nothing.
    assert losses.triplet(from_scores([[0.1, 0.9], [0.9, 0.1]]), Settings(1.0, margin=0.2)).tolist() == [0, 0]


def test_listwise_by_hand_and_without_absent_columns() -> None:
    scores = torch.tensor([[2.0, 1.0, 9.0], [0.5, 9.0, 9.0]], dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True, True, False], [True, False, False]])
    value = losses.RERANKING["listwise"](scores, present)
    # log(1 + e^-1) for the first row; a positive alone is certain.
    assert value.tolist() == pytest.approx([math.log(1 + math.exp(-1)), 0.0])
    value.sum().backward()
    p = 1 / (1 + math.exp(-1))
    assert scores.grad is not None
    assert scores.grad.flatten().tolist() == pytest.approx([p - 1, 1 - p, 0, 0, 0, 0])


def test_binary_by_hand() -> None:
    scores = torch.tensor([[2.0, 1.0, -1.0], [2.0, 9.0, 9.0]], dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True, True, True], [True, False, False]])
    value = losses.RERANKING["binary"](scores, present)
    right = math.log(1 + math.exp(-2))
    wrong = (math.log(1 + math.e) + math.log(1 + math.exp(-1))) / 2
    assert value.tolist() == pytest.approx([(right + wrong) / 2, right / 2])
    value.sum().backward()
    assert scores.grad is not None
    assert scores.grad[1, 1:].tolist() == [0, 0]
    # d/ds of -log(1 - sigmoid(s)) is sigmoid(s): a quarter of it for each of two negatives.
    assert scores.grad[0, 1:].tolist() == pytest.approx([1 / (1 + math.exp(-1)) / 4, 1 / (1 + math.e) / 4])


def test_margin_by_hand() -> None:
    scores = torch.tensor([[2.0, 1.5, -1.0], [0.0, 3.0, 9.0], [2.0, 9.0, 9.0]], requires_grad=True)
    present = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    value = losses.RERANKING["margin"](scores, present)
    assert value.tolist() == pytest.approx([0.25, 4.0, 0.0])
    value.sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[-0.5, 0.5, 0], [-1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("name", sorted(losses.RERANKING))
def test_losses_of_a_reranker_refuse_other_shapes(name: str) -> None:
    with pytest.raises(ValueError, match="present must be boolean"):
        losses.RERANKING[name](torch.zeros(2, 3), torch.ones(2, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="present must be boolean"):
        losses.RERANKING[name](torch.zeros(2, 3), torch.ones(2, 3))


def test_inputs_refuse_wrong_shapes_and_contradictions() -> None:
    from dataclasses import replace

    batch = random_batch(0)
    off, on = torch.zeros_like, torch.ones_like
    for changes, message in (
        ({"queries": batch.queries[:2]}, "do not fit"),
        ({"documents": batch.queries}, "are needed"),
        ({"mask": batch.mask.float()}, "mask must be boolean"),
        ({"positives": batch.positives[:, :3]}, "positives must be boolean"),
        ({"labels": torch.zeros(4)}, "labels must be int64"),
        ({"teacher": torch.zeros(4, 2)}, "teacher must be"),
        ({"teacher_queries": None}, "come together"),
        ({"teacher_queries": torch.zeros(4, 2)}, "do not fit 4 rows"),
        ({"present": off(batch.present), "negative": off(batch.negative)}, "no positive in column 0"),
        ({"negative": on(batch.negative)}, "is one of its negatives"),
        ({"negative": torch.tensor([[False, True, True]] * 4)}, "negative is not present"),
        ({"mask": off(batch.mask)}, "hides a positive"),
        ({"positives": off(batch.positives)}, "leave out"),
        ({"query_mask": on(batch.query_mask)}, "its own negative"),
        ({"reverse_mask": off(batch.reverse_mask)}, "own query"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(batch, **changes)
