"""Training a federation from start to end: data, rounds, evaluation, files.

`train` is the same whether the command line or a Python program calls it. It survives being stopped at any
moment: `resume` goes on from the last checkpoint and ends with the same bytes.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax

from fova import algorithms
from fova.data.normalise import Normaliser
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.evaluation.background import Lines
from fova.evaluation.rollouts import Rollouts, merge, play
from fova.federation import aggregation
from fova.federation.clients import ClientSpec, Federation
from fova.federation.compression import COMPRESSIONS
from fova.federation.simulation import RoundReport, Simulation, State
from fova.machine import runtime
from fova.machine.interrupts import Interrupted, StopSignal, explained, stop_signal
from fova.policy import Policy, from_actor
from fova.progress import Progress, Quiet
from fova.run.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from fova.run.config import Config, RunConfig, load_config
from fova.run.directory import RunDirectory, free_name
from fova.run.events import EventLog
from fova.settings import fill
from fova.tasks import registry


@dataclass(frozen=True)
class Result:
    """What a finished run leaves in your hands; everything is also in `directory`."""

    directory: Path
    policy: Policy | None  # the server's; None in local mode, which has no server
    server: Rollouts | None  # None without a task; in local mode, all clients' episodes together
    clients: dict[str, Rollouts]  # each client's own policy at the end


def train(
    task: str | None = None,
    clients: list[str] | list[ClientSpec] | Federation | None = None,
    size: int | None = None,
    algorithm: str = "fova",
    preset: str | None = None,
    directory: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Result:
    """Train one policy across the data of many clients.

        fova.train("maze2d-umaze", ["expert", "expert", "random", "random"], size=5000, rounds=20)

    `clients` are qualities of the task's data, files, `ClientSpec`s, or a `Federation` of your own arrays.
    Further settings are those of `RunConfig` (rounds, local_steps, seed, ...) and of the algorithm (alpha, lam,
    hidden, ...). Files go to `directory`, by default a new one under `runs/`.
    """
    if isinstance(clients, str):
        raise FovaError(f"clients is the text {clients!r}, but must be a list, for instance [{clients!r}].")
    if isinstance(clients, Federation):
        if task is not None and clients.task is None:
            clients = replace(clients, task=registry.get(task))
        task = task or (clients.task.name if clients.task else None)
    run_fields = RunConfig.__dataclass_fields__
    config = Config(
        task=task,
        clients=_specs(clients, size),
        algorithm=algorithms.configure(
            algorithm, preset, **{name: value for name, value in settings.items() if name not in run_fields}
        ),
        algorithm_name=algorithm,
        run=fill(RunConfig, {name: value for name, value in settings.items() if name in run_fields}, "of the run"),
    )
    federation = clients if isinstance(clients, Federation) else None
    return start(config, Path(directory) if directory else None, progress or Quiet(), federation)


def start(
    config: Config, directory: Path | None, progress: Progress, federation: Federation | None = None
) -> Result:
    """Train a new run. Its directory is made when everything else stands, so a mistake leaves no litter."""
    if directory is None:
        stem = f"{Path(config.algorithm_name).stem}-{config.task or 'data'}"
        directory = free_name(stem, Path("runs"))
    run = RunDirectory(directory)
    run.insist_on_new()
    try:
        with explained(lambda: "Stopped before training began; no run was started. Finished data is kept."):
            training = _Training(config, run, federation or build_federation(config, progress), progress)
        run.create(config)
        return training.go()
    finally:
        progress.finish()


def resume(directory: str | Path, progress: Progress | None = None, federation: Federation | None = None) -> Result:
    """Go on with a run that was interrupted, from its last checkpoint.

    A run on a `Federation` of your own arrays needs it again: raw data is never stored in a run directory.
    """
    progress = progress or Quiet()
    try:
        with explained(lambda: f"Stopped; the run is as it was.\nGo on with: fova train --resume {directory}"):
            training = _reopened(directory, federation, progress)
        return training.go()
    finally:
        progress.finish()


def build_federation(config: Config, progress: Progress | None = None) -> Federation:
    """The clients that a configuration names, their data made or loaded."""
    progress = progress or Quiet()
    if not config.clients:
        raise FovaError(
            "No clients were given. Name them, for instance: --task maze2d-umaze --clients expert expert random "
            "random\nor give data files: --clients ward-1.npz ward-2.npz"
        )
    task = registry.get(config.task) if config.task else None
    bounds = (config.run.action_low, config.run.action_high) if config.run.action_low else None
    display = (progress.status, progress.note)
    if config.run.data_sequence:
        sequence = config.run.data_sequence
        return Federation.in_turn(config.clients, sequence, task, config.run.seed, bounds, *display)
    return Federation.build(config.clients, task, config.run.seed, bounds, *display)


def first_policy(config: Config, federation: Federation) -> Policy:
    """The server's policy that a run of this configuration starts from, before any training."""
    training = _Training(config, RunDirectory(Path()), federation, Quiet())
    return training.server_policy(training.simulation.start())


def policies_of(directory: str | Path, federation: Federation | None = None) -> dict[str, Policy]:
    """The server's and every client's policy as of a run's last checkpoint."""
    training = _reopened(directory, federation, Quiet())
    state = load_checkpoint(training.run.checkpoints, like=training.simulation.start())
    if state is None:
        raise FovaError(f"{directory} has no checkpoint yet. Go on with: fova train --resume {directory}")
    server = {"server": training.server_policy(state)} if training.together else {}
    return server | training.client_policies(state)


def _reopened(directory: str | Path, federation: Federation | None, progress: Progress) -> "_Training":
    run = RunDirectory.open(Path(directory))
    config = load_config(run.path / "config.toml")
    federation = federation or build_federation(config, progress)
    insist_on_same_data(run, federation)
    return _Training(config, run, federation, progress)


def _specs(clients: Any, size: int | None) -> tuple[ClientSpec, ...]:
    if clients is None or isinstance(clients, Federation):
        return ()
    return tuple(c if isinstance(c, ClientSpec) else ClientSpec(str(c), size) for c in clients)


@dataclass(frozen=True)
class _Line:
    """What is logged of a round."""

    metrics: dict[str, Any]
    timing: dict[str, Any] | None  # None before the first round


class _Training:
    """The loop. Its order makes a run safe to stop anywhere: log, put the log on disk, checkpoint, show."""

    def __init__(self, config: Config, run: RunDirectory, federation: Federation, progress: Progress) -> None:
        runtime.prepare()
        progress.status("setting up the networks")
        self.config, self.run, self.federation, self.progress = config, run, federation, progress
        identity = Normaliser.identity(federation.space.observation)
        self.normaliser = federation.normaliser() if config.run.normalise else identity
        self.together = config.run.mode != "local"
        self.privacy = config.run.private(len(federation.clients))
        pooled = config.run.mode == "centralised"
        self.turns = [
            (turn.pooled() if pooled else turn).prepared(self.normaliser, config.run.reward_scale)
            for turn in federation.turns()
        ]
        self.turn = 0  # whose data the simulation has
        self.simulation = Simulation(
            config.algorithm,
            self.turns[0],
            federation.space,
            local_steps=config.run.local_steps * (len(federation.clients) if pooled else 1),
            seed=config.run.seed,
            participation=config.run.participation,
            cohort=config.run.cohort,
            aggregation=aggregation.get(config.run.aggregation),
            envelope=COMPRESSIONS[config.run.compress],
            privacy=self.privacy,
            together=self.together,
        )

    def go(self) -> Result:
        with self.run.lock(), explained(self._what_is_kept):
            return self._finish(self._train())

    def _train(self) -> State:
        with stop_signal(self.progress.note) as stop:
            state = stop.compute(self._first_state)
            with EventLog(self.run.path / "tensorboard", after=state.round) as events:
                return self._rounds(state, stop, events)

    def _rounds(self, state: State, stop: StopSignal, events: EventLog) -> State:
        first, rounds = state.round, self.config.run.rounds
        saved = time.monotonic()
        lines: Lines[_Line] = Lines(stop, self.config.run.evaluate_in_background)
        self.progress.start(first, rounds)
        if first == 0:
            policies = self._due(state)
            lines.add(partial(self._line, {"round": 0}, policies, None), plays=bool(policies))
            self._keep(state, lines, events, save=False)
        while True:
            if stop.wanted:
                self._stop(state, lines, events)
            if state.round == rounds:
                return state
            if state.round == first:
                self.progress.status("compiling (only the first time for this setting)")
            began = time.monotonic()
            try:
                state, report = stop.compute(partial(self.simulation.round, self._with_its_data(state)))
            except Exception:  # the rounds before it are logged, whatever they still wait for
                for line in lines.ready(wait=True):
                    self._log(events, line)
                raise
            seconds = time.monotonic() - began
            entry = stop.compute(partial(self._entry, state, report))
            policies = self._due(state)
            lines.add(partial(self._line, entry, policies, seconds), plays=bool(policies))
            save = state.round == rounds or time.monotonic() - saved >= self.config.run.checkpoint_seconds
            self._keep(state, lines, events, save)
            if save:
                saved = time.monotonic()

    def _stop(self, state: State, lines: Lines[_Line], events: EventLog) -> NoReturn:
        if state.round > self._saved_round():
            self._keep(state, lines, events, save=True)
        raise Interrupted(self._what_is_kept())

    def _what_is_kept(self) -> str:
        rounds, saved, resume = self.config.run.rounds, self._saved_round(), f"fova train --resume {self.run.path}"
        if saved == rounds:
            return (
                "Stopped before the final evaluation; all rounds are trained and saved.\n"
                f"Play the policy with: fova evaluate {self.run.path}\nor finish the run with: {resume}"
            )
        if saved:
            return f"Stopped; everything up to round {saved} of {rounds} is saved.\nGo on with: {resume}"
        return f"Stopped before a round was saved.\nStart over with: {resume}"

    def _saved_round(self) -> int:
        saved = checkpoints(self.run.checkpoints)
        return int(saved[-1].stem.rpartition("-")[2]) if saved else 0

    # --- Steps of the loop ---

    def _first_state(self) -> State:
        fresh = self.simulation.start()
        state = load_checkpoint(self.run.checkpoints, like=fresh) or fresh
        self.run.rewind(state.round if state.round else -1)
        held = self.federation.altogether()
        self.run.write_json("clients.json", {name: describe(data) for name, data in held.items()})
        return state

    def _turn_of(self, rounds: int) -> int:
        """Which turn of the data comes after so many rounds; one past the last when all are done."""
        return rounds * len(self.turns) // self.config.run.rounds

    def _with_its_data(self, state: State) -> State:
        """Before a round: the data whose turn it is. Depends on the round alone, so that a resumed run agrees."""
        turn = self._turn_of(state.round)
        if turn != self.turn:
            self.simulation.set_data(self.turns[turn])
            self.turn = turn
        if state.round > 0 and turn != self._turn_of(state.round - 1):
            return self.simulation.data_changed(state)
        return state

    def _entry(self, state: State, report: RoundReport) -> dict[str, Any]:
        entry: dict[str, Any] = {"round": state.round}
        if self.privacy is None:
            entry |= self._about_clients(report)
        else:  # who took part is a secret that the promise rests on
            entry |= {"clients": {}, "privacy": self.privacy.spent(state.round)}
        if report.traffic is not None:
            entry["bytes_per_client"] = report.traffic._asdict()
        return entry

    def _about_clients(self, report: RoundReport) -> dict[str, Any]:
        names = self.simulation.names
        clients = {
            names[client]: {name: float(values[i]) for name, values in report.metrics.items()}
            for i, client in enumerate(report.clients)
            if client not in report.rejected
        }
        about: dict[str, Any] = {"clients": clients}
        if report.traffic is not None:
            about["bytes"] = {way: len(report.clients) * size for way, size in report.traffic._asdict().items()}
        if report.rejected:
            why = {names[client]: reason for client, reason in report.rejected.items()}
            about |= {"rejected": list(why), "rejected_because": why}
            for name, reason in why.items():
                self.progress.note(f"{name} did not count: {reason}")
        return about

    def _due(self, state: State) -> dict[str, Policy]:
        """The policies that are to be played after this round; none if no evaluation is due."""
        run = self.config.run
        if self.federation.task is None or not run.evaluate_every:
            return {}
        turn_ends = self._turn_of(state.round) > self._turn_of(state.round - 1)  # so does the run's last round
        if state.round % run.evaluate_every and not turn_ends:
            return {}
        policies = self._to_play(state, run.evaluate_clients)
        return {n: policy.copy() for n, policy in policies.items()} if run.evaluate_in_background else policies

    def _line(self, entry: dict[str, Any], policies: dict[str, Policy], seconds: float | None) -> _Line:
        """The whole line of a round that took so many seconds; plays the policies."""
        began = time.monotonic()
        metrics = entry | (self._evaluate(policies) if policies else {})
        if seconds is None:
            return _Line(metrics, None)
        timing = {
            "round": entry["round"],
            "seconds": seconds,
            "evaluation": time.monotonic() - began,
            "peak_memory_mb": runtime.peak_memory_mb(),
        }
        return _Line(metrics, timing)

    def _evaluate(self, policies: dict[str, Policy]) -> dict[str, Any]:
        played = self._play(policies, self.config.run.episodes)
        server = played.pop("server").to_json()
        if not self.config.run.evaluate_clients:
            return {"server": server}
        return {"server": server, "client_play": {name: rollouts.to_json() for name, rollouts in played.items()}}

    def _to_play(self, state: State, clients: bool) -> dict[str, Policy]:
        self.progress.status("playing the policies")
        policies = {"server": self.server_policy(state)} if self.together else {}
        if clients or not self.together:
            policies |= self.client_policies(state)
        return policies

    def _play(self, policies: dict[str, Policy], episodes: int) -> dict[str, Rollouts]:
        assert self.federation.task is not None
        played = play(policies, self.federation.task, episodes)
        return played if self.together else {"server": merge(played, self.federation.task), **played}

    def _keep(self, state: State, lines: Lines[_Line], events: EventLog, save: bool) -> None:
        """Log and show what is ready. A checkpoint comes between, and waits for every line up to its round."""
        logged = []
        for line in lines.ready(wait=save):
            self._log(events, line)
            logged.append(line)
        if save:
            self._save(state)
        for line in logged:
            if line.timing is not None:
                self.progress.round(line.metrics)

    def _log(self, events: EventLog, line: _Line) -> None:
        self.run.append("metrics.jsonl", line.metrics)
        events.write(line.metrics)
        if line.timing is not None:
            self.run.append("timing.jsonl", line.timing)

    def _save(self, state: State) -> None:
        self.run.flush()
        save_checkpoint(self.run.checkpoints, state)
        if self.together:
            self.server_policy(state).save(self.run.policy)

    def _finish(self, state: State) -> Result:
        played: dict[str, Rollouts] = {}
        if self.federation.task is not None:
            played = self._play(self._to_play(state, clients=True), self.config.run.final_episodes)
        policy = self.server_policy(state) if self.together else None
        if policy is not None:  # again: a kill may have come between the last checkpoint and its policy
            policy.save(self.run.policy)
        self.run.write_json("result.json", {name: rollouts.to_json() for name, rollouts in played.items()})
        server = played.pop("server", None)
        return Result(self.run.path, policy, server, played)

    # --- Policies ---

    def server_policy(self, state: State) -> Policy:
        return self._policy(state.broadcast.actor, client="server", rounds=state.round)

    def client_policies(self, state: State) -> dict[str, Policy]:
        def actor_of(client: int) -> Any:
            return jax.tree.map(lambda leaf: leaf[client], state.learners.actor)

        return {
            name: self._policy(actor_of(i), client=name, rounds=state.round)
            for i, name in enumerate(self.simulation.names)
        }

    def _policy(self, actor: Any, **facts: Any) -> Policy:
        return from_actor(
            actor,
            self.normaliser,
            self.federation.space,
            task=self.config.task,
            algorithm=Path(self.config.algorithm_name).stem,
            **facts,
        )


def describe(data: Transitions) -> dict[str, Any]:
    """What is told about a client's data: sizes, the return of its behaviour and a fingerprint, never a row."""
    return {
        "rows": len(data),
        "episodes": len(data.episode_lengths()),
        "behaviour_return": float(data.whole_episode_returns().mean()),
        "digest": data.digest(),
    }


def insist_on_same_data(run: RunDirectory, federation: Federation) -> None:
    """Refuse to go on with a run on other data than it was trained on so far."""
    if not (run.path / "clients.json").is_file():  # stopped before it was written, so nothing was trained
        return
    before, held = run.read_json("clients.json"), federation.altogether()
    anew = f"start a new run on what is there now: fova train --config {run.path / 'config.toml'} --name NEW"
    if list(before) != list(held):
        raise FovaError(
            f"{run.path} was trained on the clients {', '.join(before)}, but now they are {', '.join(held)}. Bring "
            f"them back, or {anew}"
        )
    for name, data in held.items():
        was, now = before[name], describe(data)
        if was.get("digest", now["digest"]) != now["digest"]:  # older runs have none
            same = was["rows"] == now["rows"]
            how = "other values" if same else f"{was['rows']:,} rows then, {now['rows']:,} now"
            raise FovaError(
                f"The data of client {name!r} has changed since {run.path} was trained on it ({how}). Bring the "
                f"old data back, or {anew}"
            )
