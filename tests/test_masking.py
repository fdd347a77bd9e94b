"""Masks by score, against the obvious loop and against sentence-transformers' GISTEmbedLoss.

Deliberate breaks that turn a test here red: >= for >, the margin with the other sign, explicit negatives hidden,
the positive of the neighbouring row taken for the limit, a mask that turns False into True.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss

from embedtrain.masking import by_guide, by_margin, hide_above, own_scores


def test_hand_picked_negatives_stay_and_documents_of_the_batch_go_p07() -> None:
    # One row counts: positive .80, supplied negative .87, a document of the batch .86; the bar is .85.
    scores = torch.tensor([[0.80, 0.87, 0.86, 0.10], [0.10, 0.10, 0.90, 0.10]])
    mask = torch.tensor([[True, True, True, False], [True, True, True, False]])
    present = torch.tensor([[True, True], [True, False]])
    explicit = torch.tensor([[False, True], [False, False]])
    kept = [[True, True, False, False], [True, True, True, False]]
    assert by_margin(mask, scores, present, 0.05).tolist() == kept
    assert by_margin(mask, scores, explicit, 0.05).tolist() == kept
    # A mined negative is judged where the caller does not protect it: two candidates, then one.
    nothing = torch.zeros_like(explicit)
    assert by_margin(mask, scores, nothing, 0.05).tolist() == [
        [True, False, False, False],
        [True, True, True, False],
    ]
    assert by_guide(mask, scores, explicit).tolist() == kept


def test_a_score_on_the_bar_stays_and_an_unknown_one_too() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    scores = torch.tensor([[0.5, 0.75, float("nan")]], dtype=torch.float64)
    own = torch.zeros(1, 3, dtype=torch.bool)
    assert by_margin(mask, scores, own, 0.25).all()
    assert by_margin(mask, scores, own, 0.24).tolist() == [[True, False, True]]
    assert by_guide(mask, torch.tensor([[float("nan"), 1.0, 2.0]]), own).all()
    assert hide_above(mask, scores, torch.tensor([0.6])).tolist() == [[True, False, True]]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000), st.sampled_from([-0.2, 0.0, 0.1]))
def test_the_rules_are_those_of_the_obvious_loop(rows: int, width: int, seed: int, margin: float) -> None:
    rng = np.random.default_rng(seed)
    # Quarters, so that scores are equal often.
    scores = torch.from_numpy(rng.integers(-4, 5, size=(rows, rows * width)) / 4.0)
    mask = torch.from_numpy(rng.random((rows, rows * width)) < 0.8)
    own = torch.from_numpy(rng.random((rows, width)) < 0.3)
    made = {
        "margin": by_margin(mask, scores, own, margin),
        "absolute": by_guide(mask, scores, own, margin),
        "relative": by_guide(mask, scores, own, margin, relative=True),
    }
    for i in range(rows):
        positive = float(scores[i, i * width])
        assert float(own_scores(scores, own)[i]) == positive
        limits = {
            "margin": positive + margin,
            "absolute": positive - margin,
            "relative": positive - margin * abs(positive),
        }
        for name, limit in limits.items():
            for column in range(rows * width):
                j, k = divmod(column, width)
                beyond = j == i and (k == 0 or bool(own[i, k]))
                wanted = bool(mask[i, column]) and (beyond or float(scores[i, column]) <= limit)
                assert bool(made[name][i, column]) == wanted


class _Given(torch.nn.Module):
    """A model whose vectors are given with the texts."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": features[self._name]}


@pytest.mark.parametrize("strategy", ["absolute", "relative"])
@pytest.mark.parametrize("margin", [0.0, 0.05, -0.1])
@pytest.mark.parametrize("negatives", [0, 1])
def test_a_guide_hides_what_gist_hides(strategy: str, margin: float, negatives: int) -> None:
    rng = np.random.default_rng(5)

    def vectors() -> list[torch.Tensor]:
        return [torch.from_numpy(rng.normal(size=(8, 3))) for _ in range(2 + negatives)]

    student, guide = vectors(), vectors()
    # Their loss builds its models from tokenizers; what is compared here is what it does with vectors.
    theirs = GISTEmbedLoss.__new__(GISTEmbedLoss)
    torch.nn.Module.__init__(theirs)
    theirs.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
    theirs.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    theirs.temperature, theirs.margin, theirs.margin_strategy = 0.1, margin, strategy
    theirs.contrast_anchors = theirs.contrast_positives = theirs.gather_across_devices = False
    theirs.must_retokenize = False
    theirs.model, theirs.guide = _Given("student"), _Given("guide")
    wanted = theirs(
        [{"student": one, "guide": other} for one, other in zip(student, guide, strict=True)], torch.zeros(8)
    )

    def scores(parts: list[torch.Tensor]) -> torch.Tensor:
        unit = [torch.nn.functional.normalize(part, dim=1) for part in parts]
        return unit[0] @ torch.stack(unit[1:], dim=1).reshape(-1, 3).T

    width = 1 + negatives
    mask = torch.ones(8, 8 * width, dtype=torch.bool)
    own = torch.zeros(8, width, dtype=torch.bool)
    hidden = by_guide(mask, scores(guide), own, margin, relative=strategy == "relative")
    assert 0 < (~hidden).sum() < mask.numel() - 8
    logits = (scores(student) / 0.1).masked_fill(~hidden, float("-inf"))
    ours = torch.nn.functional.cross_entropy(logits, torch.arange(8) * width)
    torch.testing.assert_close(ours, wanted, rtol=1e-12, atol=1e-12)


def test_wrong_shapes_are_refused() -> None:
    mask, own = torch.ones(2, 4, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="boolean mask"):
        hide_above(mask.float(), torch.zeros(2, 4), torch.zeros(2))
    with pytest.raises(ValueError, match="own must be boolean"):
        by_margin(mask, torch.zeros(2, 3), own, 0.1)
    with pytest.raises(ValueError, match="own must be boolean"):
        by_guide(mask, torch.zeros(2, 4), own.float())
