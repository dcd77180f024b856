"""Processes that belong together end together.

Flower starts helper processes in sessions of their own, and some outlive the process that started them. All
processes of one server or client carry the same mark in their environment, by which they are found.
"""

import hashlib
import os
import signal
import threading
import time
from pathlib import Path

MARK, PARENT = "FOVA_PROCESSES", "FOVA_PARENT"
PROCESSES = Path("/proc")
SECONDS_TO_END = 5.0


def mark_of(folder: Path) -> str:
    """The mark of the processes that work for a folder: the same after a restart, so that leftovers are found."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]


def marked(mark: str) -> list[int]:
    """The processes of this user with this mark, other than this one; none where there is no /proc."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in PROCESSES.glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\x00") and not _is_gone(entry):
                found.append(int(entry.name))
        except OSError:  # it has ended, or it is another user's
            continue
    return [pid for pid in found if pid != os.getpid()]


def commands(mark: str) -> list[str]:
    """The command lines of the processes with this mark."""
    lines = []
    for pid in marked(mark):
        try:
            line = (PROCESSES / str(pid) / "cmdline").read_bytes()
            lines.append(line.replace(b"\x00", b" ").decode(errors="replace"))
        except OSError:  # it has just ended
            continue
    return lines


def end(mark: str, seconds: float = SECONDS_TO_END) -> int:
    """End all processes with this mark, and return how many there were. Who does not heed SIGTERM is killed."""
    there = marked(mark)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in marked(mark):
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue
        patience = time.monotonic() + seconds
        while marked(mark) and time.monotonic() < patience:
            time.sleep(0.1)
    return len(there)


def end_with_parent() -> None:
    """End this process and all that carry its mark as soon as its parent is gone, even if the parent was killed."""
    # The parent says who it is: it may be gone before this process can look.
    parent, mark = int(os.environ.get(PARENT, os.getppid())), os.environ.get(MARK, "")

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        if mark:
            end(mark)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _is_gone(entry: Path) -> bool:
    """Whether a process has ended and only its parent has not noticed yet."""
    return (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
