"""Fed-IQL: implicit Q-learning at every client, plain averaging at the server.

Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning". A state value estimates an upper
expectile of Q over the data's actions, so that no action outside the data is scored. The policy is fitted by
advantage-weighted regression. Only the data's actions enter the losses, so the same code serves discrete actions.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, Model, replace
from fova.networks import MLP, CategoricalActor, Critic, GaussianActor, polyak
from fova.settings import Within
from fova.spaces import Box, Discrete, Space

MAX_WEIGHT = 100.0

# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Extra(eqx.Module):
    value: Model  # V(s), an MLP; federated with actor and critics


# --- The equations ----------------------------------------------------------------------------------------


def expectile_loss(difference: Float[Array, " batch"], expectile: float) -> Float[Array, ""]:
    """E[|expectile - 1(Q - V < 0)| (Q - V)^2]."""
    return jnp.mean(jnp.where(difference > 0, expectile, 1.0 - expectile) * jnp.square(difference))


def awr_loss(log_prob: Float[Array, " batch"], advantage: Float[Array, " batch"], beta: float) -> Float[Array, ""]:
    """-E[exp(beta (Q - V)) log pi(a|s)], the weight capped at 100."""
    return -jnp.mean(jnp.minimum(jnp.exp(beta * advantage), MAX_WEIGHT) * log_prob)


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FedIql(ActorCritic):
    """Fed-IQL: implicit Q-learning at every client, plain averaging at the server."""

    name: ClassVar[str] = "fed-iql"
    action_spaces: ClassVar[tuple[type, ...]] = (Box, Discrete)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "published": {"shared_std": True},
        # the help that the rivals get in docs/study-mixed-quality.md; a std for each state scores more on robots
        "layer-norm": {"critic_layer_norm": True},
    }

    actor: Literal["clipped", "squashed"] = "clipped"
    """Distribution of continuous actions: clipped (as in IQL) or squashed."""
    actor_lr: float = 3e-4
    """Adam's learning rate for the actor."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of all networks."""
    critic_layer_norm: bool = False
    """LayerNorm after each hidden layer of the critics and the value."""
    expectile: Annotated[float, Within(0, 1, above=True, below=True)] = 0.7
    """Which expectile of Q the value estimates; 0.5 is the mean, towards 1 the maximum."""
    beta: Annotated[float, Within(0)] = 3.0
    """Inverse temperature of the advantage weights."""

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        value_key, rest = jax.random.split(key)
        learner = super().init(rest, space)
        value = MLP(value_key, space.observation, self.hidden, 1, self.critic_layer_norm, self.initialisation)
        return replace(learner, extra=Extra(Model.start(value, self.critic_lr)))

    def parameters(self, learner: Learner) -> Broadcast:
        return replace(super().parameters(learner), extra=learner.extra.value.network)

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        value = replace(learner.extra.value, network=broadcast.extra)
        return replace(super().receive(learner, broadcast), extra=Extra(value))

    def networks(self, parameters: Broadcast) -> Any:
        return parameters.actor, parameters.critic, parameters.extra

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        rows = batch.for_critics
        q = self.target_q(learner, rows)
        value, advantage, value_metrics = self.update_value(learner, rows, q)
        if batch.uniform is not None:  # the actor clones other rows
            advantage = self.advantage(value, batch, self.target_q(learner, batch))
        actor, actor_metrics = self.update_actor(learner, batch, advantage)
        critic, critic_metrics = self.update_critics(learner, rows)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        return Learner(actor, critic, target_critic, Extra(value)), value_metrics | actor_metrics | critic_metrics

    def target_q(self, learner: Learner, batch: Batch) -> Float[Array, " batch"]:
        """The smaller Q of the target critics at the data's actions."""
        return learner.target_critic(batch.observations, batch.actions).min(axis=0)

    def advantage(self, value: Model, batch: Batch, q: Float[Array, " batch"]) -> Float[Array, " batch"]:
        """Q - V of the data's actions."""
        return q - value.network(batch.observations).squeeze(axis=1)

    def update_value(
        self, learner: Learner, batch: Batch, q: Float[Array, " batch"]
    ) -> tuple[Model, Float[Array, " batch"], Metrics]:
        """One step of V towards an upper expectile of Q. Returns the advantage Q - V after the step, too."""

        def loss(value: MLP) -> Float[Array, ""]:
            return expectile_loss(q - value(batch.observations).squeeze(axis=1), self.expectile)

        value, objective, _ = learner.extra.value.descend(loss)
        advantage = self.advantage(value, batch, q)
        return value, advantage, {"advantage": advantage.mean(), "value_loss": objective}

    def update_actor(
        self, learner: Learner, batch: Batch, advantage: Float[Array, " batch"]
    ) -> tuple[Model, Metrics]:
        """One step of advantage-weighted regression."""

        def loss(actor: GaussianActor | CategoricalActor) -> Float[Array, ""]:
            return awr_loss(actor(batch.observations).log_prob(batch.actions), advantage, self.beta)

        actor, objective, _ = learner.actor.descend(loss)
        return actor, {"actor_loss": objective}

    def update_critics(self, learner: Learner, batch: Batch) -> tuple[Model, Metrics]:
        """One step of both critics towards r + gamma V(s'), with V before its own step."""
        next_v = learner.extra.value(batch.next_observations).squeeze(axis=1)
        y = self.target(batch, next_v)

        def loss(critic: Critic) -> tuple[Float[Array, ""], Float[Array, "2 batch"]]:
            q = critic(batch.observations, batch.actions)
            return jnp.square(q - y).mean(axis=1).sum(), q

        critic, objective, q = learner.critic.descend(loss, has_aux=True)
        metrics = {"q_data": q.mean(), "td_error": jnp.abs(q - y).mean(), "critic_loss": objective}
        return critic, metrics
