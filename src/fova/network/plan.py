"""The settings that a server and its clients share before the first round, as text that is sent to the clients.

The server writes a plan. A client reads it, refuses a plan that it cannot follow, and builds exactly the same
algorithm from it. Two plans with the same fingerprint give the same computation. This module uses no file, no
network and no Flower.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool
from numpy.typing import NDArray

from fova import algorithms
from fova.algorithms.base import Data, Submission
from fova.data.sampling import Sampling
from fova.data.tables.columns import Columns
from fova.data.tables.survey import Agreement
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.compression import COMPRESSIONS
from fova.federation.engine import insist_on_whole_steps
from fova.federation.privacy import Privacy
from fova.federation.wire import Envelope
from fova.network.judging import Judging
from fova.network.secure_rules import insist_on_sums
from fova.run.config import Config, RunConfig, sampling_of
from fova.settings import fill
from fova.spaces import Space
from fova.version import __version__

RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Plan:
    """The description of a training run that the server and all clients share."""

    run_id: str  # identifies the whole training; it stays the same when the server is restarted
    algorithm_name: str
    algorithm: Any  # the frozen config of one of fova.algorithms
    run: RunConfig
    space: Space
    clients: int  # the least number of clients
    columns: Columns | None = None  # what the columns of the clients' tables mean, if they hold tables
    agreed: Agreement | None = None  # how the clients' tables are encoded
    secure: bool = False  # the server sees sums of the clients' updates only
    judge: Judging | None = None  # the policy to judge, if this is no training
    version: str = __version__

    def __post_init__(self) -> None:
        if not RUN_ID.fullmatch(self.run_id):  # it names a folder on the client's disk
            raise FovaError(f"The run is called {self.run_id!r}, but 32 hexadecimal digits are expected.")
        if self.algorithm_name.endswith(".py"):
            raise FovaError(
                f"The algorithm is the file {self.algorithm_name}. Over a network only algorithms of the package "
                "itself can be used: a client does not run code that somebody sends it."
            )
        if self.run.privacy == "server" and self.run.participation < 1.0:
            raise FovaError(
                f"privacy is server and participation {self.run.participation:g}, but over a network who takes "
                "part depends on who is connected, and hides nothing. Leave --participation out."
            )
        if self.run.data_sequence:
            raise FovaError("data_sequence is given, but clients of a real federation hold the data they have.")
        object.__setattr__(self, "algorithm", algorithms.for_space(self.algorithm, self.space))
        if self.run.select == "judge":
            raise FovaError("select is 'judge', which is for simulations so far. Judge the finished run instead.")
        if self.secure:
            insist_on_sums(self.run, self.algorithm, self.clients)
        self.run.private(self.clients)  # refuses settings that give no privacy guarantee
        insist_on_whole_steps(self.run.local_steps, self.algorithm)

    # --- As text ---

    def to_json(self) -> str:
        tables = {
            "columns": None if self.columns is None else self.columns.to_table(),
            "agreed": None if self.agreed is None else self.agreed.to_json(),
            "judge": None if self.judge is None else self.judge.to_json(),
        }
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {"algorithm": asdict(self.algorithm), "run": asdict(self.run), "space": self.space.to_json()}
        return json.dumps(content | tables, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "Plan":
        """The plan that a server sent. The version is checked first; a plan of another version is refused."""
        content = json.loads(text)
        if content.get("version") != __version__:
            raise FovaError(
                f"The server runs fova {content.get('version')}, but this client has fova {__version__}. "
                "Install the same version on both."
            )
        name, space = content["algorithm_name"], Space.from_json(content["space"])
        return Plan(
            **content
            | {
                "algorithm": algorithms.configure(name, **content["algorithm"]),
                "run": fill(RunConfig, content["run"], "of the server's run"),
                "space": space,
                "columns": None if content["columns"] is None else Columns.of(content["columns"]),
                "agreed": None if content["agreed"] is None else Agreement.from_json(content["agreed"]),
                "judge": None if content["judge"] is None else Judging.from_json(content["judge"], space),
            }
        )

    def fingerprint(self) -> str:
        """A hash of the plan. It is equal for two plans only if they describe the same computation."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def training_fingerprint(self) -> str:
        """The same for two plans whose saved learners can stand for one another; a run may become longer."""
        return Config(None, (), self.algorithm, self.algorithm_name, self.run).fingerprint()

    # --- Derived values ---

    @property
    def privacy(self) -> Privacy | None:
        return self.run.private(self.clients)

    @property
    def sampling(self) -> Sampling:
        """Which rows the clients train on."""
        return sampling_of(self.run, self.algorithm)

    @property
    def envelope(self) -> Envelope:
        """The form in which submissions are sent."""
        form = COMPRESSIONS[self.run.compress]
        return self.privacy.envelope(form) if self.privacy else form

    @property
    def gathers_statistics(self) -> bool:
        """Whether clients send sums over their data before the first round, for the server to see."""
        return self.privacy is None and not self.secure

    @property
    def root_key(self) -> Any:
        return jax.random.key(self.run.seed if self.judge is None else self.judge.settings.seed)

    def start(self) -> tuple[Any, Any]:
        """The learner that every client starts from, and the server's initial state."""
        return rounds.start(self.algorithm, self.space, rounds.init_key(self.root_key))

    def submission_like(self) -> Submission:
        """The names, shapes and types of all numbers that a client sends. Nothing is computed."""
        learner, server = jax.eval_shape(self.start)
        data = jax.eval_shape(lambda: rounds.no_data(self.space))
        key = jax.eval_shape(lambda: self.root_key)
        work = partial(client_work, self.algorithm, self.envelope, self.run.local_steps)
        return jax.eval_shape(work, learner, server.broadcast, data, key, key)[1]

    def data_of(self, prepared: Transitions, drawn: NDArray[np.int64] | None = None) -> Data:
        """A client's prepared data on the device, with the `drawn` rows beside it."""
        return Data.of(rounds.rows_of(prepared, self.algorithm.discount, drawn), self.space)


@partial(jax.jit, static_argnames=("algorithm", "envelope", "local_steps"))
def client_work(
    algorithm: Any,
    envelope: Envelope,
    local_steps: int,
    learner: Any,
    broadcast: Any,
    data: Data,
    key: Any,
    secret: Any,
) -> tuple[Any, Submission, Bool[Array, ""]]:
    """Run a client's part of a round, compiled.

    Returns the new learner, the submission to send, and whether all numbers are finite.
    """
    learner, submission = rounds.local_round(algorithm, local_steps, learner, broadcast, data, key)
    (sound,) = rounds.all_finite(jax.tree.map(lambda leaf: leaf[None], submission))
    return learner, envelope.encode(submission, broadcast, secret), sound
