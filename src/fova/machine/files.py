"""Writing files so that a crash never leaves half of one."""

import os
from pathlib import Path


def is_scratch(path: Path) -> bool:
    """Whether this is a file that `write_atomically` did not live to finish."""
    return path.name.startswith(".") and path.name.endswith(".part")


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path`: afterwards the file is either wholly new or untouched, even after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
