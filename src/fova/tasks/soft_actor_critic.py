"""Soft actor-critic: the algorithm that trains behaviour policies, on the base class of the offline algorithms.

Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", with automatic temperature. No environment, file
or clock access here: `behaviour.py` runs the environments and writes the files.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Learner, Metrics, Model, minibatches, replace
from fova.algorithms.cql import sac_actor_loss
from fova.networks import ActorKind, GaussianActor, Initialisation, TwinCritic, make_actor, polyak
from fova.spaces import Space

# --- The equations ----------------------------------------------------------------------------------------


def soft_value(
    q: Float[Array, "2 batch"], log_prob: Float[Array, " batch"], temperature: Float[Array, ""]
) -> Float[Array, " batch"]:
    """min_i Q_i(s, a) - T log pi(a|s), a ~ pi(.|s)."""
    return q.min(axis=0) - temperature * log_prob


def critic_loss(q: Float[Array, "2 batch"], y: Float[Array, " batch"]) -> Float[Array, ""]:
    """1/2 E[(Q_i(s, a) - y)^2], summed over the two critics."""
    return 0.5 * jnp.square(q - y).mean(axis=1).sum()


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, " batch"], action_size: int
) -> Float[Array, ""]:
    """-T E[log pi(a|s) + H], H = -dim(A): the temperature falls while the entropy exceeds H."""
    return -jnp.exp(log_temperature) * jnp.mean(log_prob - action_size)


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftActorCritic(ActorCritic):
    """SAC. One `step` takes `critic_updates` steps of the critics and one of actor and temperature.

    `Learner.extra` is the logarithm of the temperature, as a `Model`. It follows the published objective, whose
    gradient has a factor T that `fova.algorithms.base.Temperature` leaves out.
    """

    name: ClassVar[str] = "sac"

    actor: ActorKind = "squashed"
    """Distribution of the actions."""
    initialisation: Initialisation = "orthogonal"
    """Initial weights of the networks."""
    critic_hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the critics' hidden layers; `hidden` is for the actor."""
    critic_updates: int = 1
    """Critic updates per update of actor and temperature, each on a minibatch of its own."""

    @property
    def stride(self) -> int:
        return self.critic_updates

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        """Fresh networks and a temperature of 1."""
        self.check_space(space)
        actor_key, critic_key = jax.random.split(key)
        actor = make_actor(actor_key, space, self.actor, self.hidden, self.actor_layer_norm, self.initialisation)
        critic = TwinCritic(critic_key, space, self.critic_hidden, self.critic_layer_norm, self.initialisation)
        return Learner(
            actor=Model.start(actor, self.actor_lr),
            critic=Model.start(critic, self.critic_lr),
            target_critic=jax.tree.map(jnp.copy, critic),  # a separate buffer, because `learn` donates both
            extra=Model.start(jnp.zeros(()), self.actor_lr),
        )

    def with_learning_rates(self, learner: Learner) -> Learner:
        """The learner with this algorithm's learning rates."""
        return Learner(
            actor=dataclasses.replace(learner.actor, learning_rate=self.actor_lr),
            critic=dataclasses.replace(learner.critic, learning_rate=self.critic_lr),
            target_critic=learner.target_critic,
            extra=dataclasses.replace(learner.extra, learning_rate=self.actor_lr),
        )

    def step(self, learner: Learner, broadcast: Any, batch: Batch, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        """Update the critics on every minibatch, and actor and temperature on the last."""
        *critic_keys, actor_key = jax.random.split(key, self.critic_updates + 1)
        for minibatch, critic_key in zip(minibatches(batch, self.critic_updates), critic_keys):
            learner = self.update_critics(learner, minibatch, critic_key)
        return self.update_actor(learner, minibatch, actor_key), {}

    def update_critics(self, learner: Learner, batch: Batch, key: PRNGKeyArray) -> Learner:
        """One gradient step of the critics, then one Polyak step of the target critics towards them."""
        next_a, log_prob = learner.actor(batch.next_observations).sample_with_log_prob(key)
        next_q = learner.target_critic(batch.next_observations, next_a)
        y = self.target(batch, soft_value(next_q, log_prob, jnp.exp(learner.extra.network)))

        def loss(critic: TwinCritic) -> Float[Array, ""]:
            return critic_loss(critic(batch.observations, batch.actions), y)

        critic, _, _ = learner.critic.descend(loss)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        return replace(learner, critic=critic, target_critic=target_critic)

    def update_actor(self, learner: Learner, batch: Batch, key: PRNGKeyArray) -> Learner:
        """One step of the actor, and one of the temperature."""
        s, temperature = batch.observations, jnp.exp(learner.extra.network)

        def loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            a, log_prob = actor(s).sample_with_log_prob(key)
            return sac_actor_loss(temperature, log_prob, learner.critic(s, a).min(axis=0)), log_prob

        actor, _, log_prob = learner.actor.descend(loss, has_aux=True)
        extra, _, _ = learner.extra.descend(lambda log: temperature_loss(log, log_prob, batch.actions.shape[-1]))
        return replace(learner, actor=actor, extra=extra)


@partial(jax.jit, static_argnames="algorithm", donate_argnames="learner")
def learn(learner: Learner, batches: Batch, key: PRNGKeyArray, algorithm: SoftActorCritic) -> Learner:
    """Run one `step` for each of a stack of batches, [steps, stride * batch_size, ...]."""

    def step(learner: Learner, drawn: tuple[Batch, PRNGKeyArray]) -> tuple[Learner, None]:
        batch, key = drawn
        return algorithm.step(learner, None, batch, key)[0], None

    keys = jax.random.split(key, len(batches.rewards))
    return jax.lax.scan(step, learner, (batches, keys))[0]
