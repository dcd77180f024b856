"""CQL-FL: conservative Q-learning at every client, plain averaging at the server.

Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", the variant CQL(H) on soft actor-critic:
a soft maximum of Q over sampled actions is pushed down, the data's Q up.
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
    Temperature,
    clip_gradient,
    descend,
    replace,
    target,
)
from fova.networks import Clipped, GaussianActor, Squashed, TwinCritic, polyak
from fova.spaces import Space

# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Extra(eqx.Module):
    temperature: Temperature


# --- The equations ----------------------------------------------------------------------------------------


def soft_maximum(
    q: Float[Array, "2 sample batch"], log_density: Float[Array, "sample batch"]
) -> Float[Array, "2 batch"]:
    """log sum exp over samples of Q minus the log-density each was drawn with: importance-weighted."""
    return jax.nn.logsumexp(q - log_density, axis=1)


def cql_loss(
    q_data: Float[Array, "2 batch"], y: Float[Array, " batch"], pushed_down: Float[Array, "2 batch"], alpha: float
) -> Float[Array, ""]:
    """Both critics added: E[(Q - y)^2] + alpha (E[soft maximum of Q] - E[Q])."""
    return jnp.sum(jnp.square(q_data - y).mean(axis=1) + alpha * (pushed_down - q_data).mean(axis=1))


def sac_actor_loss(
    temperature: Float[Array, ""], log_prob: Float[Array, " batch"], q: Float[Array, " batch"]
) -> Float[Array, ""]:
    """E[T log pi(a_l|s) - min_i Q_i(s, a_l)]."""
    return jnp.mean(temperature * log_prob - q)


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CqlFl(ActorCritic):
    """CQL-FL: CQL(H) at every client, plain averaging at the server."""

    name: ClassVar[str] = "cql-fl"

    actor: Literal["clipped", "squashed"] = "squashed"
    """How the actor turns a state into actions: squashed (tanh of a Gaussian) or clipped."""
    critic_layer_norm: bool = False
    """LayerNorm after each hidden layer of the critics."""
    alpha: float = 5.0
    """Weight of the conservative term."""
    samples: int = 10
    """Actions sampled from each source (the policy at s, the policy at s', uniform)."""
    gradient_clip: float = 0.0
    """Largest norm of the actor's gradient; 0 does not clip."""

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        return replace(super().init(key, space), extra=Extra(Temperature.start(self.actor_lr)))

    def imitation(
        self, policy: Squashed | Clipped, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """What is added to SAC's actor loss: nothing in CQL."""
        return jnp.zeros(())

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        s, a, next_s = batch.observations, batch.actions, batch.next_observations
        local_key, next_key, here_key, there_key, uniform_key, other_key = jax.random.split(key, 6)
        policy, next_policy = learner.actor(s), learner.actor(next_s)
        temperature = learner.extra.temperature

        # --- Critics ---
        next_q = learner.slow_critic(next_s, next_policy.sample(next_key)).min(axis=0)
        y = target(batch.rewards, batch.terminals, next_q, self.discount)
        here, log_here = sample_many(policy, here_key, self.samples)
        there, log_there = sample_many(next_policy, there_key, self.samples)
        uniform = jax.random.uniform(uniform_key, here.shape, minval=-1.0, maxval=1.0)
        log_uniform = jnp.full_like(log_here, -a.shape[-1] * jnp.log(2.0))
        scored = jnp.concatenate([a[None], here, there, uniform])  # all at s, in one call

        def critic_loss(critic: TwinCritic) -> tuple[Float[Array, ""], Any]:
            q = critic(s, scored)
            pushed_down = soft_maximum(q[:, 1:], jnp.concatenate([log_here, log_there, log_uniform]))
            return cql_loss(q[:, 0], y, pushed_down, self.alpha), (q[:, 0], pushed_down - q[:, 0])

        (critic_objective, (q, gap)), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(
            learner.critic
        )

        # --- Actor ---
        def actor_loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = actor(s)
            a_l, log_prob = policy.sample_with_log_prob(local_key)
            loss = sac_actor_loss(jnp.exp(temperature.log), log_prob, learner.critic(s, a_l).min(axis=0))
            return loss + self.imitation(policy, broadcast, batch, other_key), log_prob

        (actor_objective, log_prob), actor_gradient = jax.value_and_grad(actor_loss, has_aux=True)(learner.actor)
        if self.gradient_clip:
            actor_gradient = clip_gradient(actor_gradient, self.gradient_clip)

        # --- Updates ---
        actor, actor_moments = descend(self.actor_lr, learner.actor, actor_gradient, learner.actor_moments)
        critic, critic_moments = descend(self.critic_lr, learner.critic, critic_gradient, learner.critic_moments)
        slow_critic = polyak(learner.slow_critic, critic, self.tau)
        temperature = temperature.follow(log_prob, target=-a.shape[-1], learning_rate=self.actor_lr)
        metrics = {
            "q_data": q.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q - y).mean(),
            "entropy": -log_prob.mean(),
            "critic_loss": critic_objective,
            "actor_loss": actor_objective,
        }
        return Learner(actor, critic, slow_critic, actor_moments, critic_moments, Extra(temperature)), metrics


def sample_many(
    policy: Squashed | Clipped, key: PRNGKeyArray, count: int
) -> tuple[Float[Array, "sample batch action"], Float[Array, "sample batch"]]:
    """`count` actions per state with their log-densities."""
    return jax.vmap(policy.sample_with_log_prob)(jax.random.split(key, count))
