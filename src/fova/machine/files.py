"""Atomic file writes: a crash never leaves a partial file. Reads that end: no pipe or device is opened."""

import errno
import os
import re
import secrets
import stat
import sys
from pathlib import Path

from fova.errors import FovaError
from fova.settings import shown

SCRATCH = re.compile(r"\..+\.(?P<process>\d+)\.part")
_being_written: set[Path] = set()  # files that this process is writing


def as_file(name: str, given: object) -> Path:
    """The path of a file that a Python program named."""
    if not isinstance(given, str | Path) or str(given) in ("", ".") or "\0" in str(given):
        raise FovaError(f"{name} is {shown(given)}, but must be the path of a file.")
    return Path(given)


def insist_on_regular(path: Path) -> Path:
    """The path, if it is a regular file; else an OSError. Opening a pipe would wait, reading a device never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return path


def is_scratch(path: Path) -> bool:
    """Whether this is a scratch file that `write_atomically` did not finish."""
    return path.name.startswith(".") and path.name.endswith(".part")


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`. Even after a power failure the file is either complete or unchanged.

    A device, pipe or socket is refused: renaming the finished file would replace it, /dev/null for everybody.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FovaError(f"{path} is a device, pipe or socket, not a file. Name a file to write.")
    if path.is_dir() or not path.name:  # "." and "/" have no name
        raise FovaError(f"{path} is a folder, not a file. Name a file to write.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # The random part: processes of two machines may have the same number.
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.{os.getpid()}.part")
    _being_written.add(scratch.absolute())
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
        _being_written.discard(scratch.absolute())
    _sync_directory(path.parent)


def _sync_directory(folder: Path) -> None:
    """Make the names in a folder safe from a power failure, if the system supports it."""
    try:
        directory = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open directories, and a folder may be writable but not readable
        return
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # unsupported by some file systems
            raise
    finally:
        os.close(directory)


def remove_scratch(folder: Path) -> list[Path]:
    """Delete the scratch files of dead processes anywhere in `folder`, and return their paths.

    A file is kept if a process with the number in its name is alive. Call this while holding the folder's lock, so
    that no process on another machine is writing there.
    """
    removed = []
    for path in sorted(folder.rglob(".*.part")):
        found = SCRATCH.fullmatch(path.name)
        if found and path.is_file() and not _may_be_written(path, int(found["process"])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _may_be_written(path: Path, process: int) -> bool:
    # In a container every process may get the same number, so our own number alone proves nothing.
    return path.absolute() in _being_written if process == os.getpid() else _is_alive(process)


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return True  # the check below would end the process on Windows
    try:
        os.kill(process, 0)
    except PermissionError:
        return True  # a process of another user
    except (ProcessLookupError, OverflowError):
        return False
    return True
