"""Checks whether an update improves on the data: "Policy Improvement on Server Aggregation" and "on Local Updates".

The theorems compare pibar*_k and pi_k with the behaviour policy in the true MDP. They are checked in three ways:
for both updates exactly as printed, with the weight of advantage-weighted regression, and for exact maximisers of
the penalised returns that the proofs use.
"""

from dataclasses import replace

import numpy as np

from fova.paper.theory.ascent import nu
from fova.paper.theory.case import Case, always, client_of
from fova.paper.theory.conservatism import lucky_rare_action
from fova.paper.theory.distances import kl, total_variation
from fova.paper.theory.heterogeneity import different_habits
from fova.paper.theory.mdp import MDP, Array, expected_return
from fova.paper.theory.projection import promising_path
from fova.paper.theory.returns import per_state_penalty
from fova.paper.theory.statement import Sides, Statement
from fova.paper.theory.tabular_fova import aggregate

Pair = tuple[Array, Array]  # (pibar*_k, pi_k)

BETAS = np.logspace(-3, 4, 29)
LAMS_AND_BETAS = [(float(lam), float(beta)) for lam in np.logspace(-3, 4, 8) for beta in np.logspace(-3, 4, 8)]


def _kl(case: Case, first: Array, second: Array) -> float:
    return float(case.client.state_law @ kl(first, second))


def _distance(case: Case, first: Array, second: Array) -> float:
    return float(case.client.state_law @ total_variation(first, second))


def _penalty(case: Case, policy: Array) -> float:
    """xi of the policy with |D(s)|. This version of xi holds."""
    return per_state_penalty(case.client, case.mdp, case.model, policy)


def _conservative_cost(case: Case, factor: float) -> float:
    """factor * alpha / (delta (1 - gamma))."""
    return factor * case.alpha * case.mdp.horizon / case.client.coverage


def _shortfall(mdp: MDP, policy: Array, behaviour: Array) -> float:
    """J(behaviour) - J(policy): the loss against the behaviour policy."""
    return expected_return(mdp, behaviour) - expected_return(mdp, policy)


# --- Bounds on nu -----------------------------------------------------------------------------------------


def nu_near_behaviour(case: Case) -> Sides:
    """The step follows from 1/behaviour(a|s) <= d_k(s)/delta. The printed proof exchanges visitations instead."""
    left = abs(nu(case.model, case.policy, case.client.behaviour))
    return Sides(left, 2.0 / case.client.coverage * _distance(case, case.policy, case.client.behaviour))


def nu_is_positive(case: Case) -> Sides:
    return Sides(
        nu(case.model, case.client.behaviour, case.client.behaviour),
        nu(case.model, case.policy, case.client.behaviour),
    )


def nu_between_policies(case: Case) -> Sides:
    behaviour = case.client.behaviour
    left = abs(nu(case.model, case.policy, behaviour) - nu(case.model, case.server, behaviour))
    return Sides(left, 4.0 / case.client.coverage * _distance(case, case.policy, case.server))


def nu_is_bounded(case: Case) -> Sides:
    behaviour = case.client.behaviour
    left = abs(nu(case.model, case.policy, behaviour) - nu(case.model, case.server, behaviour))
    return Sides(left, 1.0 / case.client.coverage - 1.0)


# --- Improvement of pibar*_k ------------------------------------------------------------------------------


def _server_theorem(case: Case, target: Array, beta: float) -> Sides:
    """J(behaviour) - J(pibar*) <= 2 alpha/(delta(1-gamma)) + xi_b + xi-bar - beta KL."""
    behaviour = case.client.behaviour
    right = _conservative_cost(case, 2.0) + _penalty(case, behaviour) + _penalty(case, target)
    right -= beta * _kl(case, target, behaviour)
    return Sides(_shortfall(case.mdp, target, behaviour), right, trivial=2.0 * case.mdp.largest_return)


def server_theorem_printed(case: Case) -> Sides:
    """The printed pibar* equals the behaviour policy, so the left side is always zero."""
    return replace(_server_theorem(case, case.printed_pair[0], case.beta), trivial=0.0)


def server_theorem_by_action(case: Case) -> Sides:
    return _server_theorem(case, case.by_action_pair[0], case.beta)


def server_theorem_exact(case: Case) -> Sides:
    return _server_theorem(case, case.exact_pair[0], case.beta)


def server_theorem_without_alpha(case: Case) -> Sides:
    """The theorem without loss in alpha: nu(behaviour) = 0 <= nu(pibar*), so the alpha term improves the bound."""
    target, behaviour = case.exact_pair[0], case.client.behaviour
    right = _penalty(case, behaviour) + _penalty(case, target) - case.beta * _kl(case, target, behaviour)
    right -= case.alpha * case.mdp.horizon * nu(case.model, target, behaviour)
    return Sides(_shortfall(case.mdp, target, behaviour), right, trivial=2.0 * case.mdp.largest_return)


def penalties_ignore_beta(case: Case) -> Sides:
    here, there = case.by_action(case.lam, case.beta)[0], case.by_action(case.lam, 10.0 * case.beta)[0]
    return Sides(abs(_penalty(case, here) - _penalty(case, there)), 0.0)


def some_beta_makes_the_bound_positive(case: Case) -> Sides:
    """The largest bound on J(pibar*) - J(behaviour) over beta from 0.001 to 10,000."""
    bounds = [-_server_theorem(case, case.by_action(case.lam, beta)[0], beta).right for beta in BETAS]
    return Sides(1e-6, max(bounds))


def some_beta_improves(case: Case) -> Sides:
    """The largest true gain J(pibar*) - J(behaviour) over the same range of beta."""
    gains = [-_shortfall(case.mdp, case.by_action(case.lam, beta)[0], case.client.behaviour) for beta in BETAS]
    return Sides(1e-6, max(gains))


def mean_target_improves(case: Case) -> Sides:
    """The server's policy as the mean of the clients' exact pibar*_k, compared with the best behaviour policy."""
    after = aggregate([target for target, _ in case.exact_pairs])
    best = max(expected_return(case.mdp, client.behaviour) for client in case.clients)
    return Sides(best, expected_return(case.mdp, after))


# --- Improvement of pi_k ----------------------------------------------------------------------------------


def _kl_terms(case: Case, pair: Pair) -> float:
    target, policy = pair
    return case.lam * _kl(case, target, policy) + case.beta * _kl(case, target, case.client.behaviour)


def _local_theorem(case: Case, pair: Pair) -> Sides:
    target, policy = pair
    behaviour = case.client.behaviour
    right = _conservative_cost(case, 6.0) + _penalty(case, behaviour) + 2.0 * _penalty(case, target)
    right += _penalty(case, policy) - _kl_terms(case, pair)
    return Sides(_shortfall(case.mdp, policy, behaviour), right, trivial=2.0 * case.mdp.largest_return)


def local_theorem_printed(case: Case) -> Sides:
    return _local_theorem(case, case.printed_pair)


def local_theorem_by_action(case: Case) -> Sides:
    return _local_theorem(case, case.by_action_pair)


def local_theorem_exact(case: Case) -> Sides:
    return _local_theorem(case, case.exact_pair)


def local_theorem_without_alpha(case: Case) -> Sides:
    """The two optimality conditions add up: nu(pi_k) - nu(behaviour) >= 0 remains, and xi-bar cancels."""
    policy, behaviour = case.exact_pair[1], case.client.behaviour
    right = _penalty(case, behaviour) + _penalty(case, policy) - _kl_terms(case, case.exact_pair)
    right -= case.alpha * case.mdp.horizon * nu(case.model, policy, behaviour)
    return Sides(_shortfall(case.mdp, policy, behaviour), right, trivial=2.0 * case.mdp.largest_return)


def _step_from_target(case: Case, pair: Pair) -> Sides:
    """Eq. eq8-further: J(pibar*) - J(pi_k) <= xi-bar + xi-tilde + 4 alpha/(delta(1-gamma)) - lam KL."""
    target, policy = pair
    right = _penalty(case, target) + _penalty(case, policy) + _conservative_cost(case, 4.0)
    right -= case.lam * _kl(case, target, policy)
    return Sides(_shortfall(case.mdp, policy, target), right, trivial=2.0 * case.mdp.largest_return)


def step_from_target_by_action(case: Case) -> Sides:
    return _step_from_target(case, case.by_action_pair)


def step_from_target_exact(case: Case) -> Sides:
    return _step_from_target(case, case.exact_pair)


def penalties_ignore_lam_and_beta(case: Case) -> Sides:
    """The change of xi-tilde, the penalty of pi_k, if lambda and beta are ten times as large."""
    here, there = case.by_action(case.lam, case.beta)[1], case.by_action(10.0 * case.lam, 10.0 * case.beta)[1]
    return Sides(abs(_penalty(case, here) - _penalty(case, there)), 0.0)


def some_lam_and_beta_improve(case: Case) -> Sides:
    """The largest true gain of pi_k over lambda and beta from 0.001 to 10,000."""
    policies = (case.by_action(lam, beta)[1] for lam, beta in LAMS_AND_BETAS)
    return Sides(1e-6, max(-_shortfall(case.mdp, policy, case.client.behaviour) for policy in policies))


# --- The supplement's version, inside the empirical MDP ---------------------------------------------------


def _empirical_lemma(case: Case, pair: Pair) -> Sides:
    target, policy = pair
    behaviour = case.client.behaviour
    right = _conservative_cost(case, 4.0) * _distance(case, target, policy)
    right += _conservative_cost(case, 2.0) * _distance(case, target, behaviour) - _kl_terms(case, pair)
    return Sides(_shortfall(case.model, policy, behaviour), right, trivial=2.0 * case.mdp.largest_return)


def empirical_lemma_printed(case: Case) -> Sides:
    return _empirical_lemma(case, case.printed_pair)


def empirical_lemma_by_action(case: Case) -> Sides:
    return _empirical_lemma(case, case.by_action_pair)


def empirical_lemma_exact(case: Case) -> Sides:
    return _empirical_lemma(case, case.exact_pair)


def empirical_lemma_without_alpha(case: Case) -> Sides:
    policy, behaviour = case.exact_pair[1], case.client.behaviour
    right = -_kl_terms(case, case.exact_pair)
    right -= case.alpha * case.mdp.horizon * nu(case.model, policy, behaviour)
    return Sides(_shortfall(case.model, policy, behaviour), right, trivial=2.0 * case.mdp.largest_return)


def every_client_improves_exactly(case: Case) -> Sides:
    """Every client improves in its own empirical MDP, independently of the other clients."""
    losses = [
        _shortfall(client.model, policy, client.behaviour)
        for client, (_, policy) in zip(case.clients, case.exact_pairs, strict=True)
    ]
    return Sides(max(losses), 0.0)


def first_client_improves_by_action(case: Case) -> Sides:
    return Sides(_shortfall(case.client.model, case.by_action_pair[1], case.client.behaviour), 0.0)


# --- Counter-examples -------------------------------------------------------------------------------------


def rare_crossroads() -> Case:
    """Two states. Both policies take a very rare action in state 1, but only one policy ever goes to state 1.

    They differ only in state 0, of which the data holds little. The distance weighted by the data is therefore
    small.
    """
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 1] = transition[0, 1, 0] = transition[1, :, 1] = 1.0
    mdp = MDP(transition, np.zeros((2, 2)), np.array([1.0, 0.0]), discount=0.9)
    client = client_of(mdp, [[1, 1], [1, 20]])
    return Case(mdp, (client,), always(1, 0), (always(0, 0),), alpha=1.0, lam=1.0, beta=1.0)


def misleading_data() -> Case:
    """One state. Each action was tried once, and by chance the worse one gave the larger reward."""
    mdp = MDP(np.ones((1, 2, 1)), np.array([[0.5, 0.0]]), np.ones(1), discount=0.5)
    model = replace(mdp, reward=np.array([[0.0, 0.5]]))
    client = client_of(model, [[1, 1]])
    policy = client.behaviour
    return Case(mdp, (client,), policy, (policy,), alpha=0.01, lam=1.0, beta=1.0)


def data_of_elsewhere() -> Case:
    """Two absorbing states. Nearly all data comes from the state where no episode starts. All data is exact.

    The KL terms weight states by the data, but the return weights them by the policy's visits. A gain in the state
    without starts therefore does not increase the return.
    """
    transition = np.zeros((2, 2, 2))
    transition[0, :, 0] = transition[1, :, 1] = 1.0
    mdp = MDP(transition, np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([1.0, 0.0]), discount=0.5)
    client = client_of(mdp, [[1, 1], [499, 499]])
    return Case(mdp, (client,), always(0, 0), (always(0, 0),), alpha=1e-12, lam=1.0, beta=1.0)


def praised_detour() -> Case:
    """`promising_path` with a strong pull to pibar*_k: pi_k must go to the state where it performs badly."""
    return replace(promising_path(), lam=100.0)


SERVER, LOCAL, EMPIRICAL = (
    "thm:policy-improvement-global-app",
    "thm:policy-improvement-local-app",
    "lemma:policy-improvement-local-convergence",
)
STEP_J = "(j): |nu(pi) - nu(pi')| <= 4/delta E_{d_k} TV(pi, pi')"

STATEMENTS = (
    Statement(
        "eq:strict-global-on-data-delta",
        "(i): |nu(pi) - nu(behaviour)| <= 2/delta E_{d_k} TV",
        nu_near_behaviour,
        kind="proof step",
    ),
    Statement("eq:strict-global-on-data-delta", "nu(pi) >= nu(behaviour) = 0", nu_is_positive, kind="instead"),
    Statement("eq:sigma_bar", STEP_J, nu_between_policies, kind="proof step", counter_example=rare_crossroads),
    Statement("eq:sigma_bar", "(jj): |nu(pi) - nu(pi')| <= 1/delta - 1 < 4/delta", nu_is_bounded, kind="instead"),
    Statement(SERVER, "J(pibar*) - J(behaviour) >= ..., updates to the letter", server_theorem_printed),
    Statement(
        SERVER,
        "the same, weight by action",
        server_theorem_by_action,
        counter_example=promising_path,
    ),
    Statement(SERVER, "the same, pibar* an exact maximiser", server_theorem_exact),
    Statement(
        SERVER,
        "exact maximiser: >= beta KL + alpha nu(pibar*)/(1-gamma) - xi_b - xi-bar",
        server_theorem_without_alpha,
        kind="instead",
    ),
    Statement(SERVER, "xi-bar does not depend on beta", penalties_ignore_beta, counter_example=lucky_rare_action),
    Statement(
        SERVER,
        "a proper beta makes the bound positive",
        some_beta_makes_the_bound_positive,
        counter_example=misleading_data,
    ),
    Statement(
        "eq:strict-global-on-data",
        "a proper beta gives J(M, pibar*) > J(M, behaviour)",
        some_beta_improves,
        counter_example=misleading_data,
    ),
    Statement(
        "remark after " + SERVER,
        "pibar, the mean of exact pibar*_k, improves on every behaviour",
        mean_target_improves,
        kind="reading",
        counter_example=different_habits,
    ),
    Statement(
        "eq:eq8-further",
        "J(pi_k) >= J(pibar*) - xi-bar - xi-tilde - 4 alpha/(delta(1-gamma)) + lam KL, weight by action",
        step_from_target_by_action,
        kind="proof step",
        counter_example=data_of_elsewhere,
    ),
    Statement("eq:eq8-further", "the same, exact maximisers", step_from_target_exact, rests_on=(STEP_J,)),
    Statement(
        LOCAL,
        "J(pi_k) - J(behaviour) >= ..., updates to the letter",
        local_theorem_printed,
        counter_example=promising_path,
    ),
    Statement(LOCAL, "the same, weight by action", local_theorem_by_action, counter_example=promising_path),
    Statement(LOCAL, "the same, exact maximisers", local_theorem_exact, rests_on=(STEP_J,)),
    Statement(
        LOCAL,
        "exact maximisers: >= lam KL + beta KL + alpha nu(pi_k)/(1-gamma) - xi_b - xi-tilde",
        local_theorem_without_alpha,
        kind="instead",
    ),
    Statement(
        LOCAL,
        "xi-tilde does not depend on lam and beta",
        penalties_ignore_lam_and_beta,
        counter_example=lucky_rare_action,
    ),
    Statement(
        "eq:strict-local-on-data",
        "a proper lam and beta give J(M, pi_k) > J(M, behaviour), and so says the remark",
        some_lam_and_beta_improve,
        counter_example=misleading_data,
    ),
    Statement(
        EMPIRICAL,
        "the same in the empirical MDP with TV terms, updates to the letter",
        empirical_lemma_printed,
        counter_example=promising_path,
    ),
    Statement(
        EMPIRICAL,
        "that, weight by action",
        empirical_lemma_by_action,
        counter_example=promising_path,
    ),
    Statement(EMPIRICAL, "that, exact maximisers", empirical_lemma_exact, rests_on=(STEP_J,)),
    Statement(
        EMPIRICAL,
        "exact maximisers: >= lam KL + beta KL + alpha nu(pi_k)/(1-gamma) >= 0",
        empirical_lemma_without_alpha,
        kind="instead",
    ),
    Statement(
        "remark after " + EMPIRICAL,
        "pi_k improves on behaviour in M_hat_k, exact maximisers, every client",
        every_client_improves_exactly,
    ),
    Statement(
        "remark after " + EMPIRICAL,
        "the same, weight by action",
        first_client_improves_by_action,
        counter_example=praised_detour,
    ),
)
