"""Locks for one process at a time. The operating system releases a lock when its holder dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fova.errors import FovaError


@contextmanager
def exclusive(path: Path, message: str) -> Iterator[None]:
    """Hold the lock file `path`. If another process holds it, raise `FovaError` with `message` at once.

    The lock is released at the end of the block, or when the process ends for any reason. The file itself stays.
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise FovaError(message) from None
    except OSError as error:
        raise FovaError(f"The lock {path} cannot be taken: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()
