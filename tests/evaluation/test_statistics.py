import numpy as np
import pytest

from fova.evaluation.statistics import bootstrap_mean


def test_mean_and_interval_of_many_normal_values():
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    interval = bootstrap_mean(list(values))
    assert interval.mean == pytest.approx(values.mean())
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.03)


def test_equal_values_have_no_spread_and_one_value_no_interval():
    assert bootstrap_mean([3.0, 3.0, 3.0]) == (3.0, 3.0, 3.0)
    alone = bootstrap_mean([3.0])
    assert alone.mean == 3.0
    assert np.isnan(alone.low)
    assert np.isnan(alone.high)
