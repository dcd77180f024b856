"""Rows of better episodes come more often: numbers worked out by hand, and what the weights do not depend on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fova.data.returns import returns
from fova.data.sampling import drawn_rows, episode_values, low_reward, row_weights, weights_by_episode
from fova.data.transitions import Episode, from_episodes
from tiny import make_transitions


def episode(rewards, terminated=False):
    steps = len(rewards)
    states = np.zeros((steps + 1, 1), np.float32)
    return Episode(states, np.zeros((steps, 1), np.float32), np.asarray(rewards, np.float32), terminated)


def pays(*rewards, steps=10):
    """Cut-off episodes that pay the same at every step: one step of each is worth its reward."""
    return from_episodes([episode([reward] * steps) for reward in rewards])


def test_one_step_of_an_episode_that_pays_the_same_for_ever_is_worth_what_it_pays():
    np.testing.assert_allclose(episode_values(pays(3.0, -1.0), 0.9), [3.0, -1.0], rtol=1e-5)


def test_an_episode_that_ends_by_itself_is_worth_the_mean_of_its_returns():
    data = from_episodes([episode([1.0, 2.0], terminated=True)])
    assert returns(data, 0.5).tolist() == [2.0, 2.0]  # 1 + 0.5 * 2, then 2
    assert episode_values(data, 0.5).tolist() == [1.0]  # times 1 - 0.5


def test_the_low_reward_lies_three_mean_deviations_below_the_mean():
    assert low_reward(pays(10.0, 20.0)) == pytest.approx(15 - 3 * 5)
    assert low_reward(pays(10.0, 12.0)) == pytest.approx(11 - 3 * 1)
    ends = from_episodes([episode([10.0] * 10), episode([12.0] * 10, terminated=True)])
    assert low_reward(ends) == 0.0, "after an end nothing is paid"


def test_weights_by_hand():
    """Mean 15, low reward 15 - 3 * 5 = 0: an episode that pays 18 of 20 stays a tenth behind."""
    weights = weights_by_episode(pays(20.0, 18.0, 12.0, 10.0), 0.9)
    low = 15 - 3 * 4  # the mean deviation is (5 + 3 + 3 + 5) / 4
    behind = np.array([0.0, 2.0, 8.0, 10.0]) / (20 - low)
    expected = np.exp(np.maximum(-4.0, -10.0 * behind))
    np.testing.assert_allclose(weights, np.repeat(expected, 10), rtol=1e-4)


def test_no_row_is_lighter_than_the_least_weight():
    weights = weights_by_episode(pays(100.0, 0.0, 0.0, 0.0), 0.9)
    assert weights.min() == pytest.approx(np.exp(-4.0))


def test_the_best_tenth_of_the_rows_decides_what_is_best():
    """A single short lucky episode does not make all others look bad."""
    lucky = from_episodes([episode([50.0]), *(episode([10.0] * 10) for _ in range(10))])
    assert weights_by_episode(lucky, 0.9)[1:] == pytest.approx(1.0)


def test_episodes_that_are_alike_count_alike():
    assert weights_by_episode(pays(5.0, 5.0, 5.0), 0.9).tolist() == [1.0] * 30
    assert weights_by_episode(pays(0.0, 0.0), 0.9).tolist() == [1.0] * 20
    assert sorted(drawn_rows(weights_by_episode(pays(5.0, 5.0), 0.9)).tolist()) == list(range(20))


def test_rows_come_as_often_as_their_weights_say():
    data = pays(20.0, 18.0, 12.0, 10.0)
    weights = weights_by_episode(data, 0.9)
    rows = drawn_rows(weights)
    assert len(rows) == len(data)
    counts = np.bincount(rows, minlength=len(data))
    assert np.all(np.abs(counts - weights * len(data) / weights.sum()) < 1.0)
    assert counts[:10].sum() > counts[10:20].sum() > counts[20:].sum()


def test_rows_are_drawn_in_the_same_random_order_every_time():
    weights = weights_by_episode(pays(20.0, 18.0, 12.0, 10.0), 0.9)
    rows = drawn_rows(weights)
    assert rows.tolist() == drawn_rows(weights).tolist()
    assert np.mean(rows[:20] < 20) == pytest.approx(np.mean(rows[20:] < 20), abs=0.3), "not by episode"


def test_uniform_sampling_takes_every_row_once():
    assert row_weights(pays(1.0, 2.0), "uniform", 0.9) is None
    data = pays(1.0, 2.0)
    assert row_weights(data, "returns", 0.9).tolist() == weights_by_episode(data, 0.9).tolist()


@given(seed=st.integers(0, 1000), factor=st.floats(0.01, 100))
def test_a_factor_on_all_rewards_changes_nothing(seed, factor):
    data = make_transitions(seed, episodes=6)
    scaled = replace(data, rewards=(data.rewards * factor).astype(np.float32))
    np.testing.assert_allclose(weights_by_episode(scaled, 0.9), weights_by_episode(data, 0.9), rtol=1e-3)


@given(seed=st.integers(0, 1000), constant=st.floats(-50, 50))
def test_a_constant_on_all_rewards_changes_nothing_where_no_episode_ends_by_itself(seed, constant):
    data = make_transitions(seed, episodes=6)
    data = replace(data, terminals=np.zeros_like(data.terminals))
    moved = replace(data, rewards=data.rewards + np.float32(constant))
    np.testing.assert_allclose(weights_by_episode(moved, 0.9), weights_by_episode(data, 0.9), rtol=2e-2)


def test_where_a_record_is_cut_changes_nothing_if_the_pieces_are_worth_the_same():
    """Ten pieces of 10 steps count as one record of 100 steps does, if they pay the same."""
    whole = from_episodes([episode([2.0] * 100), episode([1.0] * 100)])
    pieces = from_episodes([episode([2.0] * 10) for _ in range(10)] + [episode([1.0] * 10) for _ in range(10)])
    np.testing.assert_allclose(weights_by_episode(pieces, 0.9), weights_by_episode(whole, 0.9), rtol=1e-4)
