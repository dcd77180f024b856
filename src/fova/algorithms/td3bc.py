"""Fed-TD3BC: TD3+BC at every client, plain averaging at the server.

Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning": TD3 whose actor also clones the data.
The weight of Q is divided by the mean |Q|, so that it does not depend on the scale of the rewards.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, Model, minibatches, replace
from fova.networks import DeterministicActor, TwinCritic, polyak
from fova.settings import Within
from fova.spaces import Space

# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Extra(eqx.Module):
    target_actor: DeterministicActor


# --- The equations ----------------------------------------------------------------------------------------


def smoothed_action(
    actor: DeterministicActor,
    observation: Float[Array, "batch observation"],
    key: PRNGKeyArray,
    noise: float,
    clip: float,
) -> Float[Array, "batch action"]:
    """Target policy smoothing: the target actor's action with clipped Gaussian noise."""
    action = actor(observation).mode()
    return jnp.clip(action + jnp.clip(noise * jax.random.normal(key, action.shape), -clip, clip), -1.0, 1.0)


def critic_loss(q: Float[Array, "2 batch"], y: Float[Array, " batch"]) -> Float[Array, ""]:
    """E[(Q_1(s,a) - y)^2] + E[(Q_2(s,a) - y)^2]."""
    return jnp.square(q - y).mean(axis=1).sum()


def q_term(q: Float[Array, " batch"], weight: float) -> Float[Array, ""]:
    """weight * E[Q(s, pi(s))] / E|Q(s, pi(s))|, without a gradient through the divisor."""
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
    q_weight: Annotated[float, Within(0)] = 2.5
    """Weight of the normalised Q against cloning."""
    target_noise: Annotated[float, Within(0)] = 0.2
    """Standard deviation of the noise on target actions."""
    noise_clip: Annotated[float, Within(0)] = 0.5
    """Largest noise on target actions."""
    policy_delay: Annotated[int, Within(1, 100)] = 2
    """Critic steps for every step of the actor and the target networks."""

    @property
    def stride(self) -> int:
        return self.policy_delay

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        learner = super().init(key, space)
        return replace(learner, extra=self.first_extra(learner.actor.network))

    def first_extra(self, actor: DeterministicActor) -> Any:
        """What a client carries beyond the skeleton before its first step."""
        return Extra(target_actor=actor)

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        # --- One step of the critics on each minibatch ---
        for number, part in enumerate(minibatches(batch, self.policy_delay)):
            critic, critic_metrics = self.update_critics(
                learner, broadcast, part.for_critics, jax.random.fold_in(key, number)
            )
            learner = replace(learner, critic=critic)

        # --- One step of the actor on the last minibatch, then the target networks ---
        actor, actor_metrics = self.update_actor(learner, broadcast, part)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        target_actor = polyak(learner.extra.target_actor, actor.network, self.tau)
        extra = replace(learner.extra, target_actor=target_actor)
        return Learner(actor, critic, target_critic, extra), critic_metrics | actor_metrics

    def update_critics(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Model, Metrics]:
        """One step of both critics towards the target."""
        next_q = self.next_q(learner, broadcast, batch, key)
        y = self.target(batch, next_q)

        def loss(critic: TwinCritic) -> tuple[Float[Array, ""], Float[Array, "2 batch"]]:
            q = critic(batch.observations, batch.actions)
            return critic_loss(q, y), q

        critic, objective, q = learner.critic.descend(loss, has_aux=True)
        metrics = {"q_data": q.mean(), "td_error": jnp.abs(q - y).mean(), "critic_loss": objective}
        return critic, metrics

    def next_q(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        """The smaller Q of the target critics at the smoothed action of the target actor."""
        next_s = batch.next_observations
        a_next = smoothed_action(learner.extra.target_actor, next_s, key, self.target_noise, self.noise_clip)
        return learner.target_critic(next_s, a_next).min(axis=0)

    def update_actor(self, learner: Learner, broadcast: Broadcast, batch: Batch) -> tuple[Model, Metrics]:
        """One step of the actor under the critics as they are after their own steps."""
        s = batch.observations

        def loss(actor: DeterministicActor) -> Float[Array, ""]:
            action = actor(s).mode()
            return self.actor_loss(learner, broadcast, batch, action, learner.critic.network.first(s, action))

        actor, objective, _ = learner.actor.descend(loss)
        return actor, {"actor_loss": objective}

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
