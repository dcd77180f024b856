"""A client's data as arrays: episodes in, transitions out.

A transition is (s, a, r, s', a', terminal, has_next_action). Two endings are told apart:
- terminal: the task itself ended, so nothing follows and the bootstrap is cut;
- truncated: time or the record ran out. The task goes on, so the bootstrap does too, but the data holds no a'.
`has_next_action` is 0 in the last row of every episode; a' is never borrowed from the next one.

No file, network or algorithm is touched here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.errors import FovaError

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Episode:
    """One uninterrupted stretch of decisions; `observations` holds one row more than `actions`."""

    observations: Floats  # [steps + 1, observation]
    actions: Floats  # [steps, action]
    rewards: Floats  # [steps]
    terminated: bool  # True: the task ended here. False: it was cut off (time limit, end of the record).

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Transitions:
    """Rows of (s, a, r, s', a', terminal, has_next_action), float32, in the order they were logged."""

    observations: Floats  # [rows, observation]
    actions: Floats  # [rows, action]
    rewards: Floats  # [rows]
    next_observations: Floats  # [rows, observation]
    next_actions: Floats  # [rows, action]; zeros where the data has none
    terminals: Floats  # [rows] 1 where the task ended
    has_next_action: Floats  # [rows] 0 where the data has no a'
    episode_ends: NDArray[np.bool_]  # [rows] True in the last row of each episode

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, rows: slice) -> "Transitions":
        """A contiguous piece. Its last row ends an episode by truncation if the piece cuts one short."""
        piece = Transitions(**{f.name: getattr(self, f.name)[rows].copy() for f in fields(self)})
        if len(piece):
            piece.episode_ends[-1] = True
        return piece

    def episode_returns(self) -> NDArray[np.float64]:
        """The undiscounted return of each episode (for a piece: of what the piece holds of it)."""
        if not len(self):
            return np.zeros(0)
        starts = np.concatenate([[0], np.flatnonzero(self.episode_ends)[:-1] + 1])
        return np.add.reduceat(self.rewards.astype(np.float64), starts)


def from_episodes(episodes: Iterable[Episode]) -> Transitions:
    """Lay episodes end to end as transitions. Nothing crosses from one episode into the next."""
    episodes = [episode for episode in episodes if len(episode)]
    if not episodes:
        raise FovaError("There is no data: not one episode with at least one step.")
    last = np.zeros(sum(map(len, episodes)), dtype=bool)
    last[np.cumsum([len(episode) for episode in episodes]) - 1] = True
    terminals = np.zeros(len(last), np.float32)
    terminals[last] = [episode.terminated for episode in episodes]
    actions = _stack(episode.actions for episode in episodes)
    next_actions = np.concatenate([actions[1:], np.zeros_like(actions[:1])])
    next_actions[last] = 0.0
    return Transitions(
        observations=_stack(episode.observations[:-1] for episode in episodes),
        actions=actions,
        rewards=_stack(episode.rewards for episode in episodes),
        next_observations=_stack(episode.observations[1:] for episode in episodes),
        next_actions=next_actions,
        terminals=terminals,
        has_next_action=1.0 - last.astype(np.float32),
        episode_ends=last,
    )


def join(pieces: Sequence[Transitions]) -> Transitions:
    """Several pieces of data as one."""
    return Transitions(
        **{f.name: np.concatenate([getattr(p, f.name) for p in pieces]) for f in fields(Transitions)}
    )


def _stack(parts: Iterable[ArrayLike]) -> Floats:
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


# --- The checker ------------------------------------------------------------------------------------------


def check(
    data: Transitions,
    client: str,
    action_low: ArrayLike = -1.0,
    action_high: ArrayLike = 1.0,
    observation_size: int | None = None,
    action_size: int | None = None,
) -> None:
    """Raise one error that names client, field, row and remedy for everything wrong with a client's data."""
    problems = list(_shape_problems(data, observation_size, action_size))
    if not problems:  # the rest reads rows, which only makes sense once the shapes agree
        problems = list(_value_problems(data, np.asarray(action_low), np.asarray(action_high)))
    if problems:
        raise FovaError(
            f"The data of client {client!r} cannot be used:\n" + "\n".join(f"  - {p}" for p in problems)
        )


def _shape_problems(data: Transitions, observation_size: int | None, action_size: int | None) -> Iterable[str]:
    rows = np.shape(data.rewards)[0] if np.ndim(data.rewards) else 0
    for field in fields(data):
        values = getattr(data, field.name)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
            kind = getattr(values, "dtype", type(values).__name__)
            yield f"{field.name}: holds {kind}, not numbers. Store it as a numeric array."
            continue
        wanted = 2 if field.name.endswith(("observations", "actions")) else 1
        if values.ndim != wanted:
            axes = "rows, columns" if wanted == 2 else "rows"
            yield f"{field.name}: has shape {values.shape}, but ({axes}) is needed."
        elif len(values) != rows:
            yield f"{field.name}: has {len(values)} rows, but rewards has {rows}. Give every field one row per step."
        elif wanted == 2 and values.shape[1] == 0:
            yield f"{field.name}: has no columns."
    if rows == 0:
        yield "rewards: is empty. A client needs at least two steps; leave it out of the federation otherwise."
    elif rows == 1:
        yield "rewards: has a single step. A client needs at least two; leave it out of the federation otherwise."
    for name, size in (("observations", observation_size), ("actions", action_size)):
        for field_name in (name, f"next_{name}"):
            shape = np.shape(getattr(data, field_name))
            if size is not None and len(shape) == 2 and shape[1] not in (0, size):
                yield f"{field_name}: has {shape[1]} columns, but the task has {size}. Is this another task's data?"


def _value_problems(data: Transitions, low: NDArray, high: NDArray) -> Iterable[str]:
    for field in fields(data):
        values = getattr(data, field.name)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = ~np.isfinite(values if values.ndim == 1 else values.sum(axis=1, dtype=np.float64))
            rows = np.flatnonzero(bad)
            if not len(rows):  # opposite infinities never cancel, but a float64 sum of finite rows is finite
                rows = np.flatnonzero(~np.isfinite(values).all(axis=-1))
            yield (
                f"{field.name}: row {rows[0]} is NaN or infinite ({len(rows)} such rows). "
                "Remove those episodes or repair the log."
            )
    for field_name in ("actions", "next_actions"):
        values = getattr(data, field_name)
        with np.errstate(invalid="ignore"):
            outside = ((values < low - 1e-4) | (values > high + 1e-4)).any(axis=1)
        if field_name == "next_actions":
            outside &= data.has_next_action > 0
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            worst = values[row][np.argmax(np.maximum(low - values[row], values[row] - high))]
            yield (
                f"{field_name}: row {row} holds {worst:g}, outside the declared bounds "
                f"[{np.min(low):g}, {np.max(high):g}] ({int(outside.sum())} such rows). "
                "Declare the true bounds (--action-low, --action-high) or rescale the actions."
            )
    for field_name in ("terminals", "has_next_action"):
        values = getattr(data, field_name)
        wrong = np.flatnonzero(~np.isin(values, (0, 1)) & np.isfinite(values))
        if len(wrong):
            yield f"{field_name}: row {wrong[0]} holds {values[wrong[0]]:g}; only 0 and 1 have a meaning here."
