"""Objectives against hand-worked numbers, the obvious loop, and sentence-transformers.

Deliberate breaks that turn a test here red: temperature dropped, mask by zero instead of -inf, columns swapped,
the divergence taken the other way round, margins made absolute.
"""

import math

import pytest
import torch
from torch import Tensor

from embedtrain import losses
from embedtrain.errors import UsageError

torch.set_num_threads(1)


def from_scores(scores: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Queries and documents (no negatives of their own) whose dot products are exactly `scores` (B, B)."""
    matrix = torch.tensor(scores, dtype=torch.float64)
    return matrix, torch.eye(len(scores), dtype=torch.float64)[:, None, :]


def one_row(scores: list[float]) -> tuple[Tensor, Tensor]:
    """One query and its own documents with these scores."""
    return torch.tensor([scores], dtype=torch.float64), torch.eye(len(scores), dtype=torch.float64)[None]


def everything(documents: Tensor) -> Tensor:
    rows, columns, _ = documents.shape
    return torch.ones(rows, rows * columns, dtype=torch.bool)


def random_batch(seed: int, rows: int = 4, columns: int = 3, size: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(rows, size, generator=generator, dtype=torch.float64)
    documents = torch.randn(rows, columns, size, generator=generator, dtype=torch.float64)
    mask = torch.rand(rows, rows * columns, generator=generator) > 0.3
    mask[torch.arange(rows), torch.arange(rows) * columns] = True
    unit = torch.nn.functional.normalize
    return unit(queries, dim=-1), unit(documents, dim=-1), mask


@pytest.mark.parametrize(
    ("scores", "temperature", "expected"),
    [
        # The positive 0.80 against 0.30 and 0.20 at 0.05: p = 1 / (1 + e^-10 + e^-12) = 0.99995.
        ([0.80, 0.30, 0.20], 0.05, -math.log(0.9999485)),
        # A hard negative at 0.75 added: 1 / (1 + e^-1 + ...) -> loss 0.31.
        ([0.80, 0.75, 0.30, 0.20], 0.05, 0.31329),
        ([0.9, 0.2, 0.1], 0.5, 0.370524),
        # P40: one positive at 1 and three negatives at -1: the floor ln(1 + 3 e^-2).
        ([1.0, -1.0, -1.0, -1.0], 1.0, math.log(1 + 3 * math.exp(-2))),
    ],
)
def test_infonce_worked_rows(scores: list[float], temperature: float, expected: float) -> None:
    queries, documents = one_row(scores)
    value = losses.infonce(queries, documents, everything(documents), temperature)
    assert float(value[0]) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize(("temperature", "expected"), [(0.05, 0.0000454), (1.0, 0.4741), (20.0, 0.6807)])
def test_infonce_temperature_is_the_inverse_of_scale_p39(temperature: float, expected: float) -> None:
    queries, documents = from_scores([[0.8, 0.3], [0.2, 0.7]])
    value = losses.infonce(queries, documents, everything(documents), temperature).mean()
    assert float(value) == pytest.approx(expected, rel=1e-3)


def test_infonce_one_batch_is_not_two_halves_p41() -> None:
    scores = [[0.9, 0.1, 0.2, 0.3], [0.2, 0.8, 0.1, 0.4], [0.3, 0.2, 0.7, 0.1], [0.1, 0.5, 0.2, 0.6]]
    queries, documents = from_scores(scores)
    whole = losses.infonce(queries, documents, everything(documents), 0.05).mean()
    assert float(whole) == pytest.approx(0.03200, abs=5e-6)


def test_infonce_shared_positive_masked_or_not_p01() -> None:
    queries, documents = from_scores([[0.9, 0.9, 0.1], [0.8, 0.8, 0.2], [0.1, 0.1, 0.9]])
    mask = everything(documents)
    assert float(losses.infonce(queries, documents, mask, 0.05).mean()) == pytest.approx(0.4621, abs=1e-4)
    mask[0, 1] = mask[1, 0] = False
    assert float(losses.infonce(queries, documents, mask, 0.05).mean()) == pytest.approx(2.2e-6, abs=2e-7)


def test_infonce_all_negatives_masked_is_zero_without_gradient_p49() -> None:
    queries, documents = from_scores([[0.9, 0.9], [0.8, 0.8]])
    queries.requires_grad_()
    value = losses.infonce(queries, documents, torch.eye(2, dtype=torch.bool), 0.05)
    value.sum().backward()
    assert value.tolist() == [0.0, 0.0]
    assert queries.grad is not None
    assert queries.grad.abs().max() == 0


def test_infonce_equal_embeddings_give_log_of_candidates() -> None:
    queries = torch.ones(3, 5, dtype=torch.float64)
    documents = torch.ones(3, 4, 5, dtype=torch.float64)
    value = losses.infonce(queries, documents, everything(documents), 0.02)
    assert torch.allclose(value, torch.full((3,), math.log(12), dtype=torch.float64))


def test_infonce_half_precision_stays_finite_p48() -> None:
    queries = torch.tensor([[1.0, 0.0], [0.9, math.sqrt(1 - 0.81)], [0.0, 0.0]], dtype=torch.float16)
    documents = queries[:, None, :].clone()
    mask = everything(documents)
    mask[:2, 2] = False
    value = losses.infonce(queries, documents, mask, 0.01)
    assert torch.isfinite(value).all()
    assert value.dtype == torch.float32
    assert float(value[0]) == pytest.approx(0.0000454, rel=0.1)


def test_infonce_gradient_of_scores() -> None:
    # d loss / d s_i = p_i / t for a negative and -(1 - p+) / t for the positive.
    scores = [0.8, 0.75, 0.3]
    queries, documents = one_row(scores)
    queries.requires_grad_()
    losses.infonce(queries, documents, everything(documents), 0.05).sum().backward()
    p = torch.softmax(torch.tensor(scores, dtype=torch.float64) / 0.05, 0)
    expected = p / 0.05
    expected[0] = -(1 - p[0]) / 0.05
    assert queries.grad is not None
    assert torch.allclose(queries.grad[0], expected)


@pytest.mark.parametrize("seed", range(5))
def test_infonce_masked_equals_columns_removed(seed: int) -> None:
    queries, documents, mask = random_batch(seed)
    fast = losses.infonce(queries, documents, mask, 0.1)
    flat = documents.reshape(-1, documents.shape[-1])
    for row in range(len(queries)):
        target = row * documents.shape[1]
        kept = [target] + [c for c in range(len(flat)) if mask[row, c] and c != target]
        slow = -torch.log_softmax(queries[row] @ flat[kept].T / 0.1, 0)[0]
        assert float(fast[row]) == pytest.approx(float(slow), abs=1e-12)


@pytest.mark.parametrize("columns", [1, 3])
def test_infonce_equals_multiple_negatives_ranking_loss(columns: int) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    queries, documents, _ = random_batch(7, columns=columns)
    theirs = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=20.0)  # type: ignore[arg-type]
    expected = theirs.compute_loss_from_embeddings([queries, *documents.unbind(1)], None)
    ours = losses.infonce(queries, documents, everything(documents), 0.05).mean()
    assert float(ours) == pytest.approx(float(expected), abs=1e-9)


def test_infonce_refuses_wrong_shapes_and_a_hidden_positive() -> None:
    queries, documents, mask = random_batch(0)
    with pytest.raises(ValueError, match="do not fit"):
        losses.infonce(queries[:2], documents, mask, 0.1)
    with pytest.raises(ValueError, match="mask must be boolean"):
        losses.infonce(queries, documents, mask.float(), 0.1)
    mask[0, 0] = False
    with pytest.raises(ValueError, match="hides a positive"):
        losses.infonce(queries, documents, mask, 0.1)


def test_kl_direction_and_value_p38() -> None:
    queries, documents = one_row([2.0, 1.0, 0.0])
    teacher = torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64)
    present = torch.ones(1, 3, dtype=torch.bool)
    assert float(losses.kl(queries, documents, present, teacher, 1.0)[0]) == pytest.approx(0.2142, abs=5e-5)


def test_kl_temperatures_stand_apart() -> None:
    queries, documents = one_row([0.4, 0.2])
    teacher = torch.tensor([[4.0, 2.0]], dtype=torch.float64)
    present = torch.ones(1, 2, dtype=torch.bool)
    # 0.4/0.1 and 4/1 are the same logits, so the divergence is 0; with teacher temperature 2 it is not.
    assert float(losses.kl(queries, documents, present, teacher, 0.1)[0]) == pytest.approx(0.0, abs=1e-12)
    assert float(losses.kl(queries, documents, present, teacher, 0.1, 2.0)[0]) > 0.01


@pytest.mark.parametrize("name", ["kl", "margin-mse"])
def test_distillation_ignores_absent_columns(name: str) -> None:
    queries, documents, _ = random_batch(3)
    generator = torch.Generator().manual_seed(1)
    teacher = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    present = torch.tensor([[True, True, False]] * 4)
    function = losses.kl if name == "kl" else losses.margin_mse
    documents.requires_grad_()
    masked = function(queries, documents, present, teacher, 0.1)
    removed = function(queries, documents[:, :2], present[:, :2], teacher[:, :2], 0.1)
    assert torch.allclose(masked, removed)
    masked.sum().backward()
    assert documents.grad is not None
    assert torch.isfinite(documents.grad).all()
    assert documents.grad[:, 2].abs().max() == 0


def test_margin_mse_keeps_the_sign_p35() -> None:
    # Student margin (0.5 - 0.3) / 0.1 = 2; teacher margin 2 - 5 = -3: squared error 25, not 1.
    queries, documents = one_row([0.5, 0.3])
    teacher = torch.tensor([[2.0, 5.0]], dtype=torch.float64)
    present = torch.ones(1, 2, dtype=torch.bool)
    assert float(losses.margin_mse(queries, documents, present, teacher, 0.1)[0]) == pytest.approx(25.0)


def test_margin_mse_of_a_row_without_negatives_is_zero() -> None:
    queries, documents = one_row([0.5, 0.3])
    present = torch.tensor([[True, False]])
    teacher = torch.tensor([[2.0, float("nan")]], dtype=torch.float64)
    assert float(losses.margin_mse(queries, documents, present, teacher, 0.1)[0]) == 0.0


def test_listwise_by_hand_and_without_absent_columns() -> None:
    scores = torch.tensor([[2.0, 1.0, 9.0], [0.5, 9.0, 9.0]], dtype=torch.float64, requires_grad=True)
    present = torch.tensor([[True, True, False], [True, False, False]])
    value = losses.listwise(scores, present)
    # log(1 + e^-1) for the first row; a positive alone is certain.
    assert value.tolist() == pytest.approx([math.log(1 + math.exp(-1)), 0.0])
    value.sum().backward()
    p = 1 / (1 + math.exp(-1))
    assert scores.grad is not None
    assert scores.grad.flatten().tolist() == pytest.approx([p - 1, 1 - p, 0, 0, 0, 0])


def test_parse_reads_weights_and_refuses_what_it_does_not_know() -> None:
    assert losses.parse("infonce") == {"infonce": 1.0}
    assert losses.parse("infonce:0.2, kl:1.0") == {"infonce": 0.2, "kl": 1.0}
    for wrong in ("infonc", "kl:x", "kl:0", "kl:-1", "kl,kl", "", "kl:nan"):
        with pytest.raises(UsageError):
            losses.parse(wrong)
