"""A client's data as arrays: episodes in, transitions out.

A transition is (s, a, r, s', a', terminal, has_next_action). An episode ends in one of two ways:
- terminal: the task itself ended. Nothing follows, so no value is bootstrapped.
- truncated: the time limit or the end of the record was reached. The task goes on, so the value is bootstrapped,
  but the data holds no a'.
`has_next_action` is 0 in the last row of every episode. a' is never taken from the next episode. A piece cut out of
an episode keeps the true a' of its last row.

This module accesses no files and no network, and imports no algorithm.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.errors import FovaError
from fova.settings import LARGEST
from fova.spaces import ActionSpace, Box, Discrete

Floats = NDArray[np.float32]
TOLERANCE = 1e-4  # how far an action may exceed its bound because of rounding
TOO_LARGE = f"too large to train with in float32 (beyond {LARGEST:g})"


@dataclass(frozen=True)
class Episode:
    """One uninterrupted sequence of steps; `observations` holds one row more than `actions`."""

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
        """A contiguous piece. If it cuts an episode short, its last row ends that episode by truncation."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise TypeError(f"Transitions are cut into contiguous pieces, as in data[10:20]; got data[{rows!r}].")
        piece = Transitions(**{f.name: getattr(self, f.name)[rows].copy() for f in fields(self)})
        if len(piece):
            piece.episode_ends[-1] = True
        return piece

    def episode_returns(self) -> NDArray[np.float64]:
        """The undiscounted return of each episode. In a piece, only the rows of the piece count."""
        if not len(self):
            return np.zeros(0)
        return np.add.reduceat(self.rewards.astype(np.float64), self._episode_starts())

    def whole_episode_returns(self) -> NDArray[np.float64]:
        """The returns of whole episodes.

        A last episode that the piece cuts short is left out, because its return says little about the behaviour. It
        is kept if it is the only episode.
        """
        returns = self.episode_returns()
        return returns[:-1] if len(returns) > 1 and self.has_next_action[-1] > 0 else returns

    def episode_lengths(self) -> NDArray[np.int64]:
        """The number of steps of each episode."""
        return np.diff(np.append(self._episode_starts(), len(self)))

    def episodes(self) -> list[Episode]:
        """The episodes of these rows. `from_episodes(data.episodes())` gives `data` again."""
        return [
            Episode(
                observations=np.concatenate([self.observations[rows], self.next_observations[rows][-1:]]),
                actions=self.actions[rows],
                rewards=self.rewards[rows],
                terminated=bool(self.terminals[rows][-1]),
            )
            for rows in map(slice, self._episode_starts(), np.append(self._episode_starts()[1:], len(self)))
        ]

    def digest(self) -> str:
        """A hash of the data: equal for equal data, different if the data differs anywhere."""
        found = hashlib.sha256()
        for field in fields(self):
            values = getattr(self, field.name)
            found.update(f"{field.name} {values.dtype} {values.shape}".encode())
            found.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    def _episode_starts(self) -> NDArray[np.int64]:
        return np.flatnonzero(np.concatenate([[True], self.episode_ends])[: len(self)])


def from_episodes(episodes: Iterable[Episode]) -> Transitions:
    """Lay episodes end to end as transitions. No transition crosses from one episode into the next."""
    episodes = [episode for episode in episodes if len(episode)]
    if not episodes:
        raise FovaError("There is no data: no episode has a step.")
    _refuse_misshapen(episodes)
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
    """Concatenate several pieces of data."""
    if not pieces:
        raise FovaError("There is no data to join: no piece was given.")
    for number, piece in enumerate(pieces):
        for name in ("observations", "actions"):
            given, expected = getattr(piece, name).shape[1], getattr(pieces[0], name).shape[1]
            if given != expected:
                raise FovaError(
                    f"{name}: piece {number} has {given} columns, but piece 0 has {expected}. "
                    "Join data of one task only."
                )
    return Transitions(
        **{f.name: np.concatenate([getattr(p, f.name) for p in pieces]) for f in fields(Transitions)}
    )


def _refuse_misshapen(episodes: Sequence[Episode]) -> None:
    observation, action = np.shape(episodes[0].observations)[1:], np.shape(episodes[0].actions)[1:]
    for number, episode in enumerate(episodes):
        steps = len(episode)
        for name, expected in (("observations", (steps + 1, *observation)), ("actions", (steps, *action))):
            given = np.shape(getattr(episode, name))
            if given != expected or len(given) != 2:
                raise FovaError(
                    f"{name}: episode {number} has shape {given} with {steps} rewards, but (rows, columns) = "
                    f"{expected} is needed: one action per step, one observation more, of one size throughout."
                )


def _stack(parts: Iterable[ArrayLike]) -> Floats:
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


# --- The checker ------------------------------------------------------------------------------------------


def check(
    data: Transitions, client: str, action: ActionSpace | None = None, observation_size: int | None = None
) -> None:
    """Raise one error that lists every problem of a client's data, with client, field, row and remedy.

    Without an action space, actions may have any number of columns and must lie between -1 and 1.
    """
    # The checks of values need matching shapes.
    _refuse(client, _shape_problems(data, observation_size, None if action is None else action.size))
    _refuse(client, _value_problems(data, action or Box.of(data.actions.shape[1], -1.0, 1.0)))


def check_shapes(data: Transitions, client: str) -> None:
    """Raise an error that lists every field that is no array of numbers with one row per step."""
    _refuse(client, _shape_problems(data, None, None))


def _refuse(client: str, problems: Iterable[str]) -> None:
    if found := list(problems):
        raise FovaError(
            f"The data of client {client!r} cannot be used:\n" + "\n".join(f"  - {each}" for each in found)
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
            yield f"{field.name}: has {len(values)} rows, but rewards has {rows}. Give each field one row per step."
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


def _value_problems(data: Transitions, action: ActionSpace) -> Iterable[str]:
    for field in fields(data):
        values = getattr(data, field.name)
        rows = np.flatnonzero(~(np.abs(values.reshape(len(values), -1)) <= LARGEST).all(axis=1))
        if len(rows):
            what = TOO_LARGE if np.isfinite(values[rows[0]]).all() else "NaN or infinite"
            yield (
                f"{field.name}: row {rows[0]} is {what} ({len(rows)} such rows). "
                "Remove those episodes or repair the log."
            )
    yield from _code_problems(data, action) if isinstance(action, Discrete) else _bound_problems(data, action)
    for name in ("terminals", "has_next_action"):
        values = getattr(data, name)
        wrong = np.flatnonzero(~np.isin(values, (0, 1)) & np.isfinite(values))
        if len(wrong):
            yield f"{name}: row {wrong[0]} holds {values[wrong[0]]:g}; only 0 and 1 are allowed here."
    going_on = np.flatnonzero((data.terminals == 1) & ~data.episode_ends.astype(bool))
    if len(going_on):
        yield (
            f"terminals: the task ends in row {going_on[0]}, but according to episode_ends its episode continues "
            f"({len(going_on)} such rows). Mark the row as the last of its episode."
        )
    if not data.episode_ends[-1]:
        yield f"episode_ends: the last row, {len(data) - 1}, is not marked. The data ends there, so mark it."


def _bound_problems(data: Transitions, box: Box) -> Iterable[str]:
    low, high = box.bounds
    for name, values, present in _actions_of(data):
        excess = np.maximum(low - values, values - high)  # NaN where the action is NaN, which is already reported
        outside = (excess > TOLERANCE).any(axis=1) & present
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            column = int(np.nanargmax(excess[row]))
            yield (
                f"{name}: row {row} holds {values[row, column]:g}, outside the declared bounds "
                f"[{low[column]:g}, {high[column]:g}] ({int(outside.sum())} such rows). "
                "Declare the true bounds (--action-low, --action-high) or rescale the actions."
            )
            return  # next actions repeat the actions, one row earlier


def _code_problems(data: Transitions, action: Discrete) -> Iterable[str]:
    for name, values, present in _actions_of(data):
        codes = values[:, 0]
        wrong = present & np.isfinite(codes) & ~((codes >= 0) & (codes < action.count) & (codes == np.floor(codes)))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            yield (
                f"{name}: row {row} holds {codes[row]:g}, but discrete actions are whole numbers from 0 to "
                f"{action.count - 1} ({int(wrong.sum())} such rows). Correct the codes, or name all actions."
            )
            return


def _actions_of(data: Transitions) -> Iterable[tuple[str, Floats, NDArray[np.bool_]]]:
    """Both fields of actions, each with the rows that hold one."""
    yield "actions", data.actions, np.ones(len(data), bool)
    yield "next_actions", data.next_actions, data.has_next_action > 0


def refuse_unbounded(clients: Iterable[Transitions], beyond: float = 1.0) -> None:
    """Refuse continuous actions without declared bounds if they reach beyond -`beyond` or `beyond`."""
    actions = [data.actions for data in clients if np.ndim(data.actions) == 2 and np.size(data.actions)]
    if (
        not actions
        or len({each.shape[1] for each in actions}) > 1
        or not all(np.isfinite(a).all() for a in actions)
    ):
        return  # the check of each client says what is wrong
    low = np.min([each.min(axis=0) for each in actions], axis=0)
    high = np.max([each.max(axis=0) for each in actions], axis=0)
    if (np.maximum(np.abs(low), np.abs(high)) <= beyond + TOLERANCE).all():
        return
    shown_low, shown_high = bounds_in_words(low, high)
    raise FovaError(
        f"The bounds of the actions are not declared. In the data the actions reach from {shown_low} to "
        f"{shown_high}. If these are the bounds, add:\n  --action-low {shown_low} --action-high {shown_high}\nA "
        "policy never acts beyond its bounds, so give the true ones where they are wider."
    )


def bounds_in_words(low: ArrayLike, high: ArrayLike) -> tuple[str, str]:
    """The lowest and the highest action as flags take them, rounded outwards to four digits."""

    def rounded(bound: float, up: bool) -> float:
        if bound == 0.0 or not np.isfinite(bound):
            return bound
        scale = 10.0 ** (3 - math.floor(math.log10(abs(bound))))
        return (math.ceil if up else math.floor)(round(bound * scale, 6)) / scale

    pairs = ((np.atleast_1d(low), False), (np.atleast_1d(high), True))
    lowest, highest = (" ".join(f"{rounded(float(b), up):.6g}" for b in bounds) for bounds, up in pairs)
    return lowest, highest
