"""What critics are fitted to at a client: scaled rewards, the policy's actions, coarse bounds."""

import numpy as np
import pytest
from test_judge import constant

from fova.data.normalise import Normaliser
from fova.data.transitions import Episode, from_episodes
from fova.evaluation.judging.client import Scale, rows_to_fit
from fova.evaluation.judging.judge import in_progress
from fova.federation.statistics import coarse_range


def data(rewards, terminated=False):
    steps = len(rewards)
    return from_episodes([
        Episode(np.zeros((steps + 1, 1), np.float32), np.zeros((steps, 1), np.float32),
                np.asarray(rewards, np.float32), terminated)
    ])  # fmt: skip


def test_rewards_by_hand():
    scale = Scale(Normaliser.identity(1), discount=0.9, unit=2.0, level=0.5)
    # 3 / 2 - 0.5; at an end 0.5 * 0.9 / 0.1 = 4.5 less, because nothing follows
    np.testing.assert_allclose(scale.rewards(np.array([3.0, 3.0]), np.array([0.0, 1.0])), [1.0, -3.5])


@pytest.mark.parametrize("terminated", [False, True])
def test_the_level_does_not_change_the_values(terminated):
    """A chain of rewards, evaluated backwards in the terms of the critics and in plain terms."""
    rewards, discount, after = np.array([1.0, -2.0, 4.0]), 0.9, 0.0 if terminated else 7.0
    ends = np.array([0.0, 0.0, float(terminated)])
    scale = Scale(Normaliser.identity(1), discount, unit=2.0, level=0.3)
    plain, fitted = after, after * (1 - discount) / scale.unit - scale.level
    for reward, x, end in zip(rewards[::-1], scale.rewards(rewards, ends)[::-1], ends[::-1]):
        plain = reward + discount * (1 - end) * plain
        fitted = (1 - discount) * x + discount * (1 - end) * fitted
    assert float(scale.values(np.array(fitted))) == pytest.approx(plain, rel=1e-5)


def test_the_policy_acts_in_the_next_states():
    scale = Scale(Normaliser(np.array([1.0], np.float32), np.array([2.0], np.float32)), 0.9)
    rows = rows_to_fit(constant(0.4), scale, data([1.0, 2.0]))
    np.testing.assert_allclose(rows.next_actions, 0.4, atol=1e-6)
    np.testing.assert_allclose(rows.observations, -0.5)
    np.testing.assert_allclose(rows.actions, 0.0)


def test_bounds_are_coarse():
    assert coarse_range(data([0.3, 3.0])) == (0.25, 4.0)
    assert coarse_range(data([-0.3, 1.0])) == (-0.5, 1.0)
    assert coarse_range(data([-3.0, -0.3])) == (-4.0, -0.25)
    assert coarse_range(data([0.0, 0.0])) == (0.0, 0.0)
    # nothing is paid after an end, so 0 is a possible value
    assert coarse_range(data([0.3, 3.0], terminated=True)) == (0.0, 4.0)


def test_bounds_in_the_terms_of_the_critics():
    scale = Scale(Normaliser.identity(1), 0.9, unit=2.0, level=0.5, lowest=-4.0, highest=8.0)
    assert scale.bounds == (-2.5, 3.5)


def test_progress_tells_how_long_it_takes():
    assert in_progress(0, 60, 0.0) == "fitting the policy's value: round 1 of 60"
    # 4 rounds took 2 s, the first not counted, and 55 are left
    assert in_progress(5, 60, 2.0) == "fitting the policy's value: round 6 of 60, about 28 s left"
