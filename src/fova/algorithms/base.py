"""The contract that every algorithm keeps, and the skeleton that actor-critic algorithms share.

An algorithm is a frozen config and pure functions. Every engine calls the same ones:

    init(key, space)                       -> learner              everything a client carries between rounds
    start(learner)                         -> server               the server's state before any message
    receive(learner, broadcast)            -> learner              what the server's message overwrites
    step(learner, broadcast, batch, key)   -> learner, metrics     `stride` gradient steps, mostly one
    submit(learner, broadcast, data)       -> learner, submission  the submission is all that leaves a client
    aggregate(server, submissions)         -> server               submissions have a leading axis of clients
    policy(broadcast)                      -> actor                what is played, evaluated and saved
    local_policy(learner)                  -> actor                the same for one client's learner
    networks(parameters)                   -> pytree               the parts of a message that are compared
    data_changed(learner, rescale)         -> learner              the client's data was replaced

In a round every participating client receives `server.broadcast`, takes its local steps and submits. The server
then aggregates the submissions. Broadcasts and `Submission.parameters` are any pytree. An engine looks inside only
through `policy` and `networks`. The server can keep state of its own in `Server.kept`; checkpoints include it.

Six declarations tell an engine what it may do: `stride`, `mergeable`, `action_spaces`, `reward_unit`,
`client_weights` and `row_weights`. The class `Algorithm` below explains them.

This package is pure maths: no file, network, clock or environment access, and no knowledge of the engine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.networks import ActorKind, Critic, GaussianForm, Initialisation, distance, make_actor, make_critic
from fova.settings import Within, check_ranges
from fova.spaces import Box, Space

T = TypeVar("T")
Metrics = dict[str, Float[Array, ""]]
RewardUnit = Literal["raw", "federation"]
ClientWeights = Literal["submitted", "returns"]
RowWeights = Literal["uniform", "returns"]
TemperatureLoss = Literal["log", "value"]

# A client measures its policy on this many of its own states at the end of a round.
MEASURED_STATES = 512
# More layers take minutes to compile.
MOST_LAYERS = 8


# --- What travels through an algorithm --------------------------------------------------------------------


class Batch(NamedTuple):
    """A minibatch of transitions. `fova.data.transitions` and `fova.data.returns` explain the fields."""

    observations: Float[Array, "batch observation"]
    actions: Float[Array, "batch action"]
    rewards: Float[Array, " batch"]
    next_observations: Float[Array, "batch observation"]
    next_actions: Float[Array, "batch action"]
    terminals: Float[Array, " batch"]
    has_next_action: Float[Array, " batch"]
    next_returns: Float[Array, " batch"]  # the discounted return that the data shows from s' on
    uniform: "Batch | None" = None  # as many rows drawn uniformly, if the others were drawn by their weights

    @property
    def for_critics(self) -> "Batch":
        """The rows that critics learn from: good and bad ones alike, for a critic must also see what fails."""
        return self if self.uniform is None else self.uniform


FIELDS = Batch._fields[:-1]  # what a row of a client's data holds


class Data(eqx.Module):
    """A client's whole dataset: `length` rows of a buffer, from `start` on.

    Clients on one device share the buffer, so that a federation takes as much memory as it has rows. The fields of
    a row are packed side by side, so that a minibatch is one gather. If policies learn more often from some rows, a
    second row that was drawn by the weights is packed behind each row of the data.
    """

    rows: Float[Array, "capacity width"]  # the fields of Batch in order, once or twice
    start: Int[Array, ""]
    length: Int[Array, ""]
    longest: int = eqx.field(static=True)  # the largest `length` of the clients that are computed together
    space: Space = eqx.field(static=True)

    @staticmethod
    def of(rows: Any, space: Space) -> "Data":
        """The dataset of a client that has a buffer to itself."""
        start, length = jnp.zeros((), jnp.int32), jnp.asarray(len(rows), jnp.int32)
        return Data(jnp.asarray(rows), start, length, len(rows), space)

    def batch(self, indices: Int[Array, " batch"]) -> Batch:
        """The rows of the data at these places, whatever their weights."""
        chosen = self.rows[self.start + indices]
        return unpack(chosen[:, : row_width(self.space)], self.space)

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        """`size` rows drawn with replacement: uniformly, or by their weights together with uniform ones."""
        chosen = self.rows[self.start + jax.random.randint(key, (size,), 0, self.length)]
        width = row_width(self.space)
        uniform = unpack(chosen[:, :width], self.space)
        if chosen.shape[1] == width:
            return uniform
        return unpack(chosen[:, width:], self.space)._replace(uniform=uniform)

    def mean(self, measure: Callable[[Batch], Float[Array, " batch"]], chunk: int = 1024) -> Float[Array, ""]:
        """The mean of `measure` over all rows, computed a chunk of rows at a time."""
        starts = jnp.arange(0, self.longest, chunk)

        def total(start: Int[Array, ""]) -> Float[Array, ""]:
            indices = start + jnp.arange(chunk)
            values = measure(self.batch(jnp.minimum(indices, self.length - 1)))
            return jnp.where(indices < self.length, values, 0.0).sum()

        return jax.lax.map(total, starts).sum() / self.length

    def spread(self, size: int) -> Batch:
        """`size` rows spread evenly over the dataset, the same ones every time."""
        positions = jnp.arange(size, dtype=jnp.float32) / size
        return self.batch((positions * self.length).astype(jnp.int32))


def row_width(space: Space) -> int:
    """The number of numbers in a packed row."""
    return 2 * (space.observation + space.action.size) + 4


def pack(batch: Batch, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """The fields of a batch side by side, [batch, width], on the host; in `out` if it is given."""
    fields = [np.reshape(getattr(batch, name), (len(batch.rewards), -1)) for name in FIELDS]
    if out is not None:
        return np.concatenate(fields, axis=1, out=out)
    return np.concatenate(fields, axis=1, dtype=np.float32)


def unpack(rows: Float[Array, "batch width"], space: Space) -> Batch:
    """The inverse of `pack`, on the device."""
    widths = (space.observation, space.action.size, 1, space.observation, space.action.size, 1, 1, 1)
    columns = jnp.split(rows, [sum(widths[: i + 1]) for i in range(len(widths) - 1)], axis=1)
    s, a, r, next_s, next_a, *others = columns
    terminals, has_next_action, next_returns = (column.ravel() for column in others)
    return Batch(s, a, r.ravel(), next_s, next_a, terminals, has_next_action, next_returns)


class Broadcast(eqx.Module):
    """What the server of an actor-critic algorithm sends. It does not change during a round."""

    actor: Any  # one of networks.Actor
    critic: Critic | None  # None if the algorithm has no critics
    extra: Any = None  # what one algorithm sends beyond the skeleton


class Submission(eqx.Module):
    """What a client sends: its parameters, its weight and named metrics, but never a row of data."""

    parameters: Any  # a pytree with the structure of the broadcast
    log_weight: Float[Array, ""]  # the logarithm of the client's weight; 0 for all is the plain mean
    metrics: Metrics


class Server(eqx.Module):
    """The server's state between rounds."""

    broadcast: Any  # what is sent at the start of the next round; any pytree
    kept: Any = None  # what the server keeps to itself, for instance moments of an optimiser; any pytree


class Learner(eqx.Module):
    """What a client carries from round to round. The broadcast overwrites the networks of actor and critic."""

    actor: Any  # Model, or None if the algorithm has no actor
    critic: Any  # Model, or None if the algorithm has no critics
    target_critic: Any  # the network of target critics, or None
    extra: Any = None  # what one algorithm carries beyond the skeleton


class Algorithm(Protocol):
    """What an engine may rely on. Implementations are frozen, hashable dataclasses."""

    mergeable: ClassVar[bool]
    """`aggregate` depends on the submissions only through the weighted mean of their parameters. An engine may then
    average a large round group by group and call `aggregate` with one submission, the mean, of log_weight [0.]. If
    false, `aggregate` is given the whole round."""
    action_spaces: ClassVar[tuple[type, ...]]
    """The classes of `fova.spaces` that a policy of this algorithm can act in. `init` refuses any other."""
    batch_size: int
    discount: float
    """Gamma. The federation's statistics depend on it, also where the algorithm itself does not."""

    @property
    def stride(self) -> int:
        """Gradient steps taken by one call of `step`. The batch holds as many minibatches, one after another."""

    @property
    def reward_unit(self) -> RewardUnit:
        """`federation`: the engine divides rewards by the federation's unit of reward before training."""

    @property
    def client_weights(self) -> ClientWeights:
        """How clients are weighted unless the run says otherwise: by the `log_weight` that they submit, or by the
        returns that their data shows."""

    @property
    def row_weights(self) -> RowWeights:
        """How the rows that a policy learns from are weighted unless the run says otherwise: all alike, or by the
        returns of their episodes."""

    def init(self, key: PRNGKeyArray, space: Space) -> Any: ...

    def start(self, learner: Any) -> Server: ...

    def receive(self, learner: Any, broadcast: Any) -> Any: ...

    def step(self, learner: Any, broadcast: Any, batch: Batch, key: PRNGKeyArray) -> tuple[Any, Metrics]:
        """Gradient steps. Critics learn from `batch.for_critics`: where rows are weighted by returns, those of
        `batch` itself come from better episodes more often, and a critic must also see what fails."""

    def submit(self, learner: Any, broadcast: Any, data: Data) -> tuple[Any, Submission]: ...

    def aggregate(self, server: Server, submissions: Submission) -> Server: ...

    def policy(self, broadcast: Any) -> Any: ...

    def local_policy(self, learner: Any) -> Any: ...

    def networks(self, parameters: Any) -> Any: ...

    def data_changed(self, learner: Any, rescale: Float[Array, ""]) -> Any: ...


# --- Networks with their optimisers -----------------------------------------------------------------------


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Adam on one flat vector: a few large operations instead of many small ones."""
    return optax.flatten(optax.adam(learning_rate))


def adam_step(
    learning_rate: float, parameters: T, gradient: T, opt_state: optax.OptState
) -> tuple[T, optax.OptState]:
    """The parameters after one step of Adam, and the new state of the optimiser."""
    updates, opt_state = adam(learning_rate).update(gradient, opt_state)
    return jax.tree.map(jnp.add, parameters, updates), opt_state


def clip_gradient(gradient: T, largest: float) -> T:
    """The gradient, scaled down to norm `largest` if it is longer."""
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
    factor = jnp.minimum(1.0, largest / (norm + 1e-12))
    return jax.tree.map(lambda leaf: factor * leaf, gradient)


class Model(eqx.Module):
    """A network together with the state of its optimiser, Adam. Calling the model calls the network."""

    network: Any
    opt_state: optax.OptState
    learning_rate: float = eqx.field(static=True)

    @staticmethod
    def start(network: Any, learning_rate: float) -> "Model":
        """The network with an optimiser that has not taken a step yet."""
        return Model(network, adam(learning_rate).init(network), learning_rate)

    def __call__(self, *inputs: Any) -> Any:
        return self.network(*inputs)

    def descend(
        self, loss: Callable[[Any], Any], has_aux: bool = False, clip: float = 0.0
    ) -> tuple["Model", Float[Array, ""], Any]:
        """The model after one step of Adam on `loss(network)`, the objective before that step, and `aux`.

        With `has_aux` the loss returns a pair (objective, aux); without it aux is None. A `clip` above 0 is the
        largest norm that the gradient may have.
        """
        value, gradient = jax.value_and_grad(loss, has_aux=has_aux)(self.network)
        objective, aux = value if has_aux else (value, None)
        if clip:
            gradient = clip_gradient(gradient, clip)
        network, opt_state = adam_step(self.learning_rate, self.network, gradient, self.opt_state)
        return Model(network, opt_state, self.learning_rate), objective, aux


class Temperature(eqx.Module):
    """SAC's entropy temperature with the state of its optimiser. It stays with the client."""

    log: Float[Array, ""]
    opt_state: optax.OptState
    learning_rate: float = eqx.field(static=True)

    @staticmethod
    def start(learning_rate: float) -> "Temperature":
        """A temperature of 1."""
        log = jnp.zeros(())
        return Temperature(log, adam(learning_rate).init(log), learning_rate)

    @property
    def value(self) -> Float[Array, ""]:
        return jnp.exp(self.log)

    def follow(
        self, log_prob: Float[Array, " batch"], target: float, loss: TemperatureLoss = "log"
    ) -> "Temperature":
        """The temperature after one step: higher if the policy's entropy is below its target, else lower.

        The loss is -log T (log pi + target), or -T (log pi + target), whose gradient for log T has a factor T.
        """
        gradient = -(log_prob.mean() + target) * (1.0 if loss == "log" else self.value)
        return Temperature(
            *adam_step(self.learning_rate, self.log, gradient, self.opt_state), learning_rate=self.learning_rate
        )


# --- The shared skeleton ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ActorCritic:
    """Networks, optimisers and messages of an actor-critic algorithm. A subclass adds its `step`."""

    mergeable: ClassVar[bool] = True
    action_spaces: ClassVar[tuple[type, ...]] = (Box,)
    # The first preset is the default. The second gives a baseline the LayerNorm that it was published without.
    presets: ClassVar[dict[str, dict[str, Any]]] = {"published": {}, "layer-norm": {"critic_layer_norm": True}}

    discount: Annotated[float, Within(0, 1, below=True)] = 0.99
    """Gamma: weight of a reward one step later."""
    tau: Annotated[float, Within(0, 1)] = 0.005
    """Share of the current critics that the target critics take over at every step."""
    batch_size: Annotated[int, Within(1, 1_000_000)] = 256
    """Transitions in a minibatch."""
    actor_lr: Annotated[float, Within(0)] = 1e-4
    """Adam's learning rate for the actor."""
    critic_lr: Annotated[float, Within(0)] = 3e-4
    """Adam's learning rate for the critics."""
    hidden: Annotated[tuple[int, ...], Within(1, 65_536)] = (256, 256, 256)
    """Widths of the hidden layers of actor and critics."""
    actor: ActorKind = "clipped"
    """Distribution of continuous actions: clipped (Gaussian around a tanh mean, clipped to the bounds), squashed
    (tanh of a Gaussian) or deterministic. Discrete actions always have a categorical distribution."""
    shared_std: bool = False
    """Train one standard deviation per action column of a Gaussian actor, instead of one that depends on the state.
    All rows are then imitated alike. Otherwise the weight of a row grows with 1 / std^2, so rows whose action is
    hard to predict count less. This ignores noise, and also whatever is hard to learn."""
    actor_layer_norm: bool = False
    """LayerNorm after each hidden layer of the actor."""
    critic_layer_norm: bool = True
    """LayerNorm after each hidden layer of the critics."""
    initialisation: Initialisation = "fan_in"
    """First weights of the networks: fan_in (uniform in +-1/sqrt(inputs)) or orthogonal."""
    value_weight: Annotated[float, Within(0)] = 0.0
    """Sharpness of the server's weights softmax(value_weight * mean Q_k(s, pi_k(s))), with the critics Q_k of the
    client. 0 is the plain mean."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.stride < 1:
            raise FovaError(f"stride is {self.stride}, but must be at least 1.")
        if not 1 <= len(self.hidden) <= MOST_LAYERS:
            raise FovaError(f"hidden has {len(self.hidden)} layers, but must have 1 to {MOST_LAYERS}.")

    @property
    def stride(self) -> int:
        return 1

    @property
    def reward_unit(self) -> RewardUnit:
        return "raw"

    @property
    def client_weights(self) -> ClientWeights:
        return "submitted"

    @property
    def row_weights(self) -> RowWeights:
        return "uniform"

    @property
    def gaussian(self) -> GaussianForm:
        """The form of a Gaussian actor."""
        return GaussianForm(shared_std=self.shared_std)

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        self.check_space(space)
        actor_key, critic_key = jax.random.split(key)
        layers = self.hidden, self.actor_layer_norm, self.initialisation
        actor = make_actor(actor_key, space, self.actor, *layers, self.gaussian)
        critic = make_critic(critic_key, space, self.hidden, self.critic_layer_norm, self.initialisation)
        return Learner(
            actor=Model.start(actor, self.actor_lr),
            critic=Model.start(critic, self.critic_lr),
            target_critic=critic,
        )

    def check_space(self, space: Space) -> None:
        """Refuse an action space that policies of this algorithm cannot act in."""
        if not isinstance(space.action, self.action_spaces):
            name = getattr(self, "name", type(self).__name__)
            served = " or ".join(kind.__name__ for kind in self.action_spaces)
            raise FovaError(
                f"Actions are of kind {type(space.action).__name__}, but {name} needs actions of kind {served}. "
                "Choose another algorithm for this data."
            )

    def parameters(self, learner: Learner) -> Broadcast:
        """The part of a learner that clients and server exchange."""
        return Broadcast(learner.actor.network, None if learner.critic is None else learner.critic.network)

    def start(self, learner: Learner) -> Server:
        return Server(self.parameters(learner))

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        learner = replace(learner, actor=replace(learner.actor, network=broadcast.actor))
        if learner.critic is None:
            return learner
        return replace(learner, critic=replace(learner.critic, network=broadcast.critic))

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        states = data.spread(MEASURED_STATES).observations
        policy = learner.actor(states)
        rows = data.length.astype(jnp.float32)
        metrics = {"policy_distance": distance(policy, broadcast.actor(states)), "rows": rows}
        log_weight = jnp.zeros(())
        if learner.critic is not None:
            metrics["value"] = learner.critic(states, policy.mode()).min(axis=0).mean()
            log_weight = self.value_weight * metrics["value"]
        return learner, Submission(self.parameters(learner), log_weight, metrics)

    def target(self, batch: Batch, next_value: Float[Array, " batch"]) -> Float[Array, " batch"]:
        """The empirical Bellman operator: r + gamma (1 - terminal) V(s')."""
        return batch.rewards + self.discount * (1.0 - batch.terminals) * next_value

    def aggregate(self, server: Server, submissions: Submission) -> Server:
        """eq. (aggregation): the weighted mean of the clients' parameters."""
        return replace(server, broadcast=weighted_mean(submissions.parameters, submissions.log_weight))

    def policy(self, broadcast: Broadcast) -> Any:
        return broadcast.actor

    def local_policy(self, learner: Learner) -> Any:
        return learner.actor.network

    def networks(self, parameters: Broadcast) -> Any:
        """Actor and critic. Other parameters depend on a client's data and may differ by any amount."""
        return parameters.actor, parameters.critic

    def data_changed(self, learner: Learner, rescale: Float[Array, ""]) -> Learner:
        """Called when a client's data was replaced, before the first step on the new data.

        `rescale` is the old unit of reward divided by the new one. A value in the old unit times `rescale` is the
        same value in the new unit.
        """
        return learner


def minibatches(batch: Batch, count: int) -> list[Batch]:
    """A batch cut into `count` equal parts."""
    fields, form = jax.tree.flatten(batch)
    return [jax.tree.unflatten(form, parts) for parts in zip(*(jnp.split(field, count) for field in fields))]


def weighted_mean(stacked: T, log_weights: Float[Array, " clients"]) -> T:
    """The mean over the leading axis with weights softmax(log_weights). A client of log-weight -inf does not count.

    The mean of several groups' means, each weighted by the logsumexp of its log-weights, is the mean of all. Large
    federations are averaged group by group in this way.
    """
    weights = jax.nn.softmax(log_weights)

    def mean(leaf: Float[Array, "clients ..."]) -> Float[Array, "..."]:
        share = weights.reshape(-1, *[1] * (leaf.ndim - 1))
        # A client without weight must not count even if it sent NaN, and 0 * NaN is NaN.
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
