"""Finite Markov decision processes, solved exactly.

Every quantity of the paper can be computed on these small MDPs: values by one linear solve, visitation by another.
Everything is a plain NumPy array. This module has no sampling error (see `dataset.py`) and no learning.

Shapes: S states, A actions. A policy is an array [S, A] whose rows sum to one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError

Array = NDArray[np.float64]

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left: the actions of a gridworld


@dataclass(frozen=True)
class MDP:
    """(S, A, T, r, mu, gamma), with the bound r_max on |r| that the paper's constants use."""

    transition: Array  # [S, A, S] T(s'|s,a)
    reward: Array  # [S, A] r(s,a)
    start: Array  # [S] mu
    discount: float
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.discount < 1.0:
            raise FovaError(f"The discount is {self.discount}; it must lie strictly between 0 and 1.")
        for name, rows in (("transition", self.transition), ("start", self.start)):
            if np.any(rows < 0) or not np.allclose(rows.sum(-1), 1.0):
                raise FovaError(f"Every row of `{name}` must be a probability distribution that sums to one.")
        if np.any(np.abs(self.reward) > self.reward_bound * (1 + 1e-12)):
            largest = np.abs(self.reward).max()
            raise FovaError(f"A reward of size {largest:g} exceeds the stated bound {self.reward_bound:g}.")

    @property
    def states(self) -> int:
        return self.reward.shape[0]

    @property
    def actions(self) -> int:
        return self.reward.shape[1]

    @property
    def horizon(self) -> float:
        """1 / (1 - gamma): the sum of the discounts."""
        return 1.0 / (1.0 - self.discount)

    @property
    def largest_return(self) -> float:
        """r_max / (1 - gamma): the bound on |V| of every policy."""
        return self.reward_bound * self.horizon

    def starting_at(self, start: Array) -> "MDP":
        return replace(self, start=start)


# --- Values of a policy -----------------------------------------------------------------------------------


def state_chain(mdp: MDP, policy: Array) -> Array:
    """P^pi [S, S]: the transition matrix between states under the policy."""
    return np.einsum("sa,sat->st", policy, mdp.transition)


def resolvent(mdp: MDP, policy: Array) -> Array:
    """(I - gamma P^pi)^-1 [S, S]. Every entry is non-negative, because it is the sum of gamma^t (P^pi)^t."""
    chain = state_chain(mdp, policy)
    return np.asarray(np.linalg.inv(np.eye(mdp.states) - mdp.discount * chain), np.float64)


def state_values(mdp: MDP, policy: Array) -> Array:
    """V^pi [S]."""
    system = np.eye(mdp.states) - mdp.discount * state_chain(mdp, policy)
    return np.asarray(np.linalg.solve(system, expectation(policy, mdp.reward)), np.float64)


def backup(mdp: MDP, values: Array) -> Array:
    """r + gamma E[V(s')] [S, A]."""
    return mdp.reward + mdp.discount * mdp.transition @ values


def action_values(mdp: MDP, policy: Array) -> Array:
    """Q^pi [S, A]."""
    return backup(mdp, state_values(mdp, policy))


def advantages(mdp: MDP, policy: Array) -> Array:
    """A^pi [S, A] = Q^pi - V^pi."""
    return action_values(mdp, policy) - state_values(mdp, policy)[:, None]


def visitation(mdp: MDP, policy: Array) -> Array:
    """d^pi [S]: the normalised discounted state distribution, (1 - gamma) mu (I - gamma P^pi)^-1."""
    system = np.eye(mdp.states) - mdp.discount * state_chain(mdp, policy).T
    return (1.0 - mdp.discount) * np.asarray(np.linalg.solve(system, mdp.start), np.float64)


def expected_return(mdp: MDP, policy: Array) -> float:
    """J(M, pi) = E_mu[V^pi]."""
    return float(mdp.start @ state_values(mdp, policy))


def expectation(policy: Array, q: Array) -> Array:
    """E_{a ~ pi(.|s)}[q(s, a)] [S]."""
    return np.einsum("sa,sa->s", policy, q)


def greedy(q: Array) -> Array:
    """The policy that takes the first best action in every state."""
    return np.eye(q.shape[1])[q.argmax(1)]


def optimal_policy(mdp: MDP) -> Array:
    """An optimal policy, by policy iteration. It ends because actions are replaced only by strictly better ones."""
    policy = greedy(mdp.reward)
    while True:
        gain = advantages(mdp, policy)
        better = gain.max(1) > 1e-10
        if not better.any():
            return policy
        policy = np.where(better[:, None], greedy(gain), policy)


# --- Examples ---------------------------------------------------------------------------------------------


def garnet(states: int, actions: int, branching: int, discount: float, rng: np.random.Generator) -> MDP:
    """A random MDP: every pair (s, a) leads to `branching` random states; rewards uniform in [-1, 1].

    The start distribution reaches every state, so that no visitation is zero.
    """
    if not 1 <= branching <= states:
        raise FovaError(f"branching is {branching}; it must lie between 1 and the number of states, {states}.")
    transition = np.zeros((states, actions, states))
    for row in transition.reshape(-1, states):
        row[rng.choice(states, branching, replace=False)] = rng.dirichlet(np.ones(branching))
    return MDP(
        transition=transition,
        reward=rng.uniform(-1.0, 1.0, (states, actions)),
        start=0.9 * rng.dirichlet(np.ones(states)) + 0.1 / states,
        discount=discount,
    )


def blend(first: MDP, second: MDP, share: float) -> MDP:
    """The MDP (1 - share) * first + share * second, in dynamics, rewards and start distribution."""
    return replace(
        first,
        transition=(1.0 - share) * first.transition + share * second.transition,
        reward=(1.0 - share) * first.reward + share * second.reward,
        start=(1.0 - share) * first.start + share * second.start,
    )


def gridworld(rows: Sequence[str], slip: float, discount: float) -> MDP:
    """A maze from text: `S` start, `G` goal (+1 on entering), `X` pit (-1), `#` wall, `.` floor.

    With probability `slip` a move goes in a uniformly random direction. A move into a wall leaves the agent in its
    cell. Goal and pit are absorbing and give no further reward.
    """
    cells = {(i, j): mark for i, row in enumerate(rows) for j, mark in enumerate(row) if mark != "#"}
    unknown_marks = sorted(set(cells.values()) - set("SGX."))
    if unknown_marks or "S" not in cells.values():
        raise FovaError(
            f"A gridworld needs a start 'S' and only the marks S G X . #; found {unknown_marks or rows}."
        )
    index = {cell: number for number, cell in enumerate(cells)}
    transition = np.zeros((len(cells), len(MOVES), len(cells)))
    reward = np.zeros((len(cells), len(MOVES)))
    for cell, s in index.items():
        if cells[cell] in "GX":
            transition[s, :, s] = 1.0
            continue
        for action in range(len(MOVES)):
            for direction, (down, right) in enumerate(MOVES):
                probability = slip / len(MOVES) + (1.0 - slip) * (direction == action)
                target = (cell[0] + down, cell[1] + right)
                target = target if target in cells else cell
                transition[s, action, index[target]] += probability
                reward[s, action] += probability * {"G": 1.0, "X": -1.0}.get(cells[target], 0.0)
    start = np.array([mark == "S" for mark in cells.values()], float)
    return MDP(transition, reward, start / start.sum(), discount)
