"""One run as a Ray task, on whatever machine Ray chooses. JAX is not imported here: a process of its own trains."""

import queue
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fova.experiments.training_process import CLAIMS, Events, TrainingProcess
from fova.machine.claims import LEASE, Claim, Claims, machine_name
from fova.progress import Failed, Finished, to_json
from fova.run.directory import RunDirectory
from fova.version import __version__

SECONDS_BETWEEN_LOOKS = 1.0
PATIENCE = 2 * LEASE  # with a run that another process trains; a dead one is taken over before


def train_run(name: str, configuration: str, directory: str, mark: str, version: str) -> dict[str, Any] | None:
    """Train a run and return its last event; None if a living process elsewhere trains it.

    `mark` is a file in the directory of the runs, which every machine must see. When Ray gives the task to another
    machine, the run goes on from its last checkpoint.
    """
    problem = _unfit(Path(directory), mark, version)
    if problem:
        return to_json(Failed(problem))
    run = RunDirectory(Path(directory) / name)
    claim = _claimed(Claims(Path(directory) / CLAIMS), name, run.is_complete)
    if run.is_complete():
        if claim is not None:
            claim.remove()
        return to_json(Finished())
    if claim is None:
        return None
    if claim.from_elsewhere:
        run.break_lock()
    ended = _trained(name, configuration, Path(directory), claim)
    return None if ended is None else to_json(ended)


def _unfit(directory: Path, mark: str, version: str) -> str:
    """Why this machine cannot train the run; empty if it can."""
    if version != __version__:
        return (
            f"{machine_name()} has fova {__version__}, but the command is of fova {version}. Install one version."
        )
    if not (directory / CLAIMS / mark).is_file():
        return (
            f"{machine_name()} does not see {directory}. All machines of the cluster must share this folder under "
            "the same path."
        )
    return ""


def _claimed(claims: Claims, name: str, is_complete: Callable[[], bool]) -> Claim | None:
    """The claim of the run. The process that Ray gave the task before may take a moment to die."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE and not is_complete():
        claims.look()
        claim = claims.take(name)
        if claim is not None:
            return claim
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return None


def _trained(name: str, configuration: str, directory: Path, claim: Claim) -> Finished | Failed | None:
    events: Events = queue.Queue()
    worker = TrainingProcess(name, configuration, directory, claim, events)
    try:
        _wait_for_end(worker, events)
    except KeyboardInterrupt:  # the user stops the command: let the round end, and save
        worker.process.send_signal(signal.SIGTERM)
        _wait_for_end(worker, events)
    return worker.ended()


def _wait_for_end(worker: TrainingProcess, events: Events) -> None:
    while True:
        try:
            _, event = events.get(timeout=SECONDS_BETWEEN_LOOKS)
        except queue.Empty:
            continue
        if event is None:
            return
        if isinstance(event, Finished | Failed):
            worker.last = event
