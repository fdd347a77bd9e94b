"""Probabilities out of scores: fitted to labels, worth what they say, and refused without labels of both kinds."""

import numpy as np
import pytest
from numpy.typing import NDArray

from embedtrain import calibration
from embedtrain.errors import UsageError


def labelled(slope: float, intercept: float, count: int = 20_000) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores whose pairs are right with probability sigmoid(slope * score + intercept)."""
    rng = np.random.default_rng(0)
    scores = rng.normal(scale=4.0, size=count)
    return scores, rng.random(count) < 1 / (1 + np.exp(-(slope * scores + intercept)))


@pytest.mark.parametrize(
    ("way", "slope", "intercept"), [("temperature", 0.4, 0.0), ("platt", 0.4, -1.0), ("platt", 2.0, 3.0)]
)
def test_the_fit_finds_what_made_the_labels(way: str, slope: float, intercept: float) -> None:
    scores, right = labelled(slope, intercept)
    found = calibration.fit(scores, right, way)
    assert found.slope == pytest.approx(slope, rel=0.1)
    assert found.intercept == pytest.approx(intercept, rel=0.1, abs=1e-9)
    before, after = calibration.Calibration()(scores), found(scores)
    assert calibration.error(after, right) < 0.01
    assert calibration.error(after, right) < calibration.error(before, right)
    assert (np.argsort(after, kind="stable") == np.argsort(scores, kind="stable")).mean() > 0.9


def test_platt_agrees_with_the_obvious_search() -> None:
    scores, right = labelled(0.7, -0.5, 40)
    found = calibration.fit(scores, right, "platt")
    positives, negatives = right.sum(), (~right).sum()
    targets = np.where(right, (positives + 1) / (positives + 2), 1 / (negatives + 2))

    def loss(slope: float, intercept: float) -> float:
        chance = 1 / (1 + np.exp(-(slope * scores + intercept)))
        return float(-(targets * np.log(chance) + (1 - targets) * np.log(1 - chance)).mean())

    best = loss(found.slope, found.intercept)
    for change in (-0.02, 0.02):
        assert loss(found.slope + change, found.intercept) > best
        assert loss(found.slope, found.intercept + change) > best


def test_scores_that_part_the_labels_give_finite_probabilities() -> None:
    scores, right = np.array([-3.0, -2.0, 2.0, 3.0]), np.array([False, False, True, True])
    found = calibration.fit(scores, right, "platt")
    assert np.isfinite([found.slope, found.intercept]).all()
    assert 0 < found(scores)[0] < 0.5 < found(scores)[3] < 1


def test_the_curve_by_hand() -> None:
    chances = np.array([0.05, 0.07, 0.95, 1.0])
    right = np.array([False, True, True, True])
    low, high = calibration.curve(chances, right)
    assert low == {"from": 0.0, "pairs": 2, "said": pytest.approx(0.06), "right": 0.5}
    assert high == {"from": 0.9, "pairs": 2, "said": pytest.approx(0.975), "right": 1.0}
    assert calibration.error(chances, right) == pytest.approx((0.44 + 0.025) / 2)


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(UsageError, match="--calibrate isotonic: temperature and platt"):
        calibration.fit(np.zeros(2), np.array([True, False]), "isotonic")
    with pytest.raises(ValueError, match="pairs that are not"):
        calibration.fit(np.zeros(2), np.array([True, True]), "platt")
    assert np.isnan(calibration.Calibration()(np.array([np.nan, 1.0]))[0])
