"""Fed-TD3BC: TD3+BC at every client, plain averaging at the server.

Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning": TD3 whose actor also clones the data,
with a weight on Q that makes the two comparable whatever the rewards' scale.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import (
    ActorCritic,
    Batch,
    Broadcast,
    Learner,
    Metrics,
    descend,
    minibatches,
    replace,
    target,
)
from fova.networks import DeterministicActor, TwinCritic, polyak
from fova.spaces import Space

# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Extra(eqx.Module):
    slow_actor: DeterministicActor


# --- The equations ----------------------------------------------------------------------------------------


def smoothed_action(
    actor: DeterministicActor,
    observation: Float[Array, "batch observation"],
    key: PRNGKeyArray,
    noise: float,
    clip: float,
) -> Float[Array, "batch action"]:
    """Target policy smoothing: the slow actor's action with clipped Gaussian noise."""
    action = actor(observation).mode()
    return jnp.clip(action + jnp.clip(noise * jax.random.normal(key, action.shape), -clip, clip), -1.0, 1.0)


def critic_loss(q: Float[Array, "2 batch"], y: Float[Array, " batch"]) -> Float[Array, ""]:
    """E[(Q_1(s,a) - y)^2] + E[(Q_2(s,a) - y)^2]."""
    return jnp.square(q - y).mean(axis=1).sum()


def q_term(q: Float[Array, " batch"], weight: float) -> Float[Array, ""]:
    """weight * E[Q(s, pi(s))] / E|Q(s, pi(s))|, the divisor without gradient."""
    return weight * q.mean() / jax.lax.stop_gradient(jnp.abs(q).mean())


def cloning_loss(action: Float[Array, "batch action"], other: Float[Array, "batch action"]) -> Float[Array, ""]:
    """The mean squared difference of two actions."""
    return jnp.square(action - other).mean()


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FedTd3Bc(ActorCritic):
    """Fed-TD3BC: TD3+BC at every client, plain averaging at the server."""

    name: ClassVar[str] = "fed-td3bc"

    actor: Literal["deterministic"] = "deterministic"
    """TD3's policies are deterministic."""
    actor_lr: float = 3e-4
    """Adam's learning rate for the actor."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    critic_layer_norm: bool = False
    """LayerNorm after each hidden layer of the critics."""
    q_weight: float = 2.5
    """Weight of the normalised Q against cloning."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions."""
    noise_clip: float = 0.5
    """Largest noise on target actions."""
    policy_delay: int = 2
    """Critic steps for every step of the actor and the slow networks."""

    @property
    def stride(self) -> int:
        return self.policy_delay

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        learner = super().init(key, space)
        return replace(learner, extra=self.carried(learner))

    def carried(self, learner: Learner) -> Any:
        return Extra(slow_actor=learner.actor)

    def next_value(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        """min_i of the slow critics at the smoothed action of the slow actor."""
        a_next = smoothed_action(
            learner.extra.slow_actor, batch.next_observations, key, self.target_noise, self.noise_clip
        )
        return learner.slow_critic(batch.next_observations, a_next).min(axis=0)

    def actor_loss(
        self,
        learner: Learner,
        broadcast: Broadcast,
        batch: Batch,
        action: Float[Array, "batch action"],
        q: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """E[(pi(s) - a)^2] minus the normalised Q."""
        return cloning_loss(action, batch.actions) - q_term(q, self.q_weight)

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        # --- Critics: one step on each minibatch ---
        for number, part in enumerate(minibatches(batch, self.policy_delay)):
            value = self.next_value(learner, broadcast, part, jax.random.fold_in(key, number))
            y = target(part.rewards, part.terminals, value, self.discount)

            def loss(critic: TwinCritic, part: Batch = part, y: Float[Array, " batch"] = y) -> tuple[Any, Any]:
                q = critic(part.observations, part.actions)
                return critic_loss(q, y), q

            (critic_objective, q), gradient = jax.value_and_grad(loss, has_aux=True)(learner.critic)
            critic, moments = descend(self.critic_lr, learner.critic, gradient, learner.critic_moments)
            learner = replace(learner, critic=critic, critic_moments=moments)

        # --- Actor: one step on the last minibatch ---
        def negative_objective(actor: DeterministicActor) -> Float[Array, ""]:
            action = actor(part.observations).mode()
            return self.actor_loss(learner, broadcast, part, action, learner.critic(part.observations, action)[0])

        actor_objective, gradient = jax.value_and_grad(negative_objective)(learner.actor)
        actor, moments = descend(self.actor_lr, learner.actor, gradient, learner.actor_moments)

        # --- Slow networks ---
        slow_actor = polyak(learner.extra.slow_actor, actor, self.tau)
        learner = replace(
            learner,
            actor=actor,
            actor_moments=moments,
            slow_critic=polyak(learner.slow_critic, learner.critic, self.tau),
            extra=replace(learner.extra, slow_actor=slow_actor),
        )
        metrics = {
            "q_data": q.mean(),
            "td_error": jnp.abs(q - y).mean(),
            "critic_loss": critic_objective,
            "actor_loss": actor_objective,
        }
        return learner, metrics
