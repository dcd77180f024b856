"""Environments side by side, and the transitions that are kept of them."""

import numpy as np

from fova.policy import Policy
from fova.spaces import Space
from fova.tasks.experience import Environments, Experience, measure_returns
from tasks.track import Track


def test_the_next_episode_starts_at_once():
    playground = Environments([Track(), Track()], np.random.default_rng(0))
    for _ in range(20):
        rows = playground.step(np.zeros((2, 1), np.float32))
    np.testing.assert_array_equal(rows["observations"], rows["next_observations"])  # nobody pushed
    assert (playground.observations != rows["next_observations"]).all()  # yet a new episode has begun
    assert [env.time for env in playground.environments] == [0, 0]


def test_measured_returns_are_those_of_whole_episodes():
    weights = {
        "last.weight": np.zeros((1, 2), np.float32),
        "last.bias": np.zeros(2, np.float32),
    }  # mean 0, spread 1
    policy = Policy("squashed", weights, Space.unit(1, 1))
    environments = [Track() for _ in range(3)]
    returns = measure_returns(policy, environments, [7])
    np.testing.assert_array_equal(returns, measure_returns(policy, environments, [7]))
    rng = np.random.default_rng([7])
    playground = Environments(environments, rng)
    alive, expected = [0, 1, 2], np.zeros(3)
    places = playground.observations[:, 0].astype(float)
    for _ in range(20):
        pushes = 0.3 * np.tanh(rng.standard_normal((len(alive), 1), np.float32))[:, 0]
        for i, push in zip(list(alive), pushes):
            places[i] += push
            expected[i] += 1 - places[i] ** 2
            if abs(places[i]) > 2:
                alive.remove(i)
    np.testing.assert_allclose(returns, expected, rtol=1e-4)


def test_batches_are_drawn_from_what_was_added_and_from_nothing_else():
    experience = Experience(Space.unit(1, 1), capacity=10)
    for number in (1.0, 2.0, 3.0):
        column = np.full((2, 1), number, np.float32)
        values = np.full(2, number, np.float32)
        experience.add(
            {
                "observations": column,
                "actions": column / 10,
                "rewards": 10 * values,
                "next_observations": column + 1,
                "terminals": values == 3.0,
            }
        )
    batch = experience.draw((50, 4), np.random.default_rng(0))
    s = np.asarray(batch.observations)[..., 0]
    assert s.shape == (50, 4)
    assert set(np.unique(s)) == {1.0, 2.0, 3.0}
    np.testing.assert_array_equal(batch.rewards, 10 * s)
    np.testing.assert_array_equal(batch.next_observations[..., 0], s + 1)
    np.testing.assert_array_equal(batch.terminals, s == 3.0)
    assert not np.any(batch.has_next_action)
    np.testing.assert_array_equal(experience.last(3)["rewards"], [20.0, 30.0, 30.0])
