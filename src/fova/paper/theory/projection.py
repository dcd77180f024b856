"""The problems that the algorithm's updates solve: the AWR closed form, its projection, and Problem (awr).

The proofs of policy improvement assume that these updates are optimal for a penalised return. This module checks
that assumption. It also checks how the KL terms of the updates change as lambda and beta grow.
"""

from dataclasses import replace

import numpy as np

from fova.paper.theory.ascent import local_objective, server_objective
from fova.paper.theory.case import Case, always, client_of
from fova.paper.theory.conservatism import raised_runner_up
from fova.paper.theory.distances import kl
from fova.paper.theory.mdp import MDP, Array, backup, expectation, visitation
from fova.paper.theory.statement import Sides, Statement, worst
from fova.paper.theory.tabular_fova import awr_weights_by_action


def printed_target_leaves_behaviour(case: Case) -> Sides:
    """The printed weight is the same for all actions of a state, so it cancels against Z(s)."""
    target, _ = case.printed_pair
    return Sides(1e-6, float(case.client.state_law @ kl(target, case.client.behaviour)))


def target_is_best_in_each_state(case: Case) -> Sides:
    """The weight by action reaches max_pi E_pi Q - beta KL = beta log sum_a behaviour exp(Q / beta)."""
    target, _ = case.by_action_pair
    top = case.q.max(1)
    weights = awr_weights_by_action(case.q, top, case.beta)
    best = top + case.beta * np.log(expectation(case.client.behaviour, weights))
    return worst(best, expectation(target, case.q) - case.beta * kl(target, case.client.behaviour))


def target_is_best_with_its_own_visitation(case: Case) -> Sides:
    """The Lagrangian weights states by d_pi. Its maximum solves a KL-regularised MDP with reward Q_hat - V_hat."""
    target, _ = case.by_action_pair
    behaviour, model = case.client.behaviour, case.model
    game = replace(model, reward=case.q - case.values[:, None], reward_bound=np.inf)
    values = np.zeros(model.states)
    for _ in range(700):
        q = backup(game, values)
        top = q.max(1)
        values = top + case.beta * np.log(expectation(behaviour, awr_weights_by_action(q, top, case.beta)))
    gain = expectation(target, game.reward) - case.beta * kl(target, behaviour)
    reached = float(visitation(model, target) @ gain)
    return Sides(float((1.0 - model.discount) * model.start @ values), reached)


# --- Projection -------------------------------------------------------------------------------------------


def _weighted_data(case: Case) -> Array:
    return case.client.behaviour * awr_weights_by_action(case.q, case.values, case.beta)


def projection_of_a_table(case: Case) -> Sides:
    """For a tabular policy, dropping Z(s) only rescales the terms of a state."""
    counted = _weighted_data(case)
    likeliest = counted / counted.sum(1, keepdims=True)
    return Sides(float(np.abs(likeliest - case.by_action_pair[0]).max()), 0.0)


def projection_of_a_shared_policy(case: Case) -> Sides:
    """For one distribution in all states (the simplest class), dropping Z(s) changes the weights of states."""
    law = case.client.state_law
    likeliest = law @ _weighted_data(case)
    closest = law @ case.by_action_pair[0]
    return Sides(float(np.abs(likeliest / likeliest.sum() - closest).max()), 0.0)


# --- Optimality that the proofs assume --------------------------------------------------------------------


def printed_policy_beats_its_target(case: Case) -> Sides:
    return _local_optimality(case, *case.printed_pair)


def policy_beats_its_target(case: Case) -> Sides:
    return _local_optimality(case, *case.by_action_pair)


def _local_optimality(case: Case, target: Array, policy: Array) -> Sides:
    behaviour, law = case.client.behaviour, case.client.state_law
    at_target = local_objective(case.model, target, target, behaviour, law, case.alpha, case.lam)
    return Sides(at_target, local_objective(case.model, policy, target, behaviour, law, case.alpha, case.lam))


def target_beats_behaviour(case: Case) -> Sides:
    target, _ = case.by_action_pair
    behaviour, law = case.client.behaviour, case.client.state_law
    at_behaviour = server_objective(case.model, behaviour, behaviour, law, case.alpha, case.beta)
    return Sides(at_behaviour, server_objective(case.model, target, behaviour, law, case.alpha, case.beta))


# --- Large lambda and beta --------------------------------------------------------------------------------


def _span(case: Case) -> Array:
    return np.ptp(case.q, axis=1)


def beta_term_vanishes(case: Case) -> Sides:
    """The KL of an exponential tilt is at most span^2/(8 beta^2), so beta KL decreases like 1/beta."""
    target, _ = case.by_action_pair
    return worst(case.beta * kl(target, case.client.behaviour), _span(case) ** 2 / (8.0 * case.beta))


def lambda_term_vanishes(case: Case) -> Sides:
    """pi_k = pibar* lam/(lam + E_pi Q - Q) gives lam KL <= Var_pi(Q)/lam <= span^2/(4 lam)."""
    target, policy = case.by_action_pair
    return worst(case.lam * kl(target, policy), _span(case) ** 2 / (4.0 * case.lam))


def regret_of_the_policy(case: Case) -> Sides:
    """The pull to the data costs at most lam w(s) in Q_hat, and w <= 1 because the vote is a maximum."""
    _, policy = case.printed_pair
    return worst(case.q.max(1) - expectation(policy, case.q), case.lam)


# --- Counter-examples -------------------------------------------------------------------------------------


def two_kinds_of_state() -> Case:
    """Two absorbing states. The action matters in one of them and not in the other."""
    transition = np.eye(2)[:, None, :].repeat(2, axis=1)
    mdp = MDP(transition, np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.5]), discount=0.5)
    client = client_of(mdp, [[1, 1], [1, 1]])
    policy = always(0, 0)
    return Case(mdp, (client,), policy, (policy,), alpha=0.0, lam=1.0, beta=1.0)


def promising_path() -> Case:
    """Three states. State 0 leads to state 1 or to the end. In state 1 one action gives +1, the other -1.

    State 1 then leads to the end. The server's policy goes to state 1 and takes the good action, so Q_hat is high
    for going there. The data took the bad action 99 times in 100, so a policy near the data should not go there.
    All numbers of the data are exact.
    """
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1, :, 2] = transition[2, :, 2] = 1.0
    reward = np.array([[0.0, 0.0], [1.0, -1.0], [0.0, 0.0]])
    mdp = MDP(transition, reward, np.array([1.0, 0.0, 0.0]), discount=0.9)
    client = client_of(mdp, [[50, 50], [1, 99], [50, 50]])
    server = always(0, 0, 0)
    return Case(mdp, (client,), server, (server,), alpha=1e-6, lam=2.0, beta=1.0)


def unpenalised_target() -> Case:
    """One state. The vote equals the data, so Q_hat has no penalty. The target of Q_hat has a large penalty."""
    mdp = MDP(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), np.ones(1), discount=0.5)
    client = client_of(mdp, [[1, 1]])
    return Case(mdp, (client,), always(1), (always(1),), alpha=1.0, lam=0.1, beta=1.0)


STATEMENTS = (
    Statement(
        "eq:AWRLagrangianOPT",
        "printed weight exp((Q(s,pibar(s)) - V)/beta): KL(pibar*_k, behaviour) > 0",
        printed_target_leaves_behaviour,
        counter_example=raised_runner_up,
    ),
    Statement(
        "eq:AWRLagrangianOPT",
        "with Q(s,a) in the weight pibar*_k maximises E_pi Q - beta KL in every state",
        target_is_best_in_each_state,
        kind="instead",
    ),
    Statement(
        "eq:AWRLagrangianOPT",
        "it maximises the Lagrangian, whose states are weighed by d_pi",
        target_is_best_with_its_own_visitation,
        counter_example=promising_path,
    ),
    Statement("eq:AWRUpdate", "min KL(pibar*, pi) = max weighted likelihood, tabular pi", projection_of_a_table),
    Statement(
        "eq:AWRUpdate",
        "the same when states share parameters (Z(s) dropped)",
        projection_of_a_shared_policy,
        counter_example=two_kinds_of_state,
    ),
    Statement(
        "eq:app:awr",
        "pi_k of (awr) does no worse than pibar*_k in J - alpha nu/(1-gamma) - lam KL, printed weight",
        printed_policy_beats_its_target,
        counter_example=unpenalised_target,
    ),
    Statement(
        "eq:app:awr",
        "the same, weight by action",
        policy_beats_its_target,
        counter_example=unpenalised_target,
    ),
    Statement(
        "eq:global-opt",
        "pibar*_k does no worse than behaviour in J - alpha nu/(1-gamma) - beta KL, weight by action",
        target_beats_behaviour,
        counter_example=promising_path,
    ),
    Statement(
        "eq:AWRLagrangianOPT",
        "beta KL(pibar*_k, behaviour) <= span(Q)^2/(8 beta): it vanishes",
        beta_term_vanishes,
        kind="instead",
    ),
    Statement(
        "eq:awr", "lam KL(pibar*_k, pi_k) <= span(Q)^2/(4 lam): it vanishes", lambda_term_vanishes, kind="instead"
    ),
    Statement(
        "eq:awr",
        "max_a Q - E_{pi_k} Q <= lam: what the pull to the data costs",
        regret_of_the_policy,
        kind="instead",
    ),
)
