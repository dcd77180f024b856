"""One federation in several processes: process 0 runs the training loop, the others follow it.

Every process holds its share of the clients and simulates it (`fova.federation.shares`). Process 0 says what comes
next: a round, a checkpoint, the clients' policies, the end. It alone writes the run's files, except that each
process writes the learners and the policies of its own clients. So all processes must see the run's directory.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fova.errors import FovaError
from fova.federation.client_specs import complete
from fova.federation.clients import Federation
from fova.federation.engine import RoundReport, State
from fova.federation.shares import Processes, Share, deal_out
from fova.federation.statistics import Statistics
from fova.machine.cluster import Cluster, Ended, Lost
from fova.machine.interrupts import Interrupted, StopSignal, explained, stop_signal
from fova.progress import Progress
from fova.run.checkpoint import Rows, save_share
from fova.run.config import Config, load_config
from fova.run.directory import RunDirectory
from fova.run.loop import Loop
from fova.run.result import Result
from fova.run.simulated import SimulatedEngine
from fova.run.tracking import insist_on_packages
from fova.run.training import insist_on_same_data, insist_on_training, new_directory, trained_on

SECONDS_TO_SEE_A_FILE = 30.0  # on another machine of a network file system


def start(
    config: Config,
    directory: Path | None,
    progress: Progress,
    cluster: Cluster,
    resume_with: str,
    begun: Callable[[Path], None],
) -> Result | None:
    """Train a new run together with the other processes. Only process 0 has a result.

    `resume_with` is the command that resumes the run, up to its directory. `begun` is called with the directory.
    """
    insist_on_training(config)
    insist_on_dealing_out(config)
    if cluster.index == 0:
        directory = new_directory(config, directory)
        insist_on_packages(config.run.track)
    said = cluster.gather("directory", str(directory and directory.resolve()).encode())
    run = RunDirectory(directory if cluster.index == 0 and directory else Path(said[0].decode()))
    loop = _loop(config, run, progress, cluster, resume_with)
    if cluster.index == 0:
        run.create(config)
    return _go(loop, cluster, begun)


def resume(
    directory: Path, progress: Progress, cluster: Cluster, resume_with: str, begun: Callable[[Path], None]
) -> Result | None:
    """Continue a run from its last checkpoint, together with the other processes."""
    run = RunDirectory.open(directory)
    config = load_config(run.path / "config.toml")
    insist_on_dealing_out(config)
    loop = _loop(config, run, progress, cluster, resume_with)
    insist_on_same_data(run, loop.engine.clients())
    return _go(loop, cluster, begun)


class StoppedTogether(Interrupted):
    """The user stopped the run, and all processes know it."""


@contextmanager
def ending_together(cluster: Cluster) -> Iterator[None]:
    """Tell the other processes if the block fails. If several fail at once, only the first reports its error."""
    try:
        yield
    except (Ended, Lost, Interrupted):
        raise
    except Exception as error:
        if not cluster.end(str(error) or type(error).__name__):
            raise Ended("") from error  # another process has reported its error
        raise


def insist_on_dealing_out(config: Config) -> None:
    """Refuse settings that need one process with all clients."""
    run = config.run
    if run.mode != "federated":
        raise FovaError(
            f"mode is {run.mode}, which merges nothing. Train it in one process: leave out --processes."
        )
    if run.select != "last":
        raise FovaError("select is judge, which needs all held-out episodes in one process. Leave out --processes.")
    if run.evaluate_clients:
        raise FovaError(
            "evaluate_clients plays every client's own policy, but no process has all of them. Leave it out, or "
            "train in one process."
        )


def insist_on_a_share_each(config: Config, processes: int) -> None:
    """Refuse more processes than the clients can be dealt out among, before any of them is started."""
    insist_on_dealing_out(config)
    _dealt_out(config, len(complete(config.clients)), processes)


def share_of(config: Config, processes: Processes) -> Share:
    """The clients of every process. Where all clients take part in a round, these are whole cohorts."""
    names = [str(spec.name) for spec in complete(config.clients)]
    return Share(names, _dealt_out(config, len(names), processes.count), processes)


def _dealt_out(config: Config, clients: int, processes: int) -> list[range]:
    return deal_out(clients, config.run.cohort if config.run.participation == 1.0 else 1, processes)


def insist_on_one_space(federation: Federation, share: Share) -> None:
    """Refuse data from which two processes derive different spaces or recipes."""
    said = share.processes.gather("space", repr((federation.space, federation.recipe)).encode())
    if len(set(said)) > 1:
        other = next(i for i, words in enumerate(said) if words != said[0])
        raise FovaError(
            f"The clients of processes 0 and {other} have different observations or actions:\n"
            f"{said[0].decode()}\n{said[other].decode()}\nDeclare the actions for all of them: --action-low and "
            "--action-high, or --actions discrete and --action-names."
        )


def _loop(config: Config, run: RunDirectory, progress: Progress, cluster: Cluster, resume_with: str) -> Loop:
    share = share_of(config, cluster)
    federation = trained_on(config, None, progress, share.own_names)
    insist_on_one_space(federation, share)
    progress.status("setting up the networks")
    held = SimulatedEngine(config, federation, share)
    held.clients()  # all processes exchange it here
    config = replace(held.config, run=replace(config.run, final_clients=False))
    engine = LeadEngine(held, share) if cluster.index == 0 else held
    loop = Loop(config, run, engine, federation.task, progress, held.privacy, resume_with)
    loop.rows = Rows(share.own, len(share.names))
    if isinstance(engine, LeadEngine):
        loop.save_shares = partial(engine.save_shares, run.checkpoints, config.fingerprint())
    return loop


def _go(loop: Loop, cluster: Cluster, begun: Callable[[Path], None]) -> Result | None:
    begun(loop.run.path)
    cluster.gather("created")
    insist_on_sight_of(loop.run.path / "config.toml", cluster)
    if not isinstance(loop.engine, LeadEngine):
        follow(loop, cluster)
        return None
    return _lead(loop, loop.engine)


def insist_on_sight_of(path: Path, cluster: Cluster) -> None:
    """Refuse a directory that only process 0 has."""
    until = time.monotonic() + SECONDS_TO_SEE_A_FILE
    while not path.exists():
        if time.monotonic() > until:
            raise FovaError(
                f"Process {cluster.index} does not see {path}, which process 0 has made. All processes need the "
                "run's directory: start them on a file system that all machines share."
            )
        time.sleep(0.2)


# --- Process 0 ---


class LeadEngine:
    """The engine of process 0: it tells the other processes what to do, and does its own share of it."""

    def __init__(self, held: SimulatedEngine, share: Share) -> None:
        self._held, self._share = held, share
        self.space, self.recipe = held.space, held.recipe
        self.asked_to_stop: Callable[[], None] = lambda: None  # called when another process was asked to stop

    def tell(self, order: str, rounds: int) -> None:
        """Send an order to the other processes."""
        words = json.dumps({"order": order, "round": rounds})
        if STOP in self._share.processes.gather("order", words.encode())[1:]:
            self.asked_to_stop()

    def prepare(self, saved: Mapping[str, Any] | None) -> Statistics:
        return self._held.prepare(saved)

    def start(self) -> State:
        return self._held.start()

    def round(self, state: State) -> tuple[State, RoundReport]:
        self.tell("round", state.round)
        return self._held.round(state)

    def save_shares(self, directory: Path, belongs_to: str, state: State) -> list[range]:
        """Have every process save its learners. Returns the clients of each process."""
        self.tell("save", state.round)
        save_share(directory, state, belongs_to, self._share.own)
        self._share.processes.gather("saved")
        return self._share.all

    def data_changes_after(self, rounds: int) -> bool:
        return self._held.data_changes_after(rounds)

    def clients(self) -> Mapping[str, Mapping[str, Any]]:
        return self._held.clients()

    def local_learners(self, state: State) -> Mapping[str, Any]:
        """Those of process 0. The other processes save the policies of theirs meanwhile."""
        self.tell("policies", state.round)
        self._share.processes.gather("policies saved")
        return self._held.local_learners(state)


def _lead(loop: Loop, engine: LeadEngine) -> Result:
    if loop.task is not None:
        loop.progress.note("Only the server's policy is played: no process has all clients.")
    with loop.run.lock(), explained(loop.what_is_kept):
        try:
            with stop_signal(loop.progress.note) as stop:
                engine.asked_to_stop = stop.ask
                state = loop.train(stop)
        except Interrupted as interrupted:
            engine.tell("stop", 0)
            raise StoppedTogether(str(interrupted)) from None
        finished = loop.finish(state)
    engine.tell("finish", state.round)
    return Result(loop.run.path, finished.policy, finished.played.pop("server", None), finished.played)


# --- The other processes ---

STOP = b"stop"


def follow(loop: Loop, cluster: Cluster) -> None:
    """Do what process 0 says until the run is finished or stopped."""
    assert loop.rows is not None
    with stop_signal(lambda words: None) as stop:
        fresh = loop.fresh_state()
        state = loop.saved_state(fresh) or fresh
        while True:
            order = stop.compute(partial(_heard, cluster, stop))
            if order["order"] == "stop":
                return
            insist_on_round(state, order["round"], cluster)
            if order["order"] == "finish":
                return
            if order["order"] == "round":
                state, _ = stop.compute(partial(loop.engine.round, state))
            elif order["order"] == "save":
                save_share(loop.run.checkpoints, state, loop.config.fingerprint(), loop.rows.own)
                cluster.gather("saved")
            elif order["order"] == "policies":
                loop.save_client_policies(state)
                cluster.gather("policies saved")


def _heard(cluster: Cluster, stop: StopSignal) -> dict[str, Any]:
    order: dict[str, Any] = json.loads(cluster.gather("order", STOP if stop.wanted else b"")[0])
    return order


def insist_on_round(state: State, rounds: int, cluster: Cluster) -> None:
    """Refuse to continue from another checkpoint than process 0."""
    if state.round != rounds:
        raise FovaError(
            f"Process {cluster.index} is at round {state.round}, process 0 at round {rounds}. Do all processes see "
            "the same directory of the run?"
        )
