"""Checks whether a round is safe: the theorem with the penalty B(lambda, beta), and the limits for lambda and beta.

Statements about the whole federation use exact maximisers of each client's penalised returns as its update. The
supplement's lemma on local improvement holds for these updates.
"""

from dataclasses import dataclass, replace

import numpy as np

from fova.paper.theory.ascent import nu
from fova.paper.theory.case import Case
from fova.paper.theory.distances import kl, total_variation
from fova.paper.theory.heterogeneity import (
    aggregation_coefficients,
    average_return,
    better_server,
    different_habits,
)
from fova.paper.theory.mdp import Array, advantages, expected_return, visitation
from fova.paper.theory.returns import transfer_penalty
from fova.paper.theory.statement import Sides, Statement
from fova.paper.theory.tabular_fova import Client, aggregate

GRID = np.logspace(-2, 5, 15)


# --- B(lambda, beta) --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Penalty:
    """B and its parts, each a mean over the clients."""

    sampling: float  # xi^{t+1} + xi^t
    drift: float  # l_k TV(behaviour_k, pibar^t): no lambda or beta can reduce it
    lam_part: float  # (l_k + h_k + 2 sigma)^2 / (8 lambda)
    beta_part: float  # (l_k + h_k + sigma)^2 / (8 beta)

    @property
    def total(self) -> float:
        return self.sampling + self.drift + self.lam_part + self.beta_part


@dataclass(frozen=True)
class Coefficients:
    """l_k, h_k and sigma_k of every client [K], with the behaviour policies as base."""

    closeness: Array  # l_k
    mismatch: Array  # h_k
    sigma: Array  # 2 alpha / (delta_k (1 - gamma))
    drift: Array  # E_{d_k} TV(behaviour_k, pibar^t)


def coefficients(case: Case) -> Coefficients:
    models = [client.model for client in case.clients]
    closeness, mismatch = aggregation_coefficients(models, [client.behaviour for client in case.clients])
    sigma = [2.0 * case.alpha * case.mdp.horizon / client.coverage for client in case.clients]
    drift = [client.state_law @ total_variation(client.behaviour, case.server) for client in case.clients]
    return Coefficients(closeness, mismatch, np.array(sigma), np.array(drift))


def penalty(case: Case, after: Array, lam: float, beta: float) -> Penalty:
    """B(lambda, beta) for a round that ends at the policy `after`."""
    c = coefficients(case)
    sampling = [
        transfer_penalty(client, case.mdp, after) + transfer_penalty(client, case.mdp, case.server)
        for client in case.clients
    ]
    return Penalty(
        sampling=float(np.mean(sampling)),
        drift=float(np.mean(c.closeness * c.drift)),
        lam_part=float(np.mean((c.closeness + c.mismatch + 2.0 * c.sigma) ** 2) / (8.0 * lam)),
        beta_part=float(np.mean((c.closeness + c.mismatch + c.sigma) ** 2) / (8.0 * beta)),
    )


def _after_exact_updates(case: Case) -> Array:
    return aggregate([policy for _, policy in case.exact_pairs])


def round_is_safe(case: Case) -> Sides:
    after = _after_exact_updates(case)
    drop = expected_return(case.mdp, case.server) - expected_return(case.mdp, after)
    return Sides(drop, penalty(case, after, case.lam, case.beta).total, trivial=2.0 * case.mdp.largest_return)


def penalty_falls(case: Case) -> Sides:
    after = case.server
    return Sides(
        penalty(case, after, 2.0 * case.lam, 2.0 * case.beta).total,
        penalty(case, after, case.lam, case.beta).total,
    )


def only_beta_damps_mismatch(case: Case) -> Sides:
    """The contribution of h_k to B if beta is infinite."""
    c = coefficients(case)
    with_mismatch = np.mean((c.closeness + c.mismatch + 2.0 * c.sigma) ** 2)
    without = np.mean((c.closeness + 2.0 * c.sigma) ** 2)
    return Sides(float(with_mismatch - without) / (8.0 * case.lam), 0.0)


def only_lambda_damps_closeness(case: Case) -> Sides:
    """The contribution of l_k to B if lambda is infinite."""
    c = coefficients(case)
    with_closeness = np.mean((c.closeness + c.mismatch + c.sigma) ** 2)
    without = np.mean((c.mismatch + c.sigma) ** 2)
    return Sides(float(with_closeness - without) / (8.0 * case.beta) + float(np.mean(c.closeness * c.drift)), 0.0)


def large_parameters_are_safe(case: Case) -> Sides:
    """In the limit every client sends its behaviour policy, so the round ends at the mean of these policies."""
    after = aggregate([client.behaviour for client in case.clients])
    return Sides(expected_return(case.mdp, case.server) - expected_return(case.mdp, after), 0.0)


def large_parameters_return_behaviour(case: Case) -> Sides:
    """By Pinsker: TV(pi_k, behaviour) <= span(Q) (1/(4 beta) + 1/(2 sqrt 2 lam)), below span(Q)/size."""
    size = 1e6
    _, policy = case.by_action(size, size)
    bound = np.ptp(case.q, axis=1).max() / size
    return Sides(float(total_variation(policy, case.client.behaviour).max()), float(bound))


# --- Steps of the proof -----------------------------------------------------------------------------------


def _kl(client: Client, first: Array, second: Array) -> float:
    return float(client.state_law @ kl(first, second))


def _distance(client: Client, first: Array, second: Array) -> float:
    return float(client.state_law @ total_variation(first, second))


def _first_client_gain(case: Case, target: Array, policy: Array, lam: float, beta: float) -> float:
    return _gain(case, coefficients(case), 0, target, policy, lam, beta)


def _gain(case: Case, c: Coefficients, k: int, target: Array, policy: Array, lam: float, beta: float) -> float:
    """f_k of the proof."""
    client = case.clients[k]
    return (
        lam * _kl(client, target, policy)
        + beta * _kl(client, target, client.behaviour)
        - c.closeness[k] * _distance(client, policy, case.server)
        - c.mismatch[k] * _distance(client, policy, client.behaviour)
        - 2.0 * c.sigma[k] * _distance(client, target, policy)
        - c.sigma[k] * _distance(client, target, client.behaviour)
    )


def round_gains_the_mean(case: Case) -> Sides:
    """Eq. global-gap-step1, exact maximisers: the mean return over the empirical MDPs gains at least mean f_k."""
    c = coefficients(case)
    gains = [
        _gain(case, c, k, target, policy, case.lam, case.beta)
        for k, (target, policy) in enumerate(case.exact_pairs)
    ]
    return Sides(float(np.mean(gains)), _gain_of_the_mean(case))


def round_loses_little_in_the_mean(case: Case) -> Sides:
    """Eq. global-gap-step2: the same with B without its sampling part."""
    allowed = replace(penalty(case, case.server, case.lam, case.beta), sampling=0.0).total
    return Sides(-_gain_of_the_mean(case), allowed, trivial=2.0 * case.mdp.largest_return)


def _gain_of_the_mean(case: Case) -> float:
    models, after = [client.model for client in case.clients], _after_exact_updates(case)
    return average_return(models, after) - average_return(models, case.server)


def gain_is_bounded_below(case: Case) -> Sides:
    """Eq. lower_bound_fx: triangle inequality, Pinsker and completing the square, for any policies."""
    target, c = case.by_action_pair[0], coefficients(case)
    joint = c.closeness[0] + c.mismatch[0]
    lowest = -((joint + 2.0 * c.sigma[0]) ** 2) / (8.0 * case.lam) - (joint + c.sigma[0]) ** 2 / (8.0 * case.beta)
    lowest -= c.closeness[0] * c.drift[0]
    return Sides(float(lowest), _first_client_gain(case, target, case.policy, case.lam, case.beta))


def limits_of_lemma_improving(case: Case, target: Array, policy: Array, margin: float) -> tuple[float, float]:
    """The printed lower limits for (lambda, beta) at w = 1/2, for fixed KL terms."""
    client, c = case.client, coefficients(case)
    to_policy, to_behaviour = _kl(client, target, policy), _kl(client, target, client.behaviour)
    half = 0.5 * (_fixed_cost(case, c, target, policy) + margin)
    reach = c.closeness[0] + 2.0 * c.sigma[0]
    lam = (half + np.sqrt(half**2 + 0.5 * reach**2 * to_policy)) / to_policy
    beta = (half + np.sqrt(half**2 + 0.5 * c.sigma[0] ** 2 * to_behaviour)) / to_behaviour
    return float(lam), float(beta)


def _fixed_cost(case: Case, c: Coefficients, target: Array, policy: Array) -> float:
    """C = h_k TV(pi_k, behaviour) + l_k TV(pibar*_k, pibar^t)."""
    client = case.client
    mismatch = c.mismatch[0] * _distance(client, policy, client.behaviour)
    return float(mismatch + c.closeness[0] * _distance(client, target, case.server))


def limits_give_the_margin(case: Case) -> Sides:
    """The printed limits are correct if the KL terms do not change with lambda and beta.

    The lemma assumes that both terms are positive. If rounding makes one of them vanish, the check claims nothing.
    """
    target, margin = case.by_action_pair[0], 0.1
    if min(_kl(case.client, target, case.policy), _kl(case.client, target, case.client.behaviour)) < 1e-10:
        return Sides(0.0, 0.0, trivial=0.0)
    lam, beta = limits_of_lemma_improving(case, target, case.policy, margin)
    return Sides(margin, _first_client_gain(case, target, case.policy, lam, beta))


def _limits_in_sum(case: Case, c: Coefficients, lam: float, beta: float) -> tuple[float, float, float]:
    """The surplus of each of the lemma's two conditions after its own cost, and the C that their sum must cover."""
    client = case.client
    target, policy = case.by_action(lam, beta)
    first = 0.5 * lam * _kl(client, target, policy) - (c.closeness[0] + 2.0 * c.sigma[0]) ** 2 / (4.0 * lam)
    second = 0.5 * beta * _kl(client, target, client.behaviour) - c.sigma[0] ** 2 / (4.0 * beta)
    return float(first), float(second), _fixed_cost(case, c, target, policy)


def limits_can_be_met(case: Case) -> Sides:
    """pi_k and pibar*_k depend on lambda and beta, so the KL terms in the limits depend on them too.

    The check needs only the sum of the two conditions, which is weaker than the lemma's condition.
    """
    c = coefficients(case)
    trials = (_limits_in_sum(case, c, lam, beta) for lam in GRID for beta in GRID)
    return Sides(1e-6, max(first + second - cost for first, second, cost in trials))


def met_limits_improve_the_server(case: Case) -> Sides:
    """One client, with the largest eta that its lambda and beta allow. Claims nothing if the limits are not met."""
    alone = replace(case, clients=case.clients[:1], policies=case.policies[:1])
    first, second, cost = _limits_in_sum(alone, coefficients(alone), case.lam, case.beta)
    promised = first + second - cost
    if min(first, second, promised) <= 0:
        return Sides(0.0, 0.0, trivial=0.0)
    model, (_, policy) = case.client.model, alone.by_action_pair
    return Sides(promised, expected_return(model, policy) - expected_return(model, case.server))


# --- The corrected statement ------------------------------------------------------------------------------


def round_is_safe_against_the_data(case: Case) -> Sides:
    """mean_k J(M, behaviour_k) - J(M, pibar^{t+1}) <= sampling + disagreement - gains of the updates."""
    after = _after_exact_updates(case)
    cost = np.mean(
        [
            _cost_against_data(case, client, target, policy, after)
            for client, (target, policy) in zip(case.clients, case.exact_pairs, strict=True)
        ]
    )
    data = np.mean([expected_return(case.mdp, client.behaviour) for client in case.clients])
    drop = float(data) - expected_return(case.mdp, after)
    return Sides(drop, float(cost), trivial=2.0 * case.mdp.largest_return)


def _cost_against_data(case: Case, client: Client, target: Array, policy: Array, after: Array) -> float:
    """One client's term: two transfer penalties, plus its disagreement with the mean, minus its proven gain."""
    model = client.model
    disagreement = 2.0 * model.horizon * np.abs(advantages(model, policy)).max()
    disagreement *= float(visitation(model, after) @ total_variation(after, policy))
    gained = case.lam * _kl(client, target, policy) + case.beta * _kl(client, target, client.behaviour)
    gained += case.alpha * model.horizon * nu(model, policy, client.behaviour)
    transfer = transfer_penalty(client, case.mdp, after) + transfer_penalty(client, case.mdp, client.behaviour)
    return float(transfer + disagreement - gained)


# --- Counter-examples -------------------------------------------------------------------------------------


def good_server_poor_data() -> Case:
    """One state, one client. The server takes the best action. Large lambda and beta move it back to poor data."""
    return replace(better_server(), lam=1000.0, beta=1000.0)


def promising_limits() -> Case:
    """The same with small lambda and beta, so both KL terms are large. The limits are met, but the return falls."""
    return replace(better_server(discount=0.01), lam=0.2, beta=0.2)


SAFE, IMPROVING = "thm (safe policy improvement)", "lemma:improving"

STATEMENTS = (
    Statement(
        "eq:lower_bound_fx",
        "f_k >= -(l+h+2 sigma)^2/(8 lam) - (l+h+sigma)^2/(8 beta) - l TV(behaviour, pibar^t)",
        gain_is_bounded_below,
        kind="proof step",
    ),
    Statement(
        "eq:global-gap-step1",
        "J(pibar^{t+1}) - J(pibar^t) >= mean f_k over the empirical MDPs, exact maximisers",
        round_gains_the_mean,
        kind="proof step",
        counter_example=good_server_poor_data,
    ),
    Statement(
        "eq:global-gap-step2",
        "J(pibar^{t+1}) - J(pibar^t) >= -B without its sampling part",
        round_loses_little_in_the_mean,
        kind="proof step",
        counter_example=good_server_poor_data,
    ),
    Statement(
        SAFE,
        "J(M, pibar^{t+1}) >= J(M, pibar^t) - B(lam, beta), exact maximisers",
        round_is_safe,
        counter_example=good_server_poor_data,
    ),
    Statement(
        SAFE,
        "large lam and beta: the round does not reduce J",
        large_parameters_are_safe,
        counter_example=good_server_poor_data,
    ),
    Statement(
        SAFE,
        "large lam and beta: every pi_k, so pibar^{t+1} too, returns to behaviour",
        large_parameters_return_behaviour,
        kind="instead",
    ),
    Statement(
        SAFE,
        "J(M, pibar^{t+1}) >= mean J(M, behaviour_k) - xi - disagreement + gains",
        round_is_safe_against_the_data,
        kind="instead",
    ),
    Statement("remark after " + SAFE, "B falls as lam and beta grow (l, h, sigma, policies fixed)", penalty_falls),
    Statement(
        "remark after " + SAFE,
        "h_k is damped by beta: with beta infinite B is free of h_k",
        only_beta_damps_mismatch,
        counter_example=different_habits,
    ),
    Statement(
        "remark after " + SAFE,
        "l_k is damped by lam: with lam infinite B is free of l_k",
        only_lambda_damps_closeness,
        counter_example=different_habits,
    ),
    Statement(IMPROVING, "the limits give f_k >= eta_k if KL_1, KL_2 stay fixed", limits_give_the_margin),
    Statement(
        IMPROVING,
        "some lam, beta meet the limits (KL terms of those very lam, beta)",
        limits_can_be_met,
        counter_example=different_habits,
        every=4,
    ),
    Statement(
        IMPROVING,
        "limits met: J(pibar^{t+1}) >= J(pibar^t) + eta",
        met_limits_improve_the_server,
        counter_example=promising_limits,
    ),
)
