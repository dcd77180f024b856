"""The return that a client's data shows from each row on, and rewards that are counted from another zero."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Floats, Transitions


def next_returns(data: Transitions, discount: float) -> Floats:
    """The discounted return that follows each row: G(s') = r' + gamma r'' + ..., 0 after a terminal row.

    An episode that was cut off is continued at the pace of its last 1 / (1 - gamma) steps: their mean reward, paid
    for ever. Where the cut falls then makes little difference.
    """
    rewards, terminals = data.rewards.astype(np.float64), data.terminals > 0
    ends = np.flatnonzero(data.episode_ends)
    starts = np.append(0, ends[:-1] + 1)
    horizon = round(1.0 / (1.0 - discount))
    paid = np.append(0.0, np.cumsum(rewards))
    first = np.maximum(starts, ends + 1 - horizon)
    pace = (paid[ends + 1] - paid[first]) / (ends + 1 - first)
    follows = np.zeros(len(data))
    follows[ends] = np.where(terminals[ends], 0.0, pace / (1.0 - discount))
    # One step back in all episodes at once, the longest first: as many operations as the longest has steps.
    order = np.argsort(starts - ends, kind="stable")
    rows, left = ends[order], (ends - starts)[order]
    for step in 1 + np.arange(left.max(initial=0)):
        going = np.searchsorted(-left, -step, side="right")
        rows = rows[:going] - 1
        follows[rows] = rewards[rows + 1] + discount * follows[rows + 1]
    return follows.astype(np.float32)


def returns(data: Transitions, discount: float) -> NDArray[np.float64]:
    """The discounted return that the data shows from each row on, its own reward included."""
    return np.asarray(data.rewards + discount * next_returns(data, discount).astype(np.float64))


def counted_from(data: Transitions, zero: float, discount: float) -> Transitions:
    """The same data with rewards counted from `zero`: every policy's value rises by -zero / (1 - gamma).

    Each row pays r - zero. After an end nothing is paid for ever, which is -zero at every step when counted from
    `zero`, so a terminal row pays r - zero - gamma zero / (1 - gamma).
    """
    if zero == 0.0:
        return data
    paid = np.where(data.terminals > 0, zero / (1.0 - discount), zero)
    return replace(data, rewards=(data.rewards - paid).astype(np.float32))
