"""Each closed form against the loss it claims to minimise, or against enumeration."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.paper.theory.case import client_of, random_case
from fova.paper.theory.mdp import MDP, expectation
from fova.paper.theory.tabular_fova import (
    Client,
    Settings,
    aggregate,
    awr_policy,
    awr_target,
    awr_weights_as_printed,
    awr_weights_by_action,
    local_update,
    relaxed_vote,
    train,
    vcql_action_values,
    vcql_step,
    vcql_with_moving_vote,
    vote,
    vote_by_sample,
)

seeds = st.integers(0, 10_000)


def test_vote_takes_the_best_candidate_of_each_state() -> None:
    q = np.array([[1.0, 0.0], [0.0, 1.0]])
    left, right = np.array([[0.9, 0.1]] * 2), np.array([[0.2, 0.8]] * 2)
    np.testing.assert_array_equal(vote(q, (left, right)), [[0.9, 0.1], [0.2, 0.8]])


def test_a_tie_goes_to_the_first_candidate() -> None:
    q = np.zeros((1, 2))
    np.testing.assert_array_equal(vote(q, (np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))), [[1.0, 0.0]])


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_vote_by_sample_agrees_with_all_draws(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(2, 3))
    candidates = [rng.dirichlet(np.ones(3), 2) for _ in range(3)]
    expected = np.zeros((2, 3))
    for state in range(2):
        for draw in product(range(3), repeat=3):
            probability = np.prod([c[state, a] for c, a in zip(candidates, draw)])
            expected[state, max(draw, key=lambda a: q[state, a])] += probability
    np.testing.assert_allclose(vote_by_sample(q, candidates), expected, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_vcql_step_minimises_the_loss(seed: int) -> None:
    """Eq. vcql as a loss over a table, differentiated by central differences: the closed form is stationary."""
    case = random_case(np.random.default_rng(seed))
    client, q = case.client, case.server
    data = client.counts / client.counts.sum()
    target = client.model.reward + client.model.discount * client.model.transition @ expectation(case.policy, q)

    def loss(table: np.ndarray) -> float:
        fit = 0.5 * (data * (table - target) ** 2).sum()
        return fit + case.alpha * ((data.sum(1) * expectation(case.policy, table)).sum() - (data * table).sum())

    found = vcql_step(client.model, q, case.policy, client.behaviour, case.alpha)
    for index in np.ndindex(found.shape):
        nudge = np.zeros_like(found)
        nudge[index] = 1e-4
        slope = (loss(found + nudge) - loss(found - nudge)) / 2e-4
        assert abs(slope) < 1e-6 * (1 + case.alpha)


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_fixed_vote_rests_at_its_closed_form(seed: int) -> None:
    case = random_case(np.random.default_rng(seed))
    behaviour = case.client.behaviour
    q = vcql_action_values(case.model, case.policy, behaviour, case.alpha)
    np.testing.assert_allclose(
        vcql_step(case.model, q, case.policy, behaviour, case.alpha), q, rtol=1e-9, atol=1e-9
    )


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_awr_policy_cannot_be_improved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, behaviour = rng.normal(size=(3, 3)) * 5, rng.dirichlet(np.ones(3), 3)
    weights, lam = rng.uniform(0.01, 1.0, (3, 1)).repeat(3, axis=1), float(10 ** rng.uniform(-3, 2))
    policy = awr_policy(q, behaviour, weights, lam)

    def objective(p: np.ndarray) -> np.ndarray:
        return lam * (behaviour * weights * np.log(p)).sum(1) + (p * q).sum(1)

    np.testing.assert_allclose(policy.sum(1), 1.0)
    for _ in range(20):
        other = 0.9 * policy + 0.1 * rng.dirichlet(np.ones(3), 3)
        assert (objective(other) <= objective(policy) + 1e-9).all()


def test_awr_policy_by_hand() -> None:
    # Even data, Q = (1, 0), lambda = 1: pi = (1/2) / (theta - Q) with theta = E Q + 1, so p = (1/2)/p.
    policy = awr_policy(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), np.ones((1, 2)), lam=1.0)
    assert policy[0, 0] == pytest.approx(np.sqrt(0.5))


def test_awr_policy_survives_vanishing_weights() -> None:
    policy = awr_policy(np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), np.zeros((1, 2)), lam=1.0)
    np.testing.assert_allclose(policy, [[1.0, 0.0]], atol=1e-12)


def test_printed_weight_cancels_and_weight_by_action_does_not() -> None:
    q, behaviour, server = np.array([[1.0, 0.0]]), np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]])
    printed = awr_weights_as_printed(q, np.array([1.0]), server, beta=1.0)
    np.testing.assert_allclose(printed, np.exp(-1.0))
    np.testing.assert_allclose(awr_target(behaviour, printed), behaviour)
    by_action = awr_target(behaviour, awr_weights_by_action(q, np.array([1.0]), beta=1.0))
    np.testing.assert_allclose(by_action[0, 0], 1 / (1 + np.exp(-1.0)))


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_relaxed_vote_is_confirmed_by_its_own_values(seed: int) -> None:
    case = random_case(np.random.default_rng(seed))
    scores = np.stack([expectation(candidate, case.q) for candidate in case.candidates])
    np.testing.assert_allclose(scores.max(0), case.values, rtol=1e-7, atol=1e-7)


def test_relaxed_vote_splits_evenly_where_the_hard_vote_flips() -> None:
    mdp = MDP(np.ones((1, 2, 1)), np.zeros((1, 2)), np.ones(1), discount=0.5)
    behaviour = np.full((1, 2), 0.5)
    candidates = (np.array([[1.0, 0.0]]), behaviour, np.array([[0.0, 1.0]]))
    np.testing.assert_allclose(relaxed_vote(mdp, candidates, behaviour, alpha=1.0), behaviour)
    flipping = [vcql_with_moving_vote(mdp, candidates, behaviour, 1.0, sweeps) for sweeps in (100, 101)]
    assert np.abs(flipping[0] - flipping[1]).max() == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(4))
def test_small_steps_with_the_hard_vote_end_at_the_relaxed_vote(seed: int) -> None:
    case = random_case(np.random.default_rng([5, seed]), discount=0.7)
    behaviour, q = case.client.behaviour, np.zeros_like(case.policy)
    for _ in range(3000):
        voted = vote(q, case.candidates)
        q = q + 0.01 * (vcql_step(case.model, q, voted, behaviour, case.alpha) - q)
    np.testing.assert_allclose(expectation(vote(q, case.candidates), q), case.values, atol=0.02 * (1 + case.alpha))


# --- Rounds -----------------------------------------------------------------------------------------------


def _two_state_client(counts: list[list[int]]) -> Client:
    transition = np.zeros((2, 2, 2))
    transition[:, 0, 0] = transition[:, 1, 1] = 1.0
    return client_of(MDP(transition, np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([1.0, 0.0]), 0.5), counts)


def test_a_state_without_data_keeps_what_the_server_sent() -> None:
    client = _two_state_client([[1, 1], [0, 0]])
    server, q = np.array([[0.5, 0.5], [0.3, 0.7]]), np.array([[0.0, 0.0], [4.0, 5.0]])
    policy, updated = local_update(client, server, q, Settings(sweeps=3))
    np.testing.assert_array_equal(policy[1], server[1])
    np.testing.assert_array_equal(updated[1], q[1])
    assert not np.array_equal(policy[0], server[0])


def test_values_travel_through_the_server() -> None:
    """The second client never saw state 1, yet learns from the first that going there pays."""
    near, far = _two_state_client([[0, 0], [5, 5]]), _two_state_client([[5, 5], [0, 0]])
    alone = train([far], Settings(alpha=0.0, rounds=20))
    together = train([far, near], Settings(alpha=0.0, rounds=20))
    assert alone.policies[-1][0, 1] == pytest.approx(0.5)
    assert together.policies[-1][0, 1] > 0.8


def test_without_the_vote_the_local_policy_is_evaluated() -> None:
    client = _two_state_client([[1, 1], [1, 1]])
    server = np.array([[1.0, 0.0], [0.5, 0.5]])
    start = np.array([[0.0, 2.0], [2.0, 2.0]])
    _, q = local_update(client, server, start, Settings(alpha=0.0, sweeps=1, voting="off"))
    # Staying in state 0 under `server` is worth Q(0, stay) = 0, so the target is 0 + 1/2 * 0.
    assert q[0, 0] == 0.0
    _, q = local_update(client, server, start, Settings(alpha=0.0, sweeps=1, voting="expectation"))
    # The data's even policy is worth 1 there: the target becomes 0 + 1/2 * 1.
    assert q[0, 0] == 0.5


def test_aggregation_is_the_mean() -> None:
    np.testing.assert_allclose(aggregate([np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])]), [[0.5, 0.5]])
