"""How a space is filled, against published values, hand-worked ones and the papers' own steps.

Breaks that turn a test red: duplicates left in for TwoNN, singular values where variances are needed, a spectrum that
is not centred, an infinite kappa, limits that accuse an even space, a cone or a usual spectrum.
"""

import json
import math

import numpy as np
import pytest
from scipy.stats import vonmises_fisher

from embedtrain.diagnose import filling, shape
from embedtrain.diagnose.geometry import Spectrum
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH, Measure, Section
from embedtrain.errors import EmbedtrainError


def normal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


def usual(rows: int = 500, columns: int = 128) -> np.ndarray:
    """Vectors as a working model gives them: variances fall as rank^-0.75, and all share a direction."""
    vectors = normal(rows, columns) * np.arange(1, columns + 1) ** -0.375
    return vectors + 2.0 * np.eye(columns)[columns // 2]


def flat(rows: int, columns: int, rank: int) -> np.ndarray:
    basis, _ = np.linalg.qr(normal(columns, rank, 1))
    return normal(rows, rank) @ basis.T


def verdicts(section: Section) -> dict[str, str]:
    return {measure.key: measure.verdict for measure in section.measures}


def by_key(section: Section) -> dict[str, Measure]:
    return {measure.key: measure for measure in section.measures}


@pytest.mark.parametrize(("length", "value"), [(0.5, 255.83), (0.9, 1815.11), (0.0, 0.0)])
def test_kappa_of_384_dimensions(length: float, value: float) -> None:
    assert filling.kappa(length, 384) == pytest.approx(value, abs=0.005)


def test_kappa_of_one_point_is_finite() -> None:
    length = filling.resultant(np.full((9, 5), 2.0))
    assert length == pytest.approx(1.0, abs=1e-12)
    assert 1e8 < filling.kappa(length, 5) < 1e10


def test_kappa_finds_that_of_a_von_mises_fisher_distribution() -> None:
    drawn = vonmises_fisher(np.eye(8)[0], 50.0, seed=3).rvs(4000)
    assert filling.kappa(filling.resultant(drawn), 8) == pytest.approx(50.0, rel=0.03)


def test_resultant_by_hand() -> None:
    # (1, 0) and (0, 1) on the circle have the mean (.5, .5), of length sqrt(.5); lengths of the vectors do not matter.
    assert filling.resultant([[3, 0], [0, 0.1]]) == pytest.approx(math.sqrt(0.5))
    assert filling.resultant([[1, 0], [-5, 0]]) == pytest.approx(0.0, abs=1e-12)
    assert filling.resultant(normal(4000, 384)) == pytest.approx(4000**-0.5, rel=0.1)


def test_centring_takes_the_common_direction_out() -> None:
    cone = normal(600, 64) + 20.0 * np.eye(64)[5]
    found = by_key(shape.section(cone, "cone"))["centred_cosine"]
    assert found.value == pytest.approx(1 / 8, abs=0.01)
    assert filling.resultant(cone) > 0.9
    # Two points are opposite as seen from their mean, and a point is not seen at all.
    assert filling.centred([[1, 0], [0, 1]]) == pytest.approx(np.array([[1, -1], [-1, 1]]) / math.sqrt(2))
    assert len(filling.centred(np.ones((4, 3)))) == 0


def test_quantiles_of_an_even_sphere() -> None:
    # On the sphere in three dimensions a cosine is uniform (Archimedes).
    assert filling.even_quantiles(3) == pytest.approx({share: 2 * share - 1 for share in shape.QUANTILES})
    assert filling.even_quantiles(384)[0.95] == pytest.approx(1.645 * 0.05103, abs=5e-4)


def test_the_1_over_i_law() -> None:
    law = Spectrum(1.0 / np.arange(1, 385))
    assert law.participation_ratio == pytest.approx(25.957, abs=5e-4)
    assert filling.ne_sum(law) == pytest.approx(6.529, abs=5e-4)
    fit = filling.alpha(law)
    assert fit == pytest.approx((1.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_alpha_of_power_laws(exponent: float) -> None:
    fit = filling.alpha(Spectrum(0.3 * np.arange(1, 385) ** -exponent))
    assert fit == pytest.approx((exponent, 0.3), abs=1e-9)


def test_alpha_leaves_rounding_out() -> None:
    # 16 equal components, and 368 of what float16 leaves: no cliff in the fit.
    fit = filling.alpha(Spectrum(np.r_[np.full(16, 1.0), np.full(368, 1e-6)]))
    assert fit is not None
    assert fit[0] == pytest.approx(0.0, abs=1e-9)
    assert filling.alpha(Spectrum(np.r_[np.full(6, 1.0), np.zeros(10)])) is None
    assert filling.alpha(Spectrum(np.zeros(100))) is None


def test_effective_rank() -> None:
    assert filling.effective_rank(Spectrum(np.r_[np.full(16, 0.2), np.zeros(368)])) == pytest.approx(16.0)
    assert filling.effective_rank(Spectrum.of(flat(4000, 384, 16))) == pytest.approx(16.0, abs=0.05)
    # Shares 1/2, 1/4, 1/4 have the entropy 1.5 bits.
    assert filling.effective_rank(Spectrum(np.array([2.0, 1.0, 1.0, 0.0]))) == pytest.approx(2**1.5)
    assert filling.effective_rank(Spectrum.of(np.ones((9, 5)))) == pytest.approx(1.0)


@pytest.mark.parametrize(("equal", "dimension"), [(1, 10), (3, 10), (16, 384), (384, 384)])
def test_iso_score_of_equal_dimensions(equal: int, dimension: int) -> None:
    spectrum = Spectrum(np.r_[np.full(equal, 0.7), np.zeros(dimension - equal)])
    assert filling.iso_score(spectrum, dimension) == pytest.approx((equal - 1) / (dimension - 1))


def test_iso_score_is_what_the_paper_says() -> None:
    variances = np.sort(np.random.default_rng(2).exponential(size=12))[::-1]
    # Rudman et al. 2022, algorithm 1, steps 4 to 7.
    scaled = math.sqrt(12) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - 1) / math.sqrt(2 * (12 - math.sqrt(12)))
    used = (12 - defect**2 * (12 - math.sqrt(12))) ** 2 / 12**2
    assert filling.iso_score(Spectrum(variances), 12) == pytest.approx((12 * used - 1) / 11)


@pytest.mark.parametrize(("dimension", "low", "high"), [(2, 1.85, 2.15), (10, 7.8, 9.5)])
def test_intrinsic_dimension_of_cubes(dimension: int, low: float, high: float) -> None:
    # The corners of a cube of ten dimensions have few neighbours: about 8.4 of 2,500 points, towards 10 with more.
    for seed in (0, 1):
        points = np.random.default_rng(seed).random((2500, dimension))
        found = filling.two_nn(points)
        assert found is not None
        assert low < found.dimension < high
        assert found.error == pytest.approx(found.dimension / 50)
    basis, _ = np.linalg.qr(normal(40, dimension, 1))
    turned = filling.two_nn(7.0 + 30.0 * points @ basis.T)
    assert turned is not None
    assert turned.dimension == pytest.approx(found.dimension, rel=1e-6), "neither scale, place nor room counts"


def test_duplicates_say_nothing_about_the_dimension() -> None:
    points = np.random.default_rng(0).random((600, 2))
    alone = filling.two_nn(points)
    again = filling.two_nn(np.r_[points, points[:200], points[:100] + 1e-8])
    assert alone is not None
    assert again is not None
    assert (again.points, again.duplicates) == (600, 300)
    assert again.dimension == pytest.approx(alone.dimension, rel=1e-9)


def test_too_few_points_have_no_dimension() -> None:
    assert filling.two_nn(np.ones((100, 3))) is None
    assert filling.two_nn(normal(19, 3)) is None
    assert filling.two_nn(np.repeat(normal(10, 3), 10, axis=0)) is None


def test_dead_dimensions() -> None:
    vectors = normal(300, 20)
    assert filling.dead_dimensions(vectors) == 0.0
    vectors[:, [3, 7]] *= 1e-4
    vectors[:, 11] *= 0.3
    assert filling.dead_dimensions(vectors) == pytest.approx(2 / 20)
    assert filling.dead_dimensions(np.full((9, 5), 2.0)) == 1.0


def test_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = normal(50, 2)
    found = filling.jackknife(values, lambda rows: rows.mean(axis=0), (0,), groups=50)
    assert found == pytest.approx(values.std(axis=0, ddof=1) / math.sqrt(50))
    grouped = filling.jackknife(normal(5000, 1), lambda rows: rows.mean(axis=0), (1,))
    assert grouped[0] == pytest.approx(1 / math.sqrt(5000), rel=0.6)
    again = filling.jackknife(normal(5000, 1), lambda rows: rows.mean(axis=0), (1,))
    assert np.array_equal(again, grouped)


def test_spaces_that_work_are_not_accused() -> None:
    for vectors in (usual(), normal(500, 96), normal(500, 96) + 14.0 * np.eye(96)[0], np.eye(30)):
        assert set(verdicts(shape.section(vectors, "model")).values()) == {HEALTHY}
    assert set(verdicts(shape.section(usual(), "model", usual(), "base")).values()) == {HEALTHY}
    # P60: four texts that look every way.
    every_way = shape.section([[1, 0], [0, 1], [-1, 0], [0, -1]], "model")
    assert set(verdicts(every_way).values()) == {HEALTHY}
    assert {"intrinsic_dimension", "alpha"}.isdisjoint(verdicts(every_way))
    assert any("too few" in note for note in every_way.notes)


def test_rank_16_of_384_is_a_collapse() -> None:
    found = by_key(shape.section(flat(600, 384, 16), "flat"))
    assert found["effective_rank"].value == pytest.approx(16.0, abs=0.3)
    assert found["effective_rank"].verdict == COLLAPSED
    assert found["iso_score"].value == pytest.approx(15 / 383, abs=0.002)
    assert found["dead_dimensions"].verdict == HEALTHY, "turned away from the axes"
    dead = np.pad(normal(600, 16), ((0, 0), (0, 48)))
    assert by_key(shape.section(dead, "dead"))["dead_dimensions"].verdict == COLLAPSED


def test_one_point_is_a_collapse_in_finite_numbers() -> None:
    found = shape.section(np.ones((40, 64)), "point")
    assert verdicts(found)["centred_cosine"] == COLLAPSED
    assert verdicts(found)["resultant_length"] == COLLAPSED
    assert verdicts(found)["effective_rank"] == COLLAPSED
    assert verdicts(found)["ne_sum"] == COLLAPSED
    assert verdicts(found)["dead_dimensions"] == COLLAPSED
    json.dumps(found.numbers, allow_nan=False)
    assert all(math.isfinite(measure.value) for measure in found.measures)
    assert found.pictures == []


def test_a_line_and_a_few_axes() -> None:
    angle = 0.2 * np.random.default_rng(0).random(300)
    line = np.c_[np.cos(angle), np.sin(angle), np.zeros((300, 30))]
    found = by_key(shape.section(line, "line"))
    assert found["intrinsic_dimension"].value == pytest.approx(1.0, abs=0.3)
    assert found["intrinsic_dimension"].verdict == COLLAPSED
    assert found["centred_cosine"].verdict == COLLAPSED
    assert found["ne_sum"].verdict == COLLAPSED


def test_changes_from_the_base() -> None:
    base = usual()
    pulled = by_key(shape.section(base + 4.0 * np.eye(128)[64], "pulled", base, "base"))["resultant_length"]
    assert pulled.verdict == WATCH
    assert pulled.base == pytest.approx(filling.resultant(base))
    assert "Training pulled everything together" in pulled.sentence
    steep = normal(500, 128) * np.arange(1, 129) ** -0.75
    noise = by_key(shape.section(steep + 2.0 * normal(500, 128, 3), "noise", steep, "base"))["alpha"]
    assert noise.verdict == WATCH
    assert "noise" in noise.sentence
    sheet = flat(500, 128, 12)
    rough = by_key(shape.section(sheet + 0.5 * normal(500, 128, 3), "noise", sheet, "base"))["intrinsic_dimension"]
    assert rough.verdict == WATCH
    assert "noise" in rough.sentence
    flatter = shape.section(base * np.arange(1, 129) ** -0.5, "flatter", base, "base")
    assert verdicts(flatter)["effective_rank"] == WATCH
    assert verdicts(flatter)["iso_score"] == WATCH


def test_a_section_says_its_numbers_and_their_errors() -> None:
    found = shape.section(usual(), "runs/tuned", normal(500, 128), "base", seed=4)
    assert found.numbers["model"]["name"] == "runs/tuned"
    assert found.numbers["base"]["documents"] == 500
    assert found.numbers["model"]["kappa"] == pytest.approx(
        filling.kappa(filling.resultant(usual()), 128), rel=1e-5
    )
    assert 0 < found.numbers["model"]["standard_errors"]["effective_rank"] < 5
    rank = by_key(found)["effective_rank"]
    error = found.numbers["model"]["standard_errors"]["effective_rank"]
    assert f"± {error:.1f}" in rank.sentence
    assert [row[0] for row in found.tables[0].rows] == ["runs/tuned", "base", "even sphere"]
    assert {len(row) for row in found.tables[0].rows} == {len(found.tables[0].columns)}
    assert "tuned: 0." in found.pictures[0].svg
    assert "mathdefault" not in found.pictures[0].svg
    json.dumps(found.numbers, allow_nan=False)


def test_the_same_input_gives_the_same_bytes() -> None:
    first, second = (shape.section(usual(), "model", normal(500, 128), "base", seed=4) for _ in range(2))
    assert first == second


def test_vectors_without_a_direction_are_refused() -> None:
    with pytest.raises(EmbedtrainError, match="1 of 3 vectors are zero or not finite"):
        shape.section([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], "model")
