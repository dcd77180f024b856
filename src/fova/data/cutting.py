"""Split logged steps into episodes and lay them out as transitions.

An episode ends where a flag marks an ending. If the file holds next observations, an episode also ends at a row
whose next observation is not the observation of the following row. Every row belongs to an episode or is counted in
a note that gives the reason. Whole arrays are moved at once, so that millions of rows take seconds.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fova.data.fields import counted, fault
from fova.data.rows import Flags, Table
from fova.data.transitions import Floats, Transitions

CHUNK = 1 << 16  # rows that are moved at once


def cut(rows: Table, file: str | Path) -> tuple[Transitions, tuple[str, ...]]:
    """The transitions in a table, and the notes on it."""
    ends, notes = _ends(rows)
    if rows.next_observations is None:
        notes += notes_on_missing_observations(rows.terminals, ends)
    data = lay_out(rows.observations, rows.actions, rows.rewards, rows.terminals, ends, rows.next_observations)
    if not len(data):
        raise fault(file, "next_observations", "is missing, and without it no complete step is left. Add it.")
    return data, (*rows.notes, *notes)


def _ends(rows: Table) -> tuple[Flags, list[str]]:
    notes = []
    ends = rows.terminals.copy()
    if rows.timeouts is not None:
        ends |= rows.timeouts
    if rows.next_observations is None and rows.timeouts is None:
        notes.append(
            "The file has neither timeouts nor next_observations, so an episode that ran out of time cannot be "
            "told from one that continues. Only terminals end an episode here. Add timeouts if episodes also end "
            "in other ways."
        )
    elif rows.next_observations is None and rows.timeouts is not None and not rows.timeouts[:-1].any():
        notes.append(
            "No row is marked as cut off, so only terminals end an episode here: a record that ran out of time "
            "would be joined with the next one. Mark the last row of each as a time-out, or add an episode column."
        )
    ends[-1] = True
    if rows.next_observations is not None:
        jumps = ~_continues(rows.next_observations, rows.observations) & ~ends
        if jumps.any():
            notes.append(
                f"In {counted(int(jumps.sum()), 'row')} the next observation is not the one in the following row, "
                f"though no ending is marked (first: row {np.flatnonzero(jumps)[0]}). The episode is taken to "
                "break off there."
            )
        ends |= jumps
    return ends, notes


def _continues(following: Floats, observations: Floats) -> Flags:
    """[rows] True where the next observation equals the following row's observation, up to rounding."""
    same = np.empty(len(observations), bool)
    same[-1] = True
    for start in range(0, len(observations) - 1, CHUNK):
        stop = min(start + CHUNK, len(observations) - 1)
        here, there = following[start:stop], observations[start + 1 : stop + 1]
        same[start:stop] = np.isclose(here, there, rtol=1e-4, atol=1e-5).all(axis=1)
    return same


def lay_out(
    observations: Floats,
    actions: Floats,
    rewards: Floats,
    terminals: Flags,
    ends: Flags,
    next_observations: Floats | None,
) -> Transitions:
    """The transitions of logged rows, in order. `observations` is taken over: it is not valid afterwards.

    Without next observations, the observation of the following row is taken. The last step of an episode that broke
    off has none and is left out, its action too: an end without a' says that the episode is whole. After a terminal
    no value is bootstrapped, so the last observation stands in.
    """
    if next_observations is None:
        lost = ends & ~terminals
        kept = np.flatnonzero(~lost)
        following = observations[kept + ~terminals[kept]]
        ends = (ends | np.append(lost[1:], False))[kept]
        observations = _compacted(observations, kept)
        actions, rewards, terminals = actions[kept], rewards[kept], terminals[kept]
    else:
        following = np.empty_like(observations)
        following[:-1] = observations[1:]
        following[ends] = next_observations[ends]
    next_actions = np.zeros_like(actions)
    next_actions[:-1] = actions[1:]
    next_actions[ends] = 0.0
    return Transitions(
        observations=observations,
        actions=actions,
        rewards=rewards,
        next_observations=following,
        next_actions=next_actions,
        terminals=terminals.astype(np.float32),
        has_next_action=1.0 - ends.astype(np.float32),
        episode_ends=ends,
    )


def _compacted(values: Floats, kept: NDArray[np.int64]) -> Floats:
    """The kept rows, moved to the front of the array in place."""
    for start in range(0, len(kept), CHUNK):
        here = kept[start : start + CHUNK]
        values[start : start + len(here)] = values[here]
    return values[: len(kept)]


def notes_on_missing_observations(terminals: Flags, ends: Flags) -> list[str]:
    """What happens to the last steps of episodes where the data holds no next observations."""
    broken = ends & ~terminals
    ended, broke_off = int((ends & terminals).sum()), int(broken.sum())
    single = int((broken & np.append(True, ends[:-1])).sum())
    notes = []
    if broke_off:
        gone = f" {counted(single, 'episode')} had no other step and left no data." if single else ""
        notes.append(
            f"Left out: the last step of {counted(broke_off, 'episode')} that broke off, because the file holds no "
            f"next observation for it.{gone}"
        )
    if ended:
        notes.append(
            f"The last step of {counted(ended, 'episode')} that ended has no next observation in the file; its own "
            f"observation is used instead (no value is bootstrapped from it)."
        )
    return notes
