"""One instance on which every statement of the paper can be computed: a true MDP, its clients and their policies.

A counter-example is a `Case` that is built by hand. The runner draws the other cases at random. A check only reads
a case and uses no randomness, so a case that violates a statement can be kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fova.paper.theory.ascent import local_maximiser, server_maximiser
from fova.paper.theory.dataset import empirical_behaviour, sample_dataset
from fova.paper.theory.mdp import MDP, Array, blend, expectation, garnet
from fova.paper.theory.tabular_fova import (
    Client,
    awr_policy,
    awr_target,
    awr_weights_as_printed,
    awr_weights_by_action,
    relaxed_vote,
    vcql_action_values,
    vcql_with_moving_vote,
)

SWEEPS = 700  # 0.95^700 is 3e-16: a contraction has converged


@dataclass(frozen=True)
class Case:
    """A federation in a finite MDP, between round t and round t + 1."""

    mdp: MDP  # M, the true MDP
    clients: tuple[Client, ...]  # their empirical MDPs and behaviour policies
    server: Array  # [S, A] pibar^t
    policies: tuple[Array, ...]  # K arrays [S, A]: pi_k, arbitrary policies
    alpha: float
    lam: float
    beta: float

    @property
    def client(self) -> Client:
        """The first client, which is used for statements about a single client."""
        return self.clients[0]

    @property
    def policy(self) -> Array:
        return self.policies[0]

    @cached_property
    def model(self) -> MDP:
        """The empirical MDP of the appendix: estimated dynamics and rewards, the true start distribution."""
        return self.client.model.starting_at(self.mdp.start)

    @cached_property
    def concentration(self) -> "Concentration":
        return concentration(self.mdp, self.client)

    @cached_property
    def candidates(self) -> tuple[Array, Array, Array]:
        """The candidates of the first client's vote: local, behaviour and server policy."""
        return self.policy, self.client.behaviour, self.server

    @cached_property
    def moving_q(self) -> Array:
        """Q after many steps in the true MDP, with a new vote before each step."""
        return vcql_with_moving_vote(self.mdp, self.candidates, self.client.behaviour, self.alpha, SWEEPS)

    @cached_property
    def moving_q_of_model(self) -> Array:
        """The same in the empirical MDP."""
        return vcql_with_moving_vote(self.model, self.candidates, self.client.behaviour, self.alpha, SWEEPS)

    @cached_property
    def voted(self) -> Array:
        """A vote of the first client that its own values confirm (a mixture if the hard vote would alternate)."""
        return relaxed_vote(self.model, self.candidates, self.client.behaviour, self.alpha)

    @cached_property
    def q(self) -> Array:
        """Q_hat of that vote."""
        return vcql_action_values(self.model, self.voted, self.client.behaviour, self.alpha)

    @cached_property
    def values(self) -> Array:
        """V_hat of that vote."""
        return expectation(self.voted, self.q)

    # The pair (pibar*_k, pi_k) in the three meanings that the paper uses.

    @cached_property
    def printed_pair(self) -> tuple[Array, Array]:
        """Both equations exactly as printed: the weight is the same for every action of a state."""
        weights = awr_weights_as_printed(self.q, self.values, self.server, self.beta)
        behaviour = self.client.behaviour
        return awr_target(behaviour, weights), awr_policy(self.q, behaviour, weights, self.lam)

    @cached_property
    def by_action_pair(self) -> tuple[Array, Array]:
        """The pair with the weight of advantage-weighted regression, which differs between actions."""
        return self.by_action(self.lam, self.beta)

    def by_action(self, lam: float, beta: float) -> tuple[Array, Array]:
        # A common factor of all actions in a state cancels in the target. Subtracting max Q keeps exp in range.
        weights = awr_weights_by_action(self.q, self.q.max(1), beta)
        target = awr_target(self.client.behaviour, weights)
        return target, awr_policy(self.q, target, np.ones_like(target), lam)

    @cached_property
    def exact_pair(self) -> tuple[Array, Array]:
        """Maximisers of the two penalised returns. The proofs assume that the algorithm maximises these returns."""
        return exact_pair(self, self.client, self.model)

    @cached_property
    def exact_pairs(self) -> tuple[tuple[Array, Array], ...]:
        """The same pair for every client, in its own empirical MDP with its own start distribution."""
        return tuple(exact_pair(self, client, client.model) for client in self.clients)


def exact_pair(case: Case, client: Client, model: MDP) -> tuple[Array, Array]:
    target = server_maximiser(model, client.behaviour, client.state_law, case.alpha, case.beta)
    local = local_maximiser(model, target, client.behaviour, client.state_law, case.alpha, case.lam)
    return target, local


def client_of(model: MDP, counts: Sequence[Sequence[int]]) -> Client:
    """A client with a given empirical MDP. Its behaviour policy is the relative frequencies of the counts."""
    pairs = np.array(counts)
    return Client(model, empirical_behaviour(pairs), pairs)


def always(*actions: int, out_of: int = 2) -> Array:
    """The policy that takes the given action in each state."""
    return np.eye(out_of)[list(actions)]


@dataclass(frozen=True)
class Concentration:
    """The smallest constants for which a dataset satisfies the paper's assumption.

    With these constants the event "with probability at least 1 - delta" has occurred. A statement that holds with
    high probability must therefore hold here with certainty. This is the hardest test that the assumption allows.
    """

    reward: float  # C_r: max sqrt(N) |r_hat - r|
    transition: float  # C_T in L1 norm, as in the supplement and in the appendix's text
    transition_entry: float  # C_T entry by entry, as in the appendix's formula


def concentration(mdp: MDP, client: Client) -> Concentration:
    root = np.sqrt(client.counts)
    reward_error = np.abs(client.model.reward - mdp.reward)
    transition_error = np.abs(client.model.transition - mdp.transition)
    return Concentration(
        reward=float((root * reward_error).max()),
        transition=float((root * transition_error.sum(-1)).max()),
        transition_entry=float((root[..., None] * transition_error).max()),
    )


def random_case(
    rng: np.random.Generator,
    states: int | None = None,
    actions: int | None = None,
    clients: int | None = None,
    discount: float | None = None,
) -> Case:
    """A Garnet MDP with sampled datasets. Sizes that are not given are drawn: 2-5 states, 2-3 actions, 1-3 clients.

    The first client's data comes from the true MDP. In half of the cases the other clients have different MDPs, at
    a random distance from it. In the other half all clients share one MDP and differ only in data and behaviour.
    """
    states = states or int(rng.integers(2, 6))
    actions = actions or int(rng.integers(2, 4))
    number = clients or int(rng.integers(1, 4))
    discount = discount or float(rng.uniform(0.05, 0.95))
    mdp = _random_world(states, actions, discount, rng)
    apart = float(rng.uniform()) if rng.uniform() < 0.5 else 0.0
    homes = [blend(mdp, _random_world(states, actions, discount, rng), apart) for _ in range(number - 1)]

    def any_policy() -> Array:
        return rng.dirichlet(np.ones(actions), states)

    return Case(
        mdp=mdp,
        clients=tuple(_random_client(home, any_policy(), rng) for home in [mdp, *homes]),
        server=any_policy(),
        policies=tuple(any_policy() for _ in range(number)),
        alpha=float(10 ** rng.uniform(-2, 1)),
        lam=float(10 ** rng.uniform(-1, 2)),
        beta=float(10 ** rng.uniform(-1, 2)),
    )


def _random_world(states: int, actions: int, discount: float, rng: np.random.Generator) -> MDP:
    return garnet(states, actions, int(rng.integers(1, states + 1)), discount, rng)


def _random_client(mdp: MDP, behaviour: Array, rng: np.random.Generator) -> Client:
    size = int(10 ** rng.uniform(1.5, 4.5))
    data = sample_dataset(mdp, behaviour, size, rng, reward_noise=0.5, every_pair=True)
    return Client.from_dataset(data, mdp.discount)
