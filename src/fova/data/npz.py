"""NPZ files of plain numeric arrays, one row per step. No pickle is ever read.

    observations [rows, observation]   actions [rows, action]   rewards [rows]   terminals [rows]
    optional: timeouts (or truncations), next_observations, episodes, steps, action_low, action_high
A file with one observation more than rewards is a single episode with its final observation.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.data.fields import decoding, fault, refuse_bombs
from fova.data.rows import Table, spelled, table, unused
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.machine.files import write_atomically

REMEDY = "It is damaged or no NPZ file: write it again with numpy.savez."


def read_table(file: Path) -> Table:
    """The steps in one NPZ file."""
    with decoding(file, "", REMEDY):
        if not zipfile.is_zipfile(file):
            raise fault(file, "", f"is not an NPZ file (a zip archive of arrays). {REMEDY}")
        with zipfile.ZipFile(file) as archive:
            refuse_bombs(file, "", sum(member.file_size for member in archive.infolist()), file.stat().st_size)
        arrays = np.load(file, allow_pickle=False)
    with arrays:
        found = spelled(arrays.files, file)
        columns = {}
        for field, name in found.items():
            remedy = "Store it as a plain numeric array; pickled objects are never read."
            with decoding(file, name, remedy):
                columns[field] = arrays[name]
        checked = table(columns, found, file)
        return checked.noting(unused(arrays.files, found))


def save_npz(
    data: Transitions | Iterable[Episode],
    file: str | Path,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
) -> None:
    """Write data so that loading it gives the same transitions; the file appears whole or not at all.

    Of a piece that cuts an episode short, the a' of its last row is not kept.
    """
    rows = data if isinstance(data, Transitions) else from_episodes(data)
    arrays = {
        "observations": rows.observations,
        "actions": rows.actions,
        "rewards": rows.rewards,
        "terminals": rows.terminals > 0,
        "timeouts": rows.episode_ends & (rows.terminals == 0),
        "next_observations": rows.next_observations,
    }
    if action_low is not None and action_high is not None:
        arrays |= {"action_low": np.asarray(action_low), "action_high": np.asarray(action_high)}
    try:
        write_atomically(Path(file), _packed(arrays))
    except OSError as error:
        remedy = "Name a file that you may write, on a disk with room for it."
        raise fault(file, "", f"cannot be written ({error.strerror}). {remedy}") from error


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of an NPZ file; unlike numpy.savez without the time of day, so the same data gives the same."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
    return packed.getvalue()
