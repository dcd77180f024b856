from statistics import NormalDist

import numpy as np
import pytest

from fova.evaluation.judging import intervals
from fova.evaluation.judging.intervals import Estimate, combined, of_statistic, of_values


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    found = [of_values(rng.normal(size=(1, 40))) for _ in range(200)]
    assert 0.84 <= np.mean([one.low <= 0.0 <= one.high for one in found]) <= 0.95


def test_the_spread_between_repetitions_widens_it():
    found = of_values(np.array([[0.0], [2.0]]) + np.zeros((2, 10)))
    assert (found.value, found.episode_error) == (1.0, 0.0)
    assert found.fit_error == pytest.approx(np.sqrt(2))
    assert (found.low, found.high) == (0.0, 2.0)


def test_the_standard_error_of_episodes_by_hand():
    found = of_values(np.array([[1.0, 3.0]]))
    assert (found.value, found.fit_error) == (2.0, 0.0)
    assert found.episode_error == pytest.approx(1.0)  # std 1.414 / sqrt(2)


def test_an_allowance_widens_both_sides():
    values = np.random.default_rng(0).normal(size=(3, 20))
    plain, wide = of_values(values), of_values(values, allowance=0.5)
    assert (wide.low, wide.high) == pytest.approx((plain.low - 0.5, plain.high + 0.5))


def test_a_single_episode_has_no_interval():
    found = of_values(np.ones((3, 1)))
    assert found.value == 1.0
    assert np.isnan([found.low, found.high, found.episode_error]).all()
    assert np.isnan(of_statistic(lambda counts: 2.0, 1).low)


def test_a_statistic_of_resampled_episodes():
    values = np.arange(10.0)
    found = of_statistic(lambda counts: float(counts @ values / counts.sum()), 10)
    assert found.value == 4.5
    assert found.low < 4.0 < 5.0 < found.high
    assert found == of_statistic(lambda counts: float(counts @ values / counts.sum()), 10)


def test_the_interval_is_that_of_a_thousand_resamples_drawn_one_by_one():
    values = np.random.default_rng(1).normal(size=(3, 7))
    rng = np.random.default_rng(0)  # the seed is fixed: equal arrays have equal intervals
    fits = rng.integers(3, size=1000)
    drawn = rng.multinomial(7, [1 / 7] * 7, size=1000)
    means = sorted(np.repeat(values[fit], times).mean() for fit, times in zip(fits, drawn, strict=True))
    found = of_values(values)
    # Of 1,000 sorted means, 5 % lie below place 49.95 and 5 % above place 949.05, counted from 0.
    assert found.low == pytest.approx(means[49] + 0.95 * (means[50] - means[49]))
    assert found.high == pytest.approx(means[949] + 0.05 * (means[950] - means[949]))
    assert found.episode_error == pytest.approx(values.mean(axis=0).std(ddof=1) / np.sqrt(7))


def test_a_statistic_has_the_interval_of_two_hundred_resamples():
    values = np.random.default_rng(1).normal(size=7)
    drawn = np.random.default_rng(0).multinomial(7, [1 / 7] * 7, size=200)
    means = sorted(np.repeat(values, times).mean() for times in drawn)
    found = of_statistic(lambda counts: float(counts @ values / 7), 7)
    assert found.value == pytest.approx(values.mean())
    # Of 200 sorted values, 5 % lie below place 9.95 and 5 % above place 189.05.
    assert found.low == pytest.approx(means[9] + 0.95 * (means[10] - means[9]))
    assert found.high == pytest.approx(means[189] + 0.05 * (means[190] - means[189]))


def test_two_episodes_and_two_repetitions_have_an_interval():
    found = of_values(np.array([[0.0, 4.0], [2.0, 6.0]]))
    assert (found.value, found.low, found.high) == (3.0, 0.0, 6.0)
    assert (found.episode_error, found.fit_error) == pytest.approx((2.0, np.sqrt(2)))
    two = of_statistic(lambda counts: float(counts[0]), 2)
    assert (two.value, two.low, two.high) == (1.0, 0.0, 2.0)


def test_a_client_with_a_single_episode_adds_its_mean_and_no_error():
    found = combined([of_values(np.ones((3, 1))), Estimate(5.0, 0, 0, 0.8, 0.4)], [1, 3])
    assert found.value == pytest.approx(4.0)
    assert (found.episode_error, found.fit_error) == pytest.approx((0.6, 0.3))
    assert found.high - found.value == pytest.approx(intervals.NORMAL_QUANTILE * np.hypot(0.6, 0.3))


def test_the_federation_by_hand():
    # shares 1/4 and 3/4; variances of episodes add up, errors of the shared fit add up linearly
    two = [Estimate(2.0, 0, 0, 0.4, 0.1), Estimate(6.0, 0, 0, 0.8, 0.3)]
    found = combined(two, [1, 3], allowance=0.2)
    assert found.value == pytest.approx(5.0)
    assert found.episode_error == pytest.approx(np.hypot(0.1, 0.6))
    assert found.fit_error == pytest.approx(0.25)
    reach = intervals.NORMAL_QUANTILE * np.sqrt(0.1**2 + 0.6**2 + 0.25**2) + 0.2
    assert (found.low, found.high) == pytest.approx((5.0 - reach, 5.0 + reach))


def test_the_normal_quantile_is_that_of_a_two_sided_interval_of_ninety_percent():
    assert intervals.CONFIDENCE == 0.9
    assert pytest.approx(NormalDist().inv_cdf(0.95)) == intervals.NORMAL_QUANTILE
