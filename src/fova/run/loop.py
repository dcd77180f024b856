"""The training loop: one for every engine.

It drives an engine round by round and does everything else: it logs, plays policies, writes checkpoints, resumes
and stops. Its order makes a run safe to stop anywhere: log, put the log on disk, checkpoint, show.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import jax
import numpy as np

from fova.data.normalise import Normaliser
from fova.errors import FovaError
from fova.evaluation.background import PendingLines
from fova.evaluation.rollouts import Rollouts, first_seed, merge, play
from fova.evaluation.stages import Stages
from fova.federation import rounds
from fova.federation.engine import Engine, RoundReport, State
from fova.federation.privacy import Privacy
from fova.federation.statistics import Statistics
from fova.machine import runtime
from fova.machine.interrupts import Interrupted, StopSignal
from fova.policy import Policy, from_actor
from fova.progress import Progress
from fova.run.averaging import running_mean
from fova.run.callbacks import OnRound, RoundSummary, asks_to_stop
from fova.run.checkpoint import Rows, checkpoints, load_checkpoint, save_checkpoint
from fova.run.config import Config
from fova.run.directory import STOPPED_EARLY, RunDirectory
from fova.run.events import EventLog
from fova.run.records import read_statistics
from fova.run.selection import Selection
from fova.run.tracking import Trackers
from fova.spaces import Space
from fova.tasks.registry import Task

STATISTICS = "statistics.json"


@dataclass(frozen=True)
class Finished:
    """The results of a finished run."""

    state: State
    policy: Policy | None  # the server's; None in local mode, which has no server
    played: dict[str, Rollouts]  # the final evaluation by policy; empty without a task


@dataclass(frozen=True)
class _Line:
    """The log entry of a round."""

    metrics: dict[str, Any]
    timing: dict[str, Any] | None  # None before the first round
    policy: Policy | None  # the server's, for the user's function


class Loop:
    """Training of one run directory by one engine."""

    def __init__(
        self,
        config: Config,
        run: RunDirectory,
        engine: Engine,
        task: Task | None,
        progress: Progress,
        privacy: Privacy | None = None,
        resume_with: str = "fova train --resume",
    ) -> None:
        insist_on_a_policy(config.algorithm, engine.space)
        self.config, self.run, self.engine, self.task, self.progress = config, run, engine, task, progress
        self.privacy = privacy
        self.together = config.run.mode != "local"
        self.averages = self.together and config.run.averaged_rounds > 1
        self.on_round: OnRound | None = None
        self.selection: Selection | None = None
        self.stages: Stages | None = None  # of the data, if it is replaced on the way and these are played
        self.notes: tuple[str, ...] = ()  # about the clients' data
        self.rows: Rows | None = None  # the clients whose learners the engine holds, if not all
        # Saves the parts of a state that other processes hold; returns their shares.
        self.save_shares: Callable[[State], Sequence[range]] = lambda state: ()
        self._stops_early = False
        self._resume = f"{resume_with} {run.path}"
        self._clients: Mapping[str, Any] = {}
        self._trackers = Trackers(config, run, progress.note)

    def train(self, stop: StopSignal) -> State:
        """Train from the current state of the run to its last round."""
        state = stop.compute(self._first_state)
        self._trackers.open()
        with self._tracked(), EventLog(self.run.path / "tensorboard", after=state.round) as events:
            return self._rounds(state, stop, events)

    @contextmanager
    def _tracked(self) -> Iterator[None]:
        """Tell tracking services about a block that does not end well."""
        try:
            yield
        except BaseException:
            self._trackers.close(finished=False)
            raise

    @cached_property
    def statistics(self) -> Statistics:
        """The federation's statistics: saved by an earlier start of the run, or gathered now."""
        return self.engine.prepare(read_statistics(self.run, self.engine.space.observation))

    def last_state(self) -> State | None:
        """The state in the newest checkpoint; None if there is none yet."""
        return self.saved_state(self.fresh_state())

    def saved_state(self, fresh: State) -> State | None:
        """The state in the newest checkpoint, shaped like a fresh one; None if there is none yet."""
        return load_checkpoint(self.run.checkpoints, fresh, self.config.fingerprint(), self.rows)

    def fresh_state(self) -> State:
        """The state before the first round."""
        state = self.engine.start()
        return state._replace(average=self.config.algorithm.policy(state.broadcast)) if self.averages else state

    def _first_state(self) -> State:
        self.run.go_on()
        self.run.write_json(STATISTICS, self.statistics.to_json())
        if self.notes:
            self.run.write_json("notes.json", list(self.notes))
        for remark in self.statistics.remarks:
            self.progress.note(remark)
        fresh = self.fresh_state()
        state = self.saved_state(fresh) or fresh
        self._insist_on_rounds_left(state)
        self.run.rewind(state.round if state.round else -1)
        self._note_clients()
        return state

    def _insist_on_rounds_left(self, state: State) -> None:
        if state.round > self.config.run.rounds:
            raise FovaError(
                f"{self.run.path} has {state.round} finished rounds, but its config.toml asks for "
                f"{self.config.run.rounds}. Ask for at least {state.round}."
            )

    def _note_clients(self) -> None:
        """Write clients.json whenever more is known about who takes part."""
        known = self.engine.clients()
        if known != self._clients:
            self.run.write_json("clients.json", known)
            self._clients = known

    # --- Rounds ---

    def _rounds(self, state: State, stop: StopSignal, events: EventLog) -> State:
        first, total = state.round, self.config.run.rounds
        saved = time.monotonic()
        lines: PendingLines[_Line] = PendingLines(stop, self.config.run.evaluate_in_background)
        self.progress.start(first, total)
        if first == 0:
            self._log_start(state, lines, events)
        while True:
            if stop.wanted:
                self._stop(state, lines, events)
            if state.round == total:
                return state
            if state.round == first:
                self.progress.status("compiling (only the first time for this setting)")
            state = self._round(state, stop, lines, events)
            save = state.round == total or time.monotonic() - saved >= self.config.run.checkpoint_seconds
            self._keep(state, lines, events, save)
            if save:
                saved = time.monotonic()
            if self._stops_early:
                if not save:
                    self._keep(state, lines, events, save=True)
                return state

    def _log_start(self, state: State, lines: PendingLines[_Line], events: EventLog) -> None:
        policies = self._due(state)
        lines.add(partial(self._line, {"round": 0}, policies, None, None), plays=bool(policies))
        self._keep(state, lines, events, save=False)

    def _round(self, state: State, stop: StopSignal, lines: PendingLines[_Line], events: EventLog) -> State:
        began = time.monotonic()
        try:
            state, report = stop.compute(partial(self._engine_round, state))
        except Exception:  # log the rounds before it, and wait for their evaluations first
            for line in lines.ready(wait=True):
                self._log(events, line)
            raise
        seconds = time.monotonic() - began
        self._note_clients()
        entry = self._entry(state, report) | self._judged(state)
        policies, staged = self._due(state), self._due_on_stages(state)
        policy = self.server_policy(state).copy() if self.on_round is not None and self.together else None
        make = partial(self._line, entry, policies, staged, seconds, policy)
        lines.add(make, plays=bool(policies) or staged is not None)
        return state

    def _engine_round(self, state: State) -> tuple[State, RoundReport]:
        """One round, and the mean of the server's policies after it."""
        average, begun = state.average, state.average != ()
        state, report = self.engine.round(state)
        if self.averages:
            policy = self.config.algorithm.policy(state.broadcast)
            rounds = state.round if begun else 1
            average = running_mean(average if begun else policy, policy, rounds, self.config.run.averaged_rounds)
        return state._replace(average=average if self.averages else ()), report

    def _judged(self, state: State) -> dict[str, Any]:
        """What the judge says about the server's policy, where it is asked after this round."""
        run = self.config.run
        if self.selection is None or (state.round % run.evaluate_every and state.round < run.rounds):
            return {}
        self.progress.status("judging the policy on held-out episodes")
        return {"judge": self.selection.consider(state.round, self.server_policy(state))}

    def _stop(self, state: State, lines: PendingLines[_Line], events: EventLog) -> NoReturn:
        if state.round > self._saved_round():
            self._keep(state, lines, events, save=True)
        raise Interrupted(self.what_is_kept())

    def what_is_kept(self) -> str:
        """A message about what is kept if the run stops now, and how to continue."""
        total, saved = self.config.run.rounds, self._saved_round()
        if saved == total:
            return (
                "Stopped before the final evaluation; all rounds are trained and saved.\n"
                f"Play the policy with: fova evaluate {self.run.path}\nor finish the run with: {self._resume}"
            )
        if saved:
            return f"Stopped; everything up to round {saved} of {total} is saved.\nContinue with: {self._resume}"
        return f"Stopped before a round was saved.\nStart over with: {self._resume}"

    def _saved_round(self) -> int:
        saved = checkpoints(self.run.checkpoints)
        return int(saved[-1].stem.rpartition("-")[2]) if saved else 0

    # --- What is logged ---

    def _entry(self, state: State, report: RoundReport) -> dict[str, Any]:
        entry: dict[str, Any] = {"round": state.round}
        if self.privacy is None:
            entry |= self._about_clients(report)
        else:  # the privacy guarantee needs participation to stay secret
            entry |= {"clients": {}, "privacy": self.privacy.spent(state.round)}
        if report.traffic is not None:
            entry["bytes_per_client"] = report.traffic._asdict()
        return entry

    def _about_clients(self, report: RoundReport) -> dict[str, Any]:
        about: dict[str, Any] = {"clients": {name: dict(metrics) for name, metrics in report.clients.items()}}
        if report.mean:
            about["clients_mean"] = dict(report.mean)
        if report.traffic is not None:
            asked = len(report.clients) + len(report.rejected)
            about["bytes"] = {way: asked * size for way, size in report.traffic._asdict().items()}
        if report.rejected:
            about |= {"rejected": list(report.rejected), "rejected_because": dict(report.rejected)}
            for name, reason in report.rejected.items():
                self.progress.note(f"{name} was not counted: {reason}")
        if report.missing:
            about["missing"] = list(report.missing)
            self.progress.note(f"no answer in time from {', '.join(report.missing)}")
        return about

    def _line(
        self,
        entry: dict[str, Any],
        policies: dict[str, Policy],
        staged: Callable[[], list[float]] | None,
        seconds: float | None,
        policy: Policy | None = None,
    ) -> _Line:
        """The complete log entry of a round that took `seconds`. Plays the policies."""
        began = time.monotonic()
        metrics = entry | (self._evaluate(policies) if policies else {})
        if staged is not None:
            metrics["stages"] = staged()
        if seconds is None:
            return _Line(metrics, None, policy)
        timing = {
            "round": entry["round"],
            "seconds": seconds,
            "evaluation": time.monotonic() - began,
            "peak_memory_mb": runtime.peak_memory_mb(),
        }
        return _Line(metrics, timing, policy)

    def _keep(self, state: State, lines: PendingLines[_Line], events: EventLog, save: bool) -> None:
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
                self._call_back(line)

    def _call_back(self, line: _Line) -> None:
        if self.on_round is not None:
            number, rounds = line.metrics["round"], self.config.run.rounds
            summary = RoundSummary(number, rounds, line.metrics, line.policy)
            self._stops_early |= asks_to_stop(self.on_round, summary) and number < rounds

    def _log(self, events: EventLog, line: _Line) -> None:
        self.run.append("metrics.jsonl", line.metrics)
        events.write(line.metrics)
        self._trackers.write(line.metrics)
        if line.timing is not None:
            self.run.append("timing.jsonl", line.timing)

    def _save(self, state: State) -> None:
        self.run.flush()
        save_checkpoint(self.run.checkpoints, state, self.config.fingerprint(), self.save_shares(state))
        if self.together:
            self.server_policy(state).save(self.run.policy)

    # --- Playing policies ---

    def _due(self, state: State) -> dict[str, Policy]:
        """The policies that are to be played after this round; none if no evaluation is due.

        After the last round it is the final evaluation's turn (`finish`).
        """
        run = self.config.run
        if self.task is None or not run.evaluate_every or state.round == run.rounds:
            return {}
        if state.round % run.evaluate_every and not self.engine.data_changes_after(state.round):
            return {}
        return self._for_later(self._to_play(state, run.evaluate_clients))

    def _due_on_stages(self, state: State) -> Callable[[], list[float]] | None:
        """The evaluation from the states of every stage, after the last round of a stage; None if it is not due."""
        if self.stages is None or not self.engine.data_changes_after(state.round):
            return None
        return partial(self.stages.returns, self._for_later(self._to_play(state, clients=False)))

    def _for_later(self, policies: dict[str, Policy]) -> dict[str, Policy]:
        """The policies, as copies if training goes on before they are played."""
        background = self.config.run.evaluate_in_background
        return {name: policy.copy() for name, policy in policies.items()} if background else policies

    def _to_play(self, state: State, clients: bool) -> dict[str, Policy]:
        self.progress.status("playing the policies")
        policies = {"server": self.server_policy(state)} if self.together else {}
        if clients or not self.together:
            policies |= self.client_policies(state)
        return policies

    def _evaluate(self, policies: dict[str, Policy]) -> dict[str, Any]:
        played = self._play(policies, self.config.run.episodes)
        server = played.pop("server").to_json()
        if not self.config.run.evaluate_clients:
            return {"server": server}
        return {"server": server, "client_play": {name: rollouts.to_json() for name, rollouts in played.items()}}

    def _play(self, policies: dict[str, Policy], episodes: int) -> dict[str, Rollouts]:
        assert self.task is not None
        played = play(policies, self.task, episodes, first_seed(self.config.run.seed))
        return played if self.together else {"server": merge(played, self.task), **played}

    def finish(self, state: State) -> Finished:
        """Play the policies of a trained run and write what makes it complete."""
        with self._tracked():
            finished = self._completed(state)
        self._trackers.close(finished=True)
        return finished

    def _completed(self, state: State) -> Finished:
        run, played = self.config.run, {}
        policy = self._result(state) if self.together else None
        chosen = {} if policy is None else {"server": policy}
        if self.task is not None:
            played = self._play(self._to_play(state, run.final_clients) | chosen, run.final_episodes)
        if policy is not None:  # again: the run may have been killed between the last checkpoint and its policy
            policy.save(self.run.policy)
        self.save_client_policies(state)
        results = {name: rollouts.to_json() for name, rollouts in played.items()}
        self._log_final(state, results)
        if state.round < run.rounds:
            self.run.write_json(STOPPED_EARLY, {"round": state.round})
        self.run.write_json("result.json", results)
        return Finished(state, policy, played)

    def _log_final(self, state: State, results: Mapping[str, Any]) -> None:
        clients = {name: result for name, result in results.items() if name != "server"}
        entry = {"round": state.round, "server": results.get("server", {}), "client_play": clients}
        with EventLog(self.run.path / "tensorboard", after=state.round) as events:
            events.write(entry)
        self._trackers.write(entry)

    # --- Policies ---

    def server_policy(self, state: State) -> Policy:
        averaged = self.averages and state.average != ()
        actor = state.average if averaged else self.config.algorithm.policy(state.broadcast)
        return self._policy(actor, client="server", rounds=state.round)

    def _result(self, state: State) -> Policy:
        """The policy that the run ends with."""
        stopped_before_any = state.round < min(self.config.run.evaluate_every, self.config.run.rounds)
        if self.selection is None or stopped_before_any:  # or no round was judged yet
            return self.server_policy(state)
        return self.selection.best()

    def save_client_policies(self, state: State) -> None:
        """Write every client's own policy. Names of clients become names of files."""
        policies = self.client_policies(state)
        if policies:
            self.run.client_policies.mkdir(exist_ok=True)
        for name, policy in policies.items():
            policy.save(self.run.client_policies / f"{quote(name, safe=' ')}.safetensors")

    def client_policies(self, state: State) -> dict[str, Policy]:
        """Each client's own policy, where the engine holds the learners."""
        return {
            name: self._policy(self.config.algorithm.local_policy(learner), client=name, rounds=state.round)
            for name, learner in self.engine.local_learners(state).items()
        }

    def _policy(self, actor: Any, **facts: Any) -> Policy:
        algorithm = Path(self.config.algorithm_name).stem
        normaliser, recipe = self.statistics.normaliser, self.engine.recipe
        facts |= {"task": self.config.task, "algorithm": algorithm, "seed": self.config.run.seed}
        return from_actor(actor, normaliser, self.engine.space, recipe, **facts)


def insist_on_a_policy(algorithm: Any, space: Space) -> None:
    """Refuse, before any training, an algorithm whose policy could not be saved."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    shapes = jax.eval_shape(lambda key: algorithm.policy(rounds.start(algorithm, space, key)[1].broadcast), key)
    actor = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    try:
        from_actor(actor, Normaliser.identity(space.observation), space)
    except FovaError as error:
        raise FovaError(f"{type(algorithm).__name__} cannot be trained. {error}") from error
