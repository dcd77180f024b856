import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rliable import library, metrics

from fova.evaluation import statistics
from fova.evaluation.statistics import (
    estimate,
    improvement,
    interquartile_mean,
    mean,
    mean_over_runs,
    median,
    performance_profile,
    probability_of_improvement,
)

FIVE_RUNS_ON_FOUR_TASKS = np.random.default_rng(1).normal([10, 40, 80, 55], [3, 10, 20, 1], (5, 4))
SIX_OTHER_RUNS = np.random.default_rng(2).normal([12, 35, 90, 55], [3, 10, 20, 1], (6, 4))


def test_by_hand():
    scores = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [6.0, 100.0]])
    assert mean(scores) == pytest.approx(172 / 8)
    assert median(scores) == pytest.approx((3.0 + 40.0) / 2)  # the task means are 3 and 40
    assert interquartile_mean(scores) == pytest.approx((3 + 6 + 10 + 20) / 4)  # 1 2 | 3 6 10 20 | 30 100
    # task 1: 2 beats 1, ties 2: 1.5 of 2 pairs; 0 beats none. task 2: 5 beats both, 1 ties one of two
    assert improvement(np.array([[2.0, 5.0], [0.0, 1.0]]), np.array([[1.0, 1.0], [2.0, 2.0]])) == pytest.approx(
        (1.5 / 4 + 2.5 / 4) / 2
    )


@given(
    arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.integers(-50, 50).map(float))
)
def test_aggregates_are_those_of_rliable(scores):
    assert mean(scores) == pytest.approx(metrics.aggregate_mean(scores))
    assert median(scores) == pytest.approx(metrics.aggregate_median(scores))
    assert interquartile_mean(scores) == pytest.approx(metrics.aggregate_iqm(scores))
    other = scores[::-1] + 1.0
    assert improvement(scores, other) == pytest.approx(metrics.probability_of_improvement(scores, other))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (mean, metrics.aggregate_mean),
        (median, metrics.aggregate_median),
        (interquartile_mean, metrics.aggregate_iqm),
    ],
)
def test_intervals_are_those_of_rliable(ours, theirs):
    np.random.seed(0)  # noqa: NPY002, because rliable draws from the global generator
    scores = FIVE_RUNS_ON_FOUR_TASKS
    points, bounds = library.get_interval_estimates({"a": scores}, lambda x: np.array([theirs(x)]), reps=1500)
    found = estimate(scores, ours)
    width = found.high - found.low
    assert found.value == pytest.approx(points["a"][0])
    assert (found.low, found.high) == pytest.approx(tuple(bounds["a"][:, 0]), abs=0.08 * width)


def test_probability_of_improvement_is_that_of_rliable():
    np.random.seed(0)  # noqa: NPY002
    pair = (FIVE_RUNS_ON_FOUR_TASKS, SIX_OTHER_RUNS)
    points, bounds = library.get_interval_estimates(
        {"x,y": pair}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=300
    )
    found = probability_of_improvement(*pair)
    assert found.value == pytest.approx(points["x,y"][0])
    assert (found.low, found.high) == pytest.approx(tuple(bounds["x,y"][:, 0]), abs=0.06)


def test_performance_profile_is_that_of_rliable():
    np.random.seed(0)  # noqa: NPY002
    thresholds = [0.0, 30.0, 54.0, 90.0]
    theirs, bounds = library.create_performance_profile(
        {"a": FIVE_RUNS_ON_FOUR_TASKS}, np.array(thresholds), reps=1000
    )
    ours = performance_profile(FIVE_RUNS_ON_FOUR_TASKS, thresholds)
    assert ours.share == pytest.approx(theirs["a"])
    assert np.stack([ours.low, ours.high]) == pytest.approx(bounds["a"], abs=0.051)  # shares come in twentieths


@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=8))
def test_the_interval_of_a_mean_is_students(values):
    interval = mean_over_runs(values)
    if np.std(values) > 1e-6:
        expected = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values))
        assert interval.ends == pytest.approx(expected, abs=1e-6)
    assert interval.value == pytest.approx(sum(values) / len(values), abs=1e-9)


def test_the_confidence_of_a_mean_can_be_chosen():
    # Student's 0.75 quantile for 4 degrees of freedom is 0.7407; the standard error is sqrt(2.5 / 5).
    interval = mean_over_runs([1.0, 2.0, 3.0, 4.0, 5.0], confidence=0.5)
    assert interval.ends == pytest.approx((3 - 0.7407 * math.sqrt(0.5), 3 + 0.7407 * math.sqrt(0.5)), abs=1e-4)


def test_the_interval_of_five_runs_covers_the_truth_as_often_as_it_says():
    """A percentile bootstrap of five runs covers it in 83 of 100 experiments only."""
    experiments = np.random.default_rng(0).normal(7.0, 3.0, (2000, 5))
    covered = [low <= 7.0 <= high for low, high in (mean_over_runs(runs).ends for runs in experiments)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_many_normal_values_is_that_of_the_normal_law():
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    interval = mean_over_runs(list(values))
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.03)


def test_equal_runs_leave_no_doubt_and_one_run_has_no_interval():
    assert mean_over_runs([3.0] * 5).ends == (3.0, 3.0)
    for alone in (mean_over_runs([3.0]), probability_of_improvement([[1.0]], [[0.0]])):
        assert math.isnan(alone.low)
        assert math.isnan(alone.high)


def test_few_runs_are_shown_one_by_one():
    assert mean_over_runs([3.25]).text() == "3.2"
    assert mean_over_runs([1.0, 2.0, 6.0]).text() == "3.0 (1.0, 2.0, 6.0)"
    assert mean_over_runs([1.0, 2.0, 6.0]).ends == (1.0, 6.0)
    assert statistics.Interval(3.0, 2.5, 3.75).text() == "3.0 [2.5, 3.8]"
    assert all(map(math.isnan, statistics.Interval(3.0, math.nan, math.nan).ends))
    assert not mean_over_runs([1.0, 2.0, 3.0, 4.0]).known
    assert mean_over_runs([1.0, 2.0, 3.0, 4.0, 5.0]).known


def test_tables_and_charts_say_what_their_brackets_and_bands_are():
    assert statistics.how_sure([1, 0]) == "one seed has no interval"
    assert statistics.how_sure([3, 1]) == "in parentheses the single seeds"
    assert statistics.how_sure([5]) == "in brackets 95 % intervals over seeds"
    assert statistics.how_sure([5, 2]) == "in brackets 95 % intervals over seeds; in parentheses the single seeds"
    assert statistics.bands([1]) == "One seed, no band"
    assert statistics.bands([4, 5]) == "Bands: 95 % intervals over seeds, or lowest to highest seed"
    assert statistics.bands([2, 1]) == "Bands: lowest to highest seed"
    assert statistics.bands([5]) == "Bands: 95 % intervals over seeds"


def test_one_run_has_its_value_and_two_have_an_interval():
    assert estimate([[1.0, 4.0]], mean).value == 2.5
    # Two runs of one task: a resample is (0, 0), (0, 4), (4, 0) or (4, 4), each with probability 1/4.
    assert estimate([[0.0], [4.0]], mean).ends == (0.0, 4.0)
    assert estimate([[0.0], [4.0]], mean, confidence=0.4).ends == (2.0, 2.0)


def test_an_improvement_over_a_single_run_has_no_interval():
    several, single = [[1.0], [3.0]], [[2.0]]
    for x, y in ((several, single), (single, several)):
        found = probability_of_improvement(x, y)
        assert found.value == 0.5
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    found = probability_of_improvement(several, [[0.0], [2.0]])
    assert (found.value, *found.ends) == (0.75, 0.0, 1.0)


def test_the_same_runs_have_the_same_interval_in_every_report():
    """10,000 resamples of generator 0, which draws the first algorithm's runs before the second's."""
    values = np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0])  # sums of roots differ for nearly all resamples
    rng = np.random.default_rng(0)
    drawn, others = (values[rng.integers(0, 6, (10_000, 6, 1))][..., 0] for _ in range(2))
    found = estimate(values[:, None], mean)
    expected = np.quantile(drawn.mean(axis=1), [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-12)
    assert statistics.RESAMPLES == 10_000
    share = ((drawn[:, :, None] > others[:, None]) + 0.5 * (drawn[:, :, None] == others[:, None])).mean(axis=(1, 2))
    found = probability_of_improvement(values[:, None], values[:, None])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(share, [0.025, 0.975])), rel=1e-12)


def test_a_run_at_a_threshold_is_not_above_it():
    profile = performance_profile([[1.0], [2.0], [2.0], [3.0]], [0.5, 1.0, 2.0, 3.0])
    assert profile.share.tolist() == [1.0, 0.75, 0.25, 0.0]


@pytest.mark.parametrize("scores", [[1.0, 2.0], np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((1, 1, 1))])
def test_scores_must_be_a_matrix(scores):
    with pytest.raises(ValueError, match="runs, tasks"):
        estimate(scores, statistics.mean)
