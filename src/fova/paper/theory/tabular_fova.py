"""FOVA on a finite MDP in closed form: vote, conservative evaluation, AWR projection, aggregation, rounds.

Each function is one equation of the paper, named by its label, without networks, sampling or gradients. If a client
has no data in a state, its loss has no term for that state, and the state keeps the server's values.

Shapes: policies and action values are [S, A]; candidates of the vote are [C, S, A].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fova.paper.theory.dataset import Dataset, empirical_behaviour, empirical_mdp
from fova.paper.theory.distances import chi_square
from fova.paper.theory.mdp import MDP, Array, backup, expectation, resolvent


@dataclass(frozen=True)
class Client:
    """One client: its empirical MDP, its behaviour policy and its count of each state-action pair."""

    model: MDP
    behaviour: Array  # [S, A]
    counts: NDArray[np.int64]  # [S, A]

    @classmethod
    def from_dataset(
        cls, dataset: Dataset, discount: float, reward_bound: float = 1.0, pseudo_count: float = 0.0
    ) -> "Client":
        """The client of a dataset. With `pseudo_count` > 0, vote / behaviour is finite for actions without data."""
        behaviour = empirical_behaviour(dataset.pairs, pseudo_count)
        return cls(empirical_mdp(dataset, discount, reward_bound), behaviour, dataset.pairs)

    @property
    def state_law(self) -> Array:
        """d_k(s) [S]: the share of the data in state s, which is the distribution of E_{s ~ D_k}."""
        return self.counts.sum(1) / self.counts.sum()

    @property
    def coverage(self) -> float:
        """The delta of the improvement theorems: the smallest share of the data over all pairs."""
        return float(self.counts.min() / self.counts.sum())


# --- The vote ---------------------------------------------------------------------------------------------


def vote(q: Array, candidates: Sequence[Array]) -> Array:
    """Eq. vote_policy: in every state the candidate with the largest expected Q, or the first of equal ones."""
    stacked = np.stack(candidates)
    best = np.einsum("csa,sa->cs", stacked, q).argmax(0)
    return stacked[best, np.arange(q.shape[0])]


def vote_by_sample(q: Array, candidates: Sequence[Array]) -> Array:
    """The vote as the algorithm implements it: draw one action per candidate and keep the one with the largest Q.

    The distribution of the best draw is exact. It follows from the product of the candidates' cumulative
    distributions over the actions in order of Q.
    """
    order = np.argsort(q, axis=1, kind="stable")
    ranked = np.stack([np.take_along_axis(candidate, order, 1) for candidate in candidates])
    at_most = np.cumsum(ranked, axis=2).prod(0)
    voted = np.empty_like(q)
    np.put_along_axis(voted, order, np.diff(at_most, axis=1, prepend=0.0), axis=1)
    return voted


# --- Conservative evaluation ------------------------------------------------------------------------------


def vcql_step(model: MDP, q: Array, voted: Array, behaviour: Array, alpha: float) -> Array:
    """Eq. derivative: the minimiser of the VCQL loss with the target from `q`."""
    return backup(model, expectation(voted, q)) - alpha * (voted / behaviour - 1.0)


def vcql_values(model: MDP, voted: Array, behaviour: Array, alpha: float) -> Array:
    """V_hat [S] for a fixed vote: the fixed point of eq. value_recursion."""
    reward = expectation(voted, model.reward) - alpha * chi_square(voted, behaviour)
    return resolvent(model, voted) @ reward


def vcql_action_values(model: MDP, voted: Array, behaviour: Array, alpha: float) -> Array:
    """Q_hat [S, A] for a fixed vote."""
    return backup(model, vcql_values(model, voted, behaviour, alpha)) - alpha * (voted / behaviour - 1.0)


def vcql_with_moving_vote(
    model: MDP, candidates: Sequence[Array], behaviour: Array, alpha: float, sweeps: int
) -> Array:
    """Q after `sweeps` closed-form steps from zero, with a new vote before each step: the printed algorithm."""
    q = np.zeros_like(behaviour)
    for _ in range(sweeps):
        q = vcql_step(model, q, vote(q, candidates), behaviour, alpha)
    return q


def relaxed_vote(model: MDP, candidates: Sequence[Array], behaviour: Array, alpha: float) -> Array:
    """A mixture of the candidates that its own Q_hat votes for: the fixed point of small steps.

    If the hard vote alternates between candidates, small steps converge to a mixture of them. In each state that
    mixture maximises <v, r + gamma P V> - alpha/2 sum_a v^2 / behaviour, because the penalty alpha v / behaviour is
    the derivative of the second term. The mixture depends continuously on V, so a fixed point V exists (Brouwer).
    Full evaluation finds it in a few sweeps, but it can cycle. Therefore half steps follow. Their convergence is
    not proved, so callers check the vote against its own values.
    """
    best_mixture = _MixtureSolver(np.stack(candidates), behaviour, alpha)
    values = np.zeros(model.states)
    for sweep in range(5000):
        targets = backup(model, values)
        voted = best_mixture(targets)
        if sweep < 30:
            change = vcql_values(model, voted, behaviour, alpha) - values
        else:
            change = 0.5 * (expectation(voted, targets) - alpha * chi_square(voted, behaviour) - values)
        values = values + change
        if np.abs(change).max() < 1e-12 * (1.0 + np.abs(values).max()):
            break
    return voted


class _MixtureSolver:
    """Maximise <w, g> - alpha/2 w M w over mixtures w of the candidates, by trying every face of the simplex."""

    def __init__(self, candidates: Array, behaviour: Array, alpha: float) -> None:
        self.candidates = candidates
        self.quadratic = alpha * np.einsum("csa,dsa,sa->scd", candidates, candidates, 1.0 / behaviour)
        number = len(candidates)
        self.faces: list[tuple[list[int], Array]] = []
        for size in range(1, number + 1):
            for chosen in combinations(range(number), size):
                face = list(chosen)
                system = np.zeros((behaviour.shape[0], size + 1, size + 1))
                system[:, :size, :size] = self.quadratic[:, face][:, :, face]
                system[:, :size, size] = system[:, size, :size] = 1.0
                self.faces.append((face, np.asarray(np.linalg.pinv(system), np.float64)))

    def __call__(self, targets: Array) -> Array:
        """The best mixture [S, A] for the targets [S, A]."""
        gains = np.einsum("csa,sa->sc", self.candidates, targets)
        states = np.arange(len(gains))
        tried, scores = [], []
        for face, inverse in self.faces:
            right = np.concatenate([gains[:, face], np.ones((len(gains), 1))], axis=1)
            weights = np.zeros_like(gains)
            weights[:, face] = np.einsum("sij,sj->si", inverse, right)[:, : len(face)]
            feasible = (weights >= -1e-12).all(1) & (np.abs(weights.sum(1) - 1.0) < 1e-9)
            weights = np.maximum(weights, 0.0)
            quadratic = np.einsum("sc,scd,sd->s", weights, self.quadratic, weights)
            tried.append(weights)
            scores.append(np.where(feasible, (weights * gains).sum(1) - 0.5 * quadratic, -np.inf))
        best = np.stack(tried)[np.stack(scores).argmax(0), states]
        return np.einsum("sc,csa->sa", best / best.sum(1, keepdims=True), self.candidates)


# --- Improvement ------------------------------------------------------------------------------------------


def awr_weights_as_printed(q: Array, values: Array, server: Array, beta: float) -> Array:
    """w(s) [S, A] of eq. awr: exp((Q(s, server) - V(s)) / beta), the same for every action."""
    weights = np.exp((expectation(server, q) - values) / beta)
    return np.repeat(weights[:, None], q.shape[1], axis=1)


def awr_weights_by_action(q: Array, values: Array, beta: float) -> Array:
    """exp((Q(s,a) - V(s)) / beta) [S, A]: the weight of advantage-weighted regression."""
    return np.exp((q - values[:, None]) / beta)


def awr_target(behaviour: Array, weights: Array) -> Array:
    """Eq. AWRLagrangianOPT: pibar*_k = behaviour * weight / Z."""
    target = behaviour * weights
    return target / target.sum(1, keepdims=True)


def awr_policy(q: Array, behaviour: Array, weights: Array, lam: float) -> Array:
    """Eq. awr: the policy that maximises lam sum_a behaviour * weight * log pi + E_pi[Q] in every state.

    Stationarity gives pi(a) = c_a / (theta - Q(a)) with c = lam * behaviour * weight. The sum over the actions is
    convex and decreasing in theta. Newton's method starts from max_a (Q + c), where one term alone is already 1,
    and rises to the root without passing it. The unknown is stored as theta - max Q, which keeps precision for
    small c.
    """
    pull = np.maximum(lam * behaviour * weights, 1e-200)
    shortfall = q.max(1, keepdims=True) - q
    excess_theta = (pull - shortfall).max(1, keepdims=True)
    for _ in range(200):
        policy = pull / (excess_theta + shortfall)
        surplus = policy.sum(1, keepdims=True) - 1.0
        if surplus.max() < 1e-13:
            break
        excess_theta = excess_theta + surplus / (policy / (excess_theta + shortfall)).sum(1, keepdims=True)
    return policy / policy.sum(1, keepdims=True)


# --- Rounds -----------------------------------------------------------------------------------------------


Voting = Literal["sample", "expectation", "off"]


@dataclass(frozen=True)
class Settings:
    """The settings of the tabular federation."""

    alpha: float = 0.05  # weight of the conservative term
    lam: float = 0.1  # weight of the pull to the behaviour policy
    beta: float = 1.0  # temperature of the advantage weight
    rounds: int = 30
    sweeps: int = 5  # local steps of critic and actor per round
    rate: float = 1.0  # share of the closed-form critic step that is taken
    voting: Voting = "sample"  # best of one draw per candidate; best candidate in expectation; or no vote
    largest_weight: float = math.inf  # limit of the advantage weight; with the vote the weight is at most 1 anyway


@dataclass(frozen=True)
class Training:
    """The server's policies: the first before training, then one after every round."""

    policies: list[Array]
    q: Array
    local_policies: list[Array] = field(default_factory=list)  # of the last round


def local_update(client: Client, server: Array, server_q: Array, settings: Settings) -> tuple[Array, Array]:
    """One client's part of Algorithm 1: start from the broadcast, then alternate critic and actor."""
    known = (client.counts.sum(1) > 0)[:, None]
    policy, q = server, server_q
    for _ in range(settings.sweeps):
        voted = _chosen(q, policy, client.behaviour, server, settings.voting)
        step = vcql_step(client.model, q, voted, client.behaviour, settings.alpha) - q
        q = np.where(known, q + settings.rate * step, q)
        values = expectation(_chosen(q, policy, client.behaviour, server, settings.voting), q)
        weights = np.minimum(awr_weights_as_printed(q, values, server, settings.beta), settings.largest_weight)
        policy = np.where(known, awr_policy(q, client.behaviour, weights, settings.lam), policy)
    return policy, q


def _chosen(q: Array, policy: Array, behaviour: Array, server: Array, voting: Voting) -> Array:
    if voting == "off":
        return policy
    return (vote_by_sample if voting == "sample" else vote)(q, (policy, behaviour, server))


def aggregate(tables: Sequence[Array]) -> Array:
    """Eq. aggregation: the plain mean."""
    return np.mean(tables, axis=0)


def train(clients: Sequence[Client], settings: Settings, server: Array | None = None) -> Training:
    """Algorithm 1 from a uniform policy (or `server`) and Q = 0."""
    shape = clients[0].behaviour.shape
    policy = np.full(shape, 1.0 / shape[1]) if server is None else server
    q = np.zeros(shape)
    history = [policy]
    local: list[Array] = []
    for _ in range(settings.rounds):
        updates = [local_update(client, policy, q, settings) for client in clients]
        local = [update[0] for update in updates]
        policy, q = aggregate(local), aggregate([update[1] for update in updates])
        history.append(policy)
    return Training(history, q, local)
