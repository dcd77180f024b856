"""A client of a real federation: a Flower ClientApp over the same functions that a simulation calls.

Flower starts a new process for every message, so all that a client carries from round to round (slow critics,
optimiser moments) rests on its own disk, and being killed at any moment loses at most the round under way.

Only what `messages.py` lists leaves this process. Raw data is read here and goes nowhere.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.clients import ClientSpec, Federation
from fova.federation.engine import State
from fova.federation.statistics import Statistics, client_statistics
from fova.machine import runtime
from fova.network import messages
from fova.network.journal import Journal
from fova.network.messages import Refused
from fova.network.plan import Plan, client_work
from fova.run.checkpoint import discard_after, load_checkpoint, save_checkpoint
from fova.settings import fill
from fova.tasks import registry


@dataclass(frozen=True)
class ClientConfig:
    """Who a client is and where its things are; `fova client` passes it on as Flower's node configuration."""

    name: str
    """What the federation calls this client."""
    data: str
    """A data file, or a quality of the task (expert, random, ...)."""
    state: str
    """Folder for what the client carries from round to round."""
    task: str | None = None
    """The task whose data is made, if `data` is a quality."""
    size: int | None = None
    """Transitions to take."""
    offset: int | None = None
    """Row to start from."""

    def load(self, bounds: tuple[Any, Any] | None = None) -> Federation:
        """This client's data alone, checked."""
        task = registry.get(self.task) if self.task else None
        spec = ClientSpec(self.data, self.size, self.offset, self.name)
        return Federation.build([spec], task, bounds=bounds)

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

    @cached_property
    def federation(self) -> Federation:
        """The client's data, which must have the plan's dimensions and respect its action bounds."""
        own = self.config.load(self.plan.space.action.bounds)
        if own.space != self.plan.space:
            raise Refused(
                f"The data of client {self.config.name!r} has {own.space.words()}, but the server trains on "
                f"{self.plan.space.words()}."
            )
        return own

    # --- The two questions a server asks ---

    def hello(self) -> RecordDict:
        """Load and check the data; tell the server who is here."""
        (data,) = self.federation.clients.values()
        told = None
        if self.plan.gathers_statistics:
            told = client_statistics(data, self.plan.run.reward_scale, self.plan.run.normalise)
        self.journal.note(f"joined a federation with {len(data):,} transitions, {self.plan.algorithm_name}")
        return messages.hello_answer(self.plan, self.config.name, told)

    def round(self, content: RecordDict) -> RecordDict:
        """Train for one round from where the server says this client stands, save, and answer."""
        fresh, server = self.plan.start()
        number, counted, broadcast, statistics = messages.read_round_question(content, self.plan, server.broadcast)
        learner = self._learner(counted, fresh)
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
        if not sound:
            raise Refused(f"Training diverged in round {number + 1}: the parameters are not finite.")
        # Saved before it is sent: an answer that counts always has its state on disk.
        stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], learner)
        save_checkpoint(self.checkpoints, State(number + 1, (), stacked), self.plan.training_fingerprint())
        self.journal.note(
            f"round {number + 1} of {self.plan.run.rounds}: trained {self.plan.run.local_steps} steps"
        )
        return messages.round_answer(self.plan, number, self.config.name, sent)

    def _learner(self, counted: int, fresh: Any) -> Any:
        """The state after the last round that counted. What was trained since then never reached the server."""
        discard_after(self.checkpoints, counted)
        stacked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], fresh)
        state = load_checkpoint(self.checkpoints, State(0, (), stacked), self.plan.training_fingerprint())
        return fresh if state is None else jax.tree.map(lambda leaf: leaf[0], state.learners)

    def _data(self, statistics: Statistics) -> Any:
        factors = {self.config.name: self.plan.run.reward_scale / statistics.reward_unit}
        (prepared,) = self.federation.prepared(statistics.normaliser, factors).values()
        return self.plan.data_of(prepared)


def secret_key() -> Any:
    """A key that nobody else knows, from the operating system: what it hides, the server cannot take off again."""
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(os.urandom(8), np.uint32)))


# --- Flower's side ----------------------------------------------------------------------------------------

app = ClientApp()


@app.query()
def answer_hello(message: Message, context: Context) -> Message:
    return _answer(message, context, lambda client: client.hello())


@app.train()
def answer_round(message: Message, context: Context) -> Message:
    return _answer(message, context, lambda client: client.round(message.content))


def _answer(message: Message, context: Context, work: Any) -> Message:
    """The work's answer, or a refusal; what a person here can put right is in this client's journal."""
    runtime.prepare()
    config = ClientConfig.of(dict(context.node_config))
    run_id = str(message.content.config_records["about"].get("run"))
    try:
        content = work(Client(config, messages.read_plan(message.content)))
    except (FovaError, OSError) as error:
        Journal(Path(config.state) / "journal.jsonl").note(f"took no part: {error}")
        content = messages.refusal(run_id, config.name, tellable(error))
    return Message(content, reply_to=message)


def tellable(error: FovaError | OSError) -> str:
    """What the server is told of an error. Words about data may quote a row of it, so they stay in the journal."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "its data or its saved state cannot be used; its own journal says why"
