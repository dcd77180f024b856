"""The effect of client heterogeneity on the aggregate: ||H_k||_F, policy advantages, and improvement.

A client's advantage A_n is relative to a base policy. In some places the paper uses the clients' behaviour policies
as the base, in others the server's policy. In some places it averages over the visitation of the new policy, in
others over that of the base. Each check states which one it uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fova.paper.theory.case import Case, always, client_of
from fova.paper.theory.distances import kl, total_variation
from fova.paper.theory.mdp import MDP, Array, advantages, blend, expectation, expected_return, visitation
from fova.paper.theory.statement import Sides, Statement, worst
from fova.paper.theory.tabular_fova import aggregate

Advantage = Callable[[MDP, Array, Array], float]  # (model, base policy, policy)


def heterogeneity(models: Sequence[MDP], bases: Sequence[Array], k: int) -> Array:
    """H_k [S, A] = mean_n (d_n / d_k) A_n - A_k, with each client's d and A under its base policy."""
    laws = [visitation(model, base) for model, base in zip(models, bases, strict=True)]
    weighed = [
        (law / laws[k])[:, None] * advantages(model, base)
        for law, model, base in zip(laws, models, bases, strict=True)
    ]
    return np.mean(weighed, axis=0) - advantages(models[k], bases[k])


def heterogeneity_level(models: Sequence[MDP], bases: Sequence[Array], k: int) -> float:
    """||H_k||_F."""
    return float(np.linalg.norm(heterogeneity(models, bases, k)))


def surrogate_advantage(model: MDP, base: Array, policy: Array) -> float:
    """E_{s ~ d^base, a ~ pi}[A^base]: linear in the policy."""
    return float(visitation(model, base) @ expectation(policy, advantages(model, base)))


def policy_advantage(model: MDP, base: Array, policy: Array) -> float:
    """E_{s ~ d^pi, a ~ pi}[A^base]: the printed definition."""
    return float(visitation(model, policy) @ expectation(policy, advantages(model, base)))


def _models(case: Case) -> list[MDP]:
    return [client.model for client in case.clients]


def _behaviours(case: Case) -> list[Array]:
    return [client.behaviour for client in case.clients]


def _common_base(case: Case) -> list[Array]:
    return [case.server] * len(case.clients)


# --- The level --------------------------------------------------------------------------------------------


def level_of_equal_clients(case: Case) -> Sides:
    client = case.client
    return Sides(heterogeneity_level([client.model] * 3, [client.behaviour] * 3, 0), 0.0)


def level_as_in_the_continuity_proof(case: Case) -> Sides:
    """Compares ||H_k||_F with the proof's formula, which sums squares for each client and takes no root."""
    models, bases = _models(case), _behaviours(case)
    own = advantages(models[0], bases[0])
    law = visitation(models[0], bases[0])
    printed = np.mean(
        [
            (((visitation(m, b) / law)[:, None] * advantages(m, b) - own) ** 2).sum()
            for m, b in zip(models, bases, strict=True)
        ]
    )
    return Sides(abs(float(printed) - heterogeneity_level(models, bases, 0)), 0.0)


def level_of_different_clients(case: Case) -> Sides:
    """||H_k||_F is not zero if another client's dynamics or rewards differ from the first client's."""
    models = _models(case)
    different = any(
        not np.array_equal(models[0].transition, m.transition) or not np.array_equal(models[0].reward, m.reward)
        for m in models
    )
    return Sides(1e-6 * different, heterogeneity_level(models, _common_base(case), 0))


def level_grows(case: Case) -> Sides:
    models = _models(case)
    half, full = (
        heterogeneity_level([blend(models[0], model, share) for model in models], _common_base(case), 0)
        for share in (0.5, 1.0)
    )
    return Sides(half, full)


# --- Policy advantages ------------------------------------------------------------------------------------


def performance_difference(case: Case) -> Sides:
    model, base = case.client.model, case.client.behaviour
    gain = expected_return(model, case.policy) - expected_return(model, base)
    return Sides(abs(gain - model.horizon * policy_advantage(model, base, case.policy)), 0.0)


def linearity_as_printed(case: Case) -> Sides:
    return _linearity(case, policy_advantage)


def linearity_of_the_surrogate(case: Case) -> Sides:
    return _linearity(case, surrogate_advantage)


def _linearity(case: Case, advantage: Advantage) -> Sides:
    model, base = case.client.model, case.client.behaviour
    mixed = advantage(model, base, 0.5 * (case.policy + case.server))
    apart = 0.5 * (advantage(model, base, case.policy) + advantage(model, base, case.server))
    return Sides(abs(mixed - apart), 0.0)


def distance_to_an_average(case: Case) -> Sides:
    apart = np.mean([total_variation(case.server, policy) for policy in case.policies], axis=0)
    return worst(total_variation(case.server, aggregate(case.policies)), apart)


def advantage_bound_as_printed(case: Case) -> Sides:
    return _advantage_bound(case, _common_base(case), policy_advantage)


def advantage_bound_with_own_behaviours(case: Case) -> Sides:
    return _advantage_bound(case, _behaviours(case), surrogate_advantage)


def advantage_bound_with_common_base(case: Case) -> Sides:
    return _advantage_bound(case, _common_base(case), surrogate_advantage)


def _advantage_bound(case: Case, bases: list[Array], advantage: Advantage) -> Sides:
    """A_k(pi) - 2 ||H_k||_F/(1-gamma) E_{d_k} TV(pi, base_k) <= mean_n A_n(pi)."""
    models = _models(case)
    shift = float(visitation(models[0], bases[0]) @ total_variation(case.policy, bases[0]))
    penalty = 2.0 * models[0].horizon * heterogeneity_level(models, bases, 0) * shift
    average = np.mean([advantage(m, b, case.policy) for m, b in zip(models, bases, strict=True)])
    return Sides(advantage(models[0], bases[0], case.policy) - penalty, float(average))


def fedkl_step_as_printed(case: Case) -> Sides:
    """The first line of the printed proof, which subtracts the bound from A_k."""
    models, bases = _models(case), _common_base(case)
    own = surrogate_advantage(models[0], bases[0], case.policy)
    return Sides(_advantage_gap(case), own - _cauchy_schwarz(case) * models[0].horizon)


def fedkl_step(case: Case) -> Sides:
    return Sides(_advantage_gap(case), _cauchy_schwarz(case))


def _advantage_gap(case: Case) -> float:
    models = _models(case)
    all_clients = [surrogate_advantage(model, case.server, case.policy) for model in models]
    return abs(float(np.mean(all_clients)) - all_clients[0])


def _cauchy_schwarz(case: Case) -> float:
    """||H_k||_F sqrt(sum_{s,a} (d_k(s) (pi - base))^2)."""
    models = _models(case)
    moved = visitation(models[0], case.server)[:, None] * (case.policy - case.server)
    return heterogeneity_level(models, _common_base(case), 0) * float(np.linalg.norm(moved))


def pinsker_step(case: Case) -> Sides:
    """2 E TV <= sqrt(2 E KL), the step from the lemma's first line to its second."""
    law = visitation(case.client.model, case.client.behaviour)
    behaviour = case.client.behaviour
    left = 2.0 * float(law @ total_variation(case.policy, behaviour))
    return Sides(left, float(np.sqrt(2.0 * (law @ kl(case.policy, behaviour)))))


# --- Improvement of the aggregate -------------------------------------------------------------------------


def average_return(models: Sequence[MDP], policy: Array) -> float:
    """J(pi) = mean_k J_k(pi)."""
    return float(np.mean([expected_return(model, policy) for model in models]))


def aggregation_coefficients(models: Sequence[MDP], bases: Sequence[Array]) -> tuple[Array, Array]:
    """(l_k, h_k) [K]: 2 gamma max|A_k|/(1-gamma)^2 and 2 ||H_k||_F/(1-gamma)^2."""
    horizon, discount = models[0].horizon, models[0].discount
    sizes = [np.abs(advantages(m, b)).max() for m, b in zip(models, bases, strict=True)]
    levels = [heterogeneity_level(models, bases, k) for k in range(len(models))]
    return 2.0 * discount * np.array(sizes) * horizon**2, 2.0 * np.array(levels) * horizon**2


def _aggregate_gain(case: Case) -> float:
    models = _models(case)
    return average_return(models, aggregate(case.policies)) - average_return(models, case.server)


def aggregate_with_behaviour_base(case: Case) -> Sides:
    """The lemma with advantages over behaviour, as the next theorem uses it."""
    return _aggregate_lemma(case, _behaviours(case))


def aggregate_with_server_base(case: Case) -> Sides:
    """The lemma with all advantages over the server's policy, as at the start of its proof."""
    return _aggregate_lemma(case, _common_base(case))


def _aggregate_lemma(case: Case, bases: list[Array]) -> Sides:
    models = _models(case)
    closeness, mismatch = aggregation_coefficients(models, bases)
    bound = 0.0
    for k, (model, base, policy) in enumerate(zip(models, bases, case.policies, strict=True)):
        law = visitation(model, base)
        bound += model.horizon * surrogate_advantage(model, base, policy)
        bound -= closeness[k] * float(law @ total_variation(policy, case.server))
        bound -= mismatch[k] * float(law @ total_variation(policy, base))
    return Sides(bound / len(models), _aggregate_gain(case))


def aggregate_with_all_pairs(case: Case) -> Sides:
    """Every client's return depends on every other client's policy, so the sum over all pairs is kept."""
    models, bases = _models(case), _common_base(case)
    closeness, mismatch = aggregation_coefficients(models, bases)
    laws = [visitation(model, case.server) for model in models]
    bound = 0.0
    for k, (model, policy) in enumerate(zip(models, case.policies, strict=True)):
        shift = total_variation(policy, case.server)
        bound += model.horizon * surrogate_advantage(model, case.server, policy)
        bound -= float(np.mean([closeness[n] * (law @ shift) for n, law in enumerate(laws)]))
        bound -= mismatch[k] * float(laws[k] @ shift)
    return Sides(bound / len(models), _aggregate_gain(case))


# --- Counter-examples -------------------------------------------------------------------------------------


def _bandit(discount: float) -> MDP:
    return MDP(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), np.ones(1), discount)


def different_habits() -> Case:
    """One state, two clients that differ only in behaviour. The first client keeps its behaviour policy."""
    mdp = _bandit(discount=0.5)
    poor, good = client_of(mdp, [[1, 3]]), client_of(mdp, [[3, 1]])
    policies = (poor.behaviour, good.behaviour)
    return Case(mdp, (poor, good), aggregate(policies), policies, alpha=1.0, lam=1.0, beta=1.0)


def mirror_worlds() -> Case:
    """Two states, two clients. The second MDP has the opposite rewards, and its two actions are exchanged.

    Each action has the same advantage in both MDPs, so H = 0 although the MDPs differ everywhere. Half way between
    them the rewards cancel and all actions are equal, but H is not zero.
    """
    transition = np.zeros((2, 2, 2))
    transition[:, 0, 1] = transition[:, 1, 0] = 1.0
    first = MDP(transition, np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([0.5, 0.5]), discount=0.5)
    second = replace(first, transition=transition[:, ::-1], reward=-first.reward)
    even = [[1, 1]] * 2
    clients = (client_of(first, even), client_of(second, even))
    base = clients[0].behaviour
    return Case(first, clients, base, (base, base), alpha=1.0, lam=1.0, beta=1.0)


def swapped_paths() -> Case:
    """Three states, two clients. The two actions of state 0 lead to opposite states for the two clients.

    Under the uniform base policy both clients have the same visitation and the same advantages, so H = 0. The new
    policy is good in state 1 and bad in state 2. For the first client it goes to state 1, for the second to state
    2.
    """
    reward = np.array([[0.0, 0.0], [1.0, -1.0], [1.0, -1.0]])
    start = np.array([1.0, 0.0, 0.0])
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[0, 1, 2] = transition[1:, :, 0] = 1.0
    first = MDP(transition, reward, start, discount=0.5)
    other = transition.copy()
    other[0] = transition[0, ::-1]
    second = replace(first, transition=other)
    even = [[1, 1]] * 3
    policy = always(0, 0, 1)
    clients = (client_of(first, even), client_of(second, even))
    base = clients[0].behaviour
    return Case(first, clients, base, (policy, policy), alpha=1.0, lam=1.0, beta=1.0)


def better_server(discount: float = 0.1) -> Case:
    """One state, one client. The server takes the best action. The client improves on poor data but stays worse."""
    mdp = _bandit(discount)
    client = client_of(mdp, [[1, 99]])
    even = np.full((1, 2), 0.5)
    return Case(mdp, (client,), always(0), (even,), alpha=1e-6, lam=1.0, beta=1.0)


def borrowed_detour() -> Case:
    """Three states, two clients. The second client has no rewards, and its policy harms the first client.

    State 0 leads to rest (state 2) or to a trap (state 1). The server's policy nearly always avoids the trap, and
    it takes the safe action there. The second client's policy goes to the trap and takes the bad action. To first
    order each change alone is harmless, but both together are not. The second client starts at rest, so both
    changes have almost no effect in its own MDP.
    """
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 2] = transition[0, 1, 1] = transition[1, :, 2] = transition[2, :, 2] = 1.0
    reward = np.zeros((3, 2))
    reward[1, 1] = -1.0
    first = MDP(transition, reward, np.array([0.998, 0.001, 0.001]), discount=0.5)
    second = replace(first, reward=np.zeros((3, 2)), start=np.array([0.001, 0.001, 0.998]))
    careful = np.array([[0.999, 0.001], [0.999, 0.001], [1.0, 0.0]])
    even = [[1, 1]] * 3
    clients = (client_of(first, even), client_of(second, even))
    return Case(first, clients, careful, (careful, always(1, 1, 0)), alpha=1.0, lam=1.0, beta=1.0)


ADVANTAGE, AGGREGATE = "lemma:advantage-bound", "lemma (averaged local advantages)"

STATEMENTS = (
    Statement("def:heterogeneity_measure", "identical clients: ||H_k||_F = 0", level_of_equal_clients),
    Statement(
        "def:heterogeneity_measure",
        "clients with different MDPs: ||H_k||_F > 0",
        level_of_different_clients,
        kind="reading",
        counter_example=mirror_worlds,
    ),
    Statement(
        "def:heterogeneity_measure",
        "||H_k||_F grows with how different the MDPs are (half way against all the way)",
        level_grows,
        kind="reading",
        counter_example=mirror_worlds,
    ),
    Statement(
        "lemma:continuity_properties (5)",
        "the proof's formula equals ||H_k||_F",
        level_as_in_the_continuity_proof,
        kind="proof step",
        counter_example=different_habits,
    ),
    Statement("eq:J-A", "J_k(pi) - J_k(behaviour) = A_k(pi)/(1-gamma), d of pi", performance_difference),
    Statement(
        "eq:linearity-a",
        "A_k is linear in the policy, d of pi as printed",
        linearity_as_printed,
        kind="proof step",
        counter_example=swapped_paths,
    ),
    Statement("eq:linearity-a", "A_k is linear with d of the base", linearity_of_the_surrogate, kind="instead"),
    Statement("eq:TV-bound", "TV(pi, mean pi_k) <= mean TV(pi, pi_k)", distance_to_an_average),
    Statement(
        ADVANTAGE,
        "|mean_n A_n - A_k| <= A_k - ||H_k|| sqrt(sum (d (pi - base)/(1-gamma))^2)",
        fedkl_step_as_printed,
        kind="proof step",
        counter_example=different_habits,
    ),
    Statement(ADVANTAGE, "|mean_n A_n - A_k| <= ||H_k|| sqrt(sum (d (pi - base))^2)", fedkl_step, kind="instead"),
    Statement(
        ADVANTAGE,
        "mean_n A_n(pi) >= A_k(pi) - 2||H_k||/(1-gamma) TV, d of pi as defined",
        advantage_bound_as_printed,
        counter_example=swapped_paths,
    ),
    Statement(
        ADVANTAGE,
        "the same, d of the base, each client over its own behaviour",
        advantage_bound_with_own_behaviours,
        counter_example=different_habits,
    ),
    Statement(
        ADVANTAGE, "the same, one base policy and its d for all", advantage_bound_with_common_base, kind="instead"
    ),
    Statement(ADVANTAGE, "second line: 2 E TV <= sqrt(2 E KL)", pinsker_step),
    Statement(
        AGGREGATE,
        "J(pibar^{t+1}) - J(pibar^t) >= mean{A_k/(1-gamma) - l_k TV - h_k TV}, A_k over behaviour",
        aggregate_with_behaviour_base,
        counter_example=better_server,
    ),
    Statement(
        AGGREGATE,
        "the same, A_k over pibar^t throughout",
        aggregate_with_server_base,
        counter_example=borrowed_detour,
    ),
    Statement(
        AGGREGATE,
        "the same, with mean_n l_n TV_n(pi_k, pibar^t) in place of l_k TV",
        aggregate_with_all_pairs,
        kind="instead",
    ),
)
