"""Every loss that sentence-transformers has too, in float64: the same value and the same gradient.

Deliberate breaks that turn a test here red: the joint sum without the pair of document->query, directions summed
instead of averaged, hardness over the temperature, the deviation of M2 from 1/D without its floor at 0.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from loss_cases import plain, random_batch
from sentence_transformers.sentence_transformer import losses as their_losses
from torch import Tensor, nn

from embedtrain import losses
from embedtrain.losses import Inputs, Settings

torch.set_num_threads(1)

# A stand-in is given where they ask for a model.
theirs: Any = their_losses

THEIR_DIRECTIONS = {
    "q2d": "query_to_doc",
    "d2q": "doc_to_query",
    "q2q": "query_to_query",
    "d2d": "doc_to_doc",
}


class Given(nn.Module):
    """A model whose texts are their vectors."""

    device = torch.device("cpu")

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.size = size

    def get_embedding_dimension(self) -> int:
        return self.size

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["vectors"]}


def full(seed: int, width: int = 3) -> Inputs:
    """A batch with every document there and nothing masked, which is what their losses take."""
    drawn = random_batch(seed, width=max(width, 2))
    vectors = torch.nan_to_num(drawn.teacher_documents, nan=0.5)
    generator = torch.Generator().manual_seed(seed)
    return plain(
        drawn.queries.requires_grad_(),
        drawn.documents[:, :width].clone().requires_grad_(),
        teacher=torch.randn(4, width, generator=generator, dtype=torch.float64),
        teacher_queries=drawn.teacher_queries,
        teacher_documents=vectors[:, :width],
    )


def columns(batch: Inputs) -> list[Tensor]:
    return [batch.queries, *batch.documents.unbind(1)]


def agree(batch: Inputs, ours: Tensor, expected: Tensor) -> None:
    assert ours.item() == pytest.approx(expected.item(), abs=1e-10)
    inside = [batch.queries, batch.documents]
    for found, right in zip(torch.autograd.grad(ours, inside), torch.autograd.grad(expected, inside), strict=True):
        # Their cosine moves along the sphere; ours takes vectors that are normalised already.
        assert torch.allclose(along(found, batch), along(right, batch), atol=1e-9)
        assert right.abs().max() > 1e-3


def along(gradient: Tensor, batch: Inputs) -> Tensor:
    """The part of a gradient that keeps vectors on the unit sphere: all that is left behind a normalisation."""
    vectors = batch.queries if gradient.ndim == 2 else batch.documents
    return (gradient - (gradient * vectors).sum(-1, keepdim=True) * vectors).detach()


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    ("directions", "joint"),
    [
        (("q2d",), False),
        (("q2d",), True),
        (("q2d", "d2q"), False),
        (("q2d", "d2q"), True),
        (("q2d", "q2q"), True),
        (("q2d", "d2d"), True),
        (losses.DIRECTIONS, True),
    ],
)
def test_infonce_is_multiple_negatives_ranking_loss(directions: tuple[str, ...], joint: bool, width: int) -> None:
    batch = full(7, width)
    names = tuple(THEIR_DIRECTIONS[name] for name in directions)
    mode = "joint" if joint else "per_direction"
    loss = theirs.MultipleNegativesRankingLoss(Given(), 20.0, directions=names, partition_mode=mode)
    ours = losses.infonce(batch, Settings(0.05, directions=directions, joint=joint)).mean()
    agree(batch, ours, loss.compute_loss_from_embeddings(columns(batch), None))


def test_infonce_both_ways_is_the_symmetric_loss() -> None:
    batch = full(3)
    with pytest.warns(DeprecationWarning, match="per_direction"):
        loss = theirs.MultipleNegativesSymmetricRankingLoss(Given(), 20.0)
    ours = losses.infonce(batch, Settings(0.05, directions=("q2d", "d2q"))).mean()
    agree(batch, ours, loss.compute_loss_from_embeddings(columns(batch), None))


@pytest.mark.parametrize("directions", [("q2d",), losses.DIRECTIONS])
def test_hardness_is_that_of_hard_negatives(directions: tuple[str, ...]) -> None:
    batch = full(4)
    loss = theirs.MultipleNegativesRankingLoss(
        Given(),
        20.0,
        directions=tuple(THEIR_DIRECTIONS[name] for name in directions),
        hardness_mode="hard_negatives",
        hardness_strength=5.0,
    )
    ours = losses.infonce(batch, Settings(0.05, directions=directions, joint=True, hardness=5.0)).mean()
    agree(batch, ours, loss.compute_loss_from_embeddings(columns(batch), None))


@pytest.mark.parametrize("width", [2, 4])
def test_margin_mse(width: int) -> None:
    batch = full(5, width)
    loss = theirs.MarginMSELoss(Given())
    assert batch.teacher is not None
    agree(
        batch,
        losses.margin_mse(batch, Settings(1.0)).mean(),
        loss.compute_loss_from_embeddings(columns(batch), batch.teacher),
    )


def test_kl_is_distill_kl_div_loss_over_their_squared_temperature() -> None:
    batch = full(6)
    loss = theirs.DistillKLDivLoss(Given(), student_temperature=0.5, teacher_temperature=2.0)
    ours = losses.kl(batch, Settings(0.5, teacher_temperature=2.0)).mean()
    assert batch.teacher is not None
    agree(batch, ours * 0.5**2, loss.compute_loss_from_embeddings(columns(batch), batch.teacher))


def test_triplet_is_their_cosine_form() -> None:
    batch = full(2, 2)
    metric = theirs.TripletDistanceMetric.COSINE
    loss = theirs.TripletLoss(Given(), metric, triplet_margin=0.7)
    agree(
        batch,
        losses.triplet(batch, Settings(1.0, margin=0.7)).mean(),
        loss.compute_loss_from_embeddings(columns(batch), None),
    )


def test_cosine_is_embed_distill_loss() -> None:
    batch = full(1)
    loss = theirs.EmbedDistillLoss(Given(), "cosine")
    assert batch.teacher_queries is not None
    assert batch.teacher_documents is not None
    wanted = [batch.teacher_queries, *batch.teacher_documents.unbind(1)]
    agree(
        batch,
        losses.cosine(batch, Settings(1.0)).mean(),
        loss.compute_loss_from_embeddings(columns(batch), wanted),
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_spread_out_is_global_orthogonal_regularization(seed: int) -> None:
    batch = full(seed)
    loss = theirs.GlobalOrthogonalRegularizationLoss(Given())
    parts = loss.compute_loss_from_embeddings(columns(batch)[:2])
    agree(batch, losses.spread_out(batch, Settings(1.0)), torch.stack(list(parts.values())).sum())


def _ranking() -> nn.Module:
    return theirs.MultipleNegativesRankingLoss(Given(), 20.0)


def _margins() -> nn.Module:
    return theirs.MarginMSELoss(Given())


def _distilled() -> nn.Module:
    return theirs.EmbedDistillLoss(Given(), "cosine")


@pytest.mark.parametrize(
    ("name", "settings", "make"),
    [
        ("infonce", Settings(0.05), _ranking),
        ("margin-mse", Settings(1.0), _margins),
        ("cosine", Settings(1.0), _distilled),
    ],
)
def test_matryoshka_is_theirs_over_the_sum_of_weights(
    name: str, settings: Settings, make: Callable[[], Any]
) -> None:
    batch = full(8)
    inner = make()
    loss = theirs.MatryoshkaLoss(inner.model, inner, [6, 3, 2], [1.0, 0.5, 0.25])
    labels = batch.teacher
    if name == "cosine":
        assert batch.teacher_queries is not None
        assert batch.teacher_documents is not None
        labels = torch.cat([batch.teacher_queries[:, None], batch.teacher_documents], 1)
    expected = loss([{"vectors": vectors} for vectors in columns(batch)], labels)
    settings = replace(settings, dimensions=(6, 3, 2), dimension_weights=(1.0, 0.5, 0.25))
    agree(batch, losses.combined({name: 1.0}, batch, settings)[name] * 1.75, expected)
