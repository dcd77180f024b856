"""Read D4RL's HDF5 files as downloaded: one row per step in the root group, extras in `infos/` and `metadata/`.

Older files hold no next_observations. Files of maze2d have three faults, which are corrected or reported in a note:
- The recording script sets `terminals` where the planner draws a new goal, though the task never ends. The
  published files have `timeouts` there instead.
- The script does not update the observation when it draws a new goal. The first row after that repeats the previous
  observation, but its action was applied in another state.
- Rewards were computed afterwards from the observation before the action, not from the one after it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from fova.data.fields import counted, decoding, fault
from fova.data.hdf5_guard import refuse_absurd_size, refuse_links_elsewhere, unwritten
from fova.data.memory import refuse_too_large
from fova.data.paths import refuse_special
from fova.data.rows import Table, spelled, table, unused

REMEDY = "It is damaged or not an HDF5 file. Fetch or write it again."
MEASURED = ("observations", "actions", "rewards", "next_observations")
MAZE_OBSERVATION = 4  # position and velocity in the plane


def read_table(file: Path) -> Table:
    """The steps in one HDF5 file."""
    refuse_special(file)
    with decoding(file, "", REMEDY):
        store = h5py.File(file, "r")
    with store:
        with decoding(file, "", REMEDY):
            refuse_links_elsewhere(store, file)
            names = [n if isinstance(n, str) else n.decode(errors="replace") for n in store]  # bytes if not UTF-8
            has_goals = "infos/goal" in store
        found = spelled(names, file)
        arrays = {name: _array(store, name, file) for name in found.values()}
        gaps = _notes_on_gaps(arrays, found, file)
        refuse_too_large(file, *(sum(getattr(a, what) for a in arrays.values()) for what in ("nbytes", "size")))
        columns = {}
        for field, name in found.items():
            with decoding(file, name, "Fetch or write the file again."):
                columns[field] = arrays[name][()]
    rows = table(columns, found, file).noting(gaps).noting(unused(set(names) - {"infos", "metadata"}, found))
    if has_goals and rows.observations.shape[1] == MAZE_OBSERVATION:
        rows = _mended_maze2d(rows)
    return rows


def _array(store: h5py.File, name: str, file: Path) -> h5py.Dataset:
    """The dataset `name` of the file. Its header is checked; its values are not read yet."""
    with decoding(file, name, "Fetch or write the file again."):
        dataset = store[name]
        if not isinstance(dataset, h5py.Dataset):
            raise fault(file, name, "is not an array. Store one row per step.")
        refuse_absurd_size(dataset, file, name)
        if dataset.dtype.kind == "O":
            raise fault(file, name, "holds objects, not numbers. Store it as a plain numeric array.")
        return dataset


def _notes_on_gaps(arrays: Mapping[str, h5py.Dataset], found: Mapping[str, str], file: Path) -> list[str]:
    """Refuse a measured column that was never written; return notes on columns with missing parts."""
    notes = []
    for field, name in found.items():
        with decoding(file, name, REMEDY):
            missing, fill, is_empty = (
                unwritten(arrays[name]),
                arrays[name].fillvalue,
                not arrays[name].id.get_storage_size(),
            )
        if missing and is_empty and field in MEASURED:
            raise fault(file, name, "was declared but never written. Write the file again, to its end.")
        if missing:
            notes.append(f"{name}: {counted(missing, 'piece')} of the array never written, read as {fill}.")
    return notes


def _mended_maze2d(rows: Table) -> Table:
    notes = [
        "maze2d: rewards belong to the observation before the action, one step earlier than the environment gives "
        "them; they are kept as they are."
    ]
    if rows.timeouts is None and rows.terminals.any():
        rows = replace(rows, timeouts=rows.terminals, terminals=np.zeros(len(rows), bool))
        notes.append(
            "maze2d: terminals mark where the planner drew a new goal, though the task never ends; they are read "
            "as timeouts."
        )
    if rows.timeouts is not None and rows.next_observations is None:
        repeats = rows.timeouts[:-1] & (rows.observations[1:] == rows.observations[:-1]).all(axis=1)
        if repeats.any():
            rows = rows[np.append(True, ~repeats)]
            notes.append(
                f"maze2d: left out {counted(int(repeats.sum()), 'first step')} after a new goal, because the file "
                f"repeats the previous observation instead of the one in which the action was taken."
            )
    return rows.noting(notes)
