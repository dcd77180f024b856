"""Exact values of policies in the sepsis task, by linear algebra. Nothing is simulated and nothing is random.

A policy is a table of probabilities [713 states, 25 actions]. Its value is the probability that a patient survives.
"""

import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fova.errors import FovaError
from fova.spaces import Discrete, Space
from fova.tasks.sepsis import ACTIONS, FEATURES
from fova.tasks.sepsis.tables import PATIENT_STATES, Floats, Tables, tables

if TYPE_CHECKING:
    from fova.policy import Policy

BETTER_BY = 1e-10  # a smaller difference between two actions is rounding


def exact_value(probabilities: ArrayLike, given: Tables | None = None) -> float:
    """The probability of survival under a policy, over the distribution of first states."""
    found = given or tables()
    return float(found.starts @ state_values(probabilities, found))


def state_values(probabilities: ArrayLike, given: Tables | None = None) -> Floats:
    """The probability of survival from each state: the solution of v = r + P v."""
    found = given or tables()
    policy = _checked(probabilities, found)
    states = len(policy)
    onward = np.einsum("sa,sat->st", policy, found.transitions[:, :, :states])
    return np.linalg.solve(np.eye(states) - onward, (policy * found.survival).sum(axis=1))


def action_values(values: Floats, given: Tables | None = None) -> Floats:
    """The value of each action in each state if the values hold from the next state on."""
    found = given or tables()
    return found.survival + found.transitions[:, :, : len(values)] @ values


def policy_table(policy: "Policy", greedy: bool = True) -> Floats:
    """A trained policy as a table of probabilities: of its best actions, or as it samples."""
    if policy.space != Space(FEATURES, Discrete(ACTIONS)):
        raise FovaError(
            f"The policy has {policy.space.words()}. A value in the sepsis task needs {FEATURES} features and the "
            f"actions {ACTIONS[0]!r} to {ACTIONS[-1]!r} in this order."
        )
    features = tables().features[:PATIENT_STATES]
    if greedy:
        return np.eye(len(ACTIONS))[policy(features)]
    return policy.probabilities(features).astype(np.float64)


@functools.cache
def optimal_policy() -> Floats:
    """The policy with the highest value, by policy iteration."""
    return improved(1.0, tables())


@functools.cache
def worst_policy() -> Floats:
    """The policy with the lowest value."""
    return improved(-1.0, tables())


def improved(sign: float, given: Tables) -> Floats:
    """Policy iteration from the first action everywhere; `sign` -1 looks for the lowest value."""
    states, actions = given.survival.shape
    chosen = np.zeros(states, np.int64)
    while True:
        values = sign * action_values(state_values(np.eye(actions)[chosen], given), given)
        better = values.max(axis=1) > values[np.arange(states), chosen] + BETTER_BY
        if not better.any():
            return np.eye(actions)[chosen]
        chosen = np.where(better, values.argmax(axis=1), chosen)


def _checked(probabilities: ArrayLike, found: Tables) -> Floats:
    policy = np.asarray(probabilities, np.float64)
    wanted = found.survival.shape
    if policy.shape != wanted:
        raise FovaError(
            f"The policy has shape {policy.shape}, but {wanted} is needed: probabilities of actions in each state."
        )
    sums = policy.sum(axis=1)
    if not (np.abs(sums - 1.0) < 1e-5).all() or not (policy >= 0.0).all():
        raise FovaError("The policy does not hold probabilities: each row must be at least 0 and add up to 1.")
    return policy / sums[:, None]
