"""A federation on one machine: one compiled round over all its clients.

A round is: receive the broadcast, a scan of local steps vmapped over clients, submit, aggregate; all of it is
inside one compiled function. Larger federations go through that function in cohorts, so memory on the device
is bounded by the cohort; what clients carry between rounds rests in host memory.

All randomness is derived from (seed, round, the client's name, step). So a run continues from a checkpoint as
if it had never stopped, and a client draws the same batches wherever it stands in the list.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Algorithm, Batch, Data, Submission, pack, replace
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.networks import Shapes

Aggregate = Callable[[Submission], Any]

# Each use of randomness has a stream of its own.
_INIT, _PARTICIPATION, _CLIENTS = range(3)


class State(NamedTuple):
    """Everything that a checkpoint must hold to continue."""

    round: int  # rounds finished
    broadcast: Any  # what the server sends at the start of the next round
    learners: Any  # one pytree with a leading axis of clients, as NumPy arrays


class RoundReport(NamedTuple):
    """What one round measured, per participating client."""

    clients: list[int]  # positions of those that took part
    metrics: dict[str, NDArray[np.float32]]  # name -> [clients]; step metrics are means over the local steps


class Simulation:
    """Runs rounds of one algorithm over clients held in memory."""

    def __init__(
        self,
        algorithm: Algorithm,
        clients: Mapping[str, Transitions],
        shapes: Shapes,
        *,
        local_steps: int,
        seed: int = 0,
        participation: float = 1.0,
        cohort: int = 64,
        aggregate: Aggregate | None = None,
    ) -> None:
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
        self.shapes = shapes
        self.local_steps = local_steps
        self.participants = max(1, round(participation * len(clients)))
        self.cohort = min(cohort, self.participants)
        self.aggregate = aggregate or algorithm.aggregate
        self._key = jax.random.key(seed)
        self._identities = np.array([zlib.crc32(name.encode()) for name in self.names], np.uint32)
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
        key = jax.random.fold_in(self._key, _INIT)
        learner, broadcast = first_message(self.algorithm, self.shapes, key, self._stacked((0,)))
        clients = len(self.names)
        learners = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], clients, axis=0), learner)
        return State(0, broadcast, learners)

    def data_changed(self, state: State) -> State:
        """Tell every learner that its data was replaced."""
        learners = jax.vmap(self.algorithm.data_changed)(state.learners)
        return state._replace(learners=jax.tree.map(np.array, learners))

    # --- Rounds ---

    def round(self, state: State) -> tuple[State, RoundReport]:
        """One round. `state.learners` is updated in place; use the returned state from here on."""
        chosen = self._choose(state.round)
        broadcasts, totals, reports = [], [], []
        for start in range(0, len(chosen), self.cohort):
            members = chosen[start : start + self.cohort]
            # The last cohort is filled up with clients that count for nothing: one shape, one compilation.
            filled = tuple(members + [members[0]] * (self.cohort - len(members)))
            present = np.arange(self.cohort) < len(members)
            learners, broadcast, total, metrics = cohort_round(
                self.algorithm,
                self.aggregate,
                self.local_steps,
                jax.tree.map(lambda leaf: leaf[list(filled)], state.learners),  # noqa: B023
                state.broadcast,
                self._stacked(filled),
                self._client_keys(state.round, filled),
                present,
            )
            for old, new in zip(jax.tree.leaves(state.learners), jax.tree.leaves(learners)):
                old[members] = np.asarray(new)[: len(members)]
            reports.append({name: np.asarray(values)[: len(members)] for name, values in metrics.items()})
            broadcasts.append(broadcast)
            totals.append(total)
        broadcast = broadcasts[0] if len(broadcasts) == 1 else self._merge(broadcasts, totals)
        metrics = {name: np.concatenate([r[name] for r in reports]) for name in reports[0]}
        self._refuse_nonsense(state.round, chosen, metrics, broadcast)
        return State(state.round + 1, broadcast, state.learners), RoundReport(chosen, metrics)

    def _choose(self, round_number: int) -> list[int]:
        if self.participants == len(self.names):
            return list(range(len(self.names)))
        key = jax.random.fold_in(jax.random.fold_in(self._key, _PARTICIPATION), round_number)
        order = jax.random.permutation(key, len(self.names))
        return sorted(int(i) for i in order[: self.participants])

    def _client_keys(self, round_number: int, members: Sequence[int]) -> PRNGKeyArray:
        key = jax.random.fold_in(jax.random.fold_in(self._key, _CLIENTS), round_number)
        return jax.vmap(partial(jax.random.fold_in, key))(self._identities[list(members)])

    def _stacked(self, members: tuple[int, ...]) -> Data:
        if self._device_data is None or self._device_data[0] != members:
            rows = np.zeros((len(members), self._capacity, self._rows[0].shape[1]), np.float32)
            for slot, client in enumerate(members):
                rows[slot, : len(self._rows[client])] = self._rows[client]
            lengths = np.array([len(self._rows[client]) for client in members], np.int32)
            data = Data(jnp.asarray(rows), jnp.asarray(lengths), self.shapes)
            self._device_data = (members, data)
        return self._device_data[1]

    def _merge(self, broadcasts: list[Any], totals: list[Float[Array, ""]]) -> Any:
        """The mean of the cohorts' means, each counted by its total weight, is the mean of all clients."""
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *broadcasts)
        return self.aggregate(Submission(stacked, jnp.stack(totals), {}))

    def _refuse_nonsense(
        self, round_number: int, chosen: list[int], metrics: dict[str, NDArray], broadcast: Any
    ) -> None:
        for name, values in metrics.items():
            for client in np.flatnonzero(~np.isfinite(values)):
                raise FovaError(
                    f"Training diverged in round {round_number + 1}: {name} of client "
                    f"{self.names[chosen[client]]!r} is {values[client]}. Lower the learning rates "
                    "(--actor-lr, --critic-lr) or scale the rewards down (--reward-scale)."
                )
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(broadcast)):
            raise FovaError(
                f"Training diverged in round {round_number + 1}: the aggregated parameters are not finite. "
                "Lower the learning rates (--actor-lr, --critic-lr)."
            )


@partial(jax.jit, static_argnames=("algorithm", "shapes"))
def first_message(algorithm: Any, shapes: Shapes, key: PRNGKeyArray, data: Data) -> tuple[Any, Any]:
    """A fresh learner, and the broadcast of a server that has only ever heard of it."""
    learner = algorithm.init(key, shapes)
    alone = jax.tree.map(lambda leaf: leaf[None], learner)
    _, submission = jax.vmap(algorithm.submit, (0, None, 0))(alone, learner, data)
    return learner, algorithm.aggregate(submission)


@partial(jax.jit, static_argnames=("algorithm", "aggregate", "local_steps"), donate_argnames=("learners",))
def cohort_round(
    algorithm: Any,
    aggregate: Aggregate,
    local_steps: int,
    learners: Any,
    broadcast: Any,
    data: Data,
    keys: PRNGKeyArray,
    present: Float[Array, " clients"],
) -> tuple[Any, Any, Float[Array, ""], dict[str, Float[Array, " clients"]]]:
    """Receive, local steps, submit, aggregate: a whole round of one cohort, compiled."""
    learners = jax.vmap(algorithm.receive, (0, None))(learners, broadcast)

    stride = algorithm.stride

    def client_step(learner: Any, own: Data, key: PRNGKeyArray, number: Any) -> tuple[Any, dict[str, Any]]:
        batch_key, step_key = jax.random.split(jax.random.fold_in(key, number))
        return algorithm.step(learner, broadcast, own.sample(batch_key, stride * algorithm.batch_size), step_key)

    def all_clients_step(learners: Any, number: Any) -> tuple[Any, Any]:
        return jax.vmap(client_step, (0, 0, 0, None))(learners, data, keys, number)

    learners, history = jax.lax.scan(all_clients_step, learners, jnp.arange(local_steps // stride))
    learners, submissions = jax.vmap(algorithm.submit, (0, None, 0))(learners, broadcast, data)
    log_weight = jnp.where(present, submissions.log_weight, -jnp.inf)
    submissions = replace(submissions, log_weight=log_weight)
    metrics = {name: values.mean(axis=0) for name, values in history.items()} | submissions.metrics
    return learners, aggregate(submissions), jax.nn.logsumexp(log_weight), metrics
