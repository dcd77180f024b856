"""Keep whole episodes aside, to judge policies on decisions that never trained them.

Which episodes are kept aside depends on the seed, the client's name and the number of its episodes alone. The same
settings therefore give the same episodes again, in a simulation, over a network and in a later program.
"""

import zlib
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Transitions

FEWEST_ROWS = 2  # a client trains on at least so many rows


class Split(NamedTuple):
    """A client's data in two parts."""

    training: Transitions
    held_out: Transitions | None  # None where there is too little data to keep an episode aside


def split(data: Transitions, share: float, seed: int, client: str) -> Split:
    """The episodes to train on and the episodes kept aside, both in the order of the log.

    The part kept aside has `share` of the episodes, rounded, and at least one. At least one episode is left to
    train on. A client with a single episode, or with too few rows, keeps nothing aside.
    """
    lengths = data.episode_lengths()
    if share <= 0.0 or len(lengths) < 2:
        return Split(data, None)
    chosen = _chosen(len(lengths), share, seed, client)
    if int(lengths[~chosen].sum()) < FEWEST_ROWS:
        return Split(data, None)
    rows = np.repeat(chosen, lengths)
    return Split(select(data, ~rows), select(data, rows))


def _chosen(episodes: int, share: float, seed: int, client: str) -> NDArray[np.bool_]:
    """[episodes] True for the episodes to keep aside."""
    count = min(max(1, round(share * episodes)), episodes - 1)
    rng = np.random.default_rng([seed, zlib.crc32(client.encode())])
    chosen = np.zeros(episodes, bool)
    chosen[rng.permutation(episodes)[:count]] = True
    return chosen


def select(data: Transitions, rows: NDArray[np.bool_]) -> Transitions:
    """The marked rows. They must be whole episodes."""
    return Transitions(**{field.name: getattr(data, field.name)[rows] for field in fields(data)})
