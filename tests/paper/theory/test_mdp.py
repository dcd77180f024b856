"""Exact solutions against hand-worked numbers, power series and brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.errors import FovaError
from fova.paper.theory.dataset import Dataset, empirical_behaviour, empirical_mdp, sample_dataset
from fova.paper.theory.distances import chi_square, kl, total_variation
from fova.paper.theory.mdp import (
    MDP,
    action_values,
    advantages,
    blend,
    expected_return,
    garnet,
    gridworld,
    optimal_policy,
    resolvent,
    state_chain,
    state_values,
    visitation,
)

# State 0 pays 1 and stays or leaves with even odds; state 1 pays nothing and holds.
LEAVING = MDP(np.array([[[0.5, 0.5]], [[0.0, 1.0]]]), np.array([[1.0], [0.0]]), np.array([1.0, 0.0]), discount=0.5)
ONLY = np.ones((2, 1))


def test_values_by_hand() -> None:
    # V0 = 1 + 1/2 (1/2 V0 + 1/2 0), so V0 = 4/3.
    np.testing.assert_allclose(state_values(LEAVING, ONLY), [4 / 3, 0.0])
    np.testing.assert_allclose(action_values(LEAVING, ONLY), [[4 / 3], [0.0]])
    assert expected_return(LEAVING, ONLY) == pytest.approx(4 / 3)


def test_visitation_by_hand() -> None:
    # d0 = 1/2 (1 + 1/4 + 1/16 + ...) = 2/3.
    np.testing.assert_allclose(visitation(LEAVING, ONLY), [2 / 3, 1 / 3])


@settings(max_examples=30, deadline=None)
@given(states=st.integers(1, 5), actions=st.integers(1, 3), discount=st.floats(0.05, 0.9), seed=st.integers(0, 999))
def test_linear_solves_agree_with_the_power_series(states: int, actions: int, discount: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp = garnet(states, actions, rng.integers(1, states + 1), discount, rng)
    policy = rng.dirichlet(np.ones(actions), states)
    chain, law, values, series = state_chain(mdp, policy), mdp.start, 0.0, np.zeros(states)
    power, inverse = np.eye(states), np.zeros((states, states))
    for step in range(600):
        inverse, power = inverse + discount**step * power, power @ chain
        series += (1 - discount) * discount**step * law
        values += discount**step * law @ (policy * mdp.reward).sum(1)
        law = law @ chain
    np.testing.assert_allclose(visitation(mdp, policy), series, atol=1e-10)
    assert expected_return(mdp, policy) == pytest.approx(values, abs=1e-9)
    np.testing.assert_allclose((policy * advantages(mdp, policy)).sum(1), 0.0, atol=1e-10)
    # A sum of matrices without a negative entry; a linear solve comes within rounding of it.
    np.testing.assert_allclose(resolvent(mdp, policy), inverse, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_optimal_policy_is_the_best_of_all_deterministic_ones(seed: int) -> None:
    mdp = garnet(3, 3, 2, 0.9, np.random.default_rng(seed))
    every = (np.eye(3)[list(choice)] for choice in product(range(3), repeat=3))
    assert expected_return(mdp, optimal_policy(mdp)) == pytest.approx(max(expected_return(mdp, p) for p in every))


def test_gridworld_by_hand() -> None:
    corridor = gridworld(["S.G"], slip=0.0, discount=0.5)
    # Two steps to the right; the goal pays on entering, so the return is 1/2.
    assert expected_return(corridor, optimal_policy(corridor)) == pytest.approx(0.5)
    # With slip 1 the four directions are equally likely whatever is chosen, and only one of them moves on.
    adrift = gridworld(["SG"], slip=1.0, discount=0.5)
    np.testing.assert_allclose(adrift.reward[0], 0.25)
    np.testing.assert_allclose(adrift.transition[0, 2], [0.75, 0.25])


def test_pit_and_goal_hold_for_ever() -> None:
    maze = gridworld(["XSG"], slip=0.0, discount=0.9)
    pit, start, goal = 0, 1, 2
    assert maze.reward[start].tolist() == [0.0, 1.0, 0.0, -1.0]
    assert (maze.transition[pit, :, pit] == 1).all()
    assert (maze.reward[[pit, goal]] == 0).all()


def test_blend_meets_both_ends() -> None:
    rng = np.random.default_rng(0)
    first, second = garnet(3, 2, 2, 0.5, rng), garnet(3, 2, 2, 0.5, rng)
    np.testing.assert_array_equal(blend(first, second, 0.0).transition, first.transition)
    np.testing.assert_array_equal(blend(first, second, 1.0).reward, second.reward)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"discount": 1.0}, "between 0 and 1"),
        ({"start": np.array([0.5, 0.4])}, "`start`"),
        ({"reward": np.array([[2.0], [0.0]])}, "exceeds the stated bound"),
    ],
)
def test_nonsense_is_refused(change: dict[str, object], complaint: str) -> None:
    fields = {"transition": LEAVING.transition, "reward": LEAVING.reward, "start": LEAVING.start, "discount": 0.5}
    with pytest.raises(FovaError, match=complaint):
        MDP(**{**fields, **change})  # type: ignore[arg-type]


def test_gridworld_without_a_start_is_refused() -> None:
    with pytest.raises(FovaError, match="needs a start"):
        gridworld(["..G"], slip=0.0, discount=0.5)


# --- Datasets ---------------------------------------------------------------------------------------------


def test_empirical_mdp_is_frequencies() -> None:
    transitions = np.zeros((2, 2, 2), int)
    transitions[0, 0] = (1, 3)
    transitions[1, 1] = (2, 0)
    data = Dataset(transitions, rewards=np.array([[2.0, 0.0], [0.0, -1.0]]), starts=np.array([3, 1]))
    model = empirical_mdp(data, discount=0.9)
    np.testing.assert_allclose(model.transition[0, 0], [0.25, 0.75])
    np.testing.assert_allclose(model.transition[0, 1], [1.0, 0.0])  # never met: stays
    np.testing.assert_allclose(model.reward, [[0.5, 0.0], [0.0, -0.5]])
    np.testing.assert_allclose(model.start, [0.75, 0.25])
    np.testing.assert_allclose(empirical_behaviour(data.pairs), [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(empirical_behaviour(data.pairs, pseudo_count=1.0)[0], [5 / 6, 1 / 6])


def test_a_large_dataset_recovers_the_world() -> None:
    rng = np.random.default_rng(1)
    mdp = garnet(4, 2, 3, 0.7, rng)
    behaviour = np.full((4, 2), 0.5)
    data = sample_dataset(mdp, behaviour, 2_000_000, rng, reward_noise=0.5, every_pair=True)
    model = empirical_mdp(data, 0.7)
    np.testing.assert_allclose(model.transition, mdp.transition, atol=0.01)
    np.testing.assert_allclose(model.reward, mdp.reward, atol=0.01)
    np.testing.assert_allclose(data.pairs.sum(1) / data.pairs.sum(), visitation(mdp, behaviour), atol=0.01)


def test_every_pair_is_met_when_asked() -> None:
    rng = np.random.default_rng(2)
    mdp = garnet(5, 3, 2, 0.7, rng)
    assert sample_dataset(mdp, np.full((5, 3), 1 / 3), 5, rng, every_pair=True).pairs.min() >= 1
    assert sample_dataset(mdp, np.full((5, 3), 1 / 3), 5, rng).pairs.sum() == 5


# --- Distances --------------------------------------------------------------------------------------------


def test_distances_by_hand() -> None:
    even, sure = np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]])
    assert total_variation(even, sure)[0] == 0.5
    assert kl(sure, even)[0] == pytest.approx(np.log(2))
    assert np.isinf(kl(even, sure)[0])
    assert chi_square(sure, even)[0] == pytest.approx(1.0)  # 1 (1/0.5 - 1)
    assert chi_square(even, even)[0] == 0.0
