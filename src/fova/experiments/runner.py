"""Many runs into one directory, several at a time.

Each run is an ordinary run directory, trained by a process of its own with one thread, so that as many runs as
there are cores share the machine without getting into each other's way, and a run that crashes takes no other with
it. What is finished is kept, what was interrupted goes on from its last checkpoint, what fails is reported at the
end: the same call can be made again and again until everything is done. Which runs there are and what they mean
is not decided here.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from fova.errors import FovaError
from fova.experiments.display import Display
from fova.machine.interrupts import Interrupted
from fova.run.config import Config, load_config
from fova.run.directory import RunDirectory

LOGS = "logs"  # what workers wrote to standard error, in the runs' directory

Named = tuple[str, Config]
Standing = Literal["to do", "to resume", "finished"]


@dataclass
class Outcome:
    """How the runs of one call ended."""

    finished: list[str] = field(default_factory=list)  # in this call or before it
    failures: dict[str, str] = field(default_factory=dict)  # name -> message

    def raise_failures(self) -> None:
        """Tell of all runs that failed, if any did."""
        if self.failures:
            told = "\n".join(f"  {name}: {message}" for name, message in self.failures.items())
            raise FovaError(
                f"{len(self.failures)} runs failed, {len(self.finished)} are finished:\n{told}\n"
                "Give the same command again to try those once more; what is finished is kept."
            )


def one_thread() -> dict[str, str]:
    """The environment of a process that shall keep to one thread, whatever it is that would start more."""
    return os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip(),
        "NPROC": "1",  # the size of XLA's pool of threads
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def standing(directory: Path, runs: Sequence[Named]) -> dict[str, Standing]:
    """What is there of each run already; an error if it is a run of something else."""
    return {name: _standing(directory / name, config) for name, config in runs}


def _standing(path: Path, config: Config) -> Standing:
    if not (path / "config.toml").is_file():
        return "to do"
    if load_config(path / "config.toml") != config:
        raise FovaError(
            f"{path} holds a run of another configuration. Choose another --name, or repeat the command with the "
            "settings it was started with."
        )
    return "finished" if RunDirectory(path).is_complete() else "to resume"


def run_all(runs: Sequence[Named], directory: Path, jobs: int, display: Display) -> Outcome:
    """Train what is not finished yet, `jobs` runs at a time. Others go on when one fails."""
    if jobs < 1:
        raise FovaError(f"jobs is {jobs}, but must be at least 1: how many runs are trained at the same time.")
    there = standing(directory, runs)
    directory.mkdir(parents=True, exist_ok=True)
    with RunDirectory(directory).lock(), tempfile.TemporaryDirectory() as orders:
        return _Runner(runs, there, directory, Path(orders), display).go(jobs)


class _Worker:
    """A process that trains one run; everything it tells arrives in the runner's queue, its end as (name, None)."""

    def __init__(self, name: str, config: Config, directory: Path, orders: Path, told: "queue.Queue[Any]") -> None:
        order = orders / f"{name}.toml"
        order.write_text(config.to_toml(), encoding="utf-8")
        self.log = directory / LOGS / f"{name}.log"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fova.experiments.worker", str(directory / name), str(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=one_thread(),
                start_new_session=True,  # Ctrl-C reaches the runner alone, which passes it on once
            )
        self.message = ""  # what it said when it failed
        threading.Thread(target=self._listen, args=(name, self.process.stdout, told), daemon=True).start()

    @staticmethod
    def _listen(name: str, lines: IO[str], told: "queue.Queue[Any]") -> None:
        try:
            for line in lines:
                if line.startswith('["'):  # not every library keeps standard output to itself
                    told.put((name, json.loads(line)))
        finally:
            told.put((name, None))

    def why(self) -> str:
        """What went wrong, in its own words or the last ones of its log."""
        if self.message:
            return self.message
        lines = self.log.read_text(errors="replace").strip().splitlines()
        ended = f"ended with code {self.process.returncode}"
        return f"{lines[-1] if lines else ended} (more in {self.log})"


class _Runner:
    def __init__(
        self, runs: Sequence[Named], there: dict[str, Standing], directory: Path, orders: Path, display: Display
    ) -> None:
        self.directory, self.orders, self.display = directory, orders, display
        self.waiting = [(name, config) for name, config in runs if there[name] != "finished"]
        self.outcome = Outcome([name for name, _ in runs if there[name] == "finished"])
        self.workers: dict[str, _Worker] = {}
        self.told: queue.Queue[Any] = queue.Queue()
        self.stopping = False
        display.begin({name: (config.gradient_steps, config.run.rounds) for name, config in runs}, there)

    def go(self, jobs: int) -> Outcome:
        try:
            while self.waiting or self.workers:
                while self.waiting and len(self.workers) < jobs:
                    self._start(*self.waiting.pop(0))
                self._hear(*self.told.get())
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted(
                f"Stopped; {len(self.outcome.finished)} runs are finished, the others are saved.\n"
                f"Give the same command again to go on. Runs: {self.directory}"
            ) from None
        finally:
            for worker in self.workers.values():
                worker.process.kill()
            self.display.end()
        return self.outcome

    def _start(self, name: str, config: Config) -> None:
        self.workers[name] = _Worker(name, config, self.directory, self.orders, self.told)
        self.display.started(name)

    def _hear(self, name: str, event: list[Any] | None) -> None:
        match event:
            case None:
                self._ended(name)
            case ["round", int(number)]:
                self.display.round(name, number)
            case ["status", str(words)]:
                self.display.status(name, words)
            case ["note", str(words)]:
                self.display.note(name, words)
            case ["finished", played]:
                self.display.played(name, played)
            case ["failed", str(message)]:
                self.workers[name].message = message

    def _ended(self, name: str) -> None:
        worker = self.workers.pop(name)
        if worker.process.wait() == 0:
            self.outcome.finished.append(name)
            worker.log.unlink()
            self.display.finished(name)
        elif not self.stopping:
            self.outcome.failures[name] = worker.why()
            self.display.failed(name, self.outcome.failures[name])

    def _stop(self) -> None:
        """Let every worker end its round and save; a second Ctrl-C does not wait for that."""
        self.stopping = True
        self.waiting.clear()
        for worker in self.workers.values():
            worker.process.send_signal(signal.SIGTERM)
        with suppress(KeyboardInterrupt):
            while self.workers:
                self._hear(*self.told.get())
