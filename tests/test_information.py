"""The bound on mutual information where the truth is known, its verdicts, and where minimising the losses leads.

Breaks that turn a test red: a bound from the first steps, means that count a small batch as a full one, a guess taken
for learning, a ceiling of another number of candidates.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from loss_cases import from_scores, plain
from torch import Tensor
from torch.nn.functional import normalize

from embedtrain import losses
from embedtrain.diagnose import geometry, information
from embedtrain.diagnose.information import Bound, judge
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH

torch.set_num_threads(1)


def gaussian_batches(candidates: int, nats: float, random: np.random.Generator) -> losses.Inputs:
    """1,024 pairs in batches of `candidates`: x and y with a correlation that shares exactly `nats`, scored by
    log p(y | x) / p(y), the best critic there is."""
    share = 1 - math.exp(-2 * nats)  # I = -1/2 log(1 - rho^2)
    x = random.standard_normal(1024)
    y = math.sqrt(share) * x + math.sqrt(1 - share) * random.standard_normal(1024)
    scores = math.sqrt(share) * np.outer(x, y) - share / 2 * (x[:, None] ** 2 + y[None] ** 2)
    batch = torch.arange(1024) // candidates
    return from_scores((scores / (1 - share) + nats).tolist(), mask=batch[:, None] == batch)


@pytest.mark.parametrize(("candidates", "certified"), [(2, 0.58), (8, 1.44), (256, 1.97)])
def test_the_gaussian_case_with_the_optimal_critic(candidates: int, certified: float) -> None:
    random = np.random.default_rng(0)
    steps = [losses.curve(gaussian_batches(candidates, 2.0, random), losses.Settings(1.0)) for _ in range(4)]
    found = Bound.of(steps)
    assert found is not None
    assert found.candidates == candidates
    assert found.information == pytest.approx(certified, abs=0.025)
    assert found.ceiling == pytest.approx(math.log(candidates))
    assert found.information < min(2.0, found.ceiling), "a lower bound, below its ceiling"


def spread(points: Tensor) -> Tensor:
    """Uniformity as a loss (Wang and Isola 2020, eq. 2, t = 2)."""
    return torch.pdist(points).square().mul(-2).exp().mean().log()


def by_infonce(queries: Tensor, documents: Tensor) -> Tensor:
    return losses.infonce(plain(queries, documents[:, None]), losses.Settings(0.5)).mean()


def by_alignment_and_uniformity(queries: Tensor, documents: Tensor) -> Tensor:
    return (queries - documents).square().sum(1).mean() + (spread(queries) + spread(documents)) / 2


def minimised(loss: Callable[[Tensor, Tensor], Tensor], pairs: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where free unit vectors end that start in one corner of the sphere, positives unrelated."""
    draw = torch.Generator().manual_seed(0)
    corner = torch.randn(1, size, generator=draw, dtype=torch.float64)
    free = [
        (corner + 0.5 * torch.randn(pairs, size, generator=draw, dtype=torch.float64)).requires_grad_()
        for _ in "qd"
    ]
    start = [normalize(vectors, dim=1).detach().numpy() for vectors in free]
    assert geometry.alignment(*start) > 0.15
    assert np.linalg.norm(start[0].mean(0)) > 0.8
    adam = torch.optim.Adam(free, lr=0.05)
    for _ in range(250):
        adam.zero_grad()
        loss(*(normalize(vectors, dim=1) for vectors in free)).backward()
        adam.step()
    queries, documents = (normalize(vectors, dim=1).detach().numpy() for vectors in free)
    return queries, documents


@pytest.mark.parametrize("loss", [by_infonce, by_alignment_and_uniformity])
def test_infonce_and_alignment_with_uniformity_reach_the_same_place(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    # 8 pairs in 8 dimensions end as a simplex, every two points 2 * 8 / 7 apart (squared): uniformity -32 / 7.
    queries, documents = minimised(loss, pairs=8, size=8)
    assert geometry.alignment(queries, documents) == pytest.approx(0.0, abs=1e-4)
    for vectors in (queries, documents):
        assert np.linalg.norm(vectors.mean(0)) == pytest.approx(0.0, abs=1e-3)
        assert geometry.uniformity(vectors) == pytest.approx(-32 / 7, abs=1e-3)


def test_they_do_so_too_where_points_are_many() -> None:
    places = [minimised(loss, pairs=32, size=4) for loss in (by_infonce, by_alignment_and_uniformity)]
    for queries, documents in places:
        assert geometry.alignment(queries, documents) == pytest.approx(0.0, abs=1e-3)
        assert np.linalg.norm(documents.mean(0)) == pytest.approx(0.0, abs=0.01)
    even = [geometry.uniformity(documents) for _, documents in places]
    assert even[0] == pytest.approx(even[1], abs=0.05)


def test_a_batch_of_32_near_its_ceiling() -> None:
    found = judge(Bound(3.3, math.log(32), 32))
    assert found.verdict == WATCH
    assert "32 candidates certify at most 3.47 nats, and training is at 3.30: more negatives" in found.sentence
    assert found.high == pytest.approx(3.4657, abs=1e-4)


@pytest.mark.parametrize(
    ("bound", "verdict", "words"),
    [
        (Bound(2.2, math.log(32), 32), HEALTHY, "still have something to teach"),
        (Bound(0.05, math.log(32), 32), COLLAPSED, "a blind guess"),
        (Bound(-0.05, math.log(32), 32), COLLAPSED, "a blind guess"),
        (Bound(-3.0, math.log(32), 32), WATCH, "worse than a blind guess"),
        (Bound(0.4, math.log(2), 2), WATCH, "coarse differences"),
        (Bound(0.0, 0.0, 1), COLLAPSED, "compared with anything"),
    ],
)
def test_verdicts(bound: Bound, verdict: str, words: str) -> None:
    found = judge(bound)
    assert found.verdict == verdict
    assert words in found.sentence
    assert found.low < found.high


def test_equal_embeddings_are_a_blind_guess() -> None:
    same = torch.ones(6, 4, dtype=torch.float64) / 2
    bound = Bound.of([losses.curve(plain(same, same[:, None]), losses.Settings(0.05))])
    assert bound is not None
    assert bound.information == pytest.approx(0.0, abs=1e-12)
    assert judge(bound).verdict == COLLAPSED


def test_temperature_1_and_batch_2_are_diagnosed() -> None:
    # The best there can be: positives at 1, the other at -1, as ln 2 - ln(1 + e^-2) = 0.566.
    bound = Bound.of([losses.curve(from_scores([[1.0, -1.0], [-1.0, 1.0]]), losses.Settings(1.0))])
    assert bound is not None
    assert bound.information == pytest.approx(math.log(2) - math.log1p(math.exp(-2)))
    assert judge(bound).verdict == WATCH


def write(path: Path, steps: list[dict[str, float | None]]) -> Path:
    path.write_text("".join(json.dumps(step) + "\n" for step in steps), encoding="utf-8")
    return path


def steps(values: list[float], rows: list[int] | None = None) -> list[dict[str, float | None]]:
    ceiling = math.log(32)
    return [
        {
            "step": number,
            "loss": ceiling - value,
            "rows": (rows or [32] * len(values))[number - 1],
            "information": value,
            "information_ceiling": ceiling,
            "candidates": 32,
        }
        for number, value in enumerate(values, start=1)
    ]


def test_the_last_tenth_counts_by_rows(tmp_path: Path) -> None:
    # Of 20 steps the last two: 30 rows at 2.0 and 10 at 3.2 are 2.3 on average.
    found = information.section(
        write(tmp_path / "metrics.jsonl", steps([1.0] * 18 + [2.0, 3.2], [32] * 18 + [30, 10]))
    )
    assert found is not None
    assert found.measures[0].value == pytest.approx(2.3)
    assert found.numbers == {
        "information": 2.3,
        "information_ceiling": 3.465736,
        "share_of_ceiling": 0.66364,
        "candidates": 32.0,
        "information_at_start": 1.0,
    }


def test_a_curve_without_the_bound_has_no_section(tmp_path: Path) -> None:
    assert information.section(tmp_path / "metrics.jsonl") is None
    assert information.section(write(tmp_path / "metrics.jsonl", [{"step": 1, "loss": 1.6}])) is None
