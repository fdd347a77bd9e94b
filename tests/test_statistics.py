"""Intervals and tests against scipy, hand-worked values and simulations with known truth.

Deliberate breaks that turn a test red: percentiles without the BCa correction (test_bca_ends_...), resampling each
system on its own instead of by query (test_paired_...), a one-sided count (test_sign_flips_by_hand), a detectable
difference that forgets the power (test_detectable_difference_...).
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from embedtrain import statistics
from embedtrain.statistics import Interval


def interval(values: np.ndarray, resamples: int = 2_000, seed: int = 0) -> Interval | None:
    means = statistics.bootstrap_means(values[:, None], resamples, seed)[:, 0]
    return statistics.bca_interval(values, means)


def compare(first: np.ndarray, second: np.ndarray, resamples: int = 2_000, seed: int = 0) -> statistics.Comparison:
    means = statistics.bootstrap_means(np.stack([first, second], axis=1), resamples, seed)
    return statistics.compare(first, second, means[:, 0], means[:, 1], seed)


@pytest.mark.parametrize("sample", ["normal", "skewed", "metric"])
def test_bca_interval_agrees_with_scipy(sample: str) -> None:
    random = np.random.default_rng(3)
    values = {
        "normal": random.normal(size=60),
        "skewed": random.exponential(size=25) ** 2,
        "metric": random.choice([0.0, 0.3869, 0.6309, 1.0], size=80, p=[0.3, 0.1, 0.2, 0.4]),
    }[sample]
    ours = interval(values, 40_000)
    assert ours is not None
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=40_000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    # Two Monte Carlo estimates of the same ends: within 3 % of the interval's width.
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_bca_ends_by_formula() -> None:
    """The same bootstrap means through scipy's normal distribution, term by term (Efron 1987, eq. 6.3 and 6.8)."""
    values = np.array([0.0, 0.1, 0.1, 0.4, 2.0])
    means = statistics.bootstrap_means(values[:, None], 999, 0)[:, 0]
    found = statistics.bca_interval(values, means)
    assert found is not None
    bias = stats.norm.ppf(np.mean(means < values.mean()) + np.mean(means == values.mean()) / 2)
    left_out = np.array([np.delete(values, index).mean() for index in range(5)])
    away = left_out.mean() - left_out
    acceleration = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    for end, z in ((found.low, stats.norm.ppf(0.025)), (found.high, stats.norm.ppf(0.975))):
        share = stats.norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        assert end == pytest.approx(np.quantile(means, share), abs=1e-12)


def test_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    """400 samples of 40: 95 % of the intervals hold the truth, within 3 standard errors (0.033)."""
    random = np.random.default_rng(11)
    held = 0
    for trial in range(400):
        values = random.beta(0.6, 0.5, size=40)
        found = interval(values, 600, trial)
        assert found is not None
        held += found.low <= 0.6 / 1.1 <= found.high
    assert abs(held / 400 - 0.95) < 0.033


def test_degenerate_samples_are_defined() -> None:
    same = np.full(30, 0.63)
    assert interval(same) == Interval(pytest.approx(0.63), pytest.approx(0.63))
    assert interval(np.array([0.5])) is None
    nothing = compare(same, same.copy())
    assert (nothing.difference, nothing.p_ttest, nothing.p_randomization) == (0.0, 1.0, 1.0)
    assert (nothing.wins, nothing.ties, nothing.losses, nothing.detectable) == (0, 30, 0, None)
    shifted = compare(np.full(30, 0.8), np.full(30, 0.6))
    assert shifted.p_ttest == 0.0
    assert shifted.p_randomization == pytest.approx(1 / 2_001)
    assert shifted.interval == Interval(pytest.approx(0.2), pytest.approx(0.2))
    single = compare(np.array([1.0]), np.array([0.0]))
    assert (single.difference, single.interval, single.p_ttest, single.p_randomization) == (1.0, None, None, None)


def test_paired_interval_is_the_interval_of_the_differences() -> None:
    """Pairing shows: two systems that differ by little on every query, on queries that differ by much."""
    random = np.random.default_rng(5)
    base = random.uniform(size=50)
    tuned = base + random.normal(0.02, 0.02, size=50)
    found = compare(tuned, base)
    alone = interval(tuned - base)
    assert alone is not None
    assert found.interval is not None
    assert found.interval.low == pytest.approx(alone.low, abs=1e-12)
    assert found.interval.high == pytest.approx(alone.high, abs=1e-12)
    assert found.interval.high - found.interval.low < 0.015


def test_ttest_agrees_with_scipy() -> None:
    random = np.random.default_rng(2)
    for size in (2, 5, 40, 300):
        first, second = random.normal(size=size), random.normal(0.1, size=size)
        assert statistics.ttest_p(first - second) == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-9)


def test_sign_flips_by_hand() -> None:
    # 1, 2, 3: of the 8 sums 6 4 2 0 0 -2 -4 -6 two are as far out as 6. 1, 2, -3: all 8 are as far out as 0.
    assert statistics.randomization_p(np.array([1.0, 2.0, 3.0]), 100, 0) == 0.25
    assert statistics.randomization_p(np.array([1.0, 2.0, -3.0]), 100, 0) == 1.0
    # 0.1 + 0.2 - 0.3 is not 0 in floating point; differences of 0 say nothing either way.
    assert statistics.randomization_p(np.array([0.1, 0.2, -0.3, 0.0, 0.0]), 100, 0) == 1.0


@given(st.lists(st.sampled_from([-0.63, -0.37, -0.1, 0.0, 0.1, 0.37, 0.5, 1.0]), min_size=2, max_size=9))
@settings(deadline=None)
def test_sign_flips_equal_the_obvious_loop(differences: list[float]) -> None:
    values = np.array(differences)
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = np.mean([total >= observed - 1e-9 for total in sums])
    assert statistics.randomization_p(values, 10, 0) == pytest.approx(expected, abs=1e-12)


def test_seeded_sign_flips_agree_with_scipy_and_the_ttest() -> None:
    random = np.random.default_rng(8)
    for shift in (0.0, 0.05, 0.15):
        differences = random.normal(shift, 0.5, size=80)
        ours = statistics.randomization_p(differences, 20_000, 4)
        theirs = stats.permutation_test(
            (differences,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(9)
        ).pvalue
        assert ours == pytest.approx(theirs, abs=0.015)
        assert ours == pytest.approx(statistics.ttest_p(differences), abs=0.015)


def test_exact_and_seeded_sign_flips_meet() -> None:
    random = np.random.default_rng(1)
    differences = random.normal(0.2, 0.5, size=20)
    exact = statistics.randomization_p(differences, 1, 0)
    more = np.append(differences, [1e-9])  # 21 differences are drawn, not counted out
    assert exact == pytest.approx(statistics.randomization_p(more, 50_000, 0), abs=0.01)


def test_false_alarms_and_power_at_the_detectable_difference() -> None:
    """Sets of 40 queries: 5 % +- 1 alarms without a difference, 80 % +- 5 finds at the smallest that is printed.

    10,000 sets for the t-test, 4,000 for the sign flips that the verdict is made of: 1 point is three standard errors.
    """
    random = np.random.default_rng(21)
    deviation, count = 0.3, 40
    known = statistics.detectable_difference(deviation * _unit(random.normal(size=count)))
    assert known is not None
    noise = random.normal(0.0, deviation, size=(10_000, count))
    alarms = [statistics.ttest_p(row) for row in noise]
    finds = [statistics.ttest_p(row + known) for row in noise]
    assert np.mean(np.array(alarms, dtype=float) < 0.05) == pytest.approx(0.05, abs=0.01)
    assert np.mean(np.array(finds, dtype=float) < 0.05) == pytest.approx(0.80, abs=0.05)
    signs = [statistics.randomization_p(row, 400, trial) for trial, row in enumerate(noise[:4_000])]
    found = [statistics.randomization_p(row + known, 400, trial) for trial, row in enumerate(noise[:4_000])]
    assert np.mean(np.array(signs, dtype=float) < 0.05) == pytest.approx(0.05, abs=0.01)
    assert np.mean(np.array(found, dtype=float) < 0.05) == pytest.approx(0.80, abs=0.05)


def test_false_alarms_of_a_family() -> None:
    """Four comparisons of which none is a difference: some p below 0.05 in 19 % of the families, after Holm in 5 %."""
    random = np.random.default_rng(5)
    raw = adjusted = 0
    for _ in range(4_000):
        values = [statistics.ttest_p(row) for row in random.normal(size=(4, 30))]
        raw += min(values) < 0.05
        adjusted += min(statistics.holm(values)) < 0.05
    assert raw / 4_000 == pytest.approx(1 - 0.95**4, abs=0.02)
    assert adjusted / 4_000 == pytest.approx(0.05, abs=0.01)


def _unit(values: np.ndarray) -> np.ndarray:
    """Mean 0 and standard deviation 1, so that the deviation that is measured is the true one."""
    return (values - values.mean()) / values.std(ddof=1)


def test_detectable_difference_by_the_usual_approximation() -> None:
    # For many queries: (1.95996 + 0.84162) * deviation / sqrt(n).
    values = 0.4 * _unit(np.random.default_rng(0).normal(size=10_000))
    assert statistics.detectable_difference(values) == pytest.approx(2.80158 * 0.4 / 100, rel=1e-3)


def test_holm_by_hand() -> None:
    # Holm 1979 with p = .01 .04 .03: 3 x .01, 2 x .03, then 1 x .04, but not below the one before it.
    assert statistics.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.6, None, 0.5]) == [1.0, None, 1.0]
    assert statistics.holm([0.02]) == [0.02]
    assert statistics.holm([]) == []


def test_effect_size_by_hand() -> None:
    # Mean 2, deviation 1.
    assert statistics.effect_size(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.0)
    assert statistics.effect_size(np.array([1.0])) is None
    assert statistics.effect_size(np.full(9, 0.2)) is None


@pytest.mark.parametrize("mean", [0.9, 0.15, 0.02, 0.002])
def test_queries_needed_are_those_of_which_the_difference_is_detectable(mean: float) -> None:
    differences = mean + 0.3 * _unit(np.random.default_rng(4).normal(size=50))
    needed = statistics.queries_needed(differences)
    assert needed is not None

    def seen_with(count: int) -> float:
        return statistics.detectable_difference(0.3 * _unit(np.random.default_rng(1).normal(size=count)))

    assert seen_with(needed) <= mean
    assert needed == 2 or seen_with(needed - 1) > mean


def test_no_number_of_queries_shows_what_is_not_there() -> None:
    assert statistics.queries_needed(np.array([0.1, -0.1])) is None
    assert statistics.queries_needed(1e-5 + 0.3 * _unit(np.random.default_rng(4).normal(size=50))) is None
    assert statistics.queries_needed(np.full(5, 0.1)) is None
    assert statistics.queries_needed(np.array([0.1])) is None


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    values = np.random.default_rng(0).uniform(size=(30, 2))
    first = statistics.bootstrap_means(values, 100, 5)
    assert np.array_equal(first, statistics.bootstrap_means(values, 100, 5))
    assert not np.array_equal(first, statistics.bootstrap_means(values, 100, 6))


def test_means_do_not_depend_on_how_the_draws_are_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).uniform(size=(31, 2))
    whole = statistics.bootstrap_means(values, 50, 5)
    monkeypatch.setattr(statistics, "_CHUNK", 64)
    assert np.array_equal(whole, statistics.bootstrap_means(values, 50, 5))


def test_wins_ties_and_losses() -> None:
    found = compare(np.array([1.0, 0.5, 0.5, 0.1 + 0.2]), np.array([0.0, 0.5, 0.6, 0.3]))
    assert (found.wins, found.ties, found.losses) == (1, 2, 1)
    assert found.difference == pytest.approx(0.225)
