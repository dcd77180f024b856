"""What looks like a mistake in a client's data, in words. Training goes on; a person should look at it.

What is certainly wrong is refused by the readers and by `fova.data.transitions.check`.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import counted
from fova.data.sources import MADE, Source
from fova.data.tables.logged import sentinel_in
from fova.data.transitions import Floats, Transitions

ENOUGH = 20_000  # rows whose order is looked at
FEWEST_PAIRS = 50
FEWEST_EPISODES = 5
# Of rows in random order, the mean squared difference of neighbours is twice the variance: a ratio of 1.
LIKE_RANDOM = 0.8


def remarks(found: Mapping[str, Source]) -> list[str]:
    """What to tell about the data of all clients: notes and doubts. One about several clients is made once."""
    clients: dict[str, list[str]] = {}
    for name, source in found.items():
        for remark in (*source.notes, *doubts(source)):
            clients.setdefault(remark, []).append(name)
    return [f"{', '.join(names)}: {remark}" for remark, names in clients.items()]


def doubts(source: Source) -> list[str]:
    """Everything about the data that a person should look at. Data that fova made is not doubted."""
    if source.format == MADE:
        return []
    return [
        *_about_rewards(source.transitions),
        *_about_endings(source.transitions),
        *(() if source.order_is_known else _about_order(source.transitions)),
        *(_about_sentinels(source) if source.observation_columns is None else ()),  # tables refuse them
    ]


def _about_rewards(data: Transitions) -> Iterator[str]:
    if np.ptp(data.rewards) == 0:
        yield f"rewards: every step earns {data.rewards[0]:g}, so no action is better than another."


def _about_endings(data: Transitions) -> Iterator[str]:
    lengths = data.episode_lengths()
    ended = bool(data.terminals[data.episode_ends].all())
    if ended and len(lengths) >= FEWEST_EPISODES and lengths[0] > 1 and (lengths == lengths[0]).all():
        yield (
            f"terminals: all {len(lengths):,} episodes have {lengths[0]:,} steps, and all are marked as ended by "
            "the task. If that is a time limit, mark it as a time-out: after a terminal, training expects no more "
            "reward."
        )


def _about_order(data: Transitions) -> Iterator[str]:
    ratios = neighbour_ratios(data.observations[:ENOUGH], data.episode_ends[:ENOUGH])
    if len(ratios) and ratios.min() > LIKE_RANDOM:
        yield (
            "observations: consecutive rows are no more similar than rows of the episode picked at random. "
            "Are they out of order? Add a column that orders them."
        )


def neighbour_ratios(observations: Floats, ends: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Per column that varies: mean squared difference of neighbours over twice the variance within episodes."""
    starts = np.flatnonzero(np.append(True, ends[:-1]))
    lengths = np.diff(np.append(starts, len(observations)))
    neighbours = ~ends[:-1]
    if neighbours.sum() < FEWEST_PAIRS:
        return np.zeros(0)
    values = observations.astype(np.float64)
    means = np.add.reduceat(values, starts, axis=0) / lengths[:, None]
    variance = np.square(values - np.repeat(means, lengths, axis=0)).sum(axis=0) / max(len(values) - len(starts), 1)
    steps = np.square(np.diff(values, axis=0)[neighbours]).mean(axis=0)
    varies = variance > 1e-12 * np.square(values).mean(axis=0)
    return steps[varies] / (2.0 * variance[varies])


def _about_sentinels(source: Source) -> Iterator[str]:
    data = source.transitions
    columns = {f"observations, column {i}": data.observations[:, i] for i in range(data.observations.shape[1])}
    for name, values in (columns | {"rewards": data.rewards}).items():
        found = sentinel_in(values)
        if found is not None:
            value, count, least, most = found
            yield (
                f"{name}: holds {value:g} in {counted(count, 'row')}, far from its other values ({least:g} to "
                f"{most:g}). If it marks a missing value, it is now learned from as a number."
            )
