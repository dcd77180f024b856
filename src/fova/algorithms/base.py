"""The contract every algorithm keeps, and the skeleton that actor-critic algorithms share.

An algorithm is a frozen config plus five pure functions; every engine calls the same five:

    init(key, space)                     -> learner       everything a client carries between rounds
    receive(learner, broadcast)           -> learner       what the server's message overwrites
    step(learner, broadcast, batch, key)  -> learner, metrics       `stride` gradient steps (mostly one)
    submit(learner, broadcast, data)      -> learner, submission    the submission is all that leaves a client
    aggregate(submissions)                -> broadcast     what the server sends back

and, for federations whose data is replaced on the way, `data_changed(learner) -> learner`.

This room is pure maths: no file, network, clock or environment, and nothing about the engine that calls it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.networks import ActorKind, Initialisation, TwinCritic, distance, make_actor
from fova.spaces import Space

T = TypeVar("T")
Metrics = dict[str, Float[Array, ""]]

# A client measures its policy on at most this many of its own states at the end of a round.
MEASURED_STATES = 512


# --- What travels through an algorithm --------------------------------------------------------------------


class Batch(NamedTuple):
    """A minibatch of transitions; see `fova.data.transitions` for what each field means."""

    observations: Float[Array, "batch observation"]
    actions: Float[Array, "batch action"]
    rewards: Float[Array, " batch"]
    next_observations: Float[Array, "batch observation"]
    next_actions: Float[Array, "batch action"]
    terminals: Float[Array, " batch"]
    has_next_action: Float[Array, " batch"]


class Data(eqx.Module):
    """A client's whole dataset: its rows packed side by side, so that drawing a minibatch is one gather."""

    rows: Float[Array, "capacity width"]  # the fields of Batch in order; rows past `length` are padding
    length: Int[Array, ""]
    space: Space = eqx.field(static=True)

    def batch(self, indices: Int[Array, " batch"]) -> Batch:
        return unpack(self.rows[indices], self.space)

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        """`size` rows drawn uniformly, with replacement."""
        return self.batch(jax.random.randint(key, (size,), 0, self.length))

    def mean(self, measure: Callable[[Batch], Float[Array, " batch"]], chunk: int = 1024) -> Float[Array, ""]:
        """The mean over every row of what `measure` gives, a chunk of rows at a time."""
        capacity = self.rows.shape[0]
        starts = jnp.arange(0, capacity, chunk)

        def total(start: Int[Array, ""]) -> Float[Array, ""]:
            indices = start + jnp.arange(chunk)
            values = measure(self.batch(jnp.minimum(indices, capacity - 1)))
            return jnp.where(indices < self.length, values, 0.0).sum()

        return jax.lax.map(total, starts).sum() / self.length

    def returns_to_go(
        self,
        discount: float,
        beyond: Callable[[Float[Array, "rows observation"]], Float[Array, " rows"]] | None = None,
        chunk: int = 64,
    ) -> Float[Array, " capacity"]:
        """For each row the discounted rewards that the data itself shows from there on; 0 past `length`.

        Where an episode was cut short, `beyond` says what would have followed; without it, nothing does.
        """
        capacity = self.rows.shape[0]
        rows = self.batch(jnp.arange(capacity))
        present, goes_on = jnp.arange(capacity) < self.length, rows.has_next_action > 0
        own = jnp.where(present, rows.rewards, 0.0)
        if beyond is not None:
            cut = present & ~goes_on & (rows.terminals == 0)
            (where,) = jnp.nonzero(cut, size=capacity + chunk, fill_value=capacity)  # few, but nobody knows how few

            def add(i: Int[Array, ""], own: Float[Array, " capacity"]) -> Float[Array, " capacity"]:
                some = jax.lax.dynamic_slice(where, (i * chunk,), (chunk,))
                worth = discount * beyond(rows.next_observations[jnp.minimum(some, capacity - 1)])
                return own.at[some].add(worth, mode="drop")

            own = jax.lax.fori_loop(0, (cut.sum() + chunk - 1) // chunk, add, own)

        return _to_go(own, jnp.where(goes_on & present, discount, 0.0))

    def spread(self, size: int) -> Batch:
        """`size` rows spread evenly over the dataset: the same ones every time, no randomness needed."""
        positions = jnp.arange(size, dtype=jnp.float32) / size
        return self.batch((positions * self.length).astype(jnp.int32))


def _to_go(gain: Float[Array, " rows"], keep: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """G with G[i] = gain[i] + keep[i] G[i + 1], 0 beyond the end: blocks side by side, then one after another."""
    rows = len(gain)
    width = math.isqrt(rows - 1) + 1
    padding = (0, -rows % width)
    gains, keeps = (jnp.pad(values, padding).reshape(-1, width).T for values in (gain, keep))  # [width, blocks]

    def before(after: Any, here: Any) -> Any:
        (gain_after, keep_after), (gain, keep) = after, here
        both = gain + keep * gain_after, keep * keep_after
        return both, both

    blocks = gains.shape[1]
    empty = jnp.zeros(blocks), jnp.ones(blocks)
    (whole_gain, whole_keep), (inner_gain, inner_keep) = jax.lax.scan(before, empty, (gains, keeps), reverse=True)

    def block(beyond: Any, whole: Any) -> Any:
        gain, keep = whole
        return gain + keep * beyond, beyond

    _, beyond = jax.lax.scan(block, jnp.zeros(()), (whole_gain, whole_keep), reverse=True)
    return (inner_gain + inner_keep * beyond).T.reshape(-1)[:rows]


def pack(batch: Batch) -> NDArray[np.float32]:
    """The fields of a batch side by side, [batch, width], on the host."""
    return np.concatenate(
        [np.reshape(field, (len(batch.rewards), -1)) for field in batch], axis=1, dtype=np.float32
    )


def unpack(rows: Float[Array, "batch width"], space: Space) -> Batch:
    """The inverse of `pack`, on the device."""
    widths = (space.observation, space.action.size, 1, space.observation, space.action.size, 1, 1)
    columns = jnp.split(rows, [sum(widths[: i + 1]) for i in range(len(widths) - 1)], axis=1)
    s, a, r, next_s, next_a, terminal, has_next_action = columns
    return Batch(s, a, r[:, 0], next_s, next_a, terminal[:, 0], has_next_action[:, 0])


class Broadcast(eqx.Module):
    """What the server sends: the global policy and critics. It does not change during a round."""

    actor: Any  # one of networks.Actor
    critic: TwinCritic | None  # None where an algorithm has no critics
    extra: Any = None  # what one algorithm federates beyond the skeleton


class Submission(eqx.Module):
    """What a client sends: its parameters, how much they count, and named metrics. Never a row of data."""

    parameters: Broadcast
    log_weight: Float[Array, ""]  # the logarithm of how much this client counts; 0 for all is the plain mean
    metrics: Metrics


class Learner(eqx.Module):
    """What a client carries from round to round. The broadcast overwrites actor and critic, nothing else."""

    actor: Any  # one of networks.Actor
    critic: Any  # TwinCritic, or None where an algorithm has no critics
    slow_critic: Any
    actor_moments: optax.OptState
    critic_moments: optax.OptState
    extra: Any = None  # what one algorithm carries beyond the skeleton


class Algorithm(Protocol):
    """What an engine may rely on. Implementations are frozen (hashable) dataclasses."""

    batch_size: int

    @property
    def stride(self) -> int:
        """Gradient steps taken by one call of `step`, which is given as many minibatches, one after another."""

    def init(self, key: PRNGKeyArray, space: Space) -> Any: ...

    def receive(self, learner: Any, broadcast: Any) -> Any: ...

    def step(self, learner: Any, broadcast: Any, batch: Batch, key: PRNGKeyArray) -> tuple[Any, Metrics]: ...

    def submit(self, learner: Any, broadcast: Any, data: Data) -> tuple[Any, Submission]: ...

    def aggregate(self, submissions: Submission) -> Any: ...

    def data_changed(self, learner: Any) -> Any: ...


# --- The shared skeleton ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActorCritic:
    """Networks, optimisers and messages of an actor-critic algorithm; a subclass brings its `step`."""

    # The first is the default. Baselines were published without LayerNorm, which a fair comparison may grant them.
    presets: ClassVar[dict[str, dict[str, Any]]] = {"published": {}, "layer-norm": {"critic_layer_norm": True}}

    discount: float = 0.99
    """Gamma: how much a reward one step later counts."""
    tau: float = 0.005
    """Share of the current critics that the slow critics take over at every step."""
    batch_size: int = 256
    """Transitions in a minibatch."""
    actor_lr: float = 1e-4
    """Adam's learning rate for the actor."""
    critic_lr: float = 3e-4
    """Adam's learning rate for the critics."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers of actor and critics."""
    actor: ActorKind = "clipped"
    """How the actor turns a state into actions: clipped (Gaussian around a tanh mean, clipped to the bounds),
    squashed (tanh of a Gaussian) or deterministic."""
    actor_layer_norm: bool = False
    """LayerNorm after each hidden layer of the actor."""
    critic_layer_norm: bool = True
    """LayerNorm after each hidden layer of the critics."""
    initialisation: Initialisation = "fan_in"
    """How weights start: fan_in (uniform in +-1/sqrt(inputs)), or orthogonal."""
    value_weight: float = 0.0
    """How strongly the server favours clients whose policy their own critics rate highly: weights
    softmax(value_weight * mean Q(s, pi_k(s))). 0 is the plain mean."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "stride"):
            if getattr(self, name) < 1:
                raise FovaError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if not self.hidden or min(self.hidden) < 1:
            raise FovaError(f"hidden is {self.hidden}, but needs at least one layer, each at least 1 wide.")

    @property
    def stride(self) -> int:
        return 1

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        actor_key, critic_key = jax.random.split(key)
        actor = make_actor(actor_key, space, self.actor, self.hidden, self.actor_layer_norm, self.initialisation)
        critic = TwinCritic(critic_key, space, self.hidden, self.critic_layer_norm, self.initialisation)
        return Learner(
            actor=actor,
            critic=critic,
            slow_critic=critic,
            actor_moments=adam(self.actor_lr).init(actor),
            critic_moments=adam(self.critic_lr).init(critic),
        )

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        return replace(learner, actor=broadcast.actor, critic=broadcast.critic)

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        states = data.spread(MEASURED_STATES).observations
        policy = learner.actor(states)
        rows = data.length.astype(jnp.float32)
        metrics = {"policy_distance": distance(policy, broadcast.actor(states)), "rows": rows}
        log_weight = jnp.zeros(())
        if learner.critic is not None:
            metrics["value"] = learner.critic(states, policy.mode()).min(axis=0).mean()
            log_weight = self.value_weight * metrics["value"]
        return learner, Submission(Broadcast(learner.actor, learner.critic), log_weight, metrics)

    def aggregate(self, submissions: Submission) -> Broadcast:
        """eq. (aggregation): the mean of the clients' parameters, each counted by its weight."""
        return weighted_mean(submissions.parameters, submissions.log_weight)

    def data_changed(self, learner: Learner) -> Learner:
        """Called once when a client's data is replaced, before the first step on the new data."""
        return learner


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Adam on one flat vector: a handful of large operations instead of many small ones."""
    return optax.flatten(optax.adam(learning_rate))


def descend(learning_rate: float, parameters: T, gradient: T, moments: optax.OptState) -> tuple[T, optax.OptState]:
    """One step of Adam."""
    updates, moments = adam(learning_rate).update(gradient, moments)
    return jax.tree.map(jnp.add, parameters, updates), moments


def clip_gradient(gradient: T, largest: float) -> T:
    """The gradient, scaled down to norm `largest` if it is longer."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
    factor = jnp.minimum(1.0, largest / (norm + 1e-12))
    return jax.tree.map(lambda leaf: factor * leaf, gradient)


def target(
    rewards: Float[Array, " batch"],
    terminals: Float[Array, " batch"],
    next_value: Float[Array, " batch"],
    discount: float,
) -> Float[Array, " batch"]:
    """The empirical Bellman operator: r + gamma (1 - terminal) V(s')."""
    return rewards + discount * (1.0 - terminals) * next_value


def minibatches(batch: Batch, count: int) -> list[Batch]:
    """A batch cut into `count` equal parts."""
    return [Batch(*parts) for parts in zip(*(jnp.split(field, count) for field in batch))]


def weighted_mean(stacked: T, log_weights: Float[Array, " clients"]) -> T:
    """The mean over the leading axis with weights softmax(log_weights); a weight of -inf leaves a client out.

    Because weights are normalised here, the mean of several groups' means, each weighted by the logsumexp of
    its log-weights, is the mean of all: large federations are averaged group by group.
    """
    weights = jax.nn.softmax(log_weights)

    def mean(leaf: Float[Array, "clients ..."]) -> Float[Array, "..."]:
        share = weights.reshape(-1, *[1] * (leaf.ndim - 1))
        # A client left out must not count even if it sent NaN, and 0 * NaN is NaN.
        return jnp.sum(jnp.where(share > 0, share * leaf, 0.0), axis=0)

    return jax.tree.map(mean, stacked)


def replace(module: T, **changes: Any) -> T:
    """A copy of an Equinox module with some fields replaced."""
    names = list(changes)
    return eqx.tree_at(
        lambda m: [getattr(m, name) for name in names],
        module,
        [changes[name] for name in names],
        is_leaf=lambda leaf: leaf is None,
    )


class Temperature(eqx.Module):
    """SAC's entropy temperature and its own Adam moments; it stays with the client."""

    log: Float[Array, ""]
    moments: optax.OptState

    @staticmethod
    def start(learning_rate: float) -> "Temperature":
        log = jnp.zeros(())
        return Temperature(log, adam(learning_rate).init(log))

    def follow(self, log_prob: Float[Array, " batch"], target: float, learning_rate: float) -> "Temperature":
        """Raise the temperature while the policy's entropy is below its target, lower it above."""
        gradient = -(log_prob.mean() + target)
        return Temperature(*descend(learning_rate, self.log, gradient, self.moments))
