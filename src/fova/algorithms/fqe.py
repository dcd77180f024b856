"""Federated fitted Q evaluation: the value of a given policy, fitted across clients without moving their data.

Le, Voloshin and Yue, "Batch Policy Learning under Constraints". Every client fits critics of a frozen policy to its
own transitions, and the server averages them. Nothing is improved. The policy does not change, so a client computes
its actions once, before the first round: `next_actions` of the data are those of the policy, not of the log.

Several critics are fitted at once. Each has its own first weights, its own minibatches and its own target network,
so they are as many independent repetitions of the method, and their spread says how far its result depends on
chance.

Values are per step: a critic estimates (1 - gamma) Q(s, a), a weighted mean of future rewards, so its scale is that
of a reward whatever gamma is. Divide by (1 - gamma) for the discounted return.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import (
    MEASURED_STATES,
    ActorCritic,
    Batch,
    Broadcast,
    Data,
    Learner,
    Metrics,
    Model,
    RewardUnit,
    Submission,
    replace,
)
from fova.networks import MLP, Initialisation, polyak, taken
from fova.settings import LARGEST, Within
from fova.spaces import Box, Discrete, Space

# --- The critics ------------------------------------------------------------------------------------------


class Critics(eqx.Module):
    """Independent critics, stacked along the leading axis of one pytree."""

    net: MLP
    discrete: bool = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        space: Space,
        count: int,
        hidden: tuple[int, ...],
        layer_norm: bool,
        initialisation: Initialisation,
    ) -> None:
        # A critic of discrete actions takes the observation alone and has one output for each action.
        self.discrete = isinstance(space.action, Discrete)
        inputs = space.observation + (0 if self.discrete else space.action.size)
        outputs = space.action.count if isinstance(space.action, Discrete) else 1

        def one(member: PRNGKeyArray) -> MLP:
            return MLP(member, inputs, hidden, outputs, layer_norm, initialisation)

        self.net = jax.vmap(one)(jax.random.split(key, count))

    def __call__(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "batch action"]
    ) -> Float[Array, "critics batch"]:
        """Every critic's value of each action at its observation."""
        return jax.vmap(self._value, (0, None, None))(self.net, observation, action)

    def each(
        self,
        observation: Float[Array, "critics batch observation"],
        action: Float[Array, "critics batch action"],
    ) -> Float[Array, "critics batch"]:
        """Every critic's values on a minibatch of its own."""
        return jax.vmap(self._value)(self.net, observation, action)

    def _value(
        self, net: MLP, observation: Float[Array, "batch observation"], action: Float[Array, "batch action"]
    ) -> Float[Array, " batch"]:
        if self.discrete:
            return taken(net(observation), action)
        return net(jnp.concatenate([observation, action], axis=1)).squeeze(axis=1)


# --- The equations ----------------------------------------------------------------------------------------


def target(
    reward: Float[Array, "..."], terminal: Float[Array, "..."], next_value: Float[Array, "..."], discount: float
) -> Float[Array, "..."]:
    """(1 - gamma) r + gamma (1 - terminal) v(s', pi(s')): the Bellman operator of the policy, for values per step.

    A time limit is no end: what follows it is bootstrapped.
    """
    return (1.0 - discount) * reward + discount * (1.0 - terminal) * next_value


def loss_of(error: Float[Array, "..."], huber: float) -> Float[Array, "..."]:
    """Half the square of an error; linear beyond `huber`, which 0 switches off."""
    square = 0.5 * jnp.square(error)
    if not huber:
        return square
    size = jnp.abs(error)
    return jnp.where(size <= huber, square, huber * (size - 0.5 * huber))


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fqe(ActorCritic):
    """Federated fitted Q evaluation: the value of a given policy. `fova judge` uses it; it trains no policy."""

    name: ClassVar[str] = "fqe"
    evaluates: ClassVar[bool] = True
    """It needs a policy to evaluate, so `fova train` does not offer it."""
    action_spaces: ClassVar[tuple[type, ...]] = (Box, Discrete)
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    critics: Annotated[int, Within(1, 100)] = 5
    """Critics with their own first weights and minibatches; their spread is part of the interval."""
    huber: Annotated[float, Within(0)] = 1.0
    """Error, in units of reward, beyond which the loss is linear; 0 is the squared loss."""
    lowest: float = -LARGEST
    """Least target: a value per step is a weighted mean of rewards, so it is never below all of them."""
    highest: float = LARGEST
    """Largest target."""
    tau: Annotated[float, Within(0, 1)] = 0.2
    """Share of the current critics that the target critics take over at every step."""
    hidden: Annotated[tuple[int, ...], Within(1, 65_536)] = (64, 64)
    """Widths of the hidden layers of the critics."""

    @property
    def stride(self) -> int:
        """A step takes one gradient step of every critic, each on a minibatch of its own."""
        return self.critics

    @property
    def reward_unit(self) -> RewardUnit:
        return "federation"

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        self.check_space(space)
        critics = Critics(key, space, self.critics, self.hidden, self.critic_layer_norm, self.initialisation)
        return Learner(None, Model.start(critics, self.critic_lr), critics)

    def parameters(self, learner: Learner) -> Broadcast:
        return Broadcast(None, learner.critic.network)

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        return replace(learner, critic=replace(learner.critic, network=broadcast.critic))

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        # --- The target: the policy acts from s' on ---
        each = jax.tree.map(lambda field: field.reshape(self.critics, -1, *field.shape[1:]), batch)
        next_value = learner.target_critic.each(each.next_observations, each.next_actions)
        y = target(each.rewards, each.terminals, next_value, self.discount)
        y = jnp.clip(y, self.lowest, self.highest)

        # --- One step of every critic towards it ---
        def loss(critics: Critics) -> tuple[Float[Array, ""], Float[Array, "critics batch"]]:
            value = critics.each(each.observations, each.actions)
            return loss_of(value - y, self.huber).mean(axis=1).sum(), value

        critic, objective, value = learner.critic.descend(loss, has_aux=True)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        metrics = {
            "critic_loss": objective / self.critics,
            "q_data": value.mean(),
            "td_error": jnp.abs(value - y).mean(),
        }
        return Learner(learner.actor, critic, target_critic), metrics

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        """The critics count by the rows they were fitted to, so that the mean is that of the pooled data."""
        measured = data.spread(MEASURED_STATES)
        rows = data.length.astype(jnp.float32)
        value = learner.critic(measured.next_observations, measured.next_actions).mean()
        return learner, Submission(self.parameters(learner), jnp.log(rows), {"rows": rows, "value": value})

    def networks(self, parameters: Broadcast) -> Any:
        return parameters.critic
