"""`fova train --processes`: one federation in several processes, on this machine or on several."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fova.errors import FovaError
from fova.machine import runtime
from fova.machine.interrupts import Interrupted
from fova.machine.last_words import LastWords
from fova.settings import shown

if TYPE_CHECKING:
    from fova.machine.cluster import Cluster, Place

FLAGS = ("--processes", "--coordinator")
SECONDS_TO_END = 60.0  # for the other processes of this machine, when process 0 has ended
MOST_HERE = 8  # processes on a machine that has not more processors
HERE = re.compile(r"\d{1,6}")
BY_HAND = re.compile(r"(\d{1,6})/([1-9]\d{0,5})")
HOST_AND_PORT = re.compile(r"\S+:(\d{1,5})")
LARGEST_PORT = 65_535


def place_of(processes: str, coordinator: str | None) -> "Place | int | None":
    """What `--processes` means: one place, a number of processes for this machine, or None for auto."""
    from fova.machine.cluster import Place

    by_hand = BY_HAND.fullmatch(processes)
    if coordinator is not None and not by_hand:
        raise FovaError("--coordinator goes with --processes I/N, for instance: --processes 0/2")
    if processes == "auto":
        return None
    most = max(MOST_HERE, runtime.processors())
    if HERE.fullmatch(processes) and 2 <= int(processes) <= most:
        return int(processes)
    if not by_hand:
        raise FovaError(
            f"--processes is {shown(processes)}, but must be a number of processes for this machine (2 to {most}), "
            "the place of this one among all (0/4 to 3/4), or auto for what Slurm or Open MPI says."
        )
    index, count = int(by_hand[1]), int(by_hand[2])
    if not index < count:
        raise FovaError(
            f"--processes is {processes}, but processes count from 0: the last one is {count - 1}/{count}."
        )
    address = HOST_AND_PORT.fullmatch(coordinator or "")
    if address is None or not 0 < int(address[1]) <= LARGEST_PORT:
        raise FovaError(
            "Say where process 0 runs, and a free port there, the same for all processes: --coordinator HOST:PORT"
        )
    return Place(index, count, address[0])


def announce(place: "Place | int | None") -> None:
    """Say how many processes there will be: what a machine must hold depends on it."""
    from fova.machine.cluster import Place
    from fova.machine.cluster import announce as expect

    if isinstance(place, Place):
        expect(place.count)
    elif place is None:
        named = (os.environ.get(name, "") for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"))
        expect(next((int(count) for count in named if count.isdecimal()), 1))


def run_together(
    arguments: list[str],
    processes: str,
    coordinator: str | None,
    work: Callable[["Cluster", str, Callable[[Path], None]], None],
) -> None:
    """Do `work` in this process as one of several: meet the others, and end when one of them ends.

    `work` gets the cluster, the command that goes on with the run up to its directory, and a function to call with
    that directory. `arguments` are those of `fova train`, for processes that are started here.
    """
    from fova.commands.main import exit_code
    from fova.machine.cluster import vanish

    place = place_of(processes, coordinator)
    started: list[subprocess.Popen[bytes]] = []
    if isinstance(place, int):
        place, started = _with_others_here(arguments, place)
    ending = _Ending(LastWords(), f"fova train {_same_flags(processes, coordinator)} --resume")
    code = exit_code(lambda: _as_one_of_many(place, work, ending))
    ending.words.farewell()
    _wait_for(started)
    if code:
        vanish(code)


def _same_flags(processes: str, coordinator: str | None) -> str:
    """The flags with which a person starts the processes again."""
    if coordinator is None:
        return f"--processes {processes}"
    if coordinator.startswith(("127.0.0.1:", "localhost:")):  # all of them are on this machine
        return f"--processes {processes.partition('/')[2]}"
    return f"--processes {processes} --coordinator {coordinator}"


class _Ending:
    """What is said when the processes end before the run does."""

    def __init__(self, words: LastWords, resume_with: str) -> None:
        self.words, self.resume_with = words, resume_with
        self.what_is_kept = "No run was started."
        self._prepare()

    def begun(self, directory: Path) -> None:
        kept = f"What was saved is in {directory}."
        self.what_is_kept = f"{kept}\nContinue with: {self.resume_with} {directory}"
        self._prepare()

    def _prepare(self) -> None:
        self.words.prepare(
            f"error: This process was killed, or another one of its federation has ended.\n{self.what_is_kept}"
        )


def _as_one_of_many(
    place: "Place | None", work: Callable[["Cluster", str, Callable[[Path], None]], None], ending: _Ending
) -> None:
    from fova.machine.cluster import Lost, join
    from fova.run.processes import StoppedTogether, ending_together

    cluster = join(place)
    try:
        with ending_together(cluster):
            work(cluster, ending.resume_with, ending.begun)
    except Lost as lost:
        raise FovaError(f"{lost}\n{ending.what_is_kept}") from lost
    except Exception as error:
        if isinstance(error, StoppedTogether) or not isinstance(error, Interrupted):
            cluster.leave()  # all processes know that it is over
        raise
    cluster.leave()


def _with_others_here(arguments: list[str], count: int) -> tuple["Place", list[subprocess.Popen[bytes]]]:
    """Start all processes but the first on this machine. They share its processors."""
    from fova.machine.cluster import Place, free_port

    address = f"127.0.0.1:{free_port()}"
    os.environ["NPROC"] = str(max(1, runtime.processors() // count))
    start = [
        sys.executable,
        "-m",
        "fova",
        "train",
        *without_flags(arguments),
        "--coordinator",
        address,
    ]
    return Place(0, count, address), [
        subprocess.Popen([*start, "--processes", f"{index}/{count}"], stdin=subprocess.DEVNULL)
        for index in range(1, count)
    ]


def without_flags(arguments: list[str]) -> list[str]:
    """The arguments without those about processes."""
    kept: list[str] = []
    values = 0
    for argument in arguments:
        if argument in FLAGS:
            values = 1
        elif values:
            values -= 1
        elif argument.partition("=")[0] not in FLAGS:
            kept.append(argument)
    return kept


def _wait_for(started: list[subprocess.Popen[bytes]]) -> None:
    """Wait for the other processes of this machine. One that does not end by itself is killed."""
    for process in started:
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
