"""The position-based click model: propensities that are the user's, the right prior, exact posteriors.

Deliberate breaks that turn a test red: a step that forgets the clicks of a pair; comparing ranks that no pair
joins; keeping ranks with a handful of clicks; interpolating on straight axes; a mean of a rank that is not drawn
to that of all; counting impressions squared instead of pairs of them; a posterior that takes impressions at any
rank as seen; a quantile that is off by a point; a result that depends on how many pairs are integrated together.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from embedtrain.harvest.clicks import model as click_model
from embedtrain.harvest.clicks.model import (
    filled,
    fit_prior,
    fit_propensities,
    improve,
    log_likelihood,
    posterior,
)

Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def table(*rows: tuple[int, int, int, int]) -> Table:
    """pair, rank, shown, clicked"""
    pair, rank, shown, clicked = np.array(rows).T
    return pair, rank, shown, clicked


def simulated(seed: int, *, pairs: int, views: int, depth: int, eta: float) -> Table:
    """Pairs that are shown `views` times on average around a rank of their own, the relevant ones higher up."""
    random = np.random.default_rng(seed)
    relevance = random.beta(0.4, 2.0, pairs)
    # The better, the higher up: what a raw click rate by rank takes for looking.
    home = np.clip(random.geometric(0.1 + 0.6 * relevance) - 1, 0, depth - 1)
    shown = random.poisson(views, pairs)
    pair = np.repeat(np.arange(pairs), shown)
    rank = np.clip(home[pair] + random.integers(-2, 3, len(pair)), 0, depth - 1) + 1
    clicked = random.random(len(pair)) < relevance[pair] / rank**eta
    keys, place = np.unique(pair * depth + rank - 1, return_inverse=True)
    return keys // depth, keys % depth + 1, np.bincount(place), np.bincount(place, clicked).astype(np.int64)


def em(pair: np.ndarray, rank: np.ndarray, shown: np.ndarray, clicked: np.ndarray, steps: int) -> np.ndarray:
    """Wang et al. 2018 without the regression: propensities and every relevance are estimated together."""
    _, pair = np.unique(pair, return_inverse=True)
    theta, gamma = np.linspace(1, 0.5, rank.max()), np.full(pair.max() + 1, 0.3)
    for _ in range(steps):
        t, g = theta[rank - 1], gamma[pair]
        missed = shown - clicked
        looked = clicked + missed * t * (1 - g) / (1 - t * g)
        relevant = clicked + missed * (1 - t) * g / (1 - t * g)
        theta = np.bincount(rank - 1, looked) / np.bincount(rank - 1, shown)
        gamma = np.clip(np.bincount(pair, relevant) / np.bincount(pair, shown), 1e-9, 1 - 1e-9)
        theta = np.clip(theta, 1e-9, 1 - 1e-9)
    return theta / theta[0]


def test_one_step_by_hand() -> None:
    rows = table((0, 1, 10, 4), (0, 2, 10, 2), (1, 1, 5, 1), (1, 2, 20, 2))
    # From theta = 1: S = 20 and 25, c = 6 and 3. Rank 1: 5 clicks over 10 * 6/20 + 5 * 3/25 = 3.6.
    # Rank 2: 4 clicks over 10 * 6/20 + 20 * 3/25 = 5.4.
    assert improve(np.ones(2), *rows) == pytest.approx([5 / 3.6, 4 / 5.4])
    # 4 log(1/2) + 2 log(1/2) + log(5/25) + 2 log(20/25)
    assert log_likelihood(np.ones(2), *rows) == pytest.approx(6 * np.log(0.5) + np.log(0.2) + 2 * np.log(0.8))


def test_one_pair_gives_the_ratio_of_its_rates() -> None:
    found = fit_propensities(*table((0, 1, 100, 40), (0, 2, 200, 40)))
    assert found is not None
    assert found.values == pytest.approx([1.0, 0.5], abs=1e-5)
    assert found.pairs == 1
    assert found.steps is not None
    assert found.estimated.all()


@st.composite
def tables(draw: Any) -> Table:
    ranks = draw(st.integers(2, 5))
    rows = []
    for pair in range(draw(st.integers(1, 6))):
        for rank in draw(st.sets(st.integers(1, ranks), min_size=1)):
            shown = draw(st.integers(1, 60))
            rows.append((pair, rank, shown, draw(st.integers(0, shown))))
    return table(*rows)


@settings(max_examples=150, deadline=None)
@given(tables(), st.integers(0, 2**16))
def test_no_step_lowers_the_likelihood(rows: Table, seed: int) -> None:
    theta = np.random.default_rng(seed).uniform(0.05, 1, rows[1].max())
    before = log_likelihood(theta, *rows)
    for _ in range(5):
        theta = np.maximum(improve(theta, *rows), 1e-12)
        after = log_likelihood(theta, *rows)
        assert after >= before - 1e-9 * (1 + abs(before))
        before = after


@pytest.mark.parametrize(("eta", "views"), [(1.0, 4), (0.5, 4), (0.0, 4), (1.0, 20)])
def test_propensities_of_a_simulated_log_are_recovered(eta: float, views: int) -> None:
    rows = simulated(3, pairs=240_000 // views, views=views, depth=8, eta=eta)
    truth = 1 / np.arange(1, 9) ** eta
    found = fit_propensities(*rows)
    assert found is not None
    assert found.steps is not None
    assert np.abs(found.values - truth).max() < 0.05
    assert np.abs(found.values - truth).mean() < 0.02


def test_few_views_a_pair_mislead_em_and_not_this() -> None:
    rows = simulated(5, pairs=60_000, views=4, depth=8, eta=1.0)
    truth = 1 / np.arange(1, 9)
    found = fit_propensities(*rows)
    assert found is not None
    ours, theirs = np.abs(found.values - truth).mean(), np.abs(em(*rows, steps=100) - truth).mean()
    clicks, shown = np.bincount(rows[1], rows[3])[1:], np.bincount(rows[1], rows[2])[1:]
    rates = np.abs(clicks / shown / (clicks[0] / shown[0]) - truth).mean()
    assert ours < 0.02 < 0.05 < min(theirs, rates)


def test_positions_that_never_vary_say_nothing() -> None:
    assert fit_propensities(*table((0, 1, 100, 50), (1, 2, 100, 20), (2, 3, 100, 10))) is None
    # Shown at two ranks, but clicked by nobody; or too rarely.
    assert fit_propensities(*table((0, 1, 100, 0), (0, 2, 100, 0))) is None
    assert fit_propensities(*table((0, 1, 100, 9), (0, 2, 100, 40))) is None
    assert fit_propensities(*table((0, 1, 100, 10), (0, 2, 100, 40))) is not None
    assert fit_propensities(*(np.empty(0, dtype=np.int64) for _ in range(4))) is None


def test_only_ranks_that_pairs_join_are_compared() -> None:
    # Ranks 1 and 2 are joined by pair 0, ranks 3 and 4 by pair 1, and nothing joins the two; the first has more
    # clicks.
    found = fit_propensities(*table((0, 1, 100, 80), (0, 2, 100, 40), (1, 3, 100, 30), (1, 4, 100, 15)))
    assert found is not None
    assert found.estimated.tolist() == [True, True, False, False]
    assert found.values == pytest.approx([1, 0.5, 0.5, 0.5], abs=1e-5)
    assert found.pairs == 1


def test_a_rank_with_few_clicks_is_read_off_between_the_others() -> None:
    # Rank 2 has 9 clicks. Rank 4 has a quarter of rank 1: on a line of logarithms rank 2 has a half.
    found = fit_propensities(*table((0, 1, 100, 80), (0, 2, 10, 9), (0, 4, 100, 20)))
    assert found is not None
    assert found.estimated.tolist() == [True, False, False, True]
    assert found.values == pytest.approx([1, 0.5, 1 / 3, 0.25], abs=1e-5)


def test_a_rare_rank_is_not_what_the_others_are_measured_by() -> None:
    # Rank 2 looks better than rank 1 by 12 clicks of 10 where 10 are expected; it is at most 1.
    found = fit_propensities(*table((0, 1, 1000, 500), (0, 2, 20, 12), (0, 3, 1000, 250)))
    assert found is not None
    assert found.values == pytest.approx([1, 1, 0.5], abs=1e-5)


def test_filled_by_hand() -> None:
    # A slope of -1 between ranks 1 and 4, flat beyond.
    values = filled(np.array([1, 4]), np.array([1.0, 0.25]), 8)
    assert values == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 4])


def test_the_prior_by_hand() -> None:
    # 4 pairs, 2 impressions each, 0, 0, 2 and 1 clicks: m = 3/8. c**2 - c adds up to 2, e**2 - s = 2 a pair, so
    # rho = (2 - 8 * 9/64) / (8 * 3/8 * 5/8) = 0.875 / 1.875, and the strength 1 / rho - 1 = 8/7.
    rows = table((0, 1, 2, 0), (1, 1, 2, 0), (2, 1, 2, 2), (3, 1, 2, 1))
    prior = fit_prior(rows[0], rows[1], np.ones(4), *rows[2:], by_rank=False)
    assert prior.mean == pytest.approx(3 / 8)
    assert prior.strength == pytest.approx(8 / 7)
    assert prior.by_rank == pytest.approx([3 / 8])


def test_ranks_have_means_of_their_own_drawn_to_that_of_all() -> None:
    # Single impressions weigh alike: (8 + 10 * 1/2) / (10 + 10) and (2 + 5) / 20. They say nothing of the
    # strength.
    rows = table(*((n, 1 + n // 10, 1, int(n < 8 or n >= 18)) for n in range(20)))
    prior = fit_prior(rows[0], rows[1], np.ones(20), *rows[2:], by_rank=True)
    assert prior.by_rank == pytest.approx([0.65, 0.35])
    assert prior.strength == pytest.approx(1)
    # A pair at both ranks, seen 3 times at rank 1 and 4 * 1/4 at rank 2: (3 * 0.65 + 0.35) / 4.
    means = prior.means(np.array([0, 0]), np.array([1, 2]), np.array([1.0, 0.25]), np.array([3, 4]))
    assert means == pytest.approx([(3 * 0.65 + 0.35) / 4])


def test_the_prior_of_a_simulated_log() -> None:
    random = np.random.default_rng(1)
    shown = random.integers(1, 12, 40_000)
    theta = random.choice([1.0, 0.5, 0.2], 40_000)
    clicked = random.binomial(shown, theta * random.beta(0.6, 2.4, 40_000))
    rank = np.ones(40_000, dtype=int)
    prior = fit_prior(np.arange(40_000), rank, theta, shown, clicked, by_rank=False)
    assert prior.mean == pytest.approx(0.2, abs=0.005)
    assert prior.strength == pytest.approx(3, rel=0.1)


def test_all_alike_and_all_or_nothing_stay_finite() -> None:
    alike = table(*((n, 1, 10, 5) for n in range(50)))
    assert fit_prior(alike[0], alike[1], np.ones(50), *alike[2:], by_rank=False).strength == pytest.approx(9_999)
    either = table(*((n, 1, 10, 10 * (n % 2)) for n in range(50)))
    assert fit_prior(either[0], either[1], np.ones(50), *either[2:], by_rank=False).strength == pytest.approx(
        1 / 99
    )


def test_posteriors_by_hand() -> None:
    # Uniform before, one impression that half of the users look at. Clicked: p = 2 g, so g = sqrt(share).
    # Not clicked: p = (1 - g/2) / (3/4): mean (1/2 - 1/6) / (3/4) = 4/9, and g - g**2/4 = 3/4 share at the ends.
    pair, theta, shown, clicked = np.array([0, 1]), np.array([0.5, 0.5]), np.array([1, 1]), np.array([1, 0])
    found = posterior(pair, theta, shown, clicked, np.array([0.5, 0.5]), 2.0)
    ends = [2 * (1 - np.sqrt(1 - 0.75 * share)) for share in (0.025, 0.975)]
    assert found.mean == pytest.approx([2 / 3, 4 / 9], abs=1e-4)
    assert found.low == pytest.approx([np.sqrt(0.025), ends[0]], abs=0.005)
    assert found.high == pytest.approx([np.sqrt(0.975), ends[1]], abs=0.005)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0.05, 0.95),
    st.floats(0.2, 500),
)
def test_where_all_look_everywhere_it_is_a_beta(
    pairs: list[tuple[int, float]], mean: float, strength: float
) -> None:
    shown = np.array([n for n, _ in pairs])
    clicked = np.array([round(n * share) for n, share in pairs])
    number = np.arange(len(pairs))
    means = np.full(len(pairs), mean)
    found = posterior(number, np.ones(len(pairs)), shown, clicked, means, strength)
    beta = stats.beta(strength * mean + clicked, strength * (1 - mean) + shown - clicked)
    width = beta.ppf(0.975) - beta.ppf(0.025) + 1e-12
    assert np.all(np.abs(found.mean - beta.mean()) < 0.01 * width)
    assert np.all(np.abs(found.low - beta.ppf(0.025)) < 0.02 * width)
    assert np.all(np.abs(found.high - beta.ppf(0.975)) < 0.02 * width)


def test_several_ranks_against_quadrature() -> None:
    theta, shown, clicked = np.array([1.0, 0.3]), np.array([10, 40]), np.array([2, 3])
    found = posterior(np.array([0, 0]), theta, shown, clicked, np.array([1 / 7]), 3.5)

    def density(g: float) -> float:
        return g ** (5 + 0.5 - 1) * (1 - g) ** 2 * float(np.prod((1 - theta * g) ** (shown - clicked)))

    whole = integrate.quad(density, 0, 1)[0]
    assert found.mean[0] == pytest.approx(integrate.quad(lambda g: g * density(g), 0, 1)[0] / whole, abs=1e-4)
    assert integrate.quad(density, 0, found.low[0])[0] / whole == pytest.approx(0.025, abs=0.001)
    assert integrate.quad(density, 0, found.high[0])[0] / whole == pytest.approx(0.975, abs=0.001)


def test_pairs_do_not_depend_on_those_they_are_integrated_with(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, rank, shown, clicked = simulated(7, pairs=60, views=5, depth=4, eta=1.0)
    _, pair = np.unique(pair, return_inverse=True)
    theta, means = 1 / rank, np.linspace(0.05, 0.6, pair.max() + 1)
    whole = posterior(pair, theta, shown, clicked, means, 2.0)
    monkeypatch.setattr(click_model, "_AT_ONCE", 1)
    single = posterior(pair, theta, shown, clicked, means, 2.0)
    assert np.array_equal(whole.low, single.low)
    assert np.array_equal(whole.mean, single.mean)
    assert np.all((whole.low < whole.mean) & (whole.mean < whole.high))


def test_columns_of_small_integers_do_not_overflow() -> None:
    rows = table((0, 1, 200, 150), (0, 2, 250, 100), (1, 1, 90, 80))
    small = tuple(column.astype(kind) for column, kind in zip(rows, "qHII", strict=True))
    wide, narrow = fit_propensities(*rows), fit_propensities(*small)
    assert wide is not None
    assert narrow is not None
    assert narrow.values == pytest.approx(wide.values, rel=1e-9)
    theta = wide.values[rows[1] - 1]
    results = [fit_prior(r[0], r[1], theta, r[2], r[3], by_rank=True) for r in (rows, small)]
    assert results[1].strength == pytest.approx(results[0].strength, rel=1e-9)
