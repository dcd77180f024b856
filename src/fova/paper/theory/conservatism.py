"""Checks whether conservative evaluation underestimates: the paper's "Theoretical Analysis on Conservatism".

Notation of the checks: `vote` is a policy v, D(s) = sum_a v (v / behaviour - 1), and V_hat solves
V_hat = r^v + gamma P^v V_hat - alpha D. "Held fixed" means that v is the same policy in all steps, as in the
printed proof. Algorithm 1 takes a new vote at every step.
"""

import numpy as np

from fova.paper.theory.case import SWEEPS, Case, always, client_of
from fova.paper.theory.distances import chi_square, total_variation
from fova.paper.theory.mdp import (
    MDP,
    Array,
    action_values,
    backup,
    expectation,
    optimal_policy,
    resolvent,
    state_values,
)
from fova.paper.theory.statement import Sides, Statement, worst
from fova.paper.theory.tabular_fova import relaxed_vote, vcql_action_values, vcql_step, vcql_values, vote

# --- Without sampling error -------------------------------------------------------------------------------


def divergence_is_positive(case: Case) -> Sides:
    """D >= (sum |v - behaviour|)^2 = 4 TV^2 by Cauchy-Schwarz. This quantifies "zero only if equal"."""
    distance = total_variation(case.policy, case.client.behaviour)
    return worst(4.0 * distance**2, chi_square(case.policy, case.client.behaviour))


def fixed_vote_closed_form(case: Case) -> Sides:
    q = np.zeros_like(case.policy)
    for _ in range(SWEEPS):
        q = vcql_step(case.mdp, q, case.policy, case.client.behaviour, case.alpha)
    lost = resolvent(case.mdp, case.policy) @ chi_square(case.policy, case.client.behaviour)
    closed_form = state_values(case.mdp, case.policy) - case.alpha * lost
    return Sides(float(np.abs(expectation(case.policy, q) - closed_form).max()), 0.0)


def fixed_vote_underestimates(case: Case) -> Sides:
    conservative = vcql_values(case.mdp, case.policy, case.client.behaviour, case.alpha)
    return worst(conservative, state_values(case.mdp, case.policy))


def moving_vote_settles(case: Case) -> Sides:
    q = case.moving_q
    after = vcql_step(case.mdp, q, vote(q, case.candidates), case.client.behaviour, case.alpha)
    return Sides(float(np.abs(after - q).max()), 0.0)


def moving_vote_underestimates(case: Case) -> Sides:
    q = case.moving_q
    voted = vote(q, case.candidates)
    return worst(expectation(voted, q), state_values(case.mdp, voted))


def moving_vote_is_bounded(case: Case) -> Sides:
    """voted value <= best switching value + alpha/(1-gamma): a step adds at most alpha to an action value."""
    q = case.moving_q
    switching = _switching_mdp(case.mdp, case.candidates)
    best = state_values(switching, optimal_policy(switching))
    return worst(expectation(vote(q, case.candidates), q), best + case.alpha * case.mdp.horizon)


def _switching_mdp(mdp: MDP, candidates: tuple[Array, ...]) -> MDP:
    """The MDP whose action in a state is the candidate policy to follow there."""
    stacked = np.stack(candidates)
    return MDP(
        transition=np.einsum("csa,sat->sct", stacked, mdp.transition),
        reward=np.einsum("csa,sa->sc", stacked, mdp.reward),
        start=mdp.start,
        discount=mdp.discount,
        reward_bound=mdp.reward_bound,
    )


def mixed_vote_agrees_with_itself(case: Case) -> Sides:
    """No candidate has a larger expected Q_hat than the mixture that Q_hat evaluates."""
    scores = np.einsum("csa,sa->cs", np.stack(case.candidates), case.q)
    return worst(scores, case.values[None])


def mixed_vote_is_sandwiched(case: Case) -> Sides:
    """V^behaviour <= V_hat <= V^vote, because behaviour is a candidate and the mean of its own penalty is zero."""
    behaviour = case.client.behaviour
    voted = relaxed_vote(case.mdp, case.candidates, behaviour, case.alpha)
    conservative = vcql_values(case.mdp, voted, behaviour, case.alpha)
    below = worst(state_values(case.mdp, behaviour), conservative)
    above = worst(conservative, state_values(case.mdp, voted))
    return min(below, above, key=lambda side: side.margin)


# --- The remark -------------------------------------------------------------------------------------------


def _exact_q(case: Case) -> tuple[Array, Array]:
    """A self-consistent vote in the true MDP and its Q_hat."""
    behaviour = case.client.behaviour
    voted = relaxed_vote(case.mdp, case.candidates, behaviour, case.alpha)
    return voted, vcql_action_values(case.mdp, voted, behaviour, case.alpha)


def q_underestimates_everywhere(case: Case) -> Sides:
    voted, q = _exact_q(case)
    return worst(q, action_values(case.mdp, voted))


def every_candidate_is_underestimated(case: Case) -> Sides:
    _, q = _exact_q(case)
    true_values = [state_values(case.mdp, candidate) for candidate in case.candidates]
    return worst([expectation(candidate, q) for candidate in case.candidates], true_values)


def every_candidate_is_below_the_vote(case: Case) -> Sides:
    voted, q = _exact_q(case)
    return worst([expectation(c, q) for c in case.candidates], state_values(case.mdp, voted)[None])


def _overestimation_rate(mdp: MDP, followed: Array, penalised: Array, behaviour: Array) -> float:
    """The largest slope of V_hat - V in alpha over all states, if one policy is followed and another penalised."""
    slope = -resolvent(mdp, followed) @ expectation(followed, penalised / behaviour - 1.0)
    return float(slope.max())


def vote_only_in_the_target(case: Case) -> Sides:
    return Sides(1e-9, _overestimation_rate(case.mdp, case.server, case.policy, case.client.behaviour))


def vote_only_in_the_penalty(case: Case) -> Sides:
    return Sides(1e-9, _overestimation_rate(case.mdp, case.policy, case.server, case.client.behaviour))


# --- With sampling error ----------------------------------------------------------------------------------


def q_is_bounded_by_the_largest_return(case: Case) -> Sides:
    q = case.moving_q_of_model
    return Sides(float(q.max()), case.model.largest_return)


def _bellman_gap(case: Case, values: Array) -> Array:
    return np.abs(backup(case.model, values) - backup(case.mdp, values))


def _gap_bound(case: Case, transition_constant: float) -> Array:
    """The right side of eq. assu."""
    dynamics = 2.0 * case.mdp.discount * case.mdp.largest_return * transition_constant
    return (case.concentration.reward + dynamics) / np.sqrt(case.client.counts)


def bellman_gap_of_the_moving_vote(case: Case) -> Sides:
    q = case.moving_q_of_model
    voted_values = expectation(vote(q, case.candidates), q)
    return worst(_bellman_gap(case, voted_values), _gap_bound(case, case.concentration.transition))


def bellman_gap_entrywise(case: Case) -> Sides:
    values = state_values(case.model, case.policy)
    return worst(_bellman_gap(case, values), _gap_bound(case, case.concentration.transition_entry))


def bellman_gap_in_l1(case: Case) -> Sides:
    return worst(_bellman_gap(case, case.values), _gap_bound(case, case.concentration.transition))


def underestimates_with_sampling_error(case: Case) -> Sides:
    """The bound exactly as printed: the true resolvent, and the square root of the size of the whole dataset."""
    conservative = vcql_values(case.model, case.policy, case.client.behaviour, case.alpha)
    error = _gap_bound(case, case.concentration.transition) * np.sqrt(case.client.counts)
    error = error.max() / np.sqrt(case.client.counts.sum())
    lost = case.alpha * chi_square(case.policy, case.client.behaviour)
    bound = state_values(case.mdp, case.policy) + resolvent(case.mdp, case.policy) @ (error - lost)
    return worst(conservative, bound)


def alpha_limit_as_printed(case: Case) -> float:
    """The larger of the lemma's limit and eq. alpha: worst visit count times worst 1/D, over separate states."""
    visits = case.client.counts.sum(1)
    constant = (_gap_bound(case, case.concentration.transition) * np.sqrt(case.client.counts)).max()
    smallest = chi_square(case.policy, case.client.behaviour).min()
    return float(constant / np.sqrt(visits.min()) / smallest) if smallest > 0 else np.inf


def printed_alpha_limit_suffices(case: Case) -> Sides:
    return _overestimation_at(case, alpha_limit_as_printed(case))


def alpha_limit(case: Case) -> float:
    """max_s E_v[error(s,a)] / D(s) with error = (C_r + gamma r_max C_T/(1-gamma)) / sqrt(N(s,a))."""
    distance = chi_square(case.policy, case.client.behaviour)
    return float((_expected_error(case) / distance).max()) if distance.min() > 0 else np.inf


def corrected_alpha_limit_suffices(case: Case) -> Sides:
    return _overestimation_at(case, alpha_limit(case))


def _overestimation_at(case: Case, alpha: float) -> Sides:
    if np.isinf(alpha):
        return Sides(0.0, 0.0, trivial=0.0)  # no alpha is large enough, so nothing is claimed
    conservative = vcql_values(case.model, case.policy, case.client.behaviour, alpha)
    return worst(conservative, state_values(case.mdp, case.policy))


def _expected_error(case: Case) -> Array:
    """The mean error bound of the data for the voted action in one step [S]."""
    constants = case.concentration
    constant = constants.reward + case.mdp.discount * case.mdp.largest_return * constants.transition
    return expectation(case.policy, constant / np.sqrt(case.client.counts))


def underestimates_with_the_empirical_resolvent(case: Case) -> Sides:
    conservative = vcql_values(case.model, case.policy, case.client.behaviour, case.alpha)
    lost = case.alpha * chi_square(case.policy, case.client.behaviour)
    bound = state_values(case.mdp, case.policy)
    bound = bound + resolvent(case.model, case.policy) @ (_expected_error(case) - lost)
    return worst(conservative, bound)


def alpha_limit_is_finite(case: Case) -> Sides:
    """The vote may equal behaviour in a state. Then D = 0 there and 1/D is infinite."""
    return Sides(1e-6, float(chi_square(case.voted, case.client.behaviour).min()))


# --- Counter-examples -------------------------------------------------------------------------------------


def _bandit(rewards: tuple[float, float], discount: float) -> MDP:
    return MDP(np.ones((1, 2, 1)), np.array([rewards]), np.ones(1), discount)


def flip_flop(reward: float = 0.0) -> Case:
    """One state, two equal actions. The vote penalises its last choice, so it chooses the other action next."""
    mdp = _bandit((reward, reward), discount=0.5)
    return Case(mdp, (client_of(mdp, [[1, 1]]),), always(1), (always(0),), alpha=1.0, lam=1.0, beta=1.0)


def flip_flop_of_the_largest_reward() -> Case:
    return flip_flop(reward=1.0)


def raised_runner_up() -> Case:
    """One state. The vote always takes the better action, and the other action gains alpha."""
    mdp = _bandit((1.0, 0.0), discount=0.25)
    return Case(mdp, (client_of(mdp, [[1, 1]]),), always(0), (always(0),), alpha=0.25, lam=1.0, beta=1.0)


def vote_for_behaviour() -> Case:
    """One state. The better action was taken in 99 of 100 transitions of the data."""
    mdp = _bandit((1.0, 0.0), discount=0.5)
    return Case(mdp, (client_of(mdp, [[99, 1]]),), always(1), (always(1),), alpha=1.0, lam=1.0, beta=1.0)


def flip_flop_beside_a_rest() -> Case:
    """Two states: a flip-flop of value alpha/(1-gamma) and a state of value 0. One pair's estimate is wrong."""
    transition = np.zeros((2, 2, 2))
    transition[0, :, 0] = transition[1, :, 1] = 1.0
    mdp = MDP(transition, np.zeros((2, 2)), np.array([0.5, 0.5]), discount=0.5)
    mistaken = transition.copy()
    mistaken[1, 1] = (0.5, 0.5)
    model = MDP(mistaken, np.zeros((2, 2)), mdp.start, discount=0.5)
    server, policy = always(1, 0), always(0, 0)
    return Case(mdp, (client_of(model, [[2, 2], [2, 2]]),), server, (policy,), alpha=10.0, lam=1.0, beta=1.0)


def spread_error() -> Case:
    """Four states, one action. The transition error is spread over all entries, so each single entry is small."""
    transition = np.zeros((4, 1, 4))
    transition[0, 0] = 0.25
    transition[range(1, 4), 0, range(1, 4)] = 1.0
    reward = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    mdp = MDP(transition, reward, np.eye(4)[0], discount=0.5)
    estimate = transition.copy()
    estimate[0, 0] = (3 / 8, 3 / 8, 1 / 8, 1 / 8)
    model = MDP(estimate, reward, mdp.start, discount=0.5)
    client = client_of(model, [[8], [10**8], [10**8], [10**8]])
    only = np.ones((4, 1))
    return Case(mdp, (client,), only, (only,), alpha=1.0, lam=1.0, beta=1.0)


def lucky_rare_action() -> Case:
    """One state. The vote takes an action that was tried once in 100 transitions. It gave 1, but its mean is 0."""
    mdp, model = _bandit((0.0, 0.0), discount=0.5), _bandit((1.0, 0.0), discount=0.5)
    return Case(mdp, (client_of(model, [[1, 99]]),), always(0), (always(0),), alpha=0.001, lam=1.0, beta=1.0)


LEMMA = "thm:vcql_underestimates"

STATEMENTS = (
    Statement("eq:DVCQL", "D_VCQL >= 0, zero only if vote = behaviour (D >= 4 TV^2)", divergence_is_positive),
    Statement("eq:V-wo-samplingerror", "vote held fixed: V_hat = V - alpha Gamma^-1 D", fixed_vote_closed_form),
    Statement(LEMMA, "no sampling error, vote held fixed: V_hat <= V, any alpha > 0", fixed_vote_underestimates),
    Statement(
        LEMMA,
        "Q_hat = lim Q_hat^tau exists when the vote is taken at every step",
        moving_vote_settles,
        counter_example=flip_flop,
    ),
    Statement(
        LEMMA,
        "no sampling error, vote taken at every step: voted value <= V^vote",
        moving_vote_underestimates,
        counter_example=flip_flop,
    ),
    Statement(
        LEMMA,
        "vote taken at every step: voted value <= best switching value + alpha/(1-gamma)",
        moving_vote_is_bounded,
        kind="instead",
    ),
    Statement(
        LEMMA, "a mixed vote exists that its own Q_hat confirms", mixed_vote_agrees_with_itself, kind="instead"
    ),
    Statement(
        LEMMA,
        "for that vote V^behaviour <= V_hat <= V^vote, any alpha",
        mixed_vote_is_sandwiched,
        kind="instead",
    ),
    Statement(
        "remark after " + LEMMA,
        "Q_hat is a lower bound of the true Q-function",
        q_underestimates_everywhere,
        counter_example=raised_runner_up,
    ),
    Statement(
        "remark after " + LEMMA,
        "no learned policy is overestimated: E_pi Q_hat <= V^pi",
        every_candidate_is_underestimated,
        counter_example=vote_for_behaviour,
    ),
    Statement(
        "remark after " + LEMMA,
        "every candidate's E_pi Q_hat <= V^vote",
        every_candidate_is_below_the_vote,
        kind="instead",
    ),
    Statement(
        "remark after " + LEMMA,
        "vote in the target only: overestimates without limit as alpha grows",
        vote_only_in_the_target,
        about="some world",
    ),
    Statement(
        "remark after " + LEMMA,
        "vote in the penalty only: overestimates without limit as alpha grows",
        vote_only_in_the_penalty,
        about="some world",
    ),
    Statement(
        "eq:assu (a)",
        "Q_hat^tau <= r_max/(1-gamma)",
        q_is_bounded_by_the_largest_return,
        kind="proof step",
        counter_example=flip_flop_of_the_largest_reward,
    ),
    Statement(
        "eq:assu",
        "Bellman gap <= (C_r + 2 gamma r_max C_T/(1-gamma))/sqrt(N) for the iterates",
        bellman_gap_of_the_moving_vote,
        counter_example=flip_flop_beside_a_rest,
    ),
    Statement(
        "eq:assu",
        "the same with C_T entry by entry, as the assumption prints it",
        bellman_gap_entrywise,
        counter_example=spread_error,
    ),
    Statement("eq:assu", "the same with C_T in L1 norm, self-confirming vote", bellman_gap_in_l1, kind="instead"),
    Statement(
        LEMMA,
        "sampling error: V_hat <= V - alpha Gamma^-1 D + Gamma^-1 C/sqrt|D|",
        underestimates_with_sampling_error,
        counter_example=lucky_rare_action,
    ),
    Statement(
        LEMMA,
        "the same with Gamma of the empirical MDP and E_v[C/sqrt N(s,a)]",
        underestimates_with_the_empirical_resolvent,
        kind="instead",
    ),
    Statement(
        "eq:alpha",
        "alpha above C max_s 1/sqrt|D(s)| max_s 1/D gives V_hat <= V",
        printed_alpha_limit_suffices,
        counter_example=lucky_rare_action,
    ),
    Statement(
        "eq:alpha",
        "alpha above max_s E_v[C/sqrt N(s,a)]/D(s) gives V_hat <= V",
        corrected_alpha_limit_suffices,
        kind="instead",
    ),
    Statement(
        "eq:alpha",
        "the limit is finite: D > 0 in every state of the data",
        alpha_limit_is_finite,
        kind="reading",
        counter_example=vote_for_behaviour,
    ),
)
