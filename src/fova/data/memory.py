"""Does what a file declares fit into this machine's memory? Asked before a single number is read.

A compressed file may be tiny and hold far more than fits. Sizes come from headers.
"""

import os
from pathlib import Path

from fova.data.fields import fault

# While data is loaded there are at least three copies in single precision: the checked columns, the episodes that
# are cut from them, and the transitions. Inspecting and training take at least as much again.
WORKING_BYTES = 3 * 4
AGAIN = 2
MEMINFO = Path("/proc/meminfo")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # of a container


def refuse_too_large(file: str | Path, stored_bytes: int, numbers: int) -> None:
    """Refuse data of so many bytes, once decompressed, and so many numbers, if there is no room for it."""
    needed, free = AGAIN * (stored_bytes + WORKING_BYTES * numbers), available()
    if free is not None and needed > free:
        size = f"{_gigabytes(needed)} of memory, but {_gigabytes(free)} are available"
        raise fault(file, "", f"needs about {size}. Store fewer rows, or use a machine with more memory.")


def available() -> int | None:
    """The bytes that a process may still take, or None where the system does not say."""
    known = [size for size in (_free(), *map(_limit, LIMITS)) if size is not None]
    return min(known, default=None)


def _free() -> int | None:
    if MEMINFO.is_file():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _limit(file: Path) -> int | None:
    text = file.read_text().strip() if file.is_file() else ""
    return int(text) if text.isdigit() else None


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
