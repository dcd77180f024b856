"""Trains many runs on a Ray cluster. Ray chooses the machines, and gives a run to another when one dies.

Each run is one Ray task and stays a run directory in a folder that all machines share. What a machine does with a
run is read from the run's claim. Ray moves nothing but the configuration and how a run ended.
"""

import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fova.errors import FovaError
from fova.experiments.display import Display, show_sign
from fova.experiments.ray_task import train_run
from fova.experiments.runner import Named, Outcome, run_states, sizes
from fova.experiments.training_process import CLAIMS
from fova.machine.claims import Claims
from fova.machine.interrupts import heeding_signals
from fova.progress import Failed, Finished, from_json
from fova.version import __version__

MOST_RETRIES = 20  # of one run, each on a machine that died
SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_TO_ANSWER = 10.0  # for the head of the cluster
SECONDS_TO_SAVE = 600.0  # for the rounds under way when the user stops the command


def run_all_on_ray(runs: Sequence[Named], directory: Path, address: str | None, display: Display) -> Outcome:
    """Train the runs that are not finished on the cluster at `address`, or on the one that this machine is in."""
    ray = _package()
    directory = directory.resolve()
    states = run_states(directory, runs)
    outcome = Outcome([name for name, _ in runs if states[name] == "finished"])
    to_do = [(name, config.to_toml()) for name, config in runs if states[name] != "finished"]
    if not to_do:
        display.begin(sizes(runs), states)
        display.end()
        return outcome
    with _connected(ray, address), _marked(directory) as mark:
        task = ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(train_run)
        arguments = (str(directory), mark, __version__)
        tasks = {task.options(name=name).remote(name, text, *arguments): name for name, text in to_do}
        display.begin(sizes(runs), states)
        try:
            with heeding_signals():  # Ray has handlers of its own, which would end the program
                _Driver(ray, directory, tasks, display, outcome).go()
        finally:
            display.end()
    return outcome


def _package() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    try:
        import ray
    except ModuleNotFoundError as error:
        raise FovaError('--on ray needs Ray. Install it on every machine: pip install "fova[ray]"') from error
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to the cluster. One that the program has already is used and kept."""
    if ray.is_initialized():
        yield
        return
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _insist_on_listener(where)
        ray.init(address=where, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        named = "" if where == "auto" else f" at {where}"
        raise FovaError(
            f"No Ray cluster answers{named}: {(str(error) or repr(error)).splitlines()[0]}\n"
            "Start one with: ray start --head   and on the other machines: ray start --address HEAD:6379"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _insist_on_listener(address: str) -> None:
    """Raise an OSError if nobody listens at HOST:PORT. Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()


@contextmanager
def _marked(directory: Path) -> Iterator[str]:
    """The name of a new file among the claims. A machine that does not see it has another folder of this name."""
    Claims(directory / CLAIMS)  # makes the folder
    mark = directory / CLAIMS / f".ray-{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


class _Driver:
    """Waits for the tasks, and shows meanwhile what runs where."""

    def __init__(
        self, ray: Any, directory: Path, tasks: dict[Any, str], display: Display, outcome: Outcome
    ) -> None:
        self.ray, self.directory, self.display, self.outcome = ray, directory, display, outcome
        self.tasks = tasks  # those under way, or waiting for a machine
        self.claims = Claims(directory / CLAIMS)

    def go(self) -> None:
        try:
            while self.tasks:
                for reference in self._ended(SECONDS_BETWEEN_LOOKS):
                    self._take(reference)
                self._show()
        except KeyboardInterrupt:
            self._stop()
            raise self.outcome.interrupted(self.directory) from None

    def _ended(self, seconds: float) -> list[Any]:
        ended, _ = self.ray.wait(list(self.tasks), num_returns=1, timeout=seconds)
        return list(ended)

    def _take(self, reference: Any) -> None:
        name = self.tasks.pop(reference)
        try:
            told = self.ray.get(reference)
            event = None if told is None else from_json(told)
        except self.ray.exceptions.RayError as error:
            event = Failed(f"Ray gave up after {MOST_RETRIES} retries: {str(error).strip().splitlines()[-1]}")
        match event:
            case Finished() | Failed():
                self.outcome.note(name, event)
                self.display(name, event)
            case _:
                holder = self.claims.holders.get(name)
                self.outcome.elsewhere[name] = holder.sign.machine if holder else "another machine"

    def _show(self) -> None:
        self.claims.look()
        for name in self.tasks.values():
            if name in self.claims.holders:
                show_sign(self.display, name, self.claims.holders[name].sign)

    def _stop(self) -> None:
        """Let every run end its round and save; a second Ctrl-C does not wait for that."""
        for reference in self.tasks:
            self.ray.cancel(reference)
        with suppress(KeyboardInterrupt):
            self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=SECONDS_TO_SAVE)
