"""A table of logged steps, one per row, and where it falls into episodes.

NPZ, HDF5 and Parquet files all hold such a table. Their readers name the columns; this room decides what is an
episode. A row that has to be left out, and any other decision a person should know of, is said in a note.
No file is opened here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import bounds, fault, flags, matrix, same_rows, vector, within
from fova.data.transitions import Episode, Floats

Flags = NDArray[np.bool_]

# What each field may be called in a file. The first name is the one we write.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "rewards": ("rewards", "reward"),
    "observations": ("observations", "observation"),
    "actions": ("actions", "action"),
    "terminals": ("terminals", "terminal", "terminations", "terminated"),
    "timeouts": ("timeouts", "timeout", "truncations", "truncated", "truncateds"),
    "next_observations": ("next_observations", "next_observation"),
    "episodes": ("episodes", "episode", "episode_id", "episode_ids"),
    "steps": ("steps", "step", "timestep", "timesteps"),
    "action_low": ("action_low",),
    "action_high": ("action_high",),
}
REQUIRED = ("rewards", "observations", "actions", "terminals")


@dataclass(frozen=True)
class Recording:
    """What a reader hands over."""

    episodes: list[Episode]
    notes: tuple[str, ...] = ()
    action_low: Floats | None = None  # [action], as declared in the file
    action_high: Floats | None = None


@dataclass(frozen=True)
class Table:
    """Logged steps in their order, checked field by field."""

    observations: Floats  # [rows, observation]
    actions: Floats  # [rows, action]
    rewards: Floats  # [rows]
    terminals: Flags  # [rows] the task ended with this step
    timeouts: Flags | None  # [rows] the episode was cut off after this step
    next_observations: Floats | None  # [rows, observation]
    breaks: Flags  # [rows] another episode follows for a reason that is no flag: its number, its file, a gap
    action_low: Floats | None = None
    action_high: Floats | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rewards)

    def noting(self, notes: Sequence[str]) -> "Table":
        return replace(self, notes=(*self.notes, *notes))


# --- Naming ------------------------------------------------------------------------------------------------


def spelled(names: Iterable[str], file: str | Path) -> dict[str, str]:
    """Which of the names in a file is which field: {field: its name in the file}."""
    there = set(names)
    found: dict[str, str] = {}
    for field, spellings in SPELLINGS.items():
        present = [name for name in spellings if name in there]
        if len(present) > 1:
            raise fault(file, present[1], f"is there beside {present[0]}, and both mean {field}. Keep one of them.")
        if present:
            found[field] = present[0]
        elif field in REQUIRED:
            raise fault(file, field, f"is missing. {_remedy(field, there)}")
    for field, other in (("action_low", "action_high"), ("action_high", "action_low")):
        if field in found and other not in found:
            raise fault(file, other, f"is missing, though {field} is there. Declare both bounds or neither.")
    return found


def unused(names: Iterable[str], found: Mapping[str, str]) -> tuple[str, ...]:
    """A note that lists what was not read, so that a misspelt name does not go unseen."""
    rest = sorted(set(names) - set(found.values()))
    if not rest:
        return ()
    more = f" and {len(rest) - 8} more" if len(rest) > 8 else ""
    return (f"Not used: {', '.join(rest[:8])}{more}.",)


def _remedy(field: str, there: set[str]) -> str:
    listed = ", ".join(sorted(there)[:12]) or "nothing"
    remedy = f"The file has: {listed}."
    if field == "terminals":
        also = " ('dones' mixes endings with time-outs; tell them apart.)" if there & {"done", "dones"} else ""
        return f"{remedy} Add 1 where the task itself ended and 0 elsewhere (all 0 if it never ends).{also}"
    return f"{remedy} Add it, or rename the one that holds it (known names: {', '.join(SPELLINGS[field])})."


# --- Checking ----------------------------------------------------------------------------------------------


def table(columns: Mapping[str, Any], found: Mapping[str, str], file: str | Path) -> Table:
    """Check the columns {field: values}, complaining in the file's own names, and lay them out as a table."""
    name = {field: found.get(field, field) for field in SPELLINGS}
    rewards = vector(columns["rewards"], file, name["rewards"])
    observations = matrix(columns["observations"], file, name["observations"])
    actions = matrix(columns["actions"], file, name["actions"])
    terminals = flags(columns["terminals"], file, name["terminals"])
    timeouts = flags(columns["timeouts"], file, name["timeouts"]) if "timeouts" in columns else None
    following = None
    if "next_observations" in columns:
        following = matrix(columns["next_observations"], file, name["next_observations"])
        if following.shape[1] != observations.shape[1]:
            given = f"has {following.shape[1]} columns, but {name['observations']} has {observations.shape[1]}"
            raise fault(file, name["next_observations"], f"{given}. Both describe the same state.")
    elif len(observations) == len(rewards) + 1 and len(rewards):
        _refuse_inner_endings(terminals, timeouts, name, file)
        observations, following = observations[:-1], observations[1:]
    lengths = {
        name["rewards"]: len(rewards),
        name["observations"]: len(observations),
        name["actions"]: len(actions),
    }
    lengths[name["terminals"]] = len(terminals)
    lengths |= {name["timeouts"]: len(timeouts)} if timeouts is not None else {}
    lengths |= {name["next_observations"]: len(following)} if following is not None else {}
    same_rows(lengths, file)
    if not len(rewards):
        raise fault(file, name["rewards"], "is empty: there is not one step. Leave this file out.")
    low = high = None
    if "action_low" in columns:
        low, high = bounds(columns["action_low"], columns["action_high"], actions.shape[1], file)
        within(actions, low, high, file, name["actions"])
    breaks = np.zeros(len(rewards), bool)
    return Table(observations, actions, rewards, terminals, timeouts, following, breaks, low, high)


def _refuse_inner_endings(
    terminals: Flags, timeouts: Flags | None, name: Mapping[str, str], file: str | Path
) -> None:
    """One observation more than steps is the layout of a single episode, its final observation included."""
    for field, values in (("terminals", terminals), ("timeouts", timeouts)):
        if values is not None and values[:-1].any():
            row = int(np.flatnonzero(values[:-1])[0])
            raise fault(
                file,
                name[field],
                f"row {row} ends an episode, but {name['observations']} has one row more than {name['rewards']}, "
                "which is only clear for a single episode. Store one file per episode, or next_observations.",
            )


# --- Cutting -----------------------------------------------------------------------------------------------


def cut(table: Table, file: str | Path) -> Recording:
    """Cut a table into episodes. Every row ends up in one, or is counted in a note that says why not."""
    ends, notes = _ends(table)
    last = np.flatnonzero(ends)
    first = np.concatenate([[0], last[:-1] + 1])
    episodes = [_episode(table, start, stop) for start, stop in zip(first.tolist(), last.tolist())]
    if table.next_observations is None:
        notes += _notes_on_missing_observations(table, ends)
    episodes = [episode for episode in episodes if len(episode)]
    if not episodes:
        raise fault(file, "next_observations", "is missing, and without it not one whole step is left. Add it.")
    return Recording(episodes, (*table.notes, *notes), table.action_low, table.action_high)


def _ends(table: Table) -> tuple[Flags, list[str]]:
    notes = []
    ends = table.terminals | table.breaks
    if table.timeouts is not None:
        ends |= table.timeouts
    elif table.next_observations is None and not table.breaks.any():
        notes.append(
            "The file has neither timeouts nor next_observations, so an episode that ran out of time cannot be "
            "told from one that goes on: only terminals end an episode here. Add timeouts if there are others."
        )
    ends[-1] = True
    if table.next_observations is not None:
        jumps = ~_continues(table.next_observations, table.observations) & ~ends
        if jumps.any():
            notes.append(
                f"{jumps.sum()} rows lead to another observation than the next row holds, though no ending is "
                f"marked (first: row {np.flatnonzero(jumps)[0]}): the episode is taken to be cut off there."
            )
        ends |= jumps
    return ends, notes


def _continues(following: Floats, observations: Floats) -> Flags:
    """Where the next row starts from the observation that this row led to, up to rounding in the file."""
    same = np.isclose(following[:-1], observations[1:], rtol=1e-4, atol=1e-5).all(axis=1)
    return np.append(same, True)


def _episode(table: Table, first: int, last: int) -> Episode:
    """The episode in rows first..last, without its last step if nobody knows where that led."""
    rows = slice(first, last + 1)
    observations, terminated = table.observations[rows], bool(table.terminals[last])
    if table.next_observations is not None:
        observations = np.concatenate([observations, table.next_observations[last:][:1]])
    elif terminated:  # nothing is bootstrapped from s' here, so the last observation may stand in for it
        observations = np.concatenate([observations, observations[-1:]])
    else:
        rows = slice(first, last)
    return Episode(observations, table.actions[rows], table.rewards[rows], terminated)


def _notes_on_missing_observations(table: Table, ends: Flags) -> list[str]:
    ended, cut_off = int((ends & table.terminals).sum()), int((ends & ~table.terminals).sum())
    notes = []
    if cut_off:
        notes.append(
            f"{cut_off} last steps of episodes that were cut off have no next observation in the file and were "
            "left out."
        )
    if ended:
        notes.append(
            f"{ended} last steps of episodes that ended have no next observation in the file; their own "
            "observation stands in for it (no value is bootstrapped from it)."
        )
    return notes
