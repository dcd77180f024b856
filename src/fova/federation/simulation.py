"""A federation on one machine: compiled rounds over all its clients.

A round is two compiled functions. The clients' part receives the broadcast, scans over the local steps, vmapped
over clients, and submits. The clients are dealt out among the devices, which on a CPU are its cores, so no device
waits for another one's step. The server's part runs on one device: `rounds.judge_submissions`. Larger federations
go through both in cohorts, so memory on the devices is bounded by the cohort. What clients carry between rounds is
in host memory.

`rounds.py` defines the steps of a round and its randomness. If several processes hold the federation, each of them
simulates its own share, and `shares.py` merges the means.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec, SingleDeviceSharding
from jaxtyping import Array, Bool, PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Algorithm, Data, Submission, row_width
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.federation import rounds
from fova.federation.ahead import Ahead, shapes
from fova.federation.engine import RoundReport, RoundSettings, State, insist_on_whole_steps
from fova.federation.gathered import Gathered
from fova.federation.placement import Buffer, DealtOut, Placed, place
from fova.federation.rounds import Traffic
from fova.federation.shares import Share
from fova.federation.wire import Envelope
from fova.spaces import Space


class Simulation:
    """Runs rounds of one algorithm over clients held in memory."""

    def __init__(
        self,
        algorithm: Algorithm,
        clients: Mapping[str, Transitions],
        space: Space,
        settings: RoundSettings,
        log_weights: Mapping[str, float] | None = None,
        share: Share | None = None,
        drawn: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> None:
        """`clients` hold prepared data. `log_weights` are the clients' log-weights by the returns in their data.

        `drawn` holds the rows of each client that come by their weights, one beside each row (`rounds.rows_of`).
        `share` says which clients of a larger federation these are, if other processes hold the others.
        """
        if not clients:
            raise FovaError("A federation needs at least one client.")
        insist_on_whole_steps(settings.local_steps, algorithm)
        self.algorithm, self.space, self.settings = algorithm, space, settings
        self.names = list(clients)  # of this process; `_everybody` are those of the whole federation
        self.share, self._everybody = share, self.names if share is None else share.names
        self.participants = settings.participants(len(self._everybody))
        self.cohort = min(settings.cohort, self.participants)
        self.together, self.privacy = settings.together, settings.privacy
        self._insist_on_whole_rounds()
        self._devices = DealtOut.among(self.cohort)
        self._traffic: Traffic | None = None
        self._key = jax.random.key(settings.seed)
        self._identities = np.array([rounds.identity(name) for name in self.names], np.uint32)
        self.set_data(clients, log_weights, drawn)
        self._ahead: Ahead | None = None

    def _insist_on_whole_rounds(self) -> None:
        whole = self.settings.aggregation.whole_rounds or not self.algorithm.mergeable
        if self.together and whole and self.share is not None:
            what = "This aggregation" if self.settings.aggregation.whole_rounds else type(self.algorithm).__name__
            raise FovaError(
                f"{what} needs all clients of a round at once, but several processes hold them, and only a mean "
                "and its weight travel between processes. Train in one process, or choose an algorithm and an "
                "--aggregation whose result is a mean of the clients: uniform, size, value or returns."
            )
        if self.together and whole and self.cohort < self.participants:
            raise FovaError(
                f"This aggregation compares all {self.participants} clients of a round with one another, but a "
                f"cohort holds {self.cohort}. Raise --cohort to {self.participants}."
            )

    def set_data(
        self,
        clients: Mapping[str, Transitions],
        log_weights: Mapping[str, float] | None = None,
        drawn: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> None:
        """Give the clients other data; their names stay."""
        if list(clients) != self.names:
            raise FovaError(f"The data is for clients {list(clients)}, but the federation has {self.names}.")

        def write(name: str, out: NDArray[np.float32]) -> None:
            rounds.rows_of(clients[name], self.algorithm.discount, None if drawn is None else drawn[name], out)

        lengths = {name: len(data) for name, data in clients.items()}
        self._buffer = Buffer.of(lengths, row_width(self.space) * (1 if drawn is None else 2), write)
        self._by_returns = np.array([(log_weights or {}).get(name, 0.0) for name in self.names], np.float32)
        self._placed: tuple[tuple[int, ...], Placed] | None = None

    # --- State ---

    def start(self) -> State:
        """The state before the first round: every client has the same networks."""
        make = partial(rounds.start, self.algorithm, self.space)
        if self.together and self._on_cpu:  # elsewhere, shapes depend on the cohort's data
            self._ahead = self._compile_ahead(*jax.eval_shape(make, rounds.init_key(self._key)))
        learner, server = make(rounds.init_key(self._key))
        clients = len(self.names)
        learners, servers = (
            jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], clients, axis=0), tree)
            for tree in (learner, server)
        )
        return State(0, server if self.together else servers, learners)

    @property
    def _on_cpu(self) -> bool:
        return bool(self._devices.first.platform == "cpu")

    def _compile_ahead(self, learner: Any, server: Any) -> Ahead:
        """Compile a round's programs in the background, for a learner and a server of these shapes."""
        slots, devices = self._devices.slots, self._devices
        placed = self._place(tuple(self._filled(list(range(min(slots, len(self.names)))))))
        keys = jax.ShapeDtypeStruct((slots,), self._key.dtype, sharding=devices.split)
        on_first = SingleDeviceSharding(devices.first)

        def clients() -> tuple[Any, Any]:
            learners = shapes(learner, devices.split, slots, from_host=True)
            broadcast = shapes(server.broadcast, devices.everywhere)
            arguments = self._clients_arguments(learners, broadcast, placed, keys, keys)
            return clients_part.lower(*arguments), clients_part.eval_shape(*arguments)

        def judge(trained: Any) -> Any:
            present, by_returns = (jax.ShapeDtypeStruct((slots,), kind) for kind in (np.bool_, np.float32))
            sent = shapes((trained[2], present, by_returns), on_first, from_host=True)
            settings = (self.algorithm, self.settings.aggregation, self.settings.sealed)
            return rounds.judge_submissions.lower(*settings, shapes(server.broadcast, on_first), *sent)

        return Ahead(clients, judge)

    def data_changed(self, state: State, rescale: Mapping[str, float] | None = None) -> State:
        """Tell every learner that its data was replaced; `rescale` is the old unit of reward over the new one."""
        factors = jnp.array([(rescale or {}).get(name, 1.0) for name in self.names], jnp.float32)
        changed = jax.vmap(self.algorithm.data_changed)(state.learners, factors)
        return state._replace(learners=jax.tree.map(np.array, changed))

    # --- Rounds ---

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. `state` is used up: continue with the returned one."""
        chosen = self._choose(state.round)
        own = chosen if self.share is None else self.share.rows_of(chosen)
        gathered = Gathered()
        for start in range(0, len(own), self.cohort):
            members = own[start : start + self.cohort]
            trained = self._train(state, members)
            if self.together:
                self._judge(state, members, trained, gathered)
            else:
                self._keep_apart(state, members, trained, gathered)
        if self.share is not None:
            gathered = self.share.merged(gathered, state.broadcast)
        if chosen:  # with privacy, the random draw can be empty
            self._insist_on_somebody(state.round, gathered)
        server = self._aggregate(state, gathered) if self.together else state.server
        return State(state.round + 1, server, state.learners), self._report(server, gathered)

    def _train(self, state: State, members: list[int]) -> "_Trained":
        """A cohort's local rounds."""
        filled = self._filled(members)
        keys = (self._keys(derive, state.round, filled) for derive in (rounds.client_key, rounds.envelope_key))
        before = _rows(state.learners, filled)
        learners, client_keys, envelope_keys = jax.device_put((before, *keys), self._devices.split)
        broadcast = state.broadcast if self.together else _rows(state.broadcast, filled)
        broadcast = jax.device_put(broadcast, self._devices.everywhere if self.together else self._devices.split)
        if self._ahead is not None:
            self._ahead.wait()
            self._ahead = None
        arguments = (learners, broadcast, self._place(tuple(filled)), client_keys, envelope_keys)
        return _Trained(*clients_part(*self._clients_arguments(*arguments)))

    def _clients_arguments(self, learners: Any, broadcast: Any, placed: Any, *keys: Any) -> tuple[Any, ...]:
        return (
            self.algorithm,
            self.settings.sealed,
            self.settings.local_steps,
            self.together,
            self._devices.mesh,
            learners,
            broadcast,
            self.space,
            self._buffer.longest,
            placed,
            *keys,
        )

    def _filled(self, members: list[int]) -> list[int]:
        """The members, padded with clients of no weight, so that all cohorts have one shape and one compilation."""
        return members + [members[0]] * (self._devices.slots - len(members))

    def _judge(self, state: State, members: list[int], trained: "_Trained", gathered: Gathered) -> None:
        """The server's part for one cohort."""
        present = np.arange(self._devices.slots) < len(members)
        # By way of the host, where a CPU's devices have it anyway: JAX would remember the mesh that it came from.
        sent = jax.tree.map(np.asarray, trained.sent) if self._on_cpu else trained.sent
        arrays = (state.broadcast, sent, present, self._by_returns[self._filled(members)])
        judged = rounds.judge_submissions(
            self.algorithm,
            self.settings.aggregation,
            self.settings.sealed,
            *jax.device_put(arrays, self._devices.first),
        )
        verdicts = np.where(trained.sound, judged.verdicts, rounds.NOT_FINITE)[: len(members)]
        _keep_learners(state, members, trained, verdicts)
        gathered.add(members, verdicts, judged.metrics, np.asarray(judged.log_weights))
        gathered.merge(judged.submissions, judged.log_total)

    def _keep_apart(self, state: State, members: list[int], trained: "_Trained", gathered: Gathered) -> None:
        """The server's part if every client trains alone: each has a server of its own."""
        filled = self._filled(members)
        arrays = jax.device_put((_rows(state.server, filled), trained.sent), self._devices.first)
        servers, judged, metrics = rounds.aggregate_each(self.algorithm, self.settings.sealed, *arrays)
        verdicts = np.where(trained.sound, judged, rounds.NOT_FINITE)[: len(members)]
        good = _keep_learners(state, members, trained, verdicts)
        _write_rows(state.server, [members[i] for i in good], servers, good)
        gathered.add(members, verdicts, metrics, None)

    def _aggregate(self, state: State, gathered: Gathered) -> Any:
        submissions = gathered.submissions
        if self.privacy is not None and self.privacy.noise_at == "server":
            key = rounds.publication_key(self._key, state.round)
            submissions = gathered.published(self.privacy, state.broadcast, key)
        if submissions is None:
            return state.server
        return rounds.aggregate(self.algorithm, *jax.device_put((state.server, submissions), self._devices.first))

    # --- Who takes part ---

    def _choose(self, round_number: int) -> list[int]:
        if self.privacy and self.privacy.noise_at == "server":
            return self._draw(self.privacy.participation, round_number)
        if self.participants == len(self._everybody):
            return list(range(len(self._everybody)))
        order = jax.random.permutation(rounds.participation_key(self._key, round_number), len(self._everybody))
        return sorted(int(i) for i in order[: self.participants])

    def _draw(self, probability: float, round_number: int) -> list[int]:
        """Draw every client independently with this probability, as the accountant of a private run assumes."""
        key = rounds.participation_key(self._key, round_number)
        return [int(i) for i in np.flatnonzero(jax.random.bernoulli(key, probability, (len(self._everybody),)))]

    def _keys(self, derive: Callable[..., PRNGKeyArray], number: int, members: Sequence[int]) -> PRNGKeyArray:
        return jax.vmap(partial(derive, self._key, number))(self._identities[list(members)])

    def _place(self, members: tuple[int, ...]) -> "Placed":
        """The rows of these clients on the devices."""
        if self._placed is None or self._placed[0] != members:
            self._placed = None  # its memory is free before the next cohort's rows are placed
            self._placed = (members, place(self._buffer, members, self._devices))
        return self._placed[1]

    # --- What is reported ---

    def _report(self, server: Any, gathered: Gathered) -> RoundReport:
        metrics = gathered.metrics()
        if self._traffic is None and self.together:
            sent = [name for name in metrics if name != "update_norm"]  # which the server measures
            self._traffic = rounds.traffic(self.settings.sealed, server.broadcast, sent)
        if self.together and self.privacy is None and self.settings.aggregation.combine is None:
            metrics["server_weight"] = rounds.server_weights(gathered.log_weights)
        verdicts = zip(gathered.members, gathered.verdicts)
        rejected = {i: rounds.WHY_REJECTED[int(v)] for i, v in verdicts if v != rounds.ACCEPTED}
        clients = {
            self._everybody[client]: {name: float(values[i]) for name, values in metrics.items()}
            for i, client in enumerate(gathered.members)
            if client not in rejected
        }
        return RoundReport(clients, {self._everybody[i]: why for i, why in rejected.items()}, (), self._traffic)

    def _insist_on_somebody(self, round_number: int, gathered: Gathered) -> None:
        if rounds.ACCEPTED not in gathered.verdicts:
            raise FovaError(
                f"Training diverged in round {round_number + 1}: no client has finite parameters left. Lower the "
                "learning rates (--actor-lr, --critic-lr) or scale the rewards down (--reward-scale)."
            )


class _Trained(NamedTuple):
    """The results of a cohort's local rounds, one entry for each slot."""

    learners: Any
    sound: Bool[Array, " clients"]  # whose numbers are finite
    sent: Submission


def _keep_learners(
    state: State, members: list[int], trained: _Trained, verdicts: NDArray[np.integer[Any]]
) -> NDArray[np.intp]:
    """Store the learners whose submission was accepted. The others stay as they were before the round."""
    good = np.flatnonzero(verdicts == rounds.ACCEPTED)
    _write_rows(state.learners, [members[i] for i in good], trained.learners, good)
    return good


def _rows(stacked: Any, rows: Sequence[int]) -> Any:
    return jax.tree.map(lambda leaf: leaf[list(rows)], stacked)


def _write_rows(stacked: Any, rows: Sequence[int], new: Any, new_rows: NDArray[np.intp]) -> None:
    for old_leaf, new_leaf in zip(jax.tree.leaves(stacked), jax.tree.leaves(new)):
        old_leaf[list(rows)] = np.asarray(new_leaf)[new_rows]


@partial(
    jax.jit,
    static_argnames=("algorithm", "envelope", "local_steps", "together", "mesh", "space", "longest"),
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
    space: Space,
    longest: int,
    placed: Placed,
    keys: PRNGKeyArray,
    envelope_keys: PRNGKeyArray,
) -> tuple[Any, Bool[Array, " clients"], Submission]:
    """A round of every client of a cohort, compiled. Each device of the mesh has its share and waits for no other.

    Returns the learners, which of them are finite, and their submissions. Unless clients train `together`, each has
    a broadcast of its own.
    """
    axis = None if together else 0  # where a broadcast has its axis of clients

    def share(
        learners: Any, broadcast: Any, placed: Placed, keys: PRNGKeyArray, envelope_keys: PRNGKeyArray
    ) -> Any:
        rows = placed.rows if placed.shared else placed.rows[0]

        def local_round(learner: Any, broadcast: Any, start: Any, length: Any, key: PRNGKeyArray) -> Any:
            data = Data(rows, start, length, longest, space)
            return rounds.local_round(algorithm, local_steps, learner, broadcast, data, key)

        arguments = (learners, broadcast, placed.starts, placed.lengths, keys)
        learners, submissions = jax.vmap(local_round, (0, axis, 0, 0, 0))(*arguments)
        sound = rounds.all_finite(submissions)  # before the envelope, which may hide it
        return learners, sound, jax.vmap(envelope.encode, (0, axis, 0))(submissions, broadcast, envelope_keys)

    each, all_alike = PartitionSpec("clients"), PartitionSpec()
    data = Placed(all_alike if placed.shared else each, each, each)
    deal = (each, all_alike if together else each, data, each, each)
    dealt_out = jax.shard_map(share, mesh=mesh, in_specs=deal, out_specs=each, check_vma=False)
    return dealt_out(learners, broadcast, placed, keys, envelope_keys)
