"""The server of a real federation: the engine on Flower, and the ServerApp that runs the training loop with it.

Rounds call the same functions as in a simulation, and the loop is the same, so a run over a network leaves the same
files. Killed at any moment, the server goes on as a new Flower run from the last checkpoint, and no round counts
twice.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from fova.data.normalise import Normaliser
from fova.errors import FovaError
from fova.federation import aggregation, rounds
from fova.federation.clients import bounded
from fova.federation.engine import RoundReport, State
from fova.federation.statistics import (
    ClientStatistics,
    Statistics,
    common_normaliser,
    derive,
    weights_by_returns,
)
from fova.federation.wire import payload_bytes
from fova.machine import runtime
from fova.machine.interrupts import Interrupted, StopSignal
from fova.network import messages
from fova.network.journal import Journal
from fova.network.plan import Plan
from fova.progress import Progress
from fova.run.config import Config, load_config, unit_of_reward
from fova.run.directory import RunDirectory
from fova.run.loop import Finished, Loop
from fova.run.records import read_table
from fova.settings import Within, check_ranges, fill
from fova.spaces import Space
from fova.tasks import registry

Pause = Callable[[float], None]

# How often the server looks for clients while it waits for enough of them.
SECONDS_BETWEEN_LOOKS = 3.0
# A newcomer has so long to load its data and say who it is.
HELLO_SECONDS = 300.0
# A client that was not admitted may be put right; it is asked again after so long.
REFUSAL_SECONDS = 60.0
# So many times in a row enough clients may answer without enough good answers, then the run ends.
ATTEMPTS = 3
SECONDS_IN_A_YEAR = 31_536_000
MOST_COLUMNS = 100_000


@dataclass(frozen=True)
class ServerConfig:
    """How a server treats its clients; the part of a real federation that a simulation does not have."""

    min_clients: Annotated[int, Within(1, 1_000_000)] = 2
    """Fewest clients to start with, and fewest good submissions that make a round."""
    deadline: Annotated[float, Within(0, SECONDS_IN_A_YEAR, above=True)] = 600.0
    """Seconds that clients have to answer in a round; whoever is later is left out of it."""
    observation: Annotated[int | None, Within(1, MOST_COLUMNS)] = None
    """Numbers in an observation, where there is no task."""
    action: Annotated[int | None, Within(1, MOST_COLUMNS)] = None
    """Numbers in an action, where there is no task."""
    host: str = "0.0.0.0"
    """Address to listen on. Other machines reach only the clients' interface there, never the control interface."""
    port: Annotated[int, Within(1, 65535)] = 8443
    """Port to listen on."""
    certificates: str = "certificates/server"
    """Folder with ca.crt, server.crt, server.key and the clients' public keys, from `fova certificates make`."""
    control_hosts: tuple[str, ...] = ()
    """Other machines that may use Flower's control interface, as addresses. Whoever may can run code here."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in ("host", "certificates"):
            if not getattr(self, name):
                raise FovaError(f"{name} is empty. Leave it out for the default, or say which one.")


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
        bounds = (config.run.action_low, config.run.action_high)
        space = Space(space.observation, bounded(space.action, bounds))
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
    about = read_table(run, "server.json")
    network = {name: value for name, value in about.content.items() if name != "run_id"}
    return about.text("run_id"), fill(ServerConfig, network, f"of {run.path / 'server.json'}")


@dataclass
class Answers:
    """What came back in one round."""

    sent: dict[str, Any] = field(default_factory=dict)  # client -> submission as it travelled
    rejected: dict[str, str] = field(default_factory=dict)  # client -> why
    missing: list[str] = field(default_factory=list)


class FlowerEngine:
    """Rounds of one run over whatever clients a grid reaches."""

    def __init__(
        self, grid: Grid, plan: Plan, network: ServerConfig, progress: Progress, pause: Pause = time.sleep
    ) -> None:
        runtime.prepare()
        self.grid, self.plan, self.network, self.progress, self.pause = grid, plan, network, progress, pause
        self.space, self.recipe = plan.space, plan.agreed.recipe if plan.agreed else None
        self.aggregation = aggregation.for_algorithm(plan.run.aggregation, plan.algorithm)
        self.like = plan.submission_like()
        self.members: dict[int, str] = {}  # node -> client
        self.refused: dict[int, float] = {}  # node -> when
        self.told: dict[str, ClientStatistics] = {}  # what each client said about its data

    # --- The engine ---

    def prepare(self, saved: Mapping[str, Any] | None) -> Statistics:
        """Statistics of the clients that were there at the start; they stay for the whole run."""
        self.statistics = Statistics.from_json(saved) if saved is not None else self._gather_statistics()
        return self.statistics

    def _gather_statistics(self) -> Statistics:
        unit, columns = unit_of_reward(self.plan.run, self.plan.algorithm), self.space.observation
        if not self.plan.gathers_statistics:
            assert unit is not None  # a private run says its unit
            return Statistics(Normaliser.identity(columns), unit)
        present = sorted(self._wait_for_clients())
        told = {name: self.told[name] for name in present}
        return derive(told, common_normaliser(told.values(), columns), self.plan.algorithm.discount, unit)

    def start(self) -> State:
        return State(0, self.plan.start()[1])

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. Clients that fail are left out; if too few are left, the round is tried again."""
        for attempt in range(1, ATTEMPTS + 1):
            answers, needed = self._collect(state)
            while len(answers.sent) + len(answers.rejected) < needed:  # nothing is wrong, but too few are there
                self.progress.status(f"round {state.round + 1}: no answer from {', '.join(answers.missing)}; again")
                answers, needed = self._collect(state)
            server, metrics = self._judge(state, answers)
            if len(metrics) >= needed:
                return self._finished(state, server, metrics, answers)
            self.progress.status(
                f"round {state.round + 1}, attempt {attempt} of {ATTEMPTS}: {len(metrics)} good submissions, "
                f"but {needed} are needed"
            )
        reasons = "\n".join(f"  - {name}: {why}" for name, why in answers.rejected.items())
        raise FovaError(
            f"Round {state.round + 1} failed {ATTEMPTS} times: too few clients sent something that can be used.\n"
            f"{reasons}\nIf parameters are not finite, lower the learning rates or the rewards' scale."
        )

    def data_changes_after(self, rounds: int) -> bool:
        return False

    def clients(self) -> dict[str, dict[str, Any]]:
        """What clients said about their data, in order of their names; under privacy they say nothing."""
        return {
            name: {
                "rows": client.rows,
                "episodes": client.episodes,
                "behaviour_return": client.behaviour_return,
            }
            for name, client in sorted(self.told.items())
        }

    def local_learners(self, state: State) -> dict[str, Any]:
        """Clients keep their learners to themselves."""
        return {}

    # --- Who is there ---

    def _present(self) -> dict[str, int]:
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
            statistics = messages.read_statistics(content, self.plan)
        except MALFORMED as error:
            self._refuse(node, in_words(error))
            return
        self.members[node] = name
        if statistics is not None:
            self.told[name] = statistics
        self.progress.note(f"{name} joined")

    def _refuse(self, node: int, why: str) -> None:
        self.refused[node] = time.monotonic()
        self.progress.note(f"not admitted, {self._registered_name(node) or f'node {node}'}: {why}")

    def _registered_name(self, node: int) -> str:
        """The name that the administrator gave a node's key; none without authentication."""
        return next((info.name for info in self.grid.get_nodes() if info.node_id == node), "")

    def _wait_for_clients(self) -> dict[str, int]:
        """Wait until as many clients are connected as the server wants."""
        shown = -1
        while len(clients := self._present()) < self.network.min_clients:
            if len(clients) != shown:
                shown = len(clients)
                self.progress.status(f"waiting for clients: {shown} of {self.network.min_clients} are here")
            self.pause(SECONDS_BETWEEN_LOOKS)
        return clients

    # --- One round ---

    def _collect(self, state: State) -> tuple[Answers, int]:
        """Ask this round's clients, and sort what comes back before the deadline."""
        clients = self._choose(state.round, self._wait_for_clients())
        questions = {
            node: messages.round_question(
                self.plan, state.round, counted(state).get(name, 0), state.broadcast, self.statistics
            )
            for name, node in clients.items()
        }
        answers = Answers()
        names = {node: name for name, node in clients.items()}
        for node, reply in self._ask(messages.ROUND, questions, self.network.deadline):
            name = names.pop(node)
            try:
                content = _content(reply)
                if messages.read_client(content, self.plan) != name:
                    raise messages.Refused("it answers in another client's name")
                answers.sent[name] = messages.read_round_answer(content, self.plan, state.round, self.like)
            except MALFORMED as error:
                answers.rejected[name] = in_words(error)
        answers.missing = sorted(names.values())
        return answers, min(self.network.min_clients, len(clients))

    def _choose(self, number: int, clients: dict[str, int]) -> dict[str, int]:
        wanted = max(self.network.min_clients, round(self.plan.run.participation * len(clients)))
        if wanted >= len(clients):
            return clients
        order = jax.random.permutation(rounds.participation_key(self.plan.root_key, number), len(clients))
        names = sorted(clients)
        return {names[int(i)]: clients[names[int(i)]] for i in order[:wanted]}

    def _judge(self, state: State, answers: Answers) -> tuple[Any, dict[str, dict[str, float]]]:
        """The server's next state and the metrics of the accepted clients, in order of their names."""
        names = sorted(answers.sent)
        if not names:
            return state.server, {}
        sent = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(answers.sent[name] for name in names))
        judged = rounds.judge_submissions(
            self.plan.algorithm,
            self.aggregation,
            self.plan.envelope,
            state.broadcast,
            sent,
            np.ones(len(names), bool),
            self._log_weights(names),
        )
        answers.rejected |= {
            name: rounds.WHY_REJECTED[int(verdict)]
            for name, verdict in zip(names, judged.verdicts)
            if verdict != rounds.ACCEPTED
        }
        table = {name: np.asarray(values) for name, values in judged.metrics.items()}
        if self.plan.privacy is None and self.aggregation.combine is None:
            table["server_weight"] = rounds.server_weights(np.asarray(judged.log_weights))
        metrics = {
            client: {name: float(values[i]) for name, values in table.items()}
            for i, client in enumerate(names)
            if client not in answers.rejected
        }
        return rounds.aggregate(self.plan.algorithm, state.server, judged.submissions), metrics

    def _log_weights(self, names: list[str]) -> NDArray[np.float32]:
        """By the returns in the data of every client that joined so far, newcomers included."""
        known = weights_by_returns(self.told, self.plan.algorithm.discount)
        return np.array([known.get(name, 0.0) for name in names], np.float32)

    def _finished(
        self, state: State, server: Any, metrics: dict[str, dict[str, float]], answers: Answers
    ) -> tuple[State, RoundReport]:
        number = state.round + 1
        state = State(number, server, memo={COUNTED: counted(state) | dict.fromkeys(metrics, number)})
        traffic = rounds.Traffic(payload_bytes(state.broadcast), payload_bytes(self.like))
        return state, RoundReport(metrics, answers.rejected, tuple(answers.missing), traffic)

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


COUNTED = "counted"


def counted(state: State) -> dict[str, int]:
    """For each client the rounds that were finished when it last counted: it goes on from its state of then."""
    return dict(state.memo.get(COUNTED, {}))


# What a reply can be that is not as it should be: refused by us, or not readable as what it claims to be.
MALFORMED = (FovaError, KeyError, TypeError, ValueError, EOFError)


def in_words(error: Exception) -> str:
    if isinstance(error, FovaError):
        return str(error)
    return f"its message cannot be read ({type(error).__name__}: {error})"


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        raise messages.Refused(f"Flower reports: {reply.error.reason}")
    return reply.content


# --- Flower's side ----------------------------------------------------------------------------------------

STOP_REQUEST = "stop-request"  # a file in the run's directory that asks the server to stop after this round

app = ServerApp()


def train(grid: Grid, run: RunDirectory, progress: Progress, pause: Pause = time.sleep) -> Finished:
    """Train the run in this directory over the clients that the grid reaches, from where it stands."""
    config = load_config(run.path / "config.toml")
    run_id, network = read_server(run)
    plan = make_plan(config, network, run_id)
    request = run.path / STOP_REQUEST
    request.unlink(missing_ok=True)

    def pause_unless_stopped(seconds: float) -> None:
        if request.exists():
            raise Interrupted(loop.what_is_kept())
        pause(seconds)

    engine = FlowerEngine(grid, plan, network, progress, pause_unless_stopped)
    task = registry.get(config.task) if config.task else None
    # Every round is saved: its clients have moved on and cannot repeat it.
    config = replace(config, run=replace(config.run, checkpoint_seconds=0.0))
    loop = Loop(config, run, engine, task, progress, plan.privacy, "fova server --resume")
    try:
        with run.lock():
            finished = loop.finish(loop.train(StopSignal(progress.note, request.exists, threads=False)))
    finally:
        request.unlink(missing_ok=True)
    progress.finish()
    return finished


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, or go on training, the run in the directory that the run configuration names."""
    run = RunDirectory.open(Path(str(context.run_config["directory"])))
    journal = Journal(run.path / "journal.jsonl")
    try:
        train(grid, run, journal)
    except Interrupted as stopped:
        journal.fail(str(stopped))
    except (FovaError, OSError) as error:
        journal.fail(str(error))
        raise
