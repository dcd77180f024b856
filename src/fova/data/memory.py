"""Check whether the data that a file declares fits into this machine's memory, before any number is read.

A small compressed file can hold more data than fits. Sizes come from headers.
"""

import os
from pathlib import Path

from fova.data.fields import fault

# Loading holds at least three copies in single precision: the checked columns, the episodes cut from them, and the
# transitions. Inspection and training need at least as much again.
WORKING_BYTES = 3 * 4
AGAIN = 2
MEMINFO = Path("/proc/meminfo")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # of a container


def refuse_too_large(file: str | Path, stored_bytes: int, numbers: int) -> None:
    """Refuse data that does not fit into memory, given its decompressed bytes and its count of numbers."""
    needed, free = AGAIN * (stored_bytes + WORKING_BYTES * numbers), available()
    if free is not None and needed > free:
        size = f"{_gigabytes(needed)} of memory, but {_gigabytes(free)} are available"
        raise fault(file, "", f"needs about {size}. Store fewer rows, or use a machine with more memory.")


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
