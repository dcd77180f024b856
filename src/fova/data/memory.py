"""Check whether the data that a file declares fits into this machine's memory, before any number is read.

A small compressed file can hold more data than fits. Sizes come from headers.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fova.data.fields import fault

# Loading holds at least three copies in single precision: the checked columns, the episodes cut from them, and the
# transitions. Inspection and training need at least as much again.
WORKING_BYTES = 3 * 4
AGAIN = 2
MEMINFO = Path("/proc/meminfo")
PARQUET_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes per value in memory; 8 for all other types
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # of a container


def refuse_too_large(file: str | Path, stored_bytes: int, numbers: int) -> None:
    """Refuse data that does not fit into memory, given its decompressed bytes and its count of numbers."""
    needed, free = AGAIN * (stored_bytes + WORKING_BYTES * numbers), available()
    if free is not None and needed > free:
        size = f"{_gigabytes(needed)} of memory, but {_gigabytes(free)} are available"
        raise fault(file, "", f"needs about {size}. Store fewer rows, or use a machine with more memory.")


def parquet_size(summary: Any, names: Iterable[str]) -> tuple[int, int]:
    """The decoded bytes of these columns of a Parquet file, and the number of their values."""
    size, values, wanted = 0, 0, set(names)
    for group in map(summary.row_group, range(summary.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            parts = column.path_in_schema.split(".")  # dots lie between nested columns, and may lie in a name
            if any(".".join(parts[:end]) in wanted for end in range(1, len(parts) + 1)):
                values += column.num_values
                size += column.num_values * PARQUET_WIDTHS.get(column.physical_type, 8)
    return size, values


def available() -> int | None:
    """The bytes that a process may still allocate, or None if the system does not report them."""
    known = [size for size in (_free(), *map(_limit, LIMITS)) if size is not None]
    return min(known, default=None)


def _free() -> int | None:
    if MEMINFO.is_file():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):  # every POSIX system has the size of a page
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _limit(file: Path) -> int | None:
    text = file.read_text().strip() if file.is_file() else ""
    return int(text) if text.isdigit() else None


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
