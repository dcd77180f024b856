"""A federation on one machine: compiled rounds over all its clients.

A round is two compiled functions. The clients': receive the broadcast, a scan of local steps vmapped over clients,
submit. The clients are dealt out among the devices, which on a CPU are its processors: no step waits for another
client's. The server's, on one device: judge and aggregate. Larger federations go through both in cohorts, so memory
on the devices is bounded by the cohort; what clients carry between rounds rests in host memory.

What happens in a round, and its randomness, is in `rounds.py`; this engine brings the clients to it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Algorithm, Batch, Data, Submission, pack, weighted_mean
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.aggregation import AGGREGATIONS, Aggregation
from fova.federation.privacy import Privacy, Private, publish
from fova.federation.rounds import Traffic
from fova.federation.wire import PLAIN, Envelope
from fova.spaces import Space


class State(NamedTuple):
    """Everything that a checkpoint must hold to continue."""

    round: int  # rounds finished
    broadcast: Any  # what the server sends at the start of the next round
    learners: Any  # one pytree with a leading axis of clients, as NumPy arrays


class RoundReport(NamedTuple):
    """What one round measured, per participating client."""

    clients: list[int]  # positions of those that took part
    metrics: dict[str, NDArray[np.float32]]  # name -> [clients]; step metrics are means over the local steps
    rejected: dict[int, str]  # positions of those whose submission did not count, and why
    traffic: Traffic | None  # what travelled to and from one client; None if nothing is sent


class Simulation:
    """Runs rounds of one algorithm over clients held in memory."""

    def __init__(
        self,
        algorithm: Algorithm,
        clients: Mapping[str, Transitions],
        space: Space,
        *,
        local_steps: int,
        seed: int = 0,
        participation: float = 1.0,
        cohort: int = 64,
        aggregation: Aggregation = AGGREGATIONS["algorithm"],
        envelope: Envelope = PLAIN,
        privacy: Privacy | None = None,
        together: bool = True,
    ) -> None:
        """`together=False` never aggregates: every client goes its own way (the reference line "local only")."""
        if not clients:
            raise FovaError("A federation needs at least one client.")
        if not 0.0 < participation <= 1.0:
            raise FovaError(f"participation is {participation}, but must be above 0 and at most 1.")
        for name, value in (("local_steps", local_steps), ("cohort", cohort)):
            if value < 1:
                raise FovaError(f"{name} is {value}, but must be at least 1.")
        if local_steps % algorithm.stride:
            raise FovaError(f"local_steps is {local_steps}, but must be a multiple of {algorithm.stride} here.")
        self.algorithm = algorithm
        self.names = list(clients)
        self.space = space
        self.local_steps = local_steps
        self.participants = max(1, round(participation * len(clients)))
        self.cohort = min(cohort, self.participants)
        self.aggregation = aggregation if together else None
        self.envelope = privacy.envelope(envelope) if privacy else envelope
        self.privacy = privacy
        self.together = together
        if aggregation.whole_rounds and self.cohort < self.participants:
            raise FovaError(
                f"This aggregation compares all {self.participants} clients of a round with one another, but a "
                f"cohort holds {self.cohort}. Raise --cohort to {self.participants}."
            )
        devices, self._slots = deal_out(self.cohort)
        self._mesh = jax.make_mesh((len(devices),), ("clients",), axis_types=(AxisType.Auto,), devices=devices)
        self._first = devices[0]  # where the server is
        self._dealt_out = NamedSharding(self._mesh, PartitionSpec("clients"))
        self._everywhere = NamedSharding(self._mesh, PartitionSpec())
        self._traffic: Traffic | None = None
        self._key = jax.random.key(seed)
        self._identities = np.array([rounds.identity(name) for name in self.names], np.uint32)
        self.set_data(clients)

    def set_data(self, clients: Mapping[str, Transitions]) -> None:
        """Give the clients other data; their names stay."""
        if list(clients) != self.names:
            raise FovaError(f"The data is for clients {list(clients)}, but the federation has {self.names}.")
        self._rows = [pack(Batch(*(getattr(data, f) for f in Batch._fields))) for data in clients.values()]
        self._capacity = max(map(len, self._rows))
        self._device_data: tuple[tuple[int, ...], Data] | None = None

    # --- State ---

    def start(self) -> State:
        """The state before the first round: every client has the same networks."""
        key = rounds.init_key(self._key)
        learner, broadcast = rounds.first_message(self.algorithm, self.space, key)
        clients = len(self.names)
        learners, broadcasts = (
            jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], clients, axis=0), tree)
            for tree in (learner, broadcast)
        )
        return State(0, broadcast if self.together else broadcasts, learners)

    def data_changed(self, state: State) -> State:
        """Tell every learner that its data was replaced."""
        learners = jax.vmap(self.algorithm.data_changed)(state.learners)
        return state._replace(learners=jax.tree.map(np.array, learners))

    # --- Rounds ---

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. `state` is used up: go on with the returned one."""
        chosen = self._choose(state.round)
        reports = []
        merged: tuple[Any, Float[Array, ""]] | None = None  # the broadcast so far, and how much it counts
        accepted: list[int] = []
        rejected: dict[int, str] = {}
        for start in range(0, len(chosen), self.cohort):
            members = chosen[start : start + self.cohort]
            # Filled up with clients that count for nothing: one shape, one compilation, as many on each device.
            filled = members + [members[0]] * (self._slots - len(members))
            learners, keys, envelope_keys = jax.device_put(
                (
                    _rows(state.learners, filled),
                    self._keys(rounds.client_key, state.round, filled),
                    self._keys(rounds.envelope_key, state.round, filled),
                ),
                self._dealt_out,
            )
            heard = state.broadcast if self.together else _rows(state.broadcast, filled)
            learners, sound, sent = clients_part(
                self.algorithm,
                self.envelope,
                self.local_steps,
                self.together,
                self._mesh,
                learners,
                jax.device_put(heard, self._everywhere if self.together else self._dealt_out),
                self._stacked(tuple(filled)),
                keys,
                envelope_keys,
            )
            broadcast, total, verdicts, metrics = servers_part(
                self.algorithm,
                self.aggregation,
                self.envelope,
                *jax.device_put((heard, sound, sent, np.arange(self._slots) < len(members)), self._first),
            )
            # A client whose submission was rejected goes on from where it was before the round.
            verdicts = np.asarray(verdicts)[: len(members)]
            good = np.flatnonzero(verdicts == rounds.ACCEPTED)
            _write_rows(state.learners, [members[i] for i in good], learners, good)
            if not self.together:
                _write_rows(state.broadcast, [members[i] for i in good], broadcast, good)
            accepted += [members[i] for i in good]
            rejected |= {c: rounds.WHY_REJECTED[int(v)] for c, v in zip(members, verdicts) if v != rounds.ACCEPTED}
            # Copies: a view would keep the cohort's buffers alive on the device.
            reports.append({name: np.array(values)[: len(members)] for name, values in metrics.items()})
            if self.together:
                merged = (broadcast, total) if merged is None else merge_means(*merged, broadcast, total)
        if chosen:  # with privacy, chance may have drawn nobody
            self._insist_on_somebody(state.round, accepted)
        metrics = {name: np.concatenate([r[name] for r in reports]) for name in (reports or [{}])[0]}
        broadcast, total = (state.broadcast, -np.inf) if merged is None else merged
        if self.privacy and self.privacy.noise_at == "server":
            key = rounds.publication_key(self._key, state.round)
            broadcast = publish(self.privacy, state.broadcast, broadcast, float(np.exp(total)), key)
        report = RoundReport(chosen, metrics, rejected, self._weigh_messages(broadcast, metrics))
        return State(state.round + 1, broadcast, state.learners), report

    def _choose(self, round_number: int) -> list[int]:
        if self.privacy and self.privacy.noise_at == "server":
            return self._draw(self.privacy.participation, round_number)
        if self.participants == len(self.names):
            return list(range(len(self.names)))
        order = jax.random.permutation(rounds.participation_key(self._key, round_number), len(self.names))
        return sorted(int(i) for i in order[: self.participants])

    def _draw(self, probability: float, round_number: int) -> list[int]:
        """Every client by chance and independently of the others, as the accountant of a private run assumes."""
        key = rounds.participation_key(self._key, round_number)
        return [int(i) for i in np.flatnonzero(jax.random.bernoulli(key, probability, (len(self.names),)))]

    def _keys(self, derive: Callable[..., PRNGKeyArray], number: int, members: Sequence[int]) -> PRNGKeyArray:
        return jax.vmap(partial(derive, self._key, number))(self._identities[list(members)])

    def _stacked(self, members: tuple[int, ...]) -> Data:
        if self._device_data is None or self._device_data[0] != members:
            rows = np.zeros((len(members), self._capacity, self._rows[0].shape[1]), np.float32)
            for slot, client in enumerate(members):
                rows[slot, : len(self._rows[client])] = self._rows[client]
            lengths = np.array([len(self._rows[client]) for client in members], np.int32)
            rows_there, lengths_there = jax.device_put((rows, lengths), self._dealt_out)
            self._device_data = (members, Data(rows_there, lengths_there, self.space))
        return self._device_data[1]

    def _weigh_messages(self, broadcast: Any, metrics: Mapping[str, Any]) -> Traffic | None:
        if self._traffic is None and self.together:
            sent = [name for name in metrics if name != "update_norm"]  # which the server measures
            self._traffic = rounds.traffic(self.envelope, broadcast, sent)
        return self._traffic

    def _insist_on_somebody(self, round_number: int, accepted: list[int]) -> None:
        if not accepted:
            raise FovaError(
                f"Training diverged in round {round_number + 1}: not one client has finite parameters left. Lower "
                "the learning rates (--actor-lr, --critic-lr) or scale the rewards down (--reward-scale)."
            )


def deal_out(clients: int) -> tuple[list[jax.Device], int]:
    """As few devices as get through the clients as quickly as all would, and how many fit when all have as many."""
    devices = jax.local_devices()
    each = -(-clients // len(devices))
    used = -(-clients // each)
    return devices[:used], used * each


def _rows(stacked: Any, rows: Sequence[int]) -> Any:
    return jax.tree.map(lambda leaf: leaf[list(rows)], stacked)


def _write_rows(stacked: Any, rows: Sequence[int], new: Any, new_rows: NDArray[np.intp]) -> None:
    for old_leaf, new_leaf in zip(jax.tree.leaves(stacked), jax.tree.leaves(new)):
        old_leaf[list(rows)] = np.asarray(new_leaf)[new_rows]


@jax.jit
def merge_means(
    one: Any, one_total: Float[Array, ""], other: Any, other_total: Float[Array, ""]
) -> tuple[Any, Float[Array, ""]]:
    """The mean of two groups' means, each counted by its total weight, and the weight of both.

    Cohort after cohort, so that a round never holds more than two broadcasts however many cohorts it has.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), one, other)
    return weighted_mean(stacked, jnp.stack([one_total, other_total])), jnp.logaddexp(one_total, other_total)


@partial(
    jax.jit,
    static_argnames=("algorithm", "envelope", "local_steps", "together", "mesh"),
    donate_argnames=("learners",),
)
def clients_part(
    algorithm: Any,
    envelope: Envelope,
    local_steps: int,
    together: bool,
    mesh: Mesh,
    learners: Any,
    broadcast: Any,
    data: Data,
    keys: PRNGKeyArray,
    envelope_keys: PRNGKeyArray,
) -> tuple[Any, Bool[Array, " clients"], Submission]:
    """A round of every client of a cohort, compiled. Each device of the mesh has its share and waits for no other.

    Gives back the learners, which of them are sound, and what they send. Unless they are `together`, each client
    has a broadcast of its own.
    """
    own = None if together else 0  # where a broadcast has its axis of clients

    def share(learners: Any, broadcast: Any, data: Data, keys: PRNGKeyArray, envelope_keys: PRNGKeyArray) -> Any:
        local_round = partial(rounds.local_round, algorithm, local_steps)
        learners, submissions = jax.vmap(local_round, (0, own, 0, 0))(learners, broadcast, data, keys)
        sound = rounds.all_finite(submissions)  # what a client sees of itself, whatever its envelope makes of it
        return learners, sound, jax.vmap(envelope.encode, (0, own, 0))(submissions, broadcast, envelope_keys)

    each, all_alike = PartitionSpec("clients"), PartitionSpec()
    deal = (each, all_alike if together else each, each, each, each)
    dealt_out = jax.shard_map(share, mesh=mesh, in_specs=deal, out_specs=each, check_vma=False)
    return dealt_out(learners, broadcast, data, keys, envelope_keys)


@partial(jax.jit, static_argnames=("algorithm", "aggregation", "envelope"))
def servers_part(
    algorithm: Any,
    aggregation: Aggregation | None,
    envelope: Envelope,
    broadcast: Any,
    sound: Bool[Array, " clients"],
    sent: Submission,
    present: Bool[Array, " clients"],
) -> tuple[Any, Float[Array, ""], Int[Array, " clients"], dict[str, Float[Array, " clients"]]]:
    """What the server makes of a cohort's messages, compiled: the next broadcast, its weight, verdicts, metrics.

    Without an aggregation nobody hears of anybody: each client has its own broadcast and gets back what it sent.
    """
    submissions = rounds.open_all(envelope, sent, broadcast, 0 if aggregation is None else None)
    norms, metrics = None, submissions.metrics
    if not isinstance(envelope, Private):  # to compare clients with one another would tell about each of them
        norms = rounds.update_norms(submissions, broadcast)
        metrics = metrics | {"update_norm": norms}
    verdicts = rounds.judge(submissions, None if aggregation is None else norms, present)
    merged, total = submissions.parameters, jnp.zeros(())
    if aggregation is not None:
        accepted = present & (verdicts == rounds.ACCEPTED)
        merged, total = rounds.merge(algorithm, aggregation, submissions, accepted)
    return merged, total, jnp.where(sound, verdicts, rounds.NOT_FINITE), metrics
