import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.data.returns import counted_from, next_returns
from fova.data.transitions import Episode, from_episodes
from tiny import make_episode, make_transitions


def episode(rewards, terminated):
    steps = len(rewards)
    return Episode(np.zeros((steps + 1, 1)), np.zeros((steps, 1)), np.array(rewards, np.float32), terminated)


def test_returns_by_hand():
    # gamma = 1/2: a cut is followed by the mean of the last two rewards for ever, which is worth twice that mean
    data = from_episodes([episode([1, 2, 4], True), episode([8, 2, 4], False), episode([3], True)])
    assert next_returns(data, 0.5).tolist() == [2 + 0.5 * 4, 4, 0, 2 + 0.5 * (4 + 0.5 * 6), 4 + 0.5 * 6, 6, 0]


def test_a_short_record_goes_on_at_its_own_pace():
    data = from_episodes([episode([5], False)])
    assert next_returns(data, 0.99).tolist() == [pytest.approx(500)]


def plain(data, discount):
    """The definition, one row at a time, from the end of each episode."""
    horizon, found = round(1 / (1 - discount)), []
    for one in data.episodes():
        rewards = one.rewards.astype(float)
        follows = 0.0 if one.terminated else rewards[-horizon:].mean() / (1 - discount)
        backwards = []
        for reward in rewards[::-1]:
            backwards.append(follows)
            follows = reward + discount * follows
        found += backwards[::-1]
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=6), st.integers(0, 99))
def test_returns_are_those_of_the_definition(lengths, seed):
    rng = np.random.default_rng(seed)
    data = from_episodes(make_episode(rng, steps, terminated=ends) for steps, ends in lengths)
    np.testing.assert_allclose(next_returns(data, 0.9), plain(data, 0.9), rtol=1e-5, atol=1e-5)


def test_the_place_of_a_cut_makes_no_difference_to_a_steady_reward():
    whole = from_episodes([episode([2.0] * 300, False)])
    pieces = from_episodes([episode([2.0] * 100, False), episode([2.0] * 200, False)])
    np.testing.assert_allclose(next_returns(whole, 0.99), 200.0, rtol=1e-5)
    np.testing.assert_allclose(next_returns(pieces, 0.99), 200.0, rtol=1e-5)


def test_a_piece_of_data_has_a_return_for_every_row():
    data = make_transitions(0)[3:20]
    assert next_returns(data, 0.9).shape == (17,)
    assert np.isfinite(next_returns(data, 0.9)).all()


def test_rewards_counted_from_another_zero_by_hand():
    # gamma = 1/2: nothing for ever is worth 6 when counted from -3, so the terminal row pays -2 + 6
    data = counted_from(from_episodes([episode([-1, -2], True), episode([-3, -1], False)]), -3.0, 0.5)
    assert data.rewards.tolist() == [2, 4, 0, 2]
    assert data.rewards.dtype == np.float32


def test_zero_itself_changes_nothing():
    data = make_transitions(0)
    assert counted_from(data, 0.0, 0.9) is data


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), zero=st.floats(-50, 0), discount=st.sampled_from([0.5, 0.9, 0.99]))
def test_every_return_rises_by_the_same_number(seed, zero, discount):
    """Ended episodes and cut ones: no policy gains on another by the choice of the zero."""
    data = make_transitions(seed)
    moved = counted_from(data, zero, discount)
    before = data.rewards + discount * next_returns(data, discount)
    after = moved.rewards + discount * next_returns(moved, discount)
    np.testing.assert_allclose(after - before, -zero / (1 - discount), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(moved.terminals, data.terminals)
