"""A client of a real federation: a Flower ClientApp that calls the same functions as a simulation.

The client saves its state (target critics, optimizer state) to its own disk after every round, and reads it from
there before the next one. If the process is killed, at most the current round is lost. Between messages it keeps
only what can be made again: the data, and the compiled programs.

Only the content that `messages.py` lists leaves this process. Raw data is read here and is never sent.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fova.algorithms.base import Data, Submission
from fova.data.action_kind import ActionKind
from fova.data.paths import as_path, stamp
from fova.data.sampling import drawn_rows, row_weights
from fova.data.tables.arrow import insist_on_table
from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader
from fova.data.tables.logged import read
from fova.data.tables.survey import survey
from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.federation.engine import State
from fova.federation.privacy import Privacy, secret_key
from fova.federation.statistics import ClientStatistics, Statistics, client_statistics
from fova.federation.wire import from_named_arrays, named_arrays
from fova.machine import runtime
from fova.machine.files import write_atomically
from fova.network import messages
from fova.network.budget import Budget, Floor, keep_answer, kept_answer, question_digest
from fova.network.intake import Refused, insist_on_name
from fova.network.journal import Journal
from fova.network.plan import Plan, client_work
from fova.network.secure_client import SecureClient
from fova.network.secure_messages import step_of
from fova.policy import from_actor
from fova.run.checkpoint import discard_after, load_checkpoint, save_checkpoint
from fova.run.config import read_toml
from fova.settings import fill
from fova.spaces import ActionSpace
from fova.tasks import registry


@dataclass(frozen=True)
class ClientConfig:
    """A client's name, data and state folder. `fova client` passes it to Flower as the node configuration."""

    name: str
    """Name of this client in the federation."""
    data: str
    """A data file, or a quality of the task's data (expert, random, ...)."""
    state: str
    """Folder for the state that the client keeps between rounds."""
    task: str | None = None
    """The task to make data for, if `data` is a quality."""
    size: int | None = None
    """Transitions to take."""
    offset: int | None = None
    """Row to start from."""
    insist_privacy: str | None = None
    """The least privacy that the client accepts, as clip=1,noise=2,epsilon=8."""
    insist_secure_aggregation: bool = False
    """Refuse a run in which the server would see this client's update."""
    key: str | None = None
    """File with the client's secret key. With secure aggregation it signs the keys of each round."""
    peers: str | None = None
    """Folder with the other clients' public keys, as NAME.pub, that must have signed the keys of each round."""
    columns: str | None = None
    """A TOML file whose [columns] table says what the columns of `data` mean, if it is a table."""

    def __post_init__(self) -> None:
        insist_on_name(self.name)
        if self.insist_privacy is not None:
            Floor.parse(self.insist_privacy)

    def load(
        self,
        bounds: tuple[Any, Any] | None = None,
        action: ActionSpace | None = None,
        actions: ActionKind = "auto",
        reader: TableReader | None = None,
    ) -> Federation:
        """A federation that holds only this client's data. The data is checked."""
        task = registry.get(self.task) if self.task else None
        spec = ClientSpec(self.data, self.size, self.offset, self.name)
        return Federation.build([spec], task, bounds=bounds, action=action, reader=reader, actions=actions)

    def mapping(self) -> Columns | None:
        """What the columns of this client's table mean; None if it holds no table."""
        return Columns.of(read_toml(Path(self.columns)).columns) if self.columns else None

    def agreed_mapping(self, asked: Columns) -> Columns:
        """The mapping that a server asks for. Only the one that this client was started with is answered.

        A server could otherwise ask for the values of any column.
        """
        own = self.mapping()
        if own is None:
            raise Refused(
                "The server trains on tables. Start this client with the same [columns] table: --columns or "
                "--config."
            )
        if own != asked:
            differing = [role for role, value in asked.to_table().items() if own.to_table().get(role) != value]
            differing += [role for role in own.to_table() if role not in asked.to_table()]
            raise Refused(
                f"This client's columns are not those of the server: they differ in {', '.join(differing)}. Give "
                "both the same [columns] table."
            )
        return own

    @staticmethod
    def of(node_config: dict[str, Any]) -> "ClientConfig":
        if not {"name", "data", "state"} <= set(node_config):
            raise FovaError(
                f"This SuperNode's configuration has {sorted(node_config)}, but a fova client needs name, data and "
                "state. Start it with `fova client`, or give them in --node-config."
            )
        return fill(ClientConfig, node_config, "of this SuperNode")


class Client:
    """One client in one training run."""

    def __init__(self, config: ClientConfig, plan: Plan) -> None:
        self.config, self.plan = config, plan
        self.checkpoints = Path(config.state) / plan.run_id
        self.journal = Journal(Path(config.state) / "journal.jsonl")
        self.budget = Budget(Path(config.state))
        key, peers = (Path(place) if place else None for place in (config.key, config.peers))
        self.secure = SecureClient(plan, config.name, self.checkpoints, key, peers)
        self.floor = Floor.parse(config.insist_privacy) if config.insist_privacy is not None else None
        if self.floor is not None:
            self.floor.check(plan.privacy)
        if config.insist_secure_aggregation and not plan.secure:
            raise Refused("it insists on secure aggregation, and this run has none: --secure-aggregation")
        self._prepared: tuple[Any, Data] | None = None

    @cached_property
    def federation(self) -> Federation:
        """The client's data without the episodes that the plan keeps aside.

        It must have the plan's dimensions and lie within its action bounds.
        """
        own = self.config.load(action=self.plan.space.action, actions=self.plan.run.actions, reader=self._reader())
        if own.space != self.plan.space:
            raise Refused(
                f"The data of client {self.config.name!r} has {own.space.words()}, but the server trains on "
                f"{self.plan.space.words()}."
            )
        return own.holding_out(self.plan.run.hold_out, self.plan.run.seed, self.journal.note)

    def _reader(self) -> TableReader | None:
        if self.plan.columns is None:
            return None
        return TableReader(self.config.agreed_mapping(self.plan.columns), agreed=self.plan.agreed)

    # --- The server's two requests ---

    def hello(self) -> RecordDict:
        """Load and check the data. Return the client's name and, if the plan asks for them, its statistics."""
        return messages.hello_answer(self.plan, self.config.name, self._told())

    def _told(self) -> ClientStatistics | None:
        """What the client tells about its data before the first round; None if the plan does not ask."""
        (data,) = self.federation.clients.values()
        self.journal.note(f"joined a federation with {len(data):,} transitions, {self.plan.algorithm_name}")
        if not self.plan.gathers_statistics:
            return None
        return client_statistics(data, self.plan.run.reward_scale, self.plan.run.normalise, self._row_weights())

    def round(self, content: RecordDict) -> RecordDict:
        """Train one round from the last accepted state, save the new state and return the reply."""
        fresh, server = self.plan.start()
        number, counted, broadcast, statistics = messages.read_round_question(content, self.plan, server.broadcast)
        self._notice_changed_data()
        question = question_digest(self.plan.run_id, number, named_arrays(broadcast))
        private = self.plan.privacy
        if private is not None and (kept := kept_answer(self.checkpoints, question)) is not None:
            return self._the_same_again(content, number, broadcast, kept)
        if self.floor is not None and private is not None:
            self.budget.insist_on_room(self.floor, private)
        learner = self._learner(counted, fresh)
        before = learner
        learner, sent, sound = client_work(
            self.plan.algorithm,
            self.plan.envelope,
            self.plan.run.local_steps,
            learner,
            broadcast,
            self._data(statistics),
            rounds.client_key(self.plan.root_key, number, rounds.identity(self.config.name)),
            secret_key(),
        )
        if not sound and private is None:
            raise Refused(f"Training diverged in round {number + 1}: the parameters are not finite.")
        if not sound:  # to say so would tell about the data; what is sent is an update of zeros with noise
            self.journal.note(f"Training diverged in round {number + 1}: an update of zeros is sent.")
            learner = before
        # Save before sending, so that the state of every accepted reply is on disk.
        stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], learner)
        save_checkpoint(self.checkpoints, State(number + 1, (), stacked), self.plan.training_fingerprint())
        if private is not None:
            self._spend(private, question, sent)
        self._keep_policy(learner, statistics, number + 1)
        self.journal.note(
            f"round {number + 1} of {self.plan.run.rounds}: trained {self.plan.run.local_steps} steps"
        )
        return self._reply(content, number, broadcast, sent)

    def _reply(self, content: RecordDict, number: int, broadcast: Any, sent: Submission) -> RecordDict:
        if self.plan.secure:
            return self.secure.masked(content, sent, broadcast)
        return messages.round_answer(self.plan, number, self.config.name, sent)

    def figures(self, content: RecordDict) -> RecordDict:
        """What the client's data says about a policy; see `JudgingClient`."""
        raise Refused("The server asks for figures, but its plan judges no policy.")

    def _keep_policy(self, learner: Any, statistics: Statistics, rounds: int) -> None:
        """Save the client's own policy. It never leaves the client."""
        policy = from_actor(
            self.plan.algorithm.local_policy(learner),
            statistics.normaliser,
            self.plan.space,
            client=self.config.name,
            algorithm=self.plan.algorithm_name,
            rounds=rounds,
        )
        policy.save(self.checkpoints / "policy.safetensors")

    def _spend(self, privacy: Privacy, question: str, sent: Submission) -> None:
        """Enter a private answer into the client's own account and keep it, before it leaves."""
        if privacy.noise_at == "client":  # spent first: a crash may make the account too high, never too low
            self.budget.spend(privacy.noise)
        keep_answer(self.checkpoints, question, named_arrays(sent.parameters))
        if privacy.noise_at == "server":
            self.journal.note("privacy: the server is trusted to add the noise; this client cannot check it")
            return
        spent = self.budget.epsilon(privacy.delta)
        self.journal.note(f"privacy: epsilon {spent:.2f} spent in all runs so far, at delta {privacy.delta:g}")

    def _the_same_again(self, content: RecordDict, number: int, broadcast: Any, kept: dict[str, Any]) -> RecordDict:
        """The answer that was given before. A second one, with other noise, would tell more about the data."""
        self.journal.note(f"round {number + 1} was asked again: the same answer is sent, which spends no privacy")
        parameters = from_named_arrays(kept, self.plan.submission_like().parameters)
        answer = Submission(parameters, jnp.zeros(()), {})
        return self._reply(content, number, broadcast, answer)

    def _notice_changed_data(self) -> None:
        """Tell the owner if the data is not what it was in the round before. Training goes on with the new data."""
        file, digest = self.checkpoints / "data-digest", self._digest
        before = file.read_text() if file.exists() else digest
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_atomically(file, digest.encode())
        if before != digest:
            self.journal.note(
                f"{self.config.data} changed since the last round. Training goes on with the new data, but the "
                "server still counts it by the statistics of the old data. Restart the client to send new ones."
            )

    @cached_property
    def _digest(self) -> str:
        (data,) = self.federation.clients.values()
        return data.digest()

    def _learner(self, counted: int, fresh: Any) -> Any:
        """The state after the last accepted round. Later states are discarded: they never reached the server."""
        discard_after(self.checkpoints, counted)
        stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], fresh)
        state = load_checkpoint(self.checkpoints, State(0, (), stacked), self.plan.training_fingerprint())
        return fresh if state is None else jax.tree.map(lambda leaf: leaf[0], state.learners)

    def _row_weights(self) -> NDArray[np.float64] | None:
        """How much each row counts; None if all count alike."""
        (data,) = self.federation.clients.values()
        return row_weights(data, self.plan.sampling, self.plan.algorithm.discount)

    def _drawn(self) -> NDArray[np.int64] | None:
        """The rows that come by their weights; None if all come alike."""
        weights = self._row_weights()
        return None if weights is None else drawn_rows(weights)

    def _data(self, statistics: Statistics) -> Data:
        """The client's data as it is trained on. It stays in memory for as long as the statistics stay."""
        frame = statistics.normaliser
        key = (frame.mean.tobytes(), frame.std.tobytes(), statistics.reward_unit, statistics.reward_zero)
        if self._prepared is None or self._prepared[0] != key:
            name, times = self.config.name, self.plan.run.reward_scale
            zeros = {name: statistics.reward_zero / times}
            members = self.federation.counted_from(zeros, self.plan.algorithm.discount)
            (prepared,) = members.prepared(frame, {name: times / statistics.reward_unit}).values()
            self._prepared = key, self.plan.data_of(prepared, self._drawn())
        return self._prepared[1]


# --- Between messages ---

_kept: tuple[Any, Client] | None = None


def client_of(config: ClientConfig, plan: Plan) -> Client:
    """The client that answers. It is the one of the message before, with its data, unless anything has changed."""
    global _kept
    files = stamp(as_path(config.data))
    key = (config, plan.to_json(), files, stamp(Path(config.columns)) if config.columns else ())
    known = files or config.task  # a dataset that Minari finds by its name may change unnoticed
    if _kept is None or _kept[0] != key or not known:
        forget()  # before the next one takes as much memory
        _kept = key, _kind(plan)(config, plan)
    return _kept[1]


def _kind(plan: Plan) -> type[Client]:
    if plan.judge is None:
        return Client
    from fova.network.judging_client import JudgingClient  # here, because it is derived from Client

    return JudgingClient


def forget() -> None:
    """Keep nothing of the messages before."""
    global _kept
    _kept = None


# --- Flower's side ----------------------------------------------------------------------------------------

app = ClientApp()


@app.query()
def answer_hello(message: Message, context: Context) -> Message:
    if step_of(message.content):
        return _answer(message, context, lambda client: client.secure.answer(message.content))
    return _answer(message, context, lambda client: client.hello())


def tell_about_columns(config: ClientConfig, run_id: str, asked: Columns) -> RecordDict:
    """What a client tells about its table before the plan is known."""
    if config.insist_privacy is not None:
        raise Refused(
            "it insists on privacy, where clients tell nothing about columns: start the server with --privacy"
        )
    columns = config.agreed_mapping(asked)
    told = survey(read(insist_on_table(as_path(config.data)), columns), columns)
    Journal(Path(config.state) / "journal.jsonl").note("told about the columns of its table: kinds, values, sums")
    return messages.survey_answer(run_id, config.name, told)


@app.train()
def answer_round(message: Message, context: Context) -> Message:
    return _answer(message, context, lambda client: client.round(message.content))


@app.evaluate()
def answer_figures(message: Message, context: Context) -> Message:
    return _answer(message, context, lambda client: client.figures(message.content))


def _answer(message: Message, context: Context, work: Any) -> Message:
    """The reply to a message, or a refusal if an error occurs. The client's journal holds the full error."""
    runtime.prepare()
    config = ClientConfig.of(dict(context.node_config))
    run_id = str(message.content.config_records["about"].get("run"))
    try:
        columns = messages.read_survey_question(message.content)
        if columns is not None:
            content = tell_about_columns(config, run_id, columns)
        else:
            content = work(client_of(config, messages.read_plan(message.content)))
    except (FovaError, OSError) as error:
        forget()
        Journal(Path(config.state) / "journal.jsonl").note(f"took no part: {error}")
        content = messages.refusal(run_id, config.name, tellable(error))
    return Message(content, reply_to=message)


def tellable(error: FovaError | OSError) -> str:
    """The text about an error that the server receives. Errors about data may quote rows, so they are not sent."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "its data or its saved state cannot be used; its own journal says why"
