"""Trains many runs in one directory, several at a time.

Each run is an ordinary run directory. A process with one thread trains it, so that as many runs as there are cores
share the machine, and a run that crashes takes no other with it. Finished runs are kept, interrupted ones continue
from their last checkpoint, and failures are reported at the end. The same call can be repeated until everything is
done. This module does not know what the runs mean.
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
from typing import IO, Literal

from fova.errors import FovaError
from fova.experiments.display import Display, RunSize
from fova.machine.interrupts import Interrupted
from fova.progress import Event, Failed, Finished, Status, from_json
from fova.run.config import Config, load_config
from fova.run.directory import RunDirectory

LOGS = "logs"  # folder of the workers' standard error, in the directory of the runs

Named = tuple[str, Config]
RunState = Literal["to do", "to resume", "finished"]
Events = queue.Queue[tuple[str, Event | None]]  # by run; None when its process has ended


@dataclass
class Outcome:
    """How the runs of one call ended."""

    finished: list[str] = field(default_factory=list)  # in this call or before it
    failures: dict[str, str] = field(default_factory=dict)  # name -> message

    def raise_failures(self) -> None:
        """Raise one error that names all runs that failed, if any did."""
        if self.failures:
            listed = "\n".join(f"  {name}: {message}" for name, message in self.failures.items())
            raise FovaError(
                f"{len(self.failures)} runs failed, {len(self.finished)} are finished:\n{listed}\n"
                "Give the same command again to try those once more; what is finished is kept."
            )


def one_thread() -> dict[str, str]:
    """The environment of a process that uses one thread."""
    return os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip(),
        "NPROC": "1",  # the size of XLA's pool of threads
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def run_states(directory: Path, runs: Sequence[Named]) -> dict[str, RunState]:
    """The state of each run; an error if a directory holds a run of another configuration."""
    return {name: _state(directory / name, config) for name, config in runs}


def _state(path: Path, config: Config) -> RunState:
    if not (path / "config.toml").is_file():
        return "to do"
    if load_config(path / "config.toml") != config:
        raise FovaError(
            f"{path} holds a run of another configuration. Choose another --name, or repeat the command with the "
            "settings it was started with."
        )
    return "finished" if RunDirectory(path).is_complete() else "to resume"


def run_all(runs: Sequence[Named], directory: Path, jobs: int, display: Display) -> Outcome:
    """Train the runs that are not finished, `jobs` at a time. The others go on when one fails."""
    if jobs < 1:
        raise FovaError(f"jobs is {jobs}, but must be at least 1: how many runs are trained at the same time.")
    states = run_states(directory, runs)
    directory.mkdir(parents=True, exist_ok=True)
    with RunDirectory(directory).lock(), tempfile.TemporaryDirectory() as orders:
        return _Runner(runs, states, directory, Path(orders), display).go(jobs)


class _Worker:
    """A process that trains one run. Its events arrive in the runner's queue, the end of the process as None."""

    def __init__(self, name: str, config: Config, directory: Path, orders: Path, events: Events) -> None:
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
        self.last: Finished | Failed = Finished()  # the last event about the end of the run
        threading.Thread(target=self._listen, args=(name, self.process.stdout, events), daemon=True).start()

    @staticmethod
    def _listen(name: str, lines: IO[str], events: Events) -> None:
        try:
            for line in lines:
                with suppress(ValueError):  # libraries may write to standard output, too
                    events.put((name, from_json(json.loads(line))))
        finally:
            events.put((name, None))

    def reason(self) -> str:
        """Why the run failed: the worker's message, or the last line of its log."""
        if isinstance(self.last, Failed):
            return self.last.text
        lines = self.log.read_text(errors="replace").strip().splitlines()
        ended = f"ended with code {self.process.returncode}"
        return f"{lines[-1] if lines else ended} (more in {self.log})"


class _Runner:
    def __init__(
        self, runs: Sequence[Named], states: dict[str, RunState], directory: Path, orders: Path, display: Display
    ) -> None:
        self.directory, self.orders, self.display = directory, orders, display
        self.waiting = [(name, config) for name, config in runs if states[name] != "finished"]
        self.outcome = Outcome([name for name, _ in runs if states[name] == "finished"])
        self.workers: dict[str, _Worker] = {}
        self.events: Events = queue.Queue()
        self.stopping = False
        display.begin({name: RunSize(config.gradient_steps, config.run.rounds) for name, config in runs}, states)

    def go(self, jobs: int) -> Outcome:
        try:
            while self.waiting or self.workers:
                while self.waiting and len(self.workers) < jobs:
                    self._start(*self.waiting.pop(0))
                self._receive(*self.events.get())
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
        self.workers[name] = _Worker(name, config, self.directory, self.orders, self.events)
        self.display(name, Status("starting"))

    def _receive(self, name: str, event: Event | None) -> None:
        match event:
            case None:
                self._ended(name)
            case Finished() | Failed():  # shown when the process has ended: it may still crash
                self.workers[name].last = event
            case _:
                self.display(name, event)

    def _ended(self, name: str) -> None:
        worker = self.workers.pop(name)
        if worker.process.wait() == 0:
            self.outcome.finished.append(name)
            worker.log.unlink()
            self.display(name, worker.last)
        elif not self.stopping:
            self.outcome.failures[name] = worker.reason()
            self.display(name, Failed(self.outcome.failures[name]))

    def _stop(self) -> None:
        """Let every worker end its round and save; a second Ctrl-C does not wait for that."""
        self.stopping = True
        self.waiting.clear()
        for worker in self.workers.values():
            worker.process.send_signal(signal.SIGTERM)
        with suppress(KeyboardInterrupt):
            while self.workers:
                self._receive(*self.events.get())
