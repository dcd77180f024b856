import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rliable import library, metrics

from fova.evaluation import statistics
from fova.evaluation.statistics import (
    bootstrap_mean,
    estimate,
    improvement,
    interquartile_mean,
    mean,
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


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_an_interval_holds_the_mean_and_stays_within_the_values(values):
    interval = bootstrap_mean(values)
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - slack <= interval.low <= interval.value + slack
    assert interval.value - slack <= interval.high <= max(values) + slack
    assert interval.value == pytest.approx(sum(values) / len(values), abs=slack)


def test_the_interval_of_many_normal_values_is_that_of_the_normal_law():
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    interval = bootstrap_mean(list(values))
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.03)


def test_equal_runs_leave_no_doubt_and_one_run_has_no_interval():
    assert bootstrap_mean([3.0, 3.0, 3.0]) == (3.0, 3.0, 3.0)
    for alone in (bootstrap_mean([3.0]), probability_of_improvement([[1.0]], [[0.0]])):
        assert math.isnan(alone.low)
        assert math.isnan(alone.high)


def test_one_run_is_shown_without_an_interval():
    assert str(bootstrap_mean([3.25])) == "3.2"
    assert str(statistics.Interval(3.0, 2.5, 3.75)) == "3.0 [2.5, 3.8]"


def test_one_run_has_its_value_and_two_have_an_interval():
    assert estimate([[1.0, 4.0]], mean).value == 2.5
    # Two runs of one task: a resample is (0, 0), (0, 4), (4, 0) or (4, 4), each with probability 1/4.
    assert bootstrap_mean([0.0, 4.0]) == (2.0, 0.0, 4.0)
    assert bootstrap_mean([0.0, 4.0], confidence=0.4) == (2.0, 2.0, 2.0)


def test_an_improvement_over_a_single_run_has_no_interval():
    several, single = [[1.0], [3.0]], [[2.0]]
    for x, y in ((several, single), (single, several)):
        found = probability_of_improvement(x, y)
        assert found.value == 0.5
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    assert probability_of_improvement(several, [[0.0], [2.0]]) == (0.75, 0.0, 1.0)


def test_the_same_runs_have_the_same_interval_in_every_report():
    """10,000 resamples of generator 0."""
    values = np.array([1.0, 2.0, 4.0, 8.0])
    drawn = values[np.random.default_rng(0).integers(0, 4, (10_000, 4, 1))][..., 0].mean(axis=1)
    found = bootstrap_mean(list(values))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


@pytest.mark.parametrize("scores", [[1.0, 2.0], np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((1, 1, 1))])
def test_scores_must_be_a_matrix(scores):
    with pytest.raises(ValueError, match="runs, tasks"):
        estimate(scores, statistics.mean)
