"""The shape of a space, against values worked by hand, published ones and plain loops.

Breaks that turn a test red: no normalising (P62), a row paired with itself, a positive counted among the random
documents, singular values where variances are needed, one direction counted from rounding.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from embedtrain.diagnose import geometry
from embedtrain.errors import EmbedtrainError


def normal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


def test_alignment_and_uniformity_work_on_directions() -> None:
    # P62: raw vectors would give alignment 26.0.
    queries, documents = [[3, 4], [0, 5]], [[4, 3], [5, 0]]
    # (0.6, 0.8) to (0.8, 0.6): 0.04 + 0.04 = 0.08; (0, 1) to (1, 0): 2; mean 1.04
    assert geometry.alignment(queries, documents) == pytest.approx(1.04, abs=1e-12)
    assert geometry.uniformity(queries + documents) == pytest.approx(-1.0157, abs=5e-5)


def test_alignment_is_0_for_perfect_and_2_for_random_pairs() -> None:
    rows = normal(4000, 64)
    assert geometry.alignment(rows, 3 * rows) == pytest.approx(0.0, abs=1e-12)
    assert geometry.alignment(rows, normal(4000, 64, 1)) == pytest.approx(2.0, abs=0.02)
    assert geometry.alignment(rows, -rows) == pytest.approx(4.0, abs=1e-12)


@pytest.mark.parametrize(
    ("dimension", "value"),
    [(2, -1.575027), (3, -2.079777), (8, -3.082527), (64, -3.875236), (384, -3.979168), (768, -3.989583)],
)
def test_uniformity_of_an_even_sphere(dimension: int, value: float) -> None:
    assert geometry.uniformity_of_sphere(dimension) == pytest.approx(value, abs=1e-6)
    assert geometry.uniformity(normal(2500, dimension)) == pytest.approx(value, abs=0.02)


def test_uniformity_of_equal_vectors_is_0() -> None:
    assert geometry.uniformity(np.full((50, 7), 0.3)) == pytest.approx(0.0, abs=1e-12)


@given(st.integers(2, 40), st.integers(2, 9), st.integers(0, 10_000))
def test_uniformity_is_the_obvious_loop(rows: int, columns: int, seed: int) -> None:
    vectors = normal(rows, columns, seed)
    points = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = [
        math.exp(-2 * float(np.sum((points[i] - points[j]) ** 2))) for i in range(rows) for j in range(i + 1, rows)
    ]
    assert geometry.uniformity(vectors) == pytest.approx(math.log(sum(values) / len(values)), abs=1e-9)


def test_uniformity_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = normal(33, 5)
    whole = geometry.uniformity(rows)
    for block in (1, 2, 7, 33):
        monkeypatch.setattr(geometry, "_BLOCK", block)
        assert geometry.uniformity(rows) == pytest.approx(whole, abs=1e-12)


def test_random_cosines_of_an_even_sphere() -> None:
    found = geometry.Spread.of(geometry.pair_cosines(normal(2000, 384)))
    assert found.count == 1_999_000
    assert found.mean == pytest.approx(0.0, abs=1e-3)
    assert found.deviation == pytest.approx(1 / math.sqrt(384), abs=2e-4)  # 0.05103
    assert found.quantiles[0.5] == pytest.approx(0.0, abs=1e-3)
    assert found.quantiles[0.95] == pytest.approx(1.645 * 0.05103, abs=1e-3)


def test_collapsed_and_healthy_directions() -> None:
    # P60: four texts that all look alike, and four that look every way.
    alike = geometry.pair_cosines([[1, 0], [1, 0.01], [1, -0.01], [1, 0.005]])
    assert alike.mean() > 0.999
    every_way = geometry.pair_cosines([[1, 0], [0, 1], [-1, 0], [0, -1]])
    assert every_way.mean() == pytest.approx(-1 / 3)


def test_drawn_pairs_are_distinct_and_seeded() -> None:
    rows = normal(60, 4)
    drawn = geometry.pair_cosines(rows, most=500, seed=(3, 1))
    assert len(drawn) == 500
    assert drawn.max() < 1 - 1e-9, "a row was paired with itself"
    assert np.array_equal(drawn, geometry.pair_cosines(rows, most=500, seed=(3, 1)))
    assert not np.array_equal(drawn, geometry.pair_cosines(rows, most=500, seed=(4, 1)))


def test_spectrum_by_hand() -> None:
    spectrum = geometry.Spectrum(np.array([6.0, 3.0, 0.8, 0.2]))
    assert [spectrum.components(share) for share in (0.5, 0.6, 0.9, 0.95, 0.99, 1.0)] == [1, 1, 2, 3, 4, 4]
    assert spectrum.first == pytest.approx(0.6)
    # (6 + 3 + .8 + .2)^2 / (36 + 9 + .64 + .04) = 100 / 45.68
    assert spectrum.participation_ratio == pytest.approx(100 / 45.68)


def test_participation_ratio_of_known_spectra() -> None:
    law = geometry.Spectrum(1.0 / np.arange(1, 385))
    assert law.participation_ratio == pytest.approx(25.957, abs=5e-4)
    assert geometry.Spectrum.of(normal(4000, 384)).participation_ratio == pytest.approx(350.3, abs=1.0)


def test_spectrum_is_that_of_the_covariance() -> None:
    points = geometry.unit(normal(30, 6))
    expected = np.sort(np.linalg.eigvalsh(np.cov(points.T)))[::-1]
    assert geometry.Spectrum.of(normal(30, 6)).variances == pytest.approx(expected, abs=1e-12)
    assert len(geometry.Spectrum.of(normal(4, 6)).variances) == 3, "n points span n - 1 dimensions"


def test_spectrum_of_a_point() -> None:
    spectrum = geometry.Spectrum.of(np.full((9, 5), 2.0))
    assert spectrum.first == 1.0
    assert spectrum.components(0.99) == 1


def test_rank_me_of_known_spaces() -> None:
    assert geometry.rank_me(normal(4000, 384)) == pytest.approx(379.3, abs=0.3)
    assert geometry.rank_me(np.full((9, 5), 2.0)) == pytest.approx(1.0)
    assert geometry.rank_me(np.eye(12)) == pytest.approx(12.0)
    basis, _ = np.linalg.qr(normal(384, 16, 1))
    assert geometry.rank_me(normal(4000, 16) @ basis.T) == pytest.approx(16.0, abs=0.05)


@given(st.integers(0, 1000))
def test_turning_the_space_changes_nothing(seed: int) -> None:
    rows = normal(20, 5, seed)
    turned = rows @ ortho_group.rvs(5, random_state=seed)
    assert geometry.uniformity(turned) == pytest.approx(geometry.uniformity(rows), abs=1e-9)
    assert geometry.rank_me(turned) == pytest.approx(geometry.rank_me(rows), abs=1e-6)
    assert geometry.Spectrum.of(turned).first == pytest.approx(geometry.Spectrum.of(rows).first, abs=1e-9)


def test_contrast_by_hand() -> None:
    documents = [[1, 0], [0.8, 0.6], [0, 1], [-1, 0]]
    # Query (1, 0): cosines 1, .8, 0, -1; its positive is row 1, random rows 0, 2, 3 -> above 2 of 3.
    # Query (0, 1): cosines 0, .6, 1, 0; positives rows 2 and 0; random rows 3 and 1 (0 and .6): 1 and 0 + a tie.
    found = geometry.Contrast.of([[1, 0], [0, 1]], documents, [[1], [2, 0]], [0, 1, 2, 3])
    assert found.positive == pytest.approx([0.8, 1.0, 0.0])
    assert sorted(found.random) == pytest.approx([-1.0, 0.0, 0.0, 0.6, 1.0])
    assert found.separation == pytest.approx((2 / 3 + (1.0 + 0.25) / 2) / 2)


def test_separation_of_one_point_is_chance() -> None:
    same = np.ones((5, 3))
    assert geometry.Contrast.of(same[:2], same, [[0], [1]], [2, 3, 4]).separation == 0.5


def test_contrast_needs_random_documents() -> None:
    with pytest.raises(EmbedtrainError, match="--sample"):
        geometry.Contrast.of([[1, 0]], [[1, 0]], [[0]], [0])


@pytest.mark.parametrize(
    "rows", [[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [np.nan, 1.0]], [[1.0, 0.0], [np.inf, 1.0]]]
)
def test_vectors_without_a_direction_are_refused(rows: list[list[float]]) -> None:
    with pytest.raises(EmbedtrainError, match="1 of 2 vectors are zero or not finite"):
        geometry.uniformity(rows)


def test_one_vector_has_no_shape() -> None:
    with pytest.raises(EmbedtrainError, match="at least two"):
        geometry.Spectrum.of([[1.0, 2.0]])
    with pytest.raises(EmbedtrainError, match="shape"):
        geometry.unit([1.0, 2.0])


def test_any_dtype_and_layout_gives_the_same() -> None:
    # P25: float64, Fortran order, a strided view.
    rows = normal(40, 8).astype(np.float32)
    wide = np.repeat(rows, 2, axis=1)
    expected = geometry.uniformity(rows)
    for other in (rows.astype(np.float64), np.asfortranarray(rows), wide[:, ::2]):
        assert geometry.uniformity(other) == pytest.approx(expected, abs=1e-6)
    assert geometry.uniformity(rows.astype(np.float16)) == pytest.approx(expected, abs=1e-2)
