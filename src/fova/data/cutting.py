"""Split a table of logged steps into episodes.

An episode ends where a flag marks an ending. If the file holds next observations, an episode also ends at a row
whose next observation is not the observation of the following row. Every row belongs to an episode or is counted in
a note that gives the reason.
"""

from pathlib import Path

import numpy as np

from fova.data.fields import counted, fault
from fova.data.rows import Flags, Table
from fova.data.transitions import Episode, Floats


def cut(rows: Table, file: str | Path) -> tuple[list[Episode], tuple[str, ...]]:
    """The episodes in a table, and the notes on it."""
    ends, notes = _ends(rows)
    last = np.flatnonzero(ends)
    first = np.concatenate([[0], last[:-1] + 1])
    episodes = [_episode(rows, start, stop) for start, stop in zip(first.tolist(), last.tolist())]
    episodes = [episode for episode in episodes if len(episode)]
    if not episodes:
        raise fault(file, "next_observations", "is missing, and without it not one whole step is left. Add it.")
    if rows.next_observations is None:
        notes += _notes_on_missing_observations(rows, ends)
    return episodes, (*rows.notes, *notes)


def _ends(rows: Table) -> tuple[Flags, list[str]]:
    notes = []
    ends = rows.terminals.copy()
    if rows.timeouts is not None:
        ends |= rows.timeouts
    elif rows.next_observations is None:
        notes.append(
            "The file has neither timeouts nor next_observations, so an episode that ran out of time cannot be "
            "told from one that goes on: only terminals end an episode here. Add timeouts if there are others."
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
    same = np.isclose(following[:-1], observations[1:], rtol=1e-4, atol=1e-5).all(axis=1)
    return np.append(same, True)


def _episode(rows: Table, first: int, last: int) -> Episode:
    """The episode in rows first..last. Its last step is left out if its next observation is unknown."""
    here = slice(first, last + 1)
    observations, terminated = rows.observations[here], bool(rows.terminals[last])
    if rows.next_observations is not None:
        observations = np.concatenate([observations, rows.next_observations[last : last + 1]])
    elif terminated:  # no value is bootstrapped from s' here, so the last observation can replace it
        observations = np.concatenate([observations, observations[-1:]])
    else:
        here = slice(first, last)
    return Episode(observations, rows.actions[here], rows.rewards[here], terminated)


def _notes_on_missing_observations(rows: Table, ends: Flags) -> list[str]:
    ended, broke_off = int((ends & rows.terminals).sum()), int((ends & ~rows.terminals).sum())
    notes = []
    if broke_off:
        notes.append(
            f"Left out: the last step of {counted(broke_off, 'episode')} that broke off, because the file holds no "
            "next observation for it."
        )
    if ended:
        notes.append(
            f"The last step of {counted(ended, 'episode')} that ended has no next observation in the file; its own "
            "observation stands in for it (no value is bootstrapped from it)."
        )
    return notes
