"""What an engine is: it runs the rounds of a federation, wherever its clients are.

`fova.run.simulated` is one engine (all clients on this machine), `fova.run.processes` another (clients dealt out
among the processes of a cluster), `fova.network.server` a third (clients on other machines, over Flower). The
training loop (`fova.run.loop`) drives any of them and does everything else: it logs, plays policies, writes
checkpoints, resumes and stops. A further engine is one file with a class of this shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fova.errors import FovaError
from fova.federation.aggregation import AGGREGATIONS, Aggregation
from fova.federation.privacy import Privacy
from fova.federation.rounds import Traffic
from fova.federation.statistics import Statistics
from fova.federation.wire import PLAIN, Envelope
from fova.recipe import Recipe
from fova.spaces import Space


class State(NamedTuple):
    """Everything that a checkpoint must hold to continue."""

    round: int  # rounds finished
    server: Any  # what the algorithm's server keeps; `server.broadcast` is sent at the start of the next round
    # One pytree with a leading axis of clients, as NumPy arrays; () where the clients keep their own.
    learners: Any = ()
    memo: Mapping[str, Any] = {}  # plain values that the engine has to remember between rounds
    average: Any = ()  # the running mean of the server's policies, kept by the loop; () where there is none

    @property
    def broadcast(self) -> Any:
        return self.server.broadcast


class RoundReport(NamedTuple):
    """What happened in one round."""

    clients: Mapping[str, Mapping[str, float]]  # metrics of every client whose submission counted
    rejected: Mapping[str, str] = {}  # clients whose submission did not count, and why
    missing: tuple[str, ...] = ()  # clients that were asked and did not answer in time
    traffic: Traffic | None = None  # what travelled to and from one client; None if nothing is sent
    mean: Mapping[str, float] = {}  # metrics averaged over the clients, where those of single clients are not known


class Engine(Protocol):
    """Runs the rounds of one training run."""

    space: Space
    recipe: Recipe | None  # how records became observations, if the clients hold tables

    def prepare(self, saved: Mapping[str, Any] | None) -> Statistics:
        """The federation's statistics: those `saved` by an earlier start of the run, or gathered now. Called once,
        before anything else."""

    def start(self) -> State:
        """The state before the first round; a checkpoint has the same shape."""

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. `state` is used up: continue with the returned one."""

    def data_changes_after(self, rounds: int) -> bool:
        """Whether the clients' data is replaced after this many rounds. Policies are then evaluated before that."""

    def clients(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known about the data of every client that has joined so far, for clients.json."""

    def local_learners(self, state: State) -> Mapping[str, Any]:
        """Each client's learner, where this engine holds them."""


@dataclass(frozen=True)
class RoundSettings:
    """How rounds are run, whatever the algorithm."""

    local_steps: int
    seed: int = 0
    participation: float = 1.0
    cohort: int = 64  # clients that are trained at once
    aggregation: Aggregation = AGGREGATIONS["algorithm"]
    envelope: Envelope = PLAIN
    privacy: Privacy | None = None
    together: bool = True  # False never aggregates: each client trains alone (the reference line "local only")

    def __post_init__(self) -> None:
        if not 0.0 < self.participation <= 1.0:
            raise FovaError(f"participation is {self.participation}, but must be above 0 and at most 1.")
        for name in ("local_steps", "cohort"):
            if getattr(self, name) < 1:
                raise FovaError(f"{name} is {getattr(self, name)}, but must be at least 1.")

    def participants(self, clients: int) -> int:
        return participants(self.participation, clients)

    @property
    def sealed(self) -> Envelope:
        """The envelope in which submissions travel, privacy included."""
        return self.privacy.envelope(self.envelope) if self.privacy else self.envelope


def participants(participation: float, clients: int) -> int:
    """The number of clients that take part in a round of a federation with this many clients."""
    return max(1, round(participation * clients))


def insist_on_whole_steps(local_steps: int, algorithm: Any) -> None:
    """Refuse a number of local steps that the algorithm cannot take."""
    if local_steps % algorithm.stride:
        raise FovaError(f"local_steps is {local_steps}, but must be a multiple of {algorithm.stride} here.")
