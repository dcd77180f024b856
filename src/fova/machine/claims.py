"""Claims: which process works on what, where many machines share a folder.

A claim is a small file that only one process can create. Its holder writes a sign of life into it every few
seconds. A holder without a sign of life for LEASE seconds counts as dead, and its claim can be taken over. Whoever
does so creates the next generation of the file, which again only one process can do. A holder that was merely
asleep finds the newer generation and stops.

Nothing here compares the clocks of two machines, and locks of the operating system matter between processes of one
machine only: over a network they may be missing, or outlive the machine that held them.
"""

import contextlib
import json
import os
import platform
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from glob import escape
from pathlib import Path

from filelock import FileLock, Timeout

BEAT = 5.0  # seconds between two signs of life
LEASE = 60.0  # seconds without one after which the holder counts as dead
SUFFIX = ".claim"


@dataclass(frozen=True)
class Sign:
    """What a claim says about its holder."""

    machine: str  # its name, for people
    kernel: str  # the same for two processes whose locks see each other
    process: int
    beats: int = 0
    round: int = 0
    doing: str = ""  # in words
    released: bool = False


UNREADABLE = Sign("another machine", "", 0)  # read while it was being written


def machine_name() -> str:
    return socket.gethostname()


def kernel_id() -> str:
    """The same for all processes under one running kernel, in containers, too."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with contextlib.suppress(OSError):
        return boot.read_text(encoding="ascii").strip()
    return f"{platform.node()}-{uuid.getnode():x}"


class Claim:
    """A claim that this process holds, or that its parent took for it."""

    def __init__(
        self, path: Path, sign: Sign | None = None, lock: FileLock | None = None, from_elsewhere: bool = False
    ) -> None:
        self.path = path
        self.from_elsewhere = from_elsewhere  # taken over from another machine that died
        self.sign = sign or _read(path)[0]
        self._lock = lock
        self._name, generation = _parts(path)
        self._newer = _file(path.parent, self._name, generation + 1)

    def beat(self, round: int = 0, doing: str = "") -> bool:
        """Give a sign of life. False if the claim was taken over or deleted: stop at once."""
        self.sign = replace(self.sign, beats=self.sign.beats + 1, round=round, doing=doing)
        return self._write()

    def release(self) -> None:
        """Let anyone take the claim at once."""
        self.sign = replace(self.sign, released=True)
        with contextlib.suppress(OSError):
            self._write()
        self._unlock()

    def remove(self) -> None:
        """Delete the claim, because the work is done. Whoever claims it again has to find that out first."""
        for path in _files(self.path.parent, self._name):
            path.unlink(missing_ok=True)
        self._unlock()
        for path in self.path.parent.glob(f".{escape(self._name)}.*.lock"):
            path.unlink(missing_ok=True)

    def _write(self) -> bool:
        if self._newer.exists():
            return False
        try:
            with self.path.open("r+", encoding="utf-8") as file:  # in place: a deleted claim stays deleted
                file.write(json.dumps(asdict(self.sign)))
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        except FileNotFoundError:
            return False
        return True

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()


class Heart:
    """Gives signs of life for a claim in a thread, and calls `lost` when the claim has another holder.

    `lost` is also called when no sign could be written for half of the lease: others will soon count us as dead.
    """

    def __init__(self, claim: Claim, lost: Callable[[], None]) -> None:
        self.round, self.doing = 0, ""
        self._claim, self._lost = claim, lost
        threading.Thread(target=self._go, daemon=True).start()

    def _go(self) -> None:
        written = time.monotonic()
        while True:
            try:
                if not self._claim.beat(self.round, self.doing):
                    return self._lost()
                written = time.monotonic()
            except OSError:
                if time.monotonic() - written > LEASE / 2:
                    return self._lost()
            time.sleep(BEAT)


@dataclass(frozen=True)
class Holder:
    """The holder of a claim, as seen from here."""

    sign: Sign
    generation: int
    content: bytes
    beating: bool = False  # whether we saw a sign of life
    silent: float = 0.0  # seconds that we have watched since the last one

    @property
    def alive(self) -> bool:
        return self.beating and self.silent < LEASE / 2

    @property
    def dead(self) -> bool:
        return self.silent >= LEASE


class Claims:
    """The claims in a shared folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._holders: dict[str, Holder] = {}
        self._looked: float | None = None

    @property
    def holders(self) -> dict[str, Holder]:
        """The holders of all claims, as of the last look."""
        return {name: holder for name, holder in self._holders.items() if not holder.sign.released}

    def look(self) -> None:
        """Look at all claims. Call it every few seconds: it notices who is silent.

        A look that comes late, because this machine slept or the folder did not answer, counts as one beat only.
        """
        now = time.monotonic()
        passed = 0.0 if self._looked is None else min(now - self._looked, BEAT)
        self._looked = now
        seen = {name: self._seen(name, generation, passed) for name, generation in self._newest("*").items()}
        self._holders = {name: holder for name, holder in seen.items() if holder is not None}

    def take(self, name: str) -> Claim | None:
        """Claim a piece of work; None if another process has it."""
        try:
            lock = self._lock(name)
        except Timeout:  # a living process of this machine
            self._note_alive(name)
            return None
        claim = self._create(name, lock)
        if claim is None and lock is not None:
            lock.release()
        return claim

    def _create(self, name: str, lock: FileLock | None) -> Claim | None:
        generation = self._newest(escape(name)).get(name, 0)
        before = self._content(name, generation) if generation else None
        if generation and not (before and self._is_free(name, *before, lock is not None)):
            return None
        path = _file(self.folder, name, generation + 1)
        sign = Sign(machine_name(), kernel_id(), os.getpid())
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(asdict(sign)))
        except FileExistsError:
            return None
        return Claim(path, sign, lock, before is not None and before[0].kernel != sign.kernel)

    def _content(self, name: str, generation: int) -> tuple[Sign, bytes] | None:
        """What a claim says; None if the work was done and the claim deleted since."""
        try:
            return _read(_file(self.folder, name, generation))
        except FileNotFoundError:
            return None

    def _is_free(self, name: str, sign: Sign, content: bytes, locked: bool) -> bool:
        if sign.released or (locked and sign.kernel == kernel_id()):  # the lock would be taken if it were alive
            return True
        watched = self._holders.get(name)
        return watched is not None and watched.dead and watched.content == content

    def _lock(self, name: str) -> FileLock | None:
        """The lock between the processes of this machine; None where the file system has no locks."""
        lock = FileLock(self.folder / f".{name}.{kernel_id()}.lock", thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise
        except (OSError, NotImplementedError):
            return None
        return lock

    def _note_alive(self, name: str) -> None:
        generation = self._newest(escape(name)).get(name)
        holder = None if generation is None else self._seen(name, generation, 0.0)
        if holder is not None:
            self._holders[name] = replace(holder, beating=True, silent=0.0)

    def _newest(self, pattern: str) -> dict[str, int]:
        """The newest generation of each claim whose name fits."""
        newest: dict[str, int] = {}
        for path in self.folder.glob(f"{pattern}.*{SUFFIX}"):
            name, generation = _parts(path)
            newest[name] = max(generation, newest.get(name, 0))
        return newest

    def _seen(self, name: str, generation: int, passed: float) -> Holder | None:
        read = self._content(name, generation)
        if read is None:
            return None
        sign, content = read
        before = self._holders.get(name)
        if before is None or before.generation != generation:
            return Holder(sign, generation, content)
        if before.content != content:
            return Holder(sign, generation, content, beating=True)
        return replace(before, silent=before.silent + passed)


# --- Files ---


def _file(folder: Path, name: str, generation: int) -> Path:
    return folder / f"{name}.{generation}{SUFFIX}"


def _parts(path: Path) -> tuple[str, int]:
    """Name and generation of a claim file; generation 0 if it is none."""
    name, _, generation = path.name.removesuffix(SUFFIX).rpartition(".")
    return name, int(generation) if generation.isdecimal() else 0


def _files(folder: Path, name: str) -> list[Path]:
    """All generations of a claim."""
    return [path for path in folder.glob(f"{escape(name)}.*{SUFFIX}") if _parts(path)[0] == name]


def _read(path: Path) -> tuple[Sign, bytes]:
    content = path.read_bytes()
    try:
        return Sign(**json.loads(content)), content
    except (ValueError, TypeError):
        return UNREADABLE, content
