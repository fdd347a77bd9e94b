"""The weighted sum, its settings and wrappers, and what is learned with the model.

Deliberate breaks that turn a test here red: prefixes not normalised again, dimension weights ignored, the regulariser
on masked pairs or with its diagonal, a weight applied in `combined` too, the temperature learned without its logarithm,
a clamp in the formula (no way back), the projection into the range left out.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from loss_cases import BUSY, from_scores, one_row, plain, random_batch

from embedtrain import losses
from embedtrain.errors import UsageError
from embedtrain.losses import Objective, Settings

torch.set_num_threads(1)


def test_parse_reads_weights_and_refuses_what_it_does_not_know() -> None:
    assert losses.parse("infonce") == {"infonce": 1.0}
    assert losses.parse("infonce:0.2, kl:1.0") == {"infonce": 0.2, "kl": 1.0}
    assert losses.parse(",".join(losses.NAMES)) == dict.fromkeys(losses.NAMES, 1.0)
    for wrong in ("infonc", "kl:x", "kl:0", "kl:-1", "kl,kl", "", "kl:nan", "kl:inf"):
        with pytest.raises(UsageError, match="--loss"):
            losses.parse(wrong)
    with pytest.raises(UsageError, match="did you mean margin-mse; the losses are infonce, multi-infonce"):
        losses.parse("marginmse")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.0}, "--temperature 0"),
        ({"temperature": float("nan")}, "--temperature nan"),
        ({"teacher_temperature": -1.0}, "--teacher-temperature"),
        ({"hardness": -1.0}, "--hardness"),
        ({"margin": float("nan")}, "--margin"),
        ({"gor": -0.1}, "--gor"),
        ({"directions": ("q2d", "d2x")}, "'d2x' is none"),
        ({"directions": ("q2d", "q2d")}, "stands twice"),
        ({"directions": ("d2q",)}, "name it too"),
        ({"directions": ()}, "name it too"),
        ({"dimensions": (4, 0)}, "--matryoshka 4,0"),
        ({"dimensions": (4, 4)}, "--matryoshka 4,4"),
        ({"dimensions": (4, 2), "dimension_weights": (1.0,)}, "2 dimensions, 1 weights"),
        ({"dimensions": (4, 2), "dimension_weights": (1.0, 0.0)}, "every weight"),
    ],
)
def test_settings_refuse_what_makes_no_sense(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings(**({"temperature": 0.05} | wrong))


def test_dimensions_must_fit_the_model() -> None:
    Settings(0.05, dimensions=(384, 128)).fits(384)
    Settings(0.05).fits(384)
    with pytest.raises(UsageError, match="has 256 dimensions"):
        Settings(0.05, dimensions=(384, 128)).fits(256)
    with pytest.raises(UsageError, match="add 768"):
        Settings(0.05, dimensions=(384, 128)).fits(768)


def test_matryoshka_normalises_prefixes_again_p59() -> None:
    v, w = torch.tensor([0.6, 0.0, 0.8, 0.0]), torch.tensor([0.6, 0.8, 0.0, 0.0])
    batch = plain(torch.stack([v, w]).double(), torch.stack([v, w]).double()[:, None])
    short = batch.prefix(2, teacher=False)
    assert short.queries.flatten().tolist() == pytest.approx([1, 0, 0.6, 0.8])
    assert float(short.queries[0] @ short.documents[1, 0]) == pytest.approx(0.6)
    # At dimension 2: positive 1, the other 0.6; at dimension 4: 1 and 0.36. Temperature 0.1.
    both, whole = math.log(1 + math.exp(-4)), math.log(1 + math.exp(-6.4))
    found = losses.matryoshka(losses.infonce, batch, Settings(0.1, dimensions=(4, 2), dimension_weights=(3, 1)))
    assert found.tolist() == pytest.approx([(3 * whole + both) / 4] * 2)
    # The whole dimension alone is no change at all.
    alone = losses.matryoshka(losses.infonce, batch, Settings(0.1, dimensions=(4,)))
    assert torch.equal(alone, losses.infonce(batch, Settings(0.1)))
    with pytest.raises(ValueError, match="a prefix of 5 is longer"):
        losses.matryoshka(losses.infonce, batch, Settings(0.1, dimensions=(5,)))


@pytest.mark.parametrize("name", losses.NAMES)
def test_matryoshka_of_every_loss_equals_shorter_vectors(name: str) -> None:
    batch = random_batch(9)
    assert batch.teacher_queries is not None
    assert batch.teacher_documents is not None
    unit = torch.nn.functional.normalize
    short = replace(
        batch, queries=unit(batch.queries[:, :2], dim=-1), documents=unit(batch.documents[..., :2], dim=-1)
    )
    if name == "cosine":
        short = replace(
            short,
            teacher_queries=batch.teacher_queries[:, :2],
            teacher_documents=batch.teacher_documents[..., :2],
        )
    settings = BUSY[name]
    both = losses.combined({name: 1.0}, batch, replace(settings, dimensions=(6, 2)))[name]
    halves = [losses.LOSSES[name](part, settings).mean() for part in (batch, short)]
    assert float(both) == pytest.approx(float(sum(halves)) / 2)

    def function(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        moved = replace(batch, queries=queries, documents=documents)
        plainly = replace(settings, dimensions=(6, 3, 2), hardness=0.0, gor=1.0)
        parts = losses.combined({name: 2.0}, moved, plainly)
        return losses.total({name: 2.0}, parts, plainly)

    inside = batch.queries.clone().requires_grad_(), batch.documents.clone().requires_grad_()
    assert torch.autograd.gradcheck(function, inside)


def test_spread_out_by_hand_and_without_masked_pairs() -> None:
    # Queries at cosine 0.8 to each other: M1^2 0.64, M2 0.64 less 1/2. Positives at right angles: both 0.
    queries = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    positives = torch.eye(2, dtype=torch.float64)[:, None]
    batch = plain(queries, positives)
    assert float(losses.spread_out(batch, Settings(1.0))) == pytest.approx((0.64 + 0.14) / 2)
    # The length of a vector is no matter, nor are queries that are no negatives of each other.
    assert float(losses.spread_out(plain(3 * queries, positives), Settings(1.0))) == pytest.approx(0.39)
    related = replace(batch, query_mask=torch.zeros(2, 2, dtype=torch.bool))
    assert float(losses.spread_out(related, Settings(1.0))) == 0
    same = plain(positives[:, 0], queries[:, None], mask=torch.eye(2, dtype=torch.bool))
    assert float(losses.spread_out(same, Settings(1.0))) == 0
    # A batch of one has no pairs.
    assert float(losses.spread_out(plain(queries[:1], positives[:1]), Settings(1.0))) == 0


def test_spread_out_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_batch(2, rows=5)
    queries, documents = batch.queries.requires_grad_(), batch.documents.requires_grad_()
    whole = losses.spread_out(batch, Settings(1.0))
    expected = torch.autograd.grad(whole, [queries, documents])
    monkeypatch.setattr("embedtrain.losses.inputs.BLOCK", 7)
    found = losses.spread_out(batch, Settings(1.0))
    assert found.item() == pytest.approx(whole.item(), abs=1e-14)
    for ours, theirs in zip(torch.autograd.grad(found, [queries, documents]), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-13)


def test_parts_are_unweighted_means_and_the_total_weighs_them() -> None:
    batch, settings = random_batch(1), Settings(0.1, gor=0.3)
    weights = {"infonce": 0.2, "kl": 1.0}
    parts = losses.combined(weights, batch, settings)
    assert list(parts) == ["infonce", "kl", "gor"]
    assert float(parts["infonce"]) == pytest.approx(float(losses.infonce(batch, settings).mean()))
    assert float(parts["kl"]) == pytest.approx(float(losses.kl(batch, settings).mean()))
    expected = 0.2 * parts["infonce"] + parts["kl"] + 0.3 * parts["gor"]
    assert float(losses.total(weights, parts, settings)) == pytest.approx(float(expected))


def test_needs_name_what_a_loss_cannot_do_without() -> None:
    alone = from_scores([[0.9, 0.1], [0.1, 0.9]])
    for name in losses.NAMES:
        wanting = name in losses.NEEDS_TEACHER + losses.NEEDS_VECTORS
        if wanting:
            with pytest.raises(ValueError, match="the loss needs"):
                losses.LOSSES[name](alone, BUSY[name])
        elif name in losses.NEEDS_NEGATIVES:
            assert not losses.LOSSES[name](alone, BUSY[name]).any()
        elif name in losses.NEEDS_LABELS:
            assert torch.allclose(losses.LOSSES[name](alone, BUSY[name]), losses.infonce(alone, BUSY[name]))
        else:
            assert losses.LOSSES[name](alone, BUSY[name]).all()


def test_nothing_is_a_parameter_that_is_not_learned() -> None:
    objective = Objective({"infonce": 1.0, "kl": 1.0}, Settings(0.05))
    assert list(objective.parameters()) == []
    assert objective.state() == {}
    assert objective.settings().temperature == 0.05
    learned = Objective({"siglip": 1.0, "infonce": 1.0}, Settings(0.05), learn_temperature=True)
    assert [name for name, _ in learned.named_parameters()] == [
        "log_temperature",
        "siglip_log_scale",
        "siglip_bias",
    ]
    assert learned.state() == pytest.approx({"temperature": 0.05, "siglip_scale": 10.0, "siglip_bias": -10.0})
    again = Objective({"siglip": 1.0, "infonce": 1.0}, Settings(0.2), learn_temperature=True)
    again.load_state_dict(learned.state_dict())
    assert again.state() == learned.state()


def test_the_gradient_of_a_learned_temperature_by_hand() -> None:
    # d loss / d log t = (s+ - sum_j p_j s_j) / t of the row.
    scores = [0.8, 0.75, 0.3]
    objective = Objective({"infonce": 2.0}, Settings(0.1), learn_temperature=True).double()
    value, parts = objective(one_row(scores), objective.settings())
    assert value.item() == pytest.approx(2 * parts["infonce"].item())
    value.backward()
    s = torch.tensor(scores, dtype=torch.float64)
    p = torch.softmax(s / 0.1, 0)
    assert objective.log_temperature is not None
    assert objective.log_temperature.grad is not None
    assert float(objective.log_temperature.grad) == pytest.approx(2 * float(s[0] - p @ s) / 0.1, rel=1e-6)


def test_the_gradients_of_siglips_scale_and_bias_are_those_of_differences() -> None:
    batch = random_batch(3)

    def function(scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return losses.siglip(batch, Settings(1.0, siglip_scale=scale, siglip_bias=bias))

    numbers = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (4.0, -2.0)]
    assert torch.autograd.gradcheck(function, numbers)
    objective = Objective({"siglip": 1.0}, Settings(1.0))
    objective(batch, objective.settings())[0].backward()
    assert all(parameter.grad is not None and bool(parameter.grad != 0) for parameter in objective.parameters())


@pytest.mark.parametrize(("scores", "limit"), [([1.0, -1.0], 0.01), ([-1.0, 1.0], 1.0)])
def test_a_learned_temperature_stays_in_its_range_and_comes_back(scores: list[float], limit: float) -> None:
    # A pair that is right wants the lowest temperature, one that is wrong the highest.
    objective = Objective({"infonce": 1.0}, Settings(0.1), learn_temperature=True)
    optimizer = torch.optim.SGD(objective.parameters(), lr=5.0)

    def step(scores: list[float]) -> None:
        optimizer.zero_grad()
        objective(one_row(scores), objective.settings())[0].backward()
        optimizer.step()

    with torch.no_grad():
        assert objective.log_temperature is not None
        objective.log_temperature.fill_(math.log(limit) + (3.0 if limit == 1 else -3.0))
    step(scores)
    assert objective.state()["temperature"] == pytest.approx(limit)
    for _ in range(3):
        step([-value for value in scores] if limit < 1 else [1.0, -0.5])
    assert objective.state()["temperature"] != pytest.approx(limit)


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(UsageError, match="--learn-temperature: siglip, triplet has none"):
        Objective({"siglip": 1.0, "triplet": 1.0}, Settings(0.05), learn_temperature=True)
    with pytest.raises(UsageError, match="start inside"):
        Objective({"infonce": 1.0}, Settings(0.005), learn_temperature=True)
    with pytest.raises(ValueError, match="siglip_scale 200: it is learned from 1 to 100"):
        Objective({"siglip": 1.0}, Settings(0.05, siglip_scale=200.0))
    with pytest.raises(ValueError, match="siglip_scale inf: a number above 0"):
        Settings(0.05, siglip_scale=float("inf"))
