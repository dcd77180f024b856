"""A table of logged steps, one per row: the common result of all readers.

A reader names the columns. This module checks, sorts and joins them. A note reports every decision that a user
should know about. No file is opened here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import (
    bounds,
    counted,
    fault,
    flags,
    labels,
    matrix,
    same_rows,
    shown,
    texts,
    vector,
    whole_numbers,
    within,
)
from fova.data.transitions import Floats

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]

# Accepted names of each field in a file. fova writes the first one.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "rewards": ("rewards", "reward"),
    "observations": ("observations", "observation"),
    "actions": ("actions", "action"),
    "terminals": ("terminals", "terminal", "terminations", "terminated"),
    "timeouts": ("timeouts", "timeout", "truncations", "truncated"),
    "next_observations": ("next_observations", "next_observation"),
    "episodes": ("episodes", "episode", "episode_id"),
    "steps": ("steps", "step"),
    "action_low": ("action_low",),
    "action_high": ("action_high",),
    "action_names": ("action_names",),
}
REQUIRED = ("rewards", "observations", "actions", "terminals")

# How each column is checked.
CHECKS: dict[str, Callable[[Any, str | Path, str], NDArray[Any]]] = {
    "rewards": vector,
    "observations": matrix,
    "actions": matrix,
    "terminals": flags,
    "timeouts": flags,
    "next_observations": matrix,
    "episodes": labels,
    "steps": whole_numbers,
}


@dataclass(frozen=True)
class Table:
    """Logged steps in order, checked field by field."""

    observations: Floats  # [rows, observation]
    actions: Floats  # [rows, action]
    rewards: Floats  # [rows]
    terminals: Flags  # [rows] the task ended with this step
    timeouts: Flags | None  # [rows] the episode was cut off after this step; None if the file does not say
    next_observations: Floats | None  # [rows, observation]
    action_low: Floats | None = None  # [action], as declared in the file
    action_high: Floats | None = None
    action_names: tuple[str, ...] | None = None  # of discrete actions, as declared in the file
    integer_actions: bool = False  # actions are stored as integers
    notes: tuple[str, ...] = ()
    numbered: bool = False  # a column of step numbers gave the order of the rows

    def __len__(self) -> int:
        return len(self.rewards)

    def noting(self, notes: Iterable[str]) -> "Table":
        """The same table with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def __getitem__(self, rows: NDArray[Any]) -> "Table":
        """The rows that a mask selects, or all rows in another order."""
        columns = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
        chosen = {name: getattr(self, name) for name in columns if getattr(self, name) is not None}
        return replace(self, **{name: values[rows] for name, values in chosen.items()})


# --- Naming ------------------------------------------------------------------------------------------------


def spelled(names: Iterable[str], file: str | Path) -> dict[str, str]:
    """The name in the file of each field: {field: name}."""
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
    """A note that lists the names that were not read, so that users see a misspelt name."""
    rest = sorted(set(names) - set(found.values()))
    if not rest:
        return ()
    more = f" and {len(rest) - 8} more" if len(rest) > 8 else ""
    return (shown(f"Not used: {', '.join(rest[:8])}{more}."),)


def _remedy(field: str, there: set[str]) -> str:
    remedy = f"The file has: {', '.join(sorted(there)[:12]) or 'nothing'}."
    if field == "terminals":
        also = " ('dones' mixes endings with time-outs; tell them apart.)" if there & {"done", "dones"} else ""
        return f"{remedy} Add 1 where the task itself ended and 0 elsewhere (all 0 if it never ends).{also}"
    return f"{remedy} Add it, or rename the one that holds it (known names: {', '.join(SPELLINGS[field])})."


# --- Checking ----------------------------------------------------------------------------------------------


def table(columns: Mapping[str, Any], found: Mapping[str, str], file: str | Path) -> Table:
    """Check the columns {field: values} and return them as a table. Errors use the names in the file."""
    name = {field: found.get(field, field) for field in SPELLINGS}
    columns = dict(columns)
    columns["actions"], integers = _codes_in_a_column(columns["actions"])
    read = {field: CHECKS[field](columns[field], file, name[field]) for field in CHECKS if field in columns}
    if "next_observations" not in read and len(read["observations"]) == len(read["rewards"]) + 1:
        _split_final_observation(read, name, file)
    same_rows({name[field]: len(values) for field, values in read.items()}, file)
    if not len(read["rewards"]):
        raise fault(file, name["rewards"], "is empty: there is no step. Leave this file out.")
    _same_columns(read, name, file)
    low = high = None
    if "action_low" in columns:
        low, high = bounds(columns["action_low"], columns["action_high"], read["actions"].shape[1], file)
        within(read["actions"], low, high, file, name["actions"])
    rows = Table(
        observations=read["observations"],
        actions=read["actions"],
        rewards=read["rewards"],
        terminals=read["terminals"],
        timeouts=read.get("timeouts"),
        next_observations=read.get("next_observations"),
        action_low=low,
        action_high=high,
        action_names=texts(columns["action_names"], file, "action_names") if "action_names" in columns else None,
        integer_actions=integers,
    )
    return _in_order(rows, read.get("episodes"), read.get("steps"), name, file)


def _codes_in_a_column(actions: Any) -> tuple[Any, bool]:
    """The actions, and whether they are integers. One integer per row becomes a column."""
    kind, shape = getattr(getattr(actions, "dtype", None), "kind", "O"), np.shape(actions)
    if kind not in "iub":
        return actions, False
    return (np.reshape(actions, (-1, 1)) if len(shape) == 1 else actions), True


def _split_final_observation(read: dict[str, Any], name: Mapping[str, str], file: str | Path) -> None:
    """Split off the final observation if there is one more than steps, as in a single episode."""
    for field in ("terminals", "timeouts"):
        inner = np.flatnonzero(read.get(field, np.zeros(0))[:-1])
        if len(inner):
            raise fault(
                file,
                name[field],
                f"row {inner[0]} ends an episode, but {name['observations']} has one row more than "
                f"{name['rewards']}, which is only clear for a single episode. Store one file per episode, or "
                "next_observations.",
            )
    observations = read["observations"]
    read |= {"observations": observations[:-1], "next_observations": observations[1:]}


def _same_columns(read: Mapping[str, Any], name: Mapping[str, str], file: str | Path) -> None:
    expected = read["observations"].shape[1]
    given = read["next_observations"].shape[1] if "next_observations" in read else expected
    if given != expected:
        problem = f"has {given} columns, but {name['observations']} has {expected}. Both describe the same state."
        raise fault(file, name["next_observations"], problem)


def _in_order(
    rows: Table, episodes: Numbers | None, steps: Numbers | None, name: Mapping[str, str], file: str | Path
) -> Table:
    """Sort rows by episode and step number, and break episodes where either number does not continue."""
    if episodes is not None:
        keys = (episodes,) if steps is None else (steps, episodes)  # the last key of lexsort is the primary one
        order = np.lexsort(keys)
        if (np.diff(order) != 1).any():
            by = name["episodes"] if steps is None else f"{name['episodes']} and {name['steps']}"
            rows = rows[order].noting([f"The rows were not in order and were sorted by {by}."])
        breaks = np.diff(episodes[order]) != 0
        if steps is not None:
            gaps = _gaps(steps[order], breaks, name["steps"], file)
            number = counted(int(gaps.sum()), "place")
            note = f"Steps are missing in {number}: the episode is taken to break off there."
            rows = rows.noting([note] if gaps.any() else [])
            breaks |= gaps
        rows = rows.noting(_inner_endings(rows, breaks, name))
    elif steps is not None:
        breaks = np.diff(steps) != 1
        rows = rows.noting(_odd_restarts(steps, name["steps"], file))
    else:
        return rows
    broken = np.append(breaks, True)
    rows = replace(rows, numbered=steps is not None)
    return replace(rows, timeouts=broken if rows.timeouts is None else rows.timeouts | broken)


def _gaps(steps: Numbers, breaks: Flags, name: str, file: str | Path) -> Flags:
    """[rows - 1] True where a step within an episode is not followed by the next step number."""
    twice = np.flatnonzero(~breaks & (np.diff(steps) == 0))
    if len(twice):
        problem = f"step {steps[twice[0]]} occurs twice in one episode"
        raise fault(file, name, f"{problem}. Number the steps of each episode 0, 1, 2 and so on.")
    return ~breaks & (np.diff(steps) != 1)


def _inner_endings(rows: Table, breaks: Flags, name: Mapping[str, str]) -> list[str]:
    """Notes on endings that are marked within an episode."""
    notes = []
    for field, flags_of in (("terminals", rows.terminals), ("timeouts", rows.timeouts)):
        inner = 0 if flags_of is None else int((flags_of[:-1] & ~breaks).sum())
        if inner:
            notes.append(
                f"{name[field]} marks an ending in {counted(inner, 'row')} after which {name['episodes']} "
                f"continues. The episode is cut there."
            )
    return notes


def _odd_restarts(steps: Numbers, name: str, file: str | Path) -> list[str]:
    """Notes on step numbers that start in the middle, if step numbers alone mark the episodes.

    A repeated number is refused. The lowest number may repeat, because an episode starts with it: it is then an
    episode of one step.
    """
    restarts = (np.diff(steps) != 1) & (steps[1:] != steps.min())
    twice = np.flatnonzero(restarts & (np.diff(steps) == 0))
    if len(twice):
        problem = f"step {steps[twice[0]]} occurs twice in a row (row {twice[0] + 1})"
        raise fault(file, name, f"{problem}. Number the steps of each episode 0, 1, 2 and so on.")
    if len(steps) > 1 and (steps == steps[0]).all():
        return [f"{name} is {steps[0]} in every row, so every row is taken for an episode of one step."]
    if not restarts.any():
        return []
    first = int(np.flatnonzero(restarts)[0]) + 1
    return [
        f"In {counted(int(restarts.sum()), 'row')} the step number neither continues nor starts again (first: row "
        f"{first}). The episode is taken to break off there. Add an episode column if the rows are not in order."
    ]


# --- Joining -----------------------------------------------------------------------------------------------


def joined(tables: Sequence[Table], files: Sequence[str | Path]) -> Table:
    """Tables laid end to end. No episode continues from one file into the next."""
    first = tables[0]
    for each, file in zip(tables, files):
        for field in ("observations", "actions"):
            given, expected = getattr(each, field).shape[1], getattr(first, field).shape[1]
            if given != expected:
                raise fault(file, field, f"has {given} columns, but {files[0]} has {expected}. Keep one task here.")
        if (each.next_observations is None) != (first.next_observations is None):
            there, lacking = (files[0], file) if each.next_observations is None else (file, files[0])
            raise fault(lacking, "next_observations", f"is missing, though {there} has it. Make the files alike.")
        for field in ("action_low", "action_high", "action_names"):
            if not np.array_equal(getattr(each, field), getattr(first, field)):
                raise fault(file, field, f"is not declared as in {files[0]}. Make the files alike.")
    following = [each.next_observations for each in tables if each.next_observations is not None]
    return Table(
        observations=np.concatenate([each.observations for each in tables]),
        actions=np.concatenate([each.actions for each in tables]),
        rewards=np.concatenate([each.rewards for each in tables]),
        terminals=np.concatenate([each.terminals for each in tables]),
        timeouts=np.concatenate([_broken_off(each) for each in tables]),
        next_observations=np.concatenate(following) if following else None,
        action_low=first.action_low,
        action_high=first.action_high,
        action_names=first.action_names,
        integer_actions=all(each.integer_actions for each in tables),
        notes=tuple(dict.fromkeys(note for each in tables for note in each.notes)),
        numbered=all(each.numbered for each in tables),
    )


def _broken_off(rows: Table) -> Flags:
    timeouts = np.zeros(len(rows), bool) if rows.timeouts is None else rows.timeouts.copy()
    timeouts[-1] = True
    return timeouts
