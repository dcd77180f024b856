"""Checks whether the return in the empirical MDP is close to the true one: "Bounding the Return" and supplement.

The checks assume that the event of the paper's assumption has occurred, with the smallest constants that the data
allows (`Concentration`). A bound that holds with high probability must therefore hold here with certainty.
"""

from dataclasses import replace

import numpy as np

from fova.paper.theory.case import Case, Concentration, client_of, concentration
from fova.paper.theory.conservatism import spread_error
from fova.paper.theory.distances import chi_square
from fova.paper.theory.mdp import MDP, Array, action_values, expectation, expected_return, state_values, visitation
from fova.paper.theory.statement import Sides, Statement
from fova.paper.theory.tabular_fova import Client

# --- The penalty xi ---------------------------------------------------------------------------------------


def sampling_penalty(
    client: Client, law: Array, policy: Array, constants: Concentration, data_size: Array
) -> float:
    """xi(pi): the largest effect of sampling error on a return, averaged over the state distribution `law`.

    `data_size` is |D| or |D(s)|. The paper prints both denominators for the same quantity.
    """
    model = client.model
    spread = np.sqrt((1.0 + chi_square(policy, client.behaviour)) * model.actions / data_size)
    dynamics = 2.0 * model.discount * model.reward_bound * constants.transition * model.horizon**2 * (law @ spread)
    rewards = constants.reward * model.horizon * (law @ expectation(policy, 1.0 / np.sqrt(client.counts)))
    return float(dynamics + rewards)


def per_state_penalty(client: Client, mdp: MDP, model: MDP, policy: Array) -> float:
    """xi with |D(s)|, as the paper prints for xi-bar and xi_b."""
    constants = concentration(mdp, client)
    law, visits = visitation(model, policy), client.counts.sum(1)
    return sampling_penalty(client, law, policy, constants, visits)


def _penalty(case: Case, data_size: Array, constants: Concentration) -> float:
    return sampling_penalty(case.client, visitation(case.model, case.policy), case.policy, constants, data_size)


def _excess(case: Case) -> float:
    return expected_return(case.model, case.policy) - expected_return(case.mdp, case.policy)


# --- Checks of the appendix -------------------------------------------------------------------------------


def return_with_whole_dataset(case: Case) -> Sides:
    size = np.full(case.mdp.states, case.client.counts.sum())
    penalty = _penalty(case, size, case.concentration)
    return Sides(_excess(case), penalty, trivial=2.0 * case.mdp.largest_return)


def return_with_entrywise_constant(case: Case) -> Sides:
    entrywise = replace(case.concentration, transition=case.concentration.transition_entry)
    penalty = _penalty(case, case.client.counts.sum(1), entrywise)
    return Sides(_excess(case), penalty, trivial=2.0 * case.mdp.largest_return)


def return_with_state_counts(case: Case) -> Sides:
    """Both directions: J(M_hat) <= J(M) + xi and J(M_hat) >= J(M) - xi have the same bound."""
    penalty = _penalty(case, case.client.counts.sum(1), case.concentration)
    return Sides(abs(_excess(case)), penalty, trivial=2.0 * case.mdp.largest_return)


def return_of_behaviour(case: Case) -> Sides:
    """xi_b: the penalty of the behaviour policy, in which the term 1 + D_VCQL is one."""
    as_behaviour = replace(case, policies=(case.client.behaviour,))
    return return_with_state_counts(as_behaviour)


def return_of_the_target(case: Case) -> Sides:
    """xi-bar: the penalty of pibar*_k with the weight by action. As printed, pibar*_k is the behaviour policy."""
    return return_with_state_counts(replace(case, policies=(case.by_action_pair[0],)))


def simulation_lemma_as_quoted(case: Case) -> Sides:
    """Eq. JM1M2 at f = 1, with visitation and Q both from the empirical MDP."""
    return _simulation_lemma(case, action_values(case.model, case.policy))


def simulation_lemma(case: Case) -> Sides:
    """The correct form: the visitation of one MDP and the Q of the other."""
    return _simulation_lemma(case, action_values(case.mdp, case.policy))


def _simulation_lemma(case: Case, q: Array) -> Sides:
    mdp, model, policy = case.mdp, case.model, case.policy
    law = visitation(model, policy)
    shift = (mdp.transition - model.transition) @ expectation(policy, q)
    dynamics = mdp.discount * mdp.horizon * abs(law @ expectation(policy, shift))
    rewards = mdp.horizon * (law @ expectation(policy, np.abs(model.reward - mdp.reward)))
    return Sides(abs(_excess(case)), float(dynamics + rewards))


# --- Checks of the supplement -----------------------------------------------------------------------------


def return_for_every_mdp(case: Case) -> Sides:
    """ "For every MDP M": this check takes the MDP with the opposite rewards."""
    other = replace(case.mdp, reward=-case.mdp.reward)
    left = abs(expected_return(other, case.policy) - expected_return(case.model, case.policy))
    return Sides(left, return_with_state_counts(case).right, trivial=2.0 * case.mdp.largest_return)


def return_with_estimated_start(case: Case) -> Sides:
    """The client's empirical MDP has the start distribution of its data. The bound has no term for this."""
    client, mdp = case.client, case.mdp
    left = abs(expected_return(client.model, case.policy) - expected_return(mdp, case.policy))
    right = per_state_penalty(client, mdp, client.model, case.policy)
    return Sides(left, right, trivial=2.0 * mdp.largest_return)


def start_penalty(client: Client, mdp: MDP, policy: Array) -> float:
    """|mu_hat - mu|_1 times half the span of the true values."""
    values = state_values(mdp, policy)
    return float(np.abs(client.model.start - mdp.start).sum() * 0.5 * np.ptp(values))


def transfer_penalty(client: Client, mdp: MDP, policy: Array) -> float:
    """A correct bound on |J(M_hat_k, pi) - J(M, pi)|: xi with state counts plus a start-distribution term."""
    return per_state_penalty(client, mdp, client.model, policy) + start_penalty(client, mdp, policy)


def return_with_start_term(case: Case) -> Sides:
    client, mdp = case.client, case.mdp
    left = abs(expected_return(client.model, case.policy) - expected_return(mdp, case.policy))
    return Sides(left, transfer_penalty(client, mdp, case.policy), trivial=2.0 * mdp.largest_return)


def _gain(mdp: MDP, after: Array, before: Array) -> float:
    return expected_return(mdp, after) - expected_return(mdp, before)


def transfer_as_printed(case: Case) -> Sides:
    client, mdp = case.client, case.mdp
    size = np.full(mdp.states, client.counts.sum())
    penalty = sum(
        sampling_penalty(client, visitation(client.model, policy), policy, case.concentration, size)
        for policy in (case.policy, case.server)
    )
    left = _gain(client.model, case.policy, case.server) - penalty
    return Sides(left, _gain(mdp, case.policy, case.server))


def transfer_corrected(case: Case) -> Sides:
    client, mdp = case.client, case.mdp
    penalty = sum(transfer_penalty(client, mdp, policy) for policy in (case.policy, case.server))
    left = _gain(client.model, case.policy, case.server) - penalty
    return Sides(left, _gain(mdp, case.policy, case.server))


# --- Counter-examples -------------------------------------------------------------------------------------


def hidden_exit() -> Case:
    """Two states, one action. The only visit to the good state missed its exit to the bad state.

    All other data is from the bad state.
    """
    reward = np.array([[1.0], [-1.0]])
    start = np.array([1.0, 0.0])
    mdp = MDP(np.array([[[0.5, 0.5]], [[0.0, 1.0]]]), reward, start, discount=0.5)
    model = MDP(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), reward, start, discount=0.5)
    client = client_of(model, [[1], [9999]])
    only = np.ones((2, 1))
    return Case(mdp, (client,), only, (only,), alpha=1.0, lam=1.0, beta=1.0)


def hidden_exit_against_staying() -> Case:
    """`hidden_exit` with a second action that stays for half the reward. The first action looks too good."""
    transition = np.zeros((2, 2, 2))
    transition[0, 0], transition[0, 1], transition[1, :, 1] = (0.5, 0.5), (1.0, 0.0), 1.0
    reward = np.array([[1.0, 0.5], [-1.0, -1.0]])
    mdp = MDP(transition, reward, np.array([1.0, 0.0]), discount=0.5)
    estimate = transition.copy()
    estimate[0, 0] = (1.0, 0.0)
    model = replace(mdp, transition=estimate)
    client = client_of(model, [[1, 1], [4999, 4999]])
    first, second = np.array([[1.0, 0.0]] * 2), np.array([[0.0, 1.0]] * 2)
    return Case(mdp, (client,), second, (first,), alpha=1.0, lam=1.0, beta=1.0)


def imagined_exit() -> Case:
    """Two states, one action. The true MDP stays in the good state. In the data it leaves half of the time."""
    missed = hidden_exit()
    client = replace(missed.client, model=missed.mdp)
    return replace(missed, mdp=missed.client.model, clients=(client,))


def known_world() -> Case:
    """One state, one action, reward 1. The estimate is exact."""
    mdp = MDP(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones(1), discount=0.5)
    only = np.ones((1, 1))
    return Case(mdp, (client_of(mdp, [[1]]),), only, (only,), alpha=1.0, lam=1.0, beta=1.0)


def unlucky_start() -> Case:
    """Two absorbing states, one good and one bad. Every episode of the data started in the good one."""
    transition = np.eye(2)[:, None, :]
    mdp = MDP(transition, np.array([[1.0], [-1.0]]), np.array([0.5, 0.5]), discount=0.5)
    client = client_of(mdp.starting_at(np.array([1.0, 0.0])), [[1], [1]])
    only = np.ones((2, 1))
    return Case(mdp, (client,), only, (only,), alpha=1.0, lam=1.0, beta=1.0)


MAIN, SUPPLEMENT = "lemma:JMDP-new", "lemma:JMDP-heter"

STATEMENTS = (
    Statement(
        "eq:JM1M2",
        "simulation lemma at f = 1 with d and Q of the same MDP, as quoted",
        simulation_lemma_as_quoted,
        kind="proof step",
        counter_example=imagined_exit,
    ),
    Statement("eq:JM1M2", "the same with d of one MDP and Q of the other", simulation_lemma, kind="instead"),
    Statement(
        MAIN,
        "J(M_hat) <= J(M) + xi with sqrt(D |A|/|D|)",
        return_with_whole_dataset,
        counter_example=hidden_exit,
    ),
    Statement(
        MAIN,
        "the same with |D(s)|, C_T entry by entry as the assumption prints it",
        return_with_entrywise_constant,
        counter_example=spread_error,
    ),
    Statement(
        MAIN, "|J(M_hat) - J(M)| <= xi with |D(s)|, C_T in L1 norm", return_with_state_counts, kind="instead"
    ),
    Statement(
        "xi-bar, xi_b", "J(M_hat, behaviour) >= J(M, behaviour) - xi_b (C_T in L1 norm)", return_of_behaviour
    ),
    Statement(
        "xi-bar, xi_b",
        "J(M_hat, pibar*) >= J(M, pibar*) - xi-bar (C_T in L1 norm), weight by action",
        return_of_the_target,
    ),
    Statement(
        SUPPLEMENT,
        "|J(M) - J(M_hat_k)| <= xi for every MDP M",
        return_for_every_mdp,
        counter_example=known_world,
    ),
    Statement(
        SUPPLEMENT,
        "the same for the true M, M_hat_k with its estimated start",
        return_with_estimated_start,
        counter_example=unlucky_start,
    ),
    Statement(SUPPLEMENT, "the same plus |mu_hat - mu|_1 span(V)/2", return_with_start_term, kind="instead"),
    Statement(
        "cor:transfer",
        "gain in M >= gain in M_hat_k - xi^{t+1} - xi^t",
        transfer_as_printed,
        counter_example=hidden_exit_against_staying,
    ),
    Statement("cor:transfer", "the same with |D(s)| and the start term", transfer_corrected, kind="instead"),
)
