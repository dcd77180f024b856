"""Checks whether and where the loop converges: the supplement's "Convergence of FOVA" on the tabular federation.

Compactness itself cannot be computed. The assumptions of the lemmas can: convexity, a lower limit for
probabilities, Lipschitz constants and jumps. The behaviour of the loop can be computed too.
"""

from dataclasses import replace

import numpy as np

from fova.paper.theory.case import Case, client_of
from fova.paper.theory.heterogeneity import average_return, different_habits, heterogeneity_level
from fova.paper.theory.mdp import (
    MDP,
    Array,
    action_values,
    advantages,
    expectation,
    expected_return,
    optimal_policy,
    state_values,
    visitation,
)
from fova.paper.theory.statement import Sides, Statement
from fova.paper.theory.tabular_fova import Settings, aggregate, awr_weights_as_printed, train, vcql_step, vote

NUDGE = 1e-9


# --- The policy set ---------------------------------------------------------------------------------------


def _floor(case: Case) -> float:
    """A lower limit zeta for probabilities: half of the largest value for which the set is not empty."""
    return 0.5 / case.mdp.actions


def into_the_set(policy: Array, floor: float) -> Array:
    """The policy mixed with the uniform policy. Every probability is at least `floor`, and rows sum to one."""
    return (1.0 - floor * policy.shape[1]) * policy + floor


def set_is_convex(case: Case) -> Sides:
    """The mean of feasible policies is feasible, so aggregation stays in the set."""
    floor = _floor(case)
    mean = aggregate([into_the_set(policy, floor) for policy in (*case.policies, case.server)])
    return Sides(floor, float(mean.min()))


def set_is_not_empty(case: Case) -> Sides:
    """The uniform policy is in the set for the largest allowed zeta, 1/|A|."""
    actions = case.mdp.actions
    return Sides(1.0 / actions, float(np.full((1, actions), 1.0 / actions).min()))


def update_stays_in_the_set(case: Case) -> Sides:
    """After one round of FOVA from policies in the set (weight by action), every probability is above the limit."""
    floor = _floor(case)
    inside = [into_the_set(policy, floor) for policy in case.policies]
    start = replace(case, policies=tuple(inside), server=into_the_set(case.server, floor))
    return Sides(floor, float(start.by_action_pair[1].min()))


def clipping_stays_in_the_set(case: Case) -> Sides:
    floor = _floor(case)
    clipped = np.maximum(case.policy, floor)
    return Sides(floor, float((clipped / clipped.sum(1, keepdims=True)).min()))


def mixing_stays_in_the_set(case: Case) -> Sides:
    return Sides(_floor(case), float(into_the_set(case.policy, _floor(case)).min()))


# --- Continuity -------------------------------------------------------------------------------------------


def _apart(first: Array, second: Array) -> float:
    """max_s ||pi - pi'||_1."""
    return float(np.abs(first - second).sum(1).max())


def visitation_is_lipschitz(case: Case) -> Sides:
    mdp = case.mdp
    change = np.abs(visitation(mdp, case.policy) - visitation(mdp, case.server)).sum()
    return Sides(float(change), mdp.discount * mdp.horizon * _apart(case.policy, case.server))


def q_is_lipschitz(case: Case) -> Sides:
    mdp = case.mdp
    change = np.abs(action_values(mdp, case.policy) - action_values(mdp, case.server)).max()
    return Sides(float(change), mdp.discount * mdp.horizon * mdp.largest_return * _apart(case.policy, case.server))


def derived_values_are_lipschitz(case: Case) -> Sides:
    """V and J with constant r_max/(1-gamma)^2, A with (1+gamma) times that."""
    mdp, step = case.mdp, _apart(case.policy, case.server)
    constant = mdp.horizon * mdp.largest_return
    sides = (
        Sides(
            float(np.abs(state_values(mdp, case.policy) - state_values(mdp, case.server)).max()),
            constant * step,
        ),
        Sides(abs(expected_return(mdp, case.policy) - expected_return(mdp, case.server)), constant * step),
        Sides(
            float(np.abs(advantages(mdp, case.policy) - advantages(mdp, case.server)).max()),
            (1.0 + mdp.discount) * constant * step,
        ),
    )
    return min(sides, key=lambda side: side.margin)


def cross_value_is_lipschitz(case: Case) -> Sides:
    """The change of E_pi Q^pi' if both arguments change: from (pi, behaviour) to (server, pi)."""
    mdp, behaviour = case.mdp, case.client.behaviour
    before = expectation(case.policy, action_values(mdp, behaviour))
    after = expectation(case.server, action_values(mdp, case.policy))
    bound = mdp.largest_return * _apart(case.policy, case.server)
    bound += mdp.discount * mdp.horizon * mdp.largest_return * _apart(behaviour, case.policy)
    return Sides(float(np.abs(after - before).max()), bound)


def _nudged(case: Case) -> tuple[Array, Array]:
    """Two policies 4e-9 apart, on either side of the case's first policy."""
    towards = case.client.behaviour - case.policy
    return case.policy + NUDGE * towards, case.policy - NUDGE * towards


def level_is_continuous(case: Case) -> Sides:
    """Continuity of ||H_k||_F if every state is reachable. The constant is large, but a jump would exceed it."""
    models = [client.model for client in case.clients]
    levels = [heterogeneity_level(models, [policy] * len(models), 0) for policy in _nudged(case)]
    rarest = min(visitation(model, case.policy).min() for model in models)
    return Sides(abs(levels[0] - levels[1]), NUDGE * (case.mdp.horizon / rarest) ** 3)


def objective_is_continuous(case: Case) -> Sides:
    """Continuity of the local objective, with Q_hat from one step after the vote over (pi, behaviour, server)."""
    above, below = (_local_objective(case, policy) for policy in _nudged(case))
    scale = case.mdp.horizon + case.lam / np.maximum(case.policy, 1e-3).min()
    return Sides(abs(above - below), 1e3 * NUDGE * float(scale))


def _local_objective(case: Case, policy: Array) -> float:
    client = case.client
    q = action_values(client.model, client.behaviour)
    candidates = (policy, client.behaviour, case.server)
    q = vcql_step(client.model, q, vote(q, candidates), client.behaviour, case.alpha)
    values = expectation(vote(q, candidates), q)
    weights = awr_weights_as_printed(q, values, case.server, case.beta)
    likelihood = expectation(client.behaviour, weights * np.log(np.maximum(policy, 1e-12)))
    return float(client.state_law @ (case.lam * likelihood + expectation(policy, q)))


# --- The loop ---------------------------------------------------------------------------------------------


LARGE = 1e4  # lambda and beta "sufficiently large"


def _returns_of_the_loop(case: Case, rounds: int) -> list[float]:
    settings = Settings(
        alpha=case.alpha, lam=case.lam, beta=case.beta, rounds=rounds, sweeps=5, voting="expectation"
    )
    models = [client.model for client in case.clients]
    return [average_return(models, policy) for policy in train(case.clients, settings, case.server).policies]


def loop_never_falls(case: Case) -> Sides:
    """J(pibar^t), the mean over the clients' empirical MDPs, does not fall from one round to the next."""
    return Sides(float(-np.diff(_returns_of_the_loop(case, 20)).min()), 0.0)


def loop_comes_to_rest(case: Case) -> Sides:
    return Sides(abs(float(np.diff(_returns_of_the_loop(case, 100))[-1])), 1e-5)


def _highest_return(case: Case) -> float:
    """J_max: the mean over the clients of the return if every step gave the largest reward."""
    return float(np.mean([client.model.reward.max() * client.model.horizon for client in case.clients]))


def return_is_bounded(case: Case) -> Sides:
    models = [client.model for client in case.clients]
    return Sides(average_return(models, case.server), _highest_return(case))


def steady_gains_must_end(case: Case) -> Sides:
    """N eta <= J_max - J(pibar^0), where each of the first N rounds of the loop gains at least eta = 0.01."""
    returns, eta = _returns_of_the_loop(case, 20), 0.01
    steady = np.append(np.diff(returns) >= eta, False).argmin()
    return Sides(float(steady * eta), _highest_return(case) - returns[0])


def large_parameters_come_to_rest(case: Case) -> Sides:
    """Steps shrink like 1/lambda even if the loop does not converge, so the last step is multiplied by lambda."""
    last = np.diff(_returns_of_the_loop(replace(case, lam=LARGE, beta=LARGE), 100))[-1]
    return Sides(LARGE * abs(float(last)), 1e-4)


def large_parameters_never_fall(case: Case) -> Sides:
    return loop_never_falls(replace(case, lam=LARGE, beta=LARGE))


def _alone(case: Case, alpha: float) -> Case:
    return replace(case, clients=case.clients[:1], policies=case.policies[:1], alpha=alpha)


def rest_is_optimal(case: Case) -> Sides:
    """The loop of one client reaches the best return, which is known for one client."""
    model = case.client.model
    reached = _returns_of_the_loop(_alone(case, case.alpha), 80)[-1]
    return Sides(expected_return(model, optimal_policy(model)) - reached, 1e-6)


def rest_is_near_optimal(case: Case) -> Sides:
    """One client, alpha = 0: the pull to the data costs at most lambda per step."""
    model = case.client.model
    reached = _returns_of_the_loop(_alone(case, 0.0), 80)[-1]
    bound = case.lam * model.horizon + 1e-6
    return Sides(expected_return(model, optimal_policy(model)) - reached, bound, trivial=2.0 * model.largest_return)


# --- Counter-examples -------------------------------------------------------------------------------------


def tied_vote() -> Case:
    """One state, three actions with rewards 1, 0 and 1/2. Local and server policy both have expected reward 1/2.

    The smallest change of the local policy makes the vote jump between them, and the penalty jumps too.
    """
    mdp = MDP(np.ones((1, 3, 1)), np.array([[1.0, 0.0, 0.5]]), np.ones(1), discount=0.5)
    client = client_of(mdp, [[1, 4, 1]])
    sure, bet = np.array([[0.125, 0.125, 0.75]]), np.array([[0.5, 0.5, 0.0]])
    return Case(mdp, (client,), bet, (sure,), alpha=1.0, lam=1.0, beta=1.0)


def endless_dispute() -> Case:
    """One state, one client. The last choice of the vote is penalised, so the policy oscillates for ever."""
    mdp = MDP(np.ones((1, 2, 1)), np.array([[0.0, 1.0]]), np.ones(1), discount=0.5)
    even = np.full((1, 2), 0.5)
    return Case(mdp, (client_of(mdp, [[3, 2]]),), even, (even,), alpha=2.0, lam=1.0, beta=0.1)


def habit() -> Case:
    """One state, one client. The data has both actions equally often. The pull to it prevents the best policy."""
    mdp = MDP(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), np.ones(1), discount=0.5)
    client = client_of(mdp, [[1, 1]])
    best = np.array([[0.99, 0.01]])
    return Case(mdp, (client,), best, (best,), alpha=0.01, lam=1.0, beta=1.0)


def sure_policy() -> Case:
    """One state, two actions. The policy gives one action probability zero."""
    return replace(habit(), policies=(np.array([[1.0, 0.0]]),))


def lasting_dispute() -> Case:
    """Two clients with different behaviour. The server's policy matches neither. The vote oscillates for ever."""
    return replace(different_habits(), alpha=2.0)


def strong_preference() -> Case:
    """`habit` with a weak pull to the data: the probability of the worse action becomes very small."""
    return replace(habit(), lam=0.1, beta=0.1)


CONTINUITY, CONVERGENCE = "lemma:continuity_properties", "thm:convergence"

STATEMENTS = (
    Statement("lem:local-compact", "the policy set is not empty", set_is_not_empty),
    Statement("lem:local-compact, lem:global-compact", "the policy sets are convex (zeta = eta)", set_is_convex),
    Statement(
        "ass:feasible-update",
        "the algorithm's own update stays in the set",
        update_stays_in_the_set,
        kind="reading",
        counter_example=strong_preference,
    ),
    Statement(
        "remark after ass:feasible-update (iii)",
        "clipping and renormalising stays in the set",
        clipping_stays_in_the_set,
        counter_example=sure_policy,
    ),
    Statement(
        "remark after ass:feasible-update (iii)",
        "mixing with the uniform policy does",
        mixing_stays_in_the_set,
        kind="instead",
    ),
    Statement(CONTINUITY + " (1)", "||d - d'||_1 <= gamma/(1-gamma) max_s||pi - pi'||_1", visitation_is_lipschitz),
    Statement(CONTINUITY + " (2)", "Q is Lipschitz with gamma r_max/(1-gamma)^2", q_is_lipschitz),
    Statement(CONTINUITY + " (3)", "V, A and J are Lipschitz", derived_values_are_lipschitz),
    Statement(CONTINUITY + " (4)", "E_pi Q^pi' is continuous in both", cross_value_is_lipschitz),
    Statement(CONTINUITY + " (5)", "||H_k||_F is continuous where every state is reached", level_is_continuous),
    Statement(
        CONTINUITY + " (6)",
        "the local objective is continuous in pi",
        objective_is_continuous,
        counter_example=tied_vote,
    ),
    Statement(
        CONVERGENCE,
        "J(pibar^t) never falls",
        loop_never_falls,
        kind="without its premise",
        counter_example=habit,
        every=4,
    ),
    Statement(
        CONVERGENCE,
        "J(pibar^t) converges",
        loop_comes_to_rest,
        kind="without its premise",
        counter_example=endless_dispute,
        every=10,
    ),
    Statement(
        CONVERGENCE,
        "the limit is an optimal policy",
        rest_is_optimal,
        kind="without its premise",
        counter_example=habit,
        every=10,
    ),
    Statement(
        CONVERGENCE,
        "one client, alpha = 0: the limit is within lam/(1-gamma) of the best",
        rest_is_near_optimal,
        kind="instead",
        every=10,
    ),
    Statement(CONVERGENCE, "J <= J_max", return_is_bounded, kind="proof step"),
    Statement(
        CONVERGENCE,
        "rounds that gain eta each: N <= (J_max - J(pibar^0))/eta",
        steady_gains_must_end,
        kind="proof step",
        every=4,
    ),
    Statement(
        "remark after " + CONVERGENCE,
        "large lam and beta: J(pibar^t) comes to rest",
        large_parameters_come_to_rest,
        counter_example=lasting_dispute,
        every=10,
    ),
    Statement(
        "remark after " + CONVERGENCE,
        "large lam and beta: J(pibar^t) never falls",
        large_parameters_never_fall,
        counter_example=habit,
        every=4,
    ),
)
