"""How much of what a policy does is covered by logged decisions.

An action counts as inside the data's support at a state if one of the nearest logged states has a logged action at
most so far away. How far is calibrated on the data itself: the distance that 95 % of the data's own actions keep to
those of other episodes, but at least 5 % of the range of the actions. A policy that acts as the data does is
therefore inside in at least about 95 % of the states. A discrete action must have been taken in one of the nearest
logged states.

States are compared in normalised columns, continuous actions in [-1, 1].
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

NEIGHBOURS = 20  # nearest logged states whose actions count
DISCRETE_NEIGHBOURS = 50
COVERED = 0.95  # share of the data's own actions that is inside by the choice of the threshold
LEAST = 0.1  # distance in a column up to which an action always counts as the same; the range of a column is 2
MOST_QUERIES, MOST_LOGGED = 1000, 20_000
CHUNK = 64


class Support(NamedTuple):
    """The share of states in which a policy acts inside the data's support."""

    inside: float
    threshold: float  # distance of actions up to which an action is inside


class Log(NamedTuple):
    """Logged decisions: normalised states [rows, columns] and actions [rows, action columns]."""

    states: Floats
    actions: Floats


def support(queries: Log, chosen: Floats, logged: Log, discrete: bool = False) -> Support:
    """How often the policy's actions `chosen`, at the states of `queries`, are inside the support of `logged`.

    `queries` holds the data's own decisions at these states. They calibrate the threshold of continuous actions and
    must not be among `logged`.
    """
    queries, chosen = Log(*(_spread(part, MOST_QUERIES) for part in queries)), _spread(chosen, MOST_QUERIES)
    logged = Log(*(_spread(part, MOST_LOGGED) for part in logged))
    near = nearest_states(queries.states, logged.states, DISCRETE_NEIGHBOURS if discrete else NEIGHBOURS)
    own, other = (action_distances(actions, logged.actions[near]) for actions in (queries.actions, chosen))
    threshold = 0.0 if discrete else max(float(np.quantile(own, COVERED)), LEAST * float(np.sqrt(chosen.shape[1])))
    return Support(float((other <= threshold).mean()), threshold)


def action_shares(states: Floats, logged: Log, count: int) -> Floats:
    """Behaviour cloned by nearest neighbours: the probability of each discrete action, [states, count].

    The share of every action among the nearest logged states. One more observation is spread over all actions as
    the whole log has them, so that no logged action has probability 0.
    """
    logged = Log(*(_spread(part, MOST_LOGGED) for part in logged))
    codes = logged.actions[:, 0].astype(np.intp)
    overall = np.bincount(codes, minlength=count) / len(codes)
    near = codes[nearest_states(states, logged.states, DISCRETE_NEIGHBOURS)]
    counts = np.stack([(near == code).sum(axis=1) for code in range(count)], axis=1)
    return (counts + overall) / (near.shape[1] + 1.0)


def nearest_states(states: Floats, logged: Floats, count: int = NEIGHBOURS) -> NDArray[np.intp]:
    """The rows of `logged` nearest to each state, [states, count], in no particular order."""
    count = min(count, len(logged))
    squares = np.square(logged).sum(axis=1)
    found = []
    for start in range(0, len(states), CHUNK):
        piece = states[start : start + CHUNK]
        distances = squares - 2.0 * piece @ logged.T  # up to a constant for each state
        found.append(np.argpartition(distances, count - 1, axis=1)[:, :count])
    return np.concatenate(found)


def action_distances(actions: Floats, near: Floats) -> Floats:
    """The distance of each action [rows, columns] to the nearest of its candidates [rows, count, columns]."""
    return np.sqrt(np.square(near - actions[:, None]).sum(axis=2).min(axis=1))


def _spread(rows: Floats, most: int) -> Floats:
    """At most so many rows, spread evenly over all."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]
