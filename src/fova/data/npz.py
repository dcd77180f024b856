"""NPZ files of plain numeric arrays, one row per step. No pickle is ever read.

    observations [rows, observation]   actions [rows, action]   rewards [rows]   terminals [rows]
    optional: timeouts (or truncations), next_observations, episodes, steps, action_low, action_high, action_names
Integer actions are codes of discrete actions, [rows] or [rows, 1]; `action_names` is an array of their names.
A file with one observation more than rewards is a single episode with its final observation.
"""

import io
import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.data.fields import decoding, fault, refuse_bombs
from fova.data.memory import refuse_too_large
from fova.data.paths import refuse_special
from fova.data.rows import Table, spelled, table, unused
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.errors import FovaError
from fova.machine.files import write_atomically

REMEDY = "It is damaged or no NPZ file: write it again with numpy.savez."
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_table(file: Path) -> Table:
    """The steps in one NPZ file."""
    refuse_special(file)
    with decoding(file, "", REMEDY):
        if not zipfile.is_zipfile(file):
            raise fault(file, "", f"is not an NPZ file (a zip archive of arrays). {REMEDY}")
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        refuse_bombs(file, "", sum(member.file_size for member in members), file.stat().st_size)
        if members and min(member.header_offset for member in members) > 0:
            # Two archives in one file, as `cat` makes them: only the last one would be read.
            raise fault(file, "", "holds other data before its arrays, which would be ignored. Keep one per file.")
        arrays = np.load(file, allow_pickle=False)
    with arrays:
        found = spelled(arrays.files, file)
        for repeated in (name for name in found.values() if arrays.files.count(name) > 1):
            raise fault(file, repeated, "is there twice. Keep one of them.")
        sizes = [_size(arrays.zip, name, file) for name in found.values()]
        refuse_too_large(file, sum(size for size, _ in sizes), sum(numbers for _, numbers in sizes))
        columns = {}
        for field, name in found.items():
            remedy = "Store it as a plain numeric array; pickled objects are never read."
            with decoding(file, name, remedy):
                columns[field] = arrays[name]
        checked = table(columns, found, file)
        return checked.noting(unused(arrays.files, found))


def _size(archive: zipfile.ZipFile, name: str, file: Path) -> tuple[int, int]:
    """The bytes of a member once decompressed, and the count of numbers that its header declares."""
    with decoding(file, name, "Store it as a plain numeric array."):
        member = archive.getinfo(f"{name}.npy" if f"{name}.npy" in archive.namelist() else name)
        with archive.open(member) as stream:
            read_header = HEADERS.get(np.lib.format.read_magic(stream))
            shape, _, kind = read_header(stream) if read_header else ((), False, np.dtype("u1"))
    numbers = math.prod(shape)
    if not kind.hasobject and numbers * kind.itemsize > member.file_size:
        given = f"declares {numbers * kind.itemsize:,} bytes, but holds {member.file_size:,}"
        raise fault(file, name, f"{given}. Fetch or write the file again.")
    return member.file_size, numbers


def save_npz(
    data: Transitions | Iterable[Episode],
    file: str | Path,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    action_names: Sequence[str] | None = None,
) -> None:
    """Write data so that loading it gives the same transitions. The write is atomic.

    With `action_names` the actions are stored as integers, the codes of discrete actions. If a piece cuts its last
    episode short, the a' of its last row is not stored.
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
    if (action_low is None) != (action_high is None):
        given, other = ("action_high", "action_low") if action_low is None else ("action_low", "action_high")
        raise FovaError(f"{given} is given without {other}. Give both bounds of the actions, or neither.")
    if action_low is not None:
        arrays |= {"action_low": np.asarray(action_low), "action_high": np.asarray(action_high)}
    if action_names is not None:
        arrays |= {"actions": rows.actions.astype(np.int64), "action_names": np.array(list(map(str, action_names)))}
    try:
        write_atomically(Path(file), _packed(arrays))
    except OSError as error:
        remedy = "Name a file that you may write, on a disk with room for it."
        raise fault(file, "", f"cannot be written ({error.strerror}). {remedy}") from error


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of an NPZ file. It has no timestamps, unlike numpy.savez, so equal data gives equal bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
    return packed.getvalue()
