"""Estimators on episodes small enough to work out by hand."""

import numpy as np
import pytest

from fova.data.transitions import Episode, from_episodes
from fova.evaluation.judging.estimators import (
    Episodes,
    accumulated_errors,
    bellman_errors,
    cumulative_ratios,
    discounted_returns,
    effective_sample_size,
    importance_sampling,
    mean_state_value,
    weighted_doubly_robust,
    weighted_importance_sampling,
)

GAMMA = 0.5


def episode(rewards, terminated):
    steps = len(rewards)
    return Episode(np.zeros((steps + 1, 1), np.float32), np.zeros((steps, 1), np.float32),
                   np.asarray(rewards, np.float32), terminated)  # fmt: skip


@pytest.fixture
def data():
    """Rewards 1, 2 and a natural end; reward 4 and a time-out."""
    return from_episodes([episode([1, 2], True), episode([4], False)])


@pytest.fixture
def episodes(data):
    return Episodes.of(data)


RATIOS = np.array([[2.0, 0.5], [1.0, 9.0]])  # the 9 is after the second episode's end
Q, V = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[2.0, 1.0], [5.0, 0.0]])


def test_episodes_are_padded(episodes):
    np.testing.assert_array_equal(episodes.rewards, [[1, 2], [4, 0]])
    np.testing.assert_array_equal(episodes.lengths, [2, 1])
    np.testing.assert_array_equal(episodes.terminated, [True, False])


def test_what_the_data_earned(episodes):
    # 1 + 0.5 * 2; 4 + 0.5 * tail, which counts only after a cut
    np.testing.assert_allclose(discounted_returns(episodes, GAMMA, tail=6.0), [2.0, 7.0])
    np.testing.assert_allclose(discounted_returns(episodes, GAMMA), [2.0, 4.0])


def test_the_mean_state_value(data):
    # mean reward 7/3, one end in three rows: V = 7/3 / (1 - 0.5 * 2/3) = 3.5
    assert mean_state_value(data, GAMMA) == pytest.approx(3.5)


def test_ratios_multiply_up_and_stay_after_the_end(episodes):
    np.testing.assert_allclose(cumulative_ratios(RATIOS, episodes.lengths), [[2, 1], [1, 1]])


def test_importance_sampling(episodes):
    # 2 * 1 + 0.5 * 1 * 2 = 3; 1 * 4 + 0.5 * 1 * tail 6 = 7
    np.testing.assert_allclose(importance_sampling(episodes, RATIOS, GAMMA, 6.0), [3.0, 7.0])


def test_weighted_importance_sampling(episodes):
    # weights at step 0: 2/3, 1/3; at step 1: 1/2, 1/2
    # (2/3 * 1 + 1/3 * 4) + 0.5 * (1/2 * 2) = 2 + 0.5; the tail: 1/2 * 0.5 * 6 = 1.5
    assert weighted_importance_sampling(episodes, RATIOS, GAMMA) == pytest.approx(2.5)
    assert weighted_importance_sampling(episodes, RATIOS, GAMMA, tail=6.0) == pytest.approx(4.0)


def test_weighted_doubly_robust(episodes):
    # step 0: 2/3 (1 - 1) + 1/2 * 2 + 1/3 (4 - 3) + 1/2 * 5 = 1 + 1/3 + 5/2
    # step 1: 1/2 (2 - 2) + 2/3 * 1 = 2/3, times gamma; the tail: 1/2 * 0.5 * 6
    expected = 1 + 1 / 3 + 2.5 + 0.5 * 2 / 3 + 1.5
    assert weighted_doubly_robust(episodes, RATIOS, Q, V, GAMMA, 6.0) == pytest.approx(expected)


def test_an_episode_that_counts_twice_is_the_episode_twice(episodes):
    twice = Episodes.of(from_episodes([episode([1, 2], True), episode([4], False), episode([4], False)]))
    counts = np.array([1.0, 2.0])
    ratios, q, v = (np.concatenate([rows, rows[1:]]) for rows in (RATIOS, Q, V))
    counted = weighted_importance_sampling(episodes, RATIOS, GAMMA, 6.0, counts)
    assert counted == pytest.approx(weighted_importance_sampling(twice, ratios, GAMMA, 6.0))
    counted = weighted_doubly_robust(episodes, RATIOS, Q, V, GAMMA, 6.0, counts)
    assert counted == pytest.approx(weighted_doubly_robust(twice, ratios, q, v, GAMMA, 6.0))


def test_a_perfect_model_makes_doubly_robust_exact_whatever_the_ratios():
    """A chain with reward 1 at each of two steps: V = 1.5, then 1."""
    chain = Episodes.of(from_episodes([episode([1, 1], True)] * 3))
    model = np.tile([1.5, 1.0], (3, 1))
    ratios = np.random.default_rng(0).uniform(0.1, 5, (3, 2))
    assert weighted_doubly_robust(chain, ratios, model, model, GAMMA) == pytest.approx(1.5)


def test_on_its_own_data_importance_sampling_is_the_data(episodes):
    ones = np.ones((2, 2))
    mean = discounted_returns(episodes, GAMMA, 6.0).mean()
    assert weighted_importance_sampling(episodes, ones, GAMMA, 6.0) == pytest.approx(mean)
    assert importance_sampling(episodes, ones, GAMMA, 6.0).mean() == pytest.approx(mean)


def test_a_policy_that_the_log_never_follows_rests_on_no_episode(episodes):
    never = np.zeros((2, 2))
    assert weighted_importance_sampling(episodes, never, GAMMA) == 0.0
    assert effective_sample_size(never, episodes.lengths) == 0.0


def test_only_the_proportions_of_the_ratios_count(episodes):
    small = RATIOS * [[0.01, 1.0]]  # of whole episodes; all sums of ratios are far below 1
    for tail in (0.0, 6.0):
        expected = weighted_importance_sampling(episodes, RATIOS, GAMMA, tail)
        assert weighted_importance_sampling(episodes, small, GAMMA, tail) == pytest.approx(expected)
    expected = weighted_doubly_robust(episodes, RATIOS, Q, V, GAMMA, 6.0)
    assert weighted_doubly_robust(episodes, small, Q, V, GAMMA, 6.0) == pytest.approx(expected)


def test_effective_sample_size():
    lengths = np.array([1, 1, 1])
    assert effective_sample_size(np.array([[1.0], [1.0], [1.0]]), lengths) == pytest.approx(3.0)
    assert effective_sample_size(np.array([[2.0], [1.0], [1.0]]), lengths) == pytest.approx(16 / 6)
    assert effective_sample_size(np.array([[1e300], [0.0], [0.0]]), lengths) == pytest.approx(1.0)


def test_bellman_errors(episodes):
    errors = bellman_errors(episodes, Q, V, np.array([9.0, 8.0]), GAMMA)
    # 1 + 0.5 * 1 - 1; 2 - 2 at the end; 4 + 0.5 * 8 - 3 at the cut
    np.testing.assert_allclose(errors, [[0.5, 0.0], [5.0, 0.0]])
    np.testing.assert_allclose(accumulated_errors(errors, GAMMA), [0.5, 5.0])


def test_a_tail_is_discounted_by_the_length_of_its_episode():
    cut = Episodes.of(from_episodes([episode([0, 0, 0], False)]))
    ones = np.ones((1, 3))
    assert weighted_importance_sampling(cut, ones, GAMMA, tail=8.0) == pytest.approx(1.0)  # 0.5^3 * 8
