"""The server of a real federation: a Flower ServerApp over the same functions that a simulation calls.

The server's files are those of any run (`runs.py`), so `fova evaluate` and the reports read them. After every
round it writes the log first and the checkpoint second; killed at any moment, it goes on as a new Flower run from
the last checkpoint, and no round counts twice.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fova.data.normalise import Normaliser, Sums, combine
from fova.errors import FovaError
from fova.evaluation.rollouts import play
from fova.federation import aggregation, rounds
from fova.federation.simulation import State
from fova.federation.wire import payload_bytes
from fova.machine import runtime
from fova.network import messages
from fova.network.journal import Journal
from fova.network.plan import Plan, server_work
from fova.policy import Policy, from_actor
from fova.progress import Progress
from fova.run.checkpoint import load_checkpoint, save_checkpoint
from fova.run.config import Config, load_config
from fova.run.directory import RunDirectory
from fova.settings import fill
from fova.spaces import Box, Space
from fova.tasks import registry

# How often the server looks for clients while it waits for enough of them.
SECONDS_BETWEEN_LOOKS = 3.0
# A newcomer has so long to load its data and say who it is.
HELLO_SECONDS = 300.0
# A client that was not admitted may be put right; it is asked again after so long.
REFUSAL_SECONDS = 60.0
# So many times in a row enough clients may answer without enough good answers, then the run ends.
ATTEMPTS = 3


@dataclass(frozen=True)
class ServerConfig:
    """How a server treats its clients; the part of a real federation that a simulation does not have."""

    min_clients: int = 2
    """Fewest clients to start with, and fewest good submissions that make a round."""
    deadline: float = 600.0
    """Seconds that clients have to answer in a round; whoever is later is left out of it."""
    observation: int | None = None
    """Numbers in an observation, where there is no task."""
    action: int | None = None
    """Numbers in an action, where there is no task."""
    host: str = "0.0.0.0"
    """Address to listen on. Other machines reach only the clients' interface there, never the control interface."""
    port: int = 8443
    """Port to listen on."""
    certificates: str = "certificates/server"
    """Folder with ca.crt, server.crt, server.key and the clients' public keys, from `fova certificates make`."""
    control_hosts: tuple[str, ...] = ()
    """Other machines that may use Flower's control interface, as addresses. Whoever may can run code here."""

    def __post_init__(self) -> None:
        if self.min_clients < 1:
            raise FovaError(f"min_clients is {self.min_clients}, but must be at least 1.")
        if not self.deadline > 0:
            raise FovaError(f"deadline is {self.deadline}, but must be above 0 seconds.")
        if not 0 < self.port < 65536:
            raise FovaError(f"port is {self.port}, but must be between 1 and 65535.")


def make_plan(config: Config, network: ServerConfig, run_id: str) -> Plan:
    """What every client will be told."""
    task = registry.get(config.task) if config.task else None
    if task:
        space = task.space
    elif network.observation and network.action:
        space = Space.unit(network.observation, network.action)
    else:
        raise FovaError(
            "Without a task the server cannot know how wide the data is. Give --task, or both --observation and "
            "--action."
        )
    if config.run.action_low:
        box = Box.of(space.action.size, config.run.action_low, config.run.action_high)
        space = Space(space.observation, box)
    return Plan(run_id, config.algorithm_name, config.algorithm, config.run, space, network.min_clients)


def create_run(path: Path, config: Config, network: ServerConfig) -> RunDirectory:
    """The directory of a new federation; everything that can be wrong with its settings is found before."""
    run = RunDirectory(path)
    run.insist_on_new()
    run_id = uuid.uuid4().hex
    make_plan(config, network, run_id)
    if config.run.mode != "federated":
        raise FovaError(f"mode is {config.run.mode!r}, but clients of a real federation can only be federated.")
    run.create(config)
    run.write_json("server.json", {"run_id": run_id, **asdict(network)})
    return run


def read_server(run: RunDirectory) -> tuple[str, ServerConfig]:
    """The number of a federation's run, and how its server was set up."""
    about = run.read_json("server.json")
    return about.pop("run_id"), fill(ServerConfig, about, f"of {run.path / 'server.json'}")


@dataclass
class Outcome:
    """What came back in one round."""

    sent: dict[str, Any] = field(default_factory=dict)  # client -> submission as it travelled
    rejected: dict[str, str] = field(default_factory=dict)  # client -> why
    missing: list[str] = field(default_factory=list)


class Server:
    """Rounds of one run over whatever clients a grid reaches."""

    def __init__(
        self, grid: Grid, run: RunDirectory, progress: Progress, pause: Callable[[float], None] = time.sleep
    ):
        runtime.prepare()
        self.grid, self.run, self.progress, self.pause = grid, run, progress, pause
        self.config = load_config(run.path / "config.toml")
        run_id, self.network = read_server(run)
        self.plan = make_plan(self.config, self.network, run_id)
        self.task = registry.get(self.config.task) if self.config.task else None
        self.aggregation = aggregation.get(self.config.run.aggregation)
        self.like = self.plan.submission_like()
        self.members: dict[int, str] = {}  # node -> client
        self.refused: dict[int, float] = {}  # node -> when
        self.sums: dict[str, Sums] = {}
        self.counted: dict[str, int] = {}  # client -> rounds finished when it last counted

    def go(self) -> State:
        with self.run.lock():
            state = self._first_state()
            self.progress.start(state.round, self.plan.run.rounds)
            self.normaliser = self._normaliser()
            while state.round < self.plan.run.rounds:
                state = self._round(state)
            self._finish(state)
        return state

    def _first_state(self) -> State:
        fresh = State(0, self.plan.first_learner()[1], ())
        state = load_checkpoint(self.run.checkpoints, like=fresh) or fresh
        self.run.rewind(state.round)
        for entry in self.run.metrics():
            self.counted |= dict.fromkeys(entry["clients"], entry["round"])
        return state

    # --- Who is there ---

    def _gather(self) -> dict[str, int]:
        """Clients that are connected and fit, by name; newcomers are asked who they are first."""
        here = set(self.grid.get_node_ids())
        self.members = {node: name for node, name in self.members.items() if node in here}
        refused = {node for node, when in self.refused.items() if time.monotonic() - when < REFUSAL_SECONDS}
        strangers = sorted(here - set(self.members) - refused)
        questions = {node: messages.hello(self.plan) for node in strangers}
        for node, reply in self._ask(messages.HELLO, questions, min(HELLO_SECONDS, self.network.deadline)):
            self._greet(node, reply)
            strangers.remove(node)
        for node in strangers:  # somebody who never answers must not hold up every round
            self._refuse(node, "it does not say who it is")
        return {name: node for node, name in self.members.items()}

    def _greet(self, node: int, reply: Message) -> None:
        try:
            content = _content(reply)
            name = messages.read_client(content, self.plan)
            if name in self.members.values():
                raise messages.Refused(f"another client is called {name!r} already")
            registered = self._registered_name(node)
            if registered and registered != name:
                raise messages.Refused(f"it calls itself {name!r}, but its key is registered for {registered!r}")
            sums = messages.read_sums(content, self.plan)
        except MALFORMED as error:
            self._refuse(node, spoken(error))
            return
        self.members[node] = name
        if sums is not None:
            self.sums[name] = sums
        self.progress.note(f"{name} joined")

    def _refuse(self, node: int, why: str) -> None:
        self.refused[node] = time.monotonic()
        self.progress.note(f"not admitted, {self._registered_name(node) or f'node {node}'}: {why}")

    def _registered_name(self, node: int) -> str:
        """The name that the administrator gave a node's key; none without authentication."""
        return next((info.name for info in self.grid.get_nodes() if info.node_id == node), "")

    def _enough(self) -> dict[str, int]:
        """Wait until as many clients are connected as the server wants."""
        told = -1
        while len(clients := self._gather()) < self.network.min_clients:
            if len(clients) != told:
                told = len(clients)
                self.progress.status(f"waiting for clients: {told} of {self.network.min_clients} are here")
            self.pause(SECONDS_BETWEEN_LOOKS)
        return clients

    def _normaliser(self) -> Normaliser:
        """Observation statistics of the clients that were there at the start; they stay for the whole run."""
        path = self.run.path / "normaliser.json"
        if not path.exists():
            if self.plan.run.normalise:
                present = self._enough()
                frame = combine(self.sums[name] for name in sorted(present))
            else:
                frame = Normaliser.identity(self.plan.space.observation)
            self.run.write_json(path.name, {"mean": frame.mean.tolist(), "std": frame.std.tolist()})
        kept = self.run.read_json(path.name)
        return Normaliser(np.asarray(kept["mean"], np.float32), np.asarray(kept["std"], np.float32))

    # --- One round ---

    def _round(self, state: State) -> State:
        for attempt in range(1, ATTEMPTS + 1):
            outcome, needed = self._collect(state)
            while len(outcome.sent) + len(outcome.rejected) < needed:  # nothing is wrong but that too few are there
                self.progress.status(f"round {state.round + 1}: no answer from {', '.join(outcome.missing)}; again")
                outcome, needed = self._collect(state)
            broadcast, metrics = self._merge(state, outcome)
            if len(metrics) >= needed:
                return self._keep(State(state.round + 1, broadcast, ()), metrics, outcome)
            self.progress.status(
                f"round {state.round + 1}, attempt {attempt} of {ATTEMPTS}: {len(metrics)} good submissions, "
                f"but {needed} are needed"
            )
        reasons = "\n".join(f"  - {name}: {why}" for name, why in outcome.rejected.items())
        raise FovaError(
            f"Round {state.round + 1} failed {ATTEMPTS} times: too few clients sent something that can be used.\n"
            f"{reasons}\nIf parameters are not finite, lower the learning rates or the rewards' scale."
        )

    def _collect(self, state: State) -> tuple[Outcome, int]:
        """Ask this round's clients, and sort what comes back before the deadline."""
        clients = self._choose(state.round, self._enough())
        questions = {
            node: messages.round_question(
                self.plan, state.round, self.counted.get(name, 0), state.broadcast, self.normaliser
            )
            for name, node in clients.items()
        }
        outcome = Outcome()
        names = {node: name for name, node in clients.items()}
        for node, reply in self._ask(messages.ROUND, questions, self.network.deadline):
            name = names.pop(node)
            try:
                content = _content(reply)
                if messages.read_client(content, self.plan) != name:
                    raise messages.Refused("it answers in another client's name")
                outcome.sent[name] = messages.read_round_answer(content, self.plan, state.round, self.like)
            except MALFORMED as error:
                outcome.rejected[name] = spoken(error)
        outcome.missing = sorted(names.values())
        return outcome, min(self.network.min_clients, len(clients))

    def _choose(self, number: int, clients: dict[str, int]) -> dict[str, int]:
        wanted = max(self.network.min_clients, round(self.plan.run.participation * len(clients)))
        if wanted >= len(clients):
            return clients
        order = jax.random.permutation(rounds.participation_key(self.plan.root_key, number), len(clients))
        names = sorted(clients)
        return {names[int(i)]: clients[names[int(i)]] for i in order[:wanted]}

    def _merge(self, state: State, outcome: Outcome) -> tuple[Any, dict[str, dict[str, float]]]:
        """The next broadcast and the metrics of whoever counted; in order of names, whoever was quickest."""
        names = sorted(outcome.sent)
        if not names:
            return state.broadcast, {}
        sent = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(outcome.sent[name] for name in names))
        merged, verdicts, metrics = server_work(
            self.plan.algorithm, self.aggregation, self.plan.envelope, sent, state.broadcast
        )
        why = {name: rounds.WHY_REJECTED[int(v)] for name, v in zip(names, verdicts) if v != rounds.ACCEPTED}
        outcome.rejected |= why
        table = {name: np.asarray(values) for name, values in metrics.items()}
        return merged, {
            client: {name: float(values[i]) for name, values in table.items()}
            for i, client in enumerate(names)
            if client not in why
        }

    def _keep(self, state: State, metrics: dict[str, dict[str, float]], outcome: Outcome) -> State:
        """Log, put the log on disk, checkpoint, show: in this order no round is lost or counted twice."""
        entry: dict[str, Any] = {
            "round": state.round,
            "clients": metrics,
            "bytes_per_client": {"down": payload_bytes(state.broadcast), "up": payload_bytes(self.like)},
        }
        if self.plan.privacy:
            entry["privacy"] = self.plan.privacy.spent(state.round)
        if outcome.rejected:
            entry |= {"rejected": sorted(outcome.rejected), "rejected_because": outcome.rejected}
        if outcome.missing:
            entry["missing"] = outcome.missing
        every = self.plan.run.evaluate_every
        if self.task and every and (state.round % every == 0 or state.round == self.plan.run.rounds):
            played = play({"server": self.policy(state)}, self.task, self.plan.run.episodes)
            entry["server"] = played["server"].to_json()
        self.run.append("metrics.jsonl", entry)
        self.run.flush()
        save_checkpoint(self.run.checkpoints, state)
        self.policy(state).save(self.run.policy)
        self.counted |= dict.fromkeys(metrics, state.round)
        for name, why in outcome.rejected.items():
            self.progress.note(f"round {state.round}: {name} did not count: {why}")
        if outcome.missing:
            self.progress.note(f"round {state.round}: no answer in time from {', '.join(outcome.missing)}")
        self.progress.round(entry)
        return state

    def _ask(self, kind: str, questions: dict[int, RecordDict], seconds: float) -> Iterator[tuple[int, Message]]:
        """Every node's first answer within so many seconds; Flower's word that a node is gone is none of it."""
        if not questions:
            return
        # Undelivered questions expire: a node that comes back does not train a round that is long over.
        asked = [Message(content, node, kind, ttl=seconds) for node, content in questions.items()]
        open_questions = set(questions)
        for reply in self.grid.send_and_receive(asked, timeout=seconds):
            node = reply.metadata.src_node_id
            if node in open_questions:
                open_questions.remove(node)
                yield node, reply

    # --- The end ---

    def policy(self, state: State) -> Policy:
        return from_actor(
            state.broadcast.actor,
            self.normaliser,
            self.plan.space,
            task=self.config.task,
            algorithm=self.config.algorithm_name,
            client="server",
            rounds=state.round,
        )

    def _finish(self, state: State) -> None:
        self.policy(state).save(self.run.policy)  # again: a kill may have come between a checkpoint and its policy
        self.run.write_json("participation.json", self._tally())
        played = {}
        if self.task:
            played = play({"server": self.policy(state)}, self.task, self.plan.run.final_episodes)
        self.run.write_json("result.json", {name: rollouts.to_json() for name, rollouts in played.items()})
        self.progress.finish()

    def _tally(self) -> dict[str, dict[str, int]]:
        """Of every client: in how many rounds it counted, was rejected, or did not answer."""
        tally: dict[str, Counter[str]] = {}
        for entry in self.run.metrics():
            for kind, key in (("counted", "clients"), ("rejected", "rejected"), ("missing", "missing")):
                for name in entry.get(key, ()):
                    tally.setdefault(name, Counter())[kind] += 1
        return {name: dict(kinds) for name, kinds in sorted(tally.items())}


# What a reply can be that is not as it should be: refused by us, or not readable as what it claims to be.
MALFORMED = (FovaError, KeyError, TypeError, ValueError, EOFError)


def spoken(error: Exception) -> str:
    if isinstance(error, FovaError):
        return str(error)
    return f"its message cannot be read ({type(error).__name__}: {error})"


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        raise messages.Refused(f"Flower reports: {reply.error.reason}")
    return reply.content


# --- Flower's side ----------------------------------------------------------------------------------------

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, or go on training, the run in the directory that the run configuration names."""
    run = RunDirectory.open(Path(str(context.run_config["directory"])))
    journal = Journal(run.path / "journal.jsonl")
    try:
        Server(grid, run, journal).go()
    except (FovaError, OSError) as error:
        journal.failed(str(error))
        raise
