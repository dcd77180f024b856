import numpy as np
import pytest

from fova.evaluation.judging import support as module
from fova.evaluation.judging.support import Log, action_distances, action_shares, nearest_states, support


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def log(rng, rows, spread=0.3):
    """Actions near the state's own value."""
    states = rng.uniform(-1, 1, (rows, 1))
    return Log(states, states + spread * rng.uniform(-1, 1, (rows, 1)))


def test_a_policy_that_acts_as_the_data_is_inside(rng):
    queries, logged = log(rng, 300), log(rng, 2000)
    assert support(queries, queries.states, logged).inside > 0.95


def test_actions_that_nobody_took_are_outside(rng):
    queries, logged = log(rng, 300), log(rng, 2000)
    assert support(queries, queries.states + 2.0, logged).inside == 0.0
    half = np.where(np.arange(300)[:, None] < 150, queries.states, queries.states - 2.0)
    assert support(queries, half, logged).inside == pytest.approx(0.5, abs=0.05)


def test_the_threshold_is_what_the_data_itself_keeps_to():
    """One logged state and action; the data's own actions are 1 to 100 steps of 0.01 away from it."""
    logged = Log(np.zeros((1, 1)), np.zeros((1, 1)))
    queries = Log(np.zeros((100, 1)), np.arange(1, 101)[:, None] / 100)
    found = support(queries, queries.actions, logged)
    assert found.threshold == pytest.approx(0.9505)  # the 95 % quantile
    assert found.inside == pytest.approx(0.95)


def test_a_deterministic_log_does_not_put_every_rounding_outside(rng):
    queries, logged = log(rng, 300, spread=0.0), log(rng, 5000, spread=0.0)
    found = support(queries, queries.actions + 0.05, logged)
    assert found.threshold == pytest.approx(0.1)
    assert found.inside == 1.0


def test_a_discrete_action_is_inside_where_it_was_taken():
    states = np.repeat([[0.0], [10.0]], 100, axis=0)
    logged = Log(states, np.repeat([[0.0], [1.0]], 100, axis=0))
    queries = Log(np.array([[0.0], [10.0], [10.0]]), np.array([[0.0], [1.0], [1.0]]))
    assert support(queries, np.array([[0.0], [1.0], [0.0]]), logged, discrete=True).inside == pytest.approx(2 / 3)


def test_nearest_states_and_actions_by_hand():
    near = nearest_states(np.array([[0.1], [3.9]]), np.array([[0.0], [1.0], [3.0], [4.0]]), count=2)
    assert [sorted(row) for row in near.tolist()] == [[0, 1], [2, 3]]
    distances = action_distances(np.array([[0.0, 0.0]]), np.array([[[3.0, 4.0], [6.0, 8.0]]]))
    assert distances.tolist() == [5.0]


def test_shares_of_actions_by_hand():
    """Four logged rows, all of them neighbours: 3 of action 0, 1 of action 1, and the log's own mixture once."""
    logged = Log(np.zeros((4, 1)), np.array([[0.0], [0.0], [0.0], [1.0]]))
    shares = action_shares(np.zeros((1, 1)), logged, count=3)
    np.testing.assert_allclose(shares, [[(3 + 0.75) / 5, (1 + 0.25) / 5, 0.0]])


def test_the_least_threshold_grows_with_the_columns_of_an_action():
    """The data keeps to one action of four columns: 0.1 in each of them is 0.2 in all."""
    logged = Log(np.zeros((1, 1)), np.zeros((1, 4)))
    queries = Log(np.zeros((2, 1)), np.zeros((2, 4)))
    found = support(queries, np.array([[0.1] * 4, [0.11] * 4]), logged)
    assert found.threshold == pytest.approx(0.2)
    assert found.inside == 0.5


def test_twenty_neighbours_count_and_fifty_for_discrete_actions():
    """Logged states at distances 1, 2, 3, ...; only one of them has the policy's action."""

    def inside(place, discrete):
        actions = np.full((100, 1), 0.0)
        actions[place - 1] = 1.0
        logged = Log(np.arange(1.0, 101.0)[:, None], actions)
        queries = Log(np.zeros((1, 1)), np.zeros((1, 1)))
        return support(queries, np.ones((1, 1)), logged, discrete).inside

    assert [inside(place, False) for place in (20, 21)] == [1.0, 0.0]
    assert [inside(place, True) for place in (50, 51)] == [1.0, 0.0]


def test_nearest_states_come_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    states = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    assert nearest_states(states, states, count=1)[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_many_rows_are_thinned_evenly():
    rows = np.arange(10.0)
    assert module._spread(rows, 10).tolist() == rows.tolist()
    assert module._spread(rows, 4).tolist() == [0, 3, 6, 9]


def test_a_thousand_states_are_asked_about():
    """Of 1,001 states the first 999 and the last are taken; the policy is outside in the last one only."""
    queries = Log(np.zeros((1001, 1)), np.zeros((1001, 1)))
    chosen = np.zeros((1001, 1))
    chosen[-1] = 1.0
    assert support(queries, chosen, Log(np.zeros((1, 1)), np.zeros((1, 1)))).inside == 999 / 1000


def test_twenty_thousand_logged_rows_are_compared():
    """Of 20,001 rows the last but one is left out, the only one with the policy's action."""
    states = np.zeros((20_001, 1))
    actions = np.zeros((20_001, 1))
    states[19_999] = actions[19_999] = 1.0
    query = Log(np.ones((1, 1)), np.zeros((1, 1)))
    assert support(query, np.ones((1, 1)), Log(states, actions)).inside == 0.0
    fewer = Log(states[1:], actions[1:])
    assert support(query, np.ones((1, 1)), fewer).inside == 1.0
