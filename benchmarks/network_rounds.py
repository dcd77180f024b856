"""What a round over a network costs beyond its training: server and two clients as processes on loopback.

    python benchmarks/network_rounds.py [--rounds N] [--clients N] [--against OTHER/src]

The training is tiny (2 steps, 16 units), so that a round is nearly all fixed time: messages, polls, processes.
`--against` names the source of another version, which is measured in the same minutes. Also called by `bench.py`.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from step_speed import made_up
from turns import spread

import fova
from fova.data.npz import save_npz

ROUNDS, CLIENTS = 8, 2
PATIENCE = 900.0
TINY = ("--hidden", "16", "--batch-size", "16", "--local-steps", "2", "--checkpoint-seconds", "0")
HERE = Path(fova.__file__).parents[1]


def network_rounds(rounds: int = ROUNDS, clients: int = CLIENTS, source: Path = HERE) -> dict[str, Any]:
    """Seconds of a round after the first, which compiles; and the memory that a client's processes take."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        started = _Started(home, source)
        try:
            run = _federation(started, home, rounds, clients)
            seconds = _round_times(run / "metrics.jsonl", 1, started)
            before = started.processor_seconds()
            seconds += _round_times(run / "metrics.jsonl", rounds, started, done=2)
            processor = (started.processor_seconds() - before) / (rounds - 1)
            memory = [_megabytes(process.pid) for process in started.processes[1:]]
        finally:
            started.stop()
    return {
        "clients": clients,
        "seconds_of_a_round": spread(seconds[1:]),
        "processor_seconds_of_a_round": float(f"{processor:.3g}"),
        "seconds_of_the_first": float(f"{seconds[0]:.3g}"),
        "megabytes_of_a_client": spread(memory),
    }


class _Started:
    """Commands of fova in a folder, with the source of one version."""

    def __init__(self, home: Path, source: Path) -> None:
        self.home, self.processes = home, list[subprocess.Popen[bytes]]()
        self.environment = os.environ | {"PYTHONPATH": str(source.resolve()), "FOVA_CACHE": str(home / "cache")}

    def start(self, *arguments: object) -> None:
        with (self.home / "said").open("ab") as said:
            command = [sys.executable, "-m", "fova", *map(str, arguments)]
            self.processes.append(
                subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=said, stderr=said)
            )

    def insist_on_server(self) -> None:
        if self.processes[0].poll() not in (None, 0):
            raise RuntimeError(f"The server ended:\n{(self.home / 'said').read_text()[-2000:]}")

    def processor_seconds(self) -> float:
        """Processor time of all processes so far, those included that have ended."""
        return sum(_processor_seconds(process.pid) for process in self.processes)

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def _federation(started: _Started, home: Path, rounds: int, clients: int) -> Path:
    """The run's directory of a server and its clients, which are starting."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started.start(
        *("server", "--insecure", "--host", "127.0.0.1", "--port", port, "--name", "run", "--plain"),
        *("--rounds", rounds, "--observation", 17, "--action", 6, "--min-clients", clients, *TINY),
    )
    for number in range(clients):
        path = home / f"client-{number}.npz"
        save_npz(made_up(2000, number), path, action_low=[-1.0] * 6, action_high=[1.0] * 6)
        started.start("client", "--insecure", "--server", f"127.0.0.1:{port}", "--data", path)
    return home / "runs" / "run"


def _round_times(metrics: Path, rounds: int, started: _Started, done: int = 0) -> list[float]:
    """Seconds between the lines that the rounds write, after those that are `done`.

    The first line is that of the start. What is done counts from now on.
    """
    times: list[float] = [time.monotonic()] * done
    patience = time.monotonic() + PATIENCE
    while len(times) < rounds + 1:
        started.insist_on_server()
        lines = metrics.read_text().count("\n") if metrics.exists() else 0
        times += [time.monotonic()] * (lines - len(times))
        if time.monotonic() > patience:
            raise TimeoutError(f"Only {len(times)} rounds in {PATIENCE:.0f} s.")
        time.sleep(0.02)
    return [after - before for before, after in pairwise(times[max(done - 1, 0) :])]


def _processor_seconds(pid: int) -> float:
    """Processor time of a process, of its descendants, and of those that have ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return own + sum(_processor_seconds(int(child)) for child in children)


def _megabytes(pid: int) -> float:
    """Memory of a process and its descendants. A page that several processes share is counted in parts."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0.0
    own = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
    return own + sum(_megabytes(int(child)) for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--against", type=Path, metavar="SRC", help="the src folder of another version")
    options = parser.parse_args()
    versions = {"this": HERE} | ({} if options.against is None else {"other": options.against})
    found = {}
    for name, source in versions.items():
        found[name] = network_rounds(options.rounds, options.clients, source)
        print(f"{name}, load {os.getloadavg()[0]:.1f}: {found[name]}", flush=True)
    if "other" in found:
        this, other = (found[name]["seconds_of_a_round"]["median"] for name in ("this", "other"))
        print(f"A round of the other version takes {other / this:.1f} times as long.")


if __name__ == "__main__":
    main()
