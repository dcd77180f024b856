"""Numbers worked out by hand on a grid of one plane each: a state or action is on its low or its high side."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.data.heterogeneity import Grid, Planes, compare, difference, lay_grid, scale_sums, standings, tally
from fova.data.normalise import Normaliser
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError

ONE_PLANE = Planes(Normaliser.identity(1), np.ones((1, 1)), np.zeros(1))
GRID = Grid(ONE_PLANE, ONE_PLANE)


def client(*episodes):
    """Data from (state, action) pairs; the reward of a step is its action."""
    return from_episodes(
        Episode(
            observations=np.float32([[state] for state, _ in steps] + [[0.0]]),
            actions=np.float32([[action] for _, action in steps]),
            rewards=np.float32([action for _, action in steps]),
            terminated=True,
        )
        for steps in episodes
    )


def sampled(seed, state_mean=0.0, action_mean=0.0, episodes=40, columns=5):
    """A client whose states and actions are Gaussian about a mean."""
    rng = np.random.default_rng(seed)
    return from_episodes(
        Episode(
            observations=rng.normal(state_mean, 1.0, (21, columns)).astype(np.float32),
            actions=rng.normal(action_mean, 1.0, (20, 2)).astype(np.float32),
            rewards=rng.normal(size=20).astype(np.float32),
            terminated=True,
        )
        for _ in range(episodes)
    )


LOW, HIGH = -1.0, 1.0


# --- By hand ----------------------------------------------------------------------------------------------


def test_a_tally_counts_rows_by_half_state_and_action():
    told = tally(client([(LOW, LOW), (LOW, HIGH)], [(HIGH, LOW)], [(LOW, HIGH), (LOW, HIGH)]), GRID)
    assert told.counts.tolist() == [[[1, 3], [0, 0]], [[0, 0], [1, 0]]]  # episodes 0 and 2, then episode 1
    assert (told.episodes, told.whole_episodes) == (3, 3)
    assert (told.mean_return, told.returns, told.squared_returns) == (pytest.approx(1 / 3), 1.0, 5.0)  # 0, -1, 2
    assert told.return_spread == pytest.approx(np.std([0, -1, 2]))


def test_a_single_episode_is_halved_in_the_middle():
    told = tally(client([(LOW, LOW), (HIGH, LOW), (HIGH, HIGH)]), GRID)
    assert told.counts.tolist() == [[[1, 0], [1, 0]], [[0, 0], [0, 1]]]


def test_difference_by_hand():
    p, q = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    # <p0, p1> + <q0, q1> = 0.5 + 0.5; <p0, q1> + <p1, q0> = 0.5 + 0
    assert difference(p, q) == pytest.approx(0.5)
    assert difference(p, p) == 0.0
    one, other = np.array([[1.0, 0.0]] * 2), np.array([[0.0, 1.0]] * 2)
    assert difference(one, other) == 1.0
    assert difference(np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros((2, 2))) is None


def test_coverage_and_actions_by_hand():
    everywhere = [(LOW, LOW), (HIGH, LOW)]
    low_only = [(LOW, HIGH), (LOW, LOW)]
    told = compare(
        {
            "a": tally(client(everywhere, everywhere), GRID),
            "b": tally(client(low_only, low_only), GRID),
        }
    )
    assert (told["a"].coverage, told["a"].alone) == (1.0, 0.5)
    assert (told["b"].coverage, told["b"].alone) == (0.5, 0.0)
    # states: p = (1/2, 1/2), q = (1, 0): 1 - 2 * 1/2 / (1/2 + 1)
    assert told["a"].states == told["b"].states == pytest.approx(1 / 3)
    # actions in the low state: p = (1, 0), q = (1/2, 1/2), again 1 - 2 * 1/2 / (1 + 1/2)
    assert told["a"].actions == told["b"].actions == pytest.approx(1 / 3)


def test_each_client_is_compared_with_every_other_in_turn():
    low, high = client([(LOW, LOW)], [(LOW, LOW)]), client([(HIGH, LOW)], [(HIGH, LOW)])
    told = compare({name: tally(data, GRID) for name, data in {"a": low, "b": low, "c": high}.items()})
    assert [told[name].states for name in "abc"] == [0.5, 0.5, 1.0]
    assert told["a"].actions == 0.0
    assert told["c"].actions is None  # it shares no state with anybody


def test_cells_are_numbered_by_the_sides_of_the_planes():
    planes = Planes(Normaliser(np.float32([1, 0]), np.float32([2, 1])), np.eye(2), np.array([0.0, 0.5]))
    assert planes(np.float32([[0, 0], [2, 0], [0, 1], [9, 9]])).tolist() == [0, 1, 2, 3]
    assert planes.cells == 4


# --- What the figures mean --------------------------------------------------------------------------------


def test_identical_clients_do_not_differ():
    told = standings({"a": sampled(0), "b": sampled(0), "c": sampled(0)})
    for standing in told.values():
        assert (standing.states, standing.actions, standing.coverage, standing.alone) == (0.0, 0.0, 1.0, 0.0)


def test_chance_alone_is_not_taken_for_a_difference():
    for rows in (4, 40):
        told = standings({name: sampled(seed, episodes=rows) for seed, name in enumerate("abcd")})
        assert all(standing.states < 0.1 and standing.actions < 0.1 for standing in told.values())


def test_differences_grow_with_how_different_the_clients_are():
    shifts = (0.0, 0.5, 1.0, 2.0)
    states = [standings({"a": sampled(0), "b": sampled(1, state_mean=s)})["a"].states for s in shifts]
    actions = [standings({"a": sampled(0), "b": sampled(1, action_mean=s)})["a"].actions for s in shifts]
    for values in (states, actions):
        assert values == sorted(values)
        assert values[0] < 0.05
        assert values[-1] > 0.6
    apart = standings({"a": sampled(0), "b": sampled(1, state_mean=2.0)})["a"]
    assert apart.actions is None or apart.actions < 0.15  # they act alike wherever they meet


def test_scale_and_offset_of_the_columns_do_not_matter():
    def rescaled(data):
        columns = np.float32([1e-6, 1e3, 1, 1, 1])
        return from_episodes(
            Episode(e.observations * columns + columns, 100 * e.actions, e.rewards, e.terminated)
            for e in data.episodes()
        )

    clients = {"a": sampled(0), "b": sampled(1, state_mean=1.0)}
    plain, other = standings(clients), standings({name: rescaled(data) for name, data in clients.items()})
    assert other["a"].states == pytest.approx(plain["a"].states, abs=0.01)
    assert other["a"].actions == pytest.approx(plain["a"].actions, abs=0.01)


def test_clients_of_other_columns_are_refused_by_name():
    with pytest.raises(FovaError, match=r"'b' has 4 columns, but 'a' has 5"):
        standings({"a": sampled(0), "b": sampled(1, columns=4)})


# --- Only sums leave a client -----------------------------------------------------------------------------


def numbers_in(message):
    """How many numbers a message holds."""
    if is_dataclass(message):
        return sum(numbers_in(getattr(message, field.name)) for field in fields(message))
    return sum(map(numbers_in, message)) if isinstance(message, tuple) else np.size(message)


@given(episodes=st.integers(1, 60), seed=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_a_message_never_grows_with_the_rows(episodes, seed):
    few, many = sampled(seed, episodes=1), sampled(seed, episodes=episodes)
    grid = lay_grid([scale_sums(few), scale_sums(many)])
    for message_of in (scale_sums, lambda data: tally(data, grid)):
        assert numbers_in(message_of(few)) == numbers_in(message_of(many))


def test_a_message_forgets_the_order_of_rows_and_episodes():
    """Sums do not know who came first, so nothing in a message can stand for a single row."""
    data = sampled(0)
    grid = lay_grid([scale_sums(data)])
    episodes = data.episodes()
    even_odd_kept = [episodes[i] for i in (*range(2, len(episodes)), 0, 1)]
    for first, second in (
        (tally(data, grid), tally(from_episodes(even_odd_kept), grid)),
        (scale_sums(data).observations, scale_sums(from_episodes(even_odd_kept)).observations),
    ):
        for field in fields(first):
            np.testing.assert_allclose(getattr(first, field.name), getattr(second, field.name), rtol=1e-12)


def test_what_is_said_depends_on_the_messages_alone():
    """Two clients that cannot be told apart by their counts and sums stand alike."""
    one = client([(-0.1, -0.25), (0.3, 0.5)], [(2.0, 0.125)])
    other = client([(-5.0, -0.5), (0.1, 0.75)], [(0.7, 0.125)])
    told = compare({"a": tally(one, GRID), "b": tally(other, GRID)})
    assert told["a"] == told["b"]
    assert told["a"].states == 0.0
