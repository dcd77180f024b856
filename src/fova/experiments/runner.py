"""Trains many runs in one directory, several at a time, on one machine or on many that share the directory.

Each run is an ordinary run directory. A process of its own trains it, and before that the run is claimed, so that
no other machine trains it, too. Finished runs are kept, interrupted ones continue from their last checkpoint, and
failures are reported at the end. The same call can be repeated, here and on other machines at the same time, until
everything is done. This module does not know what the runs mean.
"""

import queue
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fova.errors import FovaError
from fova.experiments.display import Display, RunSize, show_sign
from fova.experiments.training_process import CLAIMS, Events, TrainingProcess
from fova.machine.claims import BEAT, Claim, Claims
from fova.machine.interrupts import Interrupted, heeding_signals
from fova.progress import Event, Failed, Finished, Status
from fova.run.config import Config, load_config
from fova.run.directory import RunDirectory

Named = tuple[str, Config]
RunState = Literal["to do", "to resume", "finished"]


@dataclass
class Outcome:
    """How the runs of one call ended."""

    finished: list[str] = field(default_factory=list)  # in this call or before it, here or elsewhere
    failures: dict[str, str] = field(default_factory=dict)  # name -> message
    elsewhere: dict[str, str] = field(default_factory=dict)  # name -> machine that trains it

    def note(self, name: str, how: Finished | Failed) -> None:
        """Note how a run ended."""
        if isinstance(how, Failed):
            self.failures[name] = how.text
        else:
            self.finished.append(name)

    def interrupted(self, directory: Path) -> Interrupted:
        """What the user is told after stopping the command."""
        return Interrupted(
            f"Stopped; {len(self.finished)} runs are finished, the others are saved.\n"
            f"Give the same command again to go on. Runs: {directory}"
        )

    def raise_failures(self) -> None:
        """Raise one error that names all runs that failed, if any did."""
        if self.failures:
            listed = "\n".join(f"  {name}: {message}" for name, message in self.failures.items())
            raise FovaError(
                f"{len(self.failures)} runs failed, {len(self.finished)} are finished:\n{listed}\n"
                "Give the same command again to try those once more; what is finished is kept."
            )


def run_states(directory: Path, runs: Sequence[Named]) -> dict[str, RunState]:
    """The state of each run; an error if a directory holds a run of another configuration."""
    return {name: run_state(directory / name, config) for name, config in runs}


def run_state(path: Path, config: Config) -> RunState:
    if not (path / "config.toml").is_file():
        return "to do"
    if load_config(path / "config.toml") != config:
        raise FovaError(
            f"{path} holds a run of another configuration. Choose another --name, or repeat the command with the "
            "settings it was started with."
        )
    return "finished" if RunDirectory(path).is_complete() else "to resume"


def sizes(runs: Sequence[Named]) -> dict[str, RunSize]:
    return {name: RunSize(config.gradient_steps, config.run.rounds) for name, config in runs}


def run_all(runs: Sequence[Named], directory: Path, jobs: int, display: Display) -> Outcome:
    """Train the runs that are neither finished nor claimed elsewhere, `jobs` at a time.

    The others go on when one fails. A run whose machine has died is taken over. The call returns when every other
    run is known to be trained elsewhere.
    """
    if jobs < 1:
        raise FovaError(f"jobs is {jobs}, but must be at least 1: how many runs are trained at the same time.")
    states = run_states(directory, runs)
    directory.mkdir(parents=True, exist_ok=True)
    with heeding_signals():
        return _Runner(runs, states, directory, display).go(jobs)


class _Runner:
    def __init__(
        self, runs: Sequence[Named], states: dict[str, RunState], directory: Path, display: Display
    ) -> None:
        self.directory, self.display = directory, display
        self.claims = Claims(directory / CLAIMS)
        self.configs = dict(runs)
        self.waiting = [name for name, _ in runs if states[name] != "finished"]
        self.outcome = Outcome([name for name, _ in runs if states[name] == "finished"])
        self.workers: dict[str, TrainingProcess] = {}
        self.events: Events = queue.Queue()
        self.next_look = 0.0
        self.stopping = False
        display.begin(sizes(runs), states)

    def go(self, jobs: int) -> Outcome:
        try:
            self._train(jobs)
        except KeyboardInterrupt:
            self._stop()
            raise self.outcome.interrupted(self.directory) from None
        finally:
            for worker in self.workers.values():
                worker.kill()
            self.display.end()
        return self.outcome

    def _train(self, jobs: int) -> None:
        while self.waiting or self.workers:
            self._look()
            self._fill(jobs)
            if not self.workers and self._all_elsewhere():
                break
            self._wait()

    # --- Who trains what ---

    def _look(self) -> None:
        """Every few seconds, see what other machines do."""
        if not self.waiting or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + BEAT
        self.claims.look()
        for name in list(self.waiting):
            if RunDirectory(self.directory / name).is_complete():
                self.waiting.remove(name)
                self._finish(name, Finished())
            elif self._is_elsewhere(name):
                show_sign(self.display, name, self.claims.holders[name].sign)

    def _is_elsewhere(self, name: str) -> bool:
        return name in self.claims.holders and self.claims.holders[name].alive

    def _all_elsewhere(self) -> bool:
        """Whether other processes train all that is left; the outcome then says which machine trains what."""
        if not all(map(self._is_elsewhere, self.waiting)):
            return False
        self.outcome.elsewhere = {name: self.claims.holders[name].sign.machine for name in self.waiting}
        return True

    def _fill(self, jobs: int) -> None:
        """Start processes for runs that nobody else trains."""
        for name in [name for name in self.waiting if not self._is_elsewhere(name)]:
            if len(self.workers) >= jobs:
                return
            claim = self.claims.take(name)
            if claim is not None:
                self._start(name, claim)

    def _start(self, name: str, claim: Claim) -> None:
        self.waiting.remove(name)
        config, path = self.configs[name], self.directory / name
        if run_state(path, config) == "finished":  # elsewhere, since we looked
            claim.remove()
            self._finish(name, Finished())
            return
        if claim.from_elsewhere:
            RunDirectory(path).break_lock()
        self.workers[name] = TrainingProcess(name, config.to_toml(), self.directory, claim, self.events)
        self.display.place(name, None)
        self.display(name, Status("starting"))

    # --- What the processes report ---

    def _wait(self) -> None:
        with suppress(queue.Empty):
            self._receive(*self.events.get(timeout=BEAT if self.waiting else None))

    def _receive(self, name: str, event: Event | None) -> None:
        match event:
            case None:
                self._ended(name, self.workers.pop(name).ended())
            case Finished() | Failed():  # shown when the process has ended: it may still crash
                self.workers[name].last = event
            case _:
                self.display(name, event)

    def _ended(self, name: str, how: Finished | Failed | None) -> None:
        match how:
            case None:
                self.waiting.append(name)
            case Failed() if self.stopping:
                pass
            case _:
                self._finish(name, how)

    def _finish(self, name: str, how: Finished | Failed) -> None:
        self.outcome.note(name, how)
        self.display(name, how)

    def _stop(self) -> None:
        """Let every worker end its round and save; a second Ctrl-C does not wait for that."""
        self.stopping = True
        self.waiting.clear()
        for worker in self.workers.values():
            worker.process.send_signal(signal.SIGTERM)
        with suppress(KeyboardInterrupt):
            while self.workers:
                self._receive(*self.events.get())
