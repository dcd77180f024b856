"""CQL-FL: conservative Q-learning at every client, plain averaging at the server.

Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", the variant CQL(H) on soft actor-critic:
the critics push down a soft maximum of Q over sampled actions and push up the Q of the data's actions.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, Model, Temperature, replace
from fova.networks import Clipped, GaussianActor, Squashed, TwinCritic, polyak
from fova.settings import Within
from fova.spaces import Space

# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Extra(eqx.Module):
    temperature: Temperature


# --- The equations ----------------------------------------------------------------------------------------


def sample_many(
    policy: Squashed | Clipped, key: PRNGKeyArray, count: int
) -> tuple[Float[Array, "sample batch action"], Float[Array, "sample batch"]]:
    """`count` actions per state with their log-densities."""
    return jax.vmap(policy.sample_with_log_prob)(jax.random.split(key, count))


def soft_maximum(
    q: Float[Array, "2 sample batch"], log_density: Float[Array, "sample batch"]
) -> Float[Array, "2 batch"]:
    """log sum exp over samples of Q minus the log-density of the sample."""
    return jax.nn.logsumexp(q - log_density, axis=1)


def cql_loss(
    q_data: Float[Array, "2 batch"], y: Float[Array, " batch"], gap: Float[Array, "2 batch"], alpha: float
) -> Float[Array, ""]:
    """The sum over both critics of E[(Q - y)^2] + alpha E[soft maximum of Q - Q]."""
    return jnp.sum(jnp.square(q_data - y).mean(axis=1) + alpha * gap.mean(axis=1))


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
    """Distribution of continuous actions: squashed (tanh of a Gaussian) or clipped."""
    critic_layer_norm: bool = False
    """LayerNorm after each hidden layer of the critics."""
    alpha: Annotated[float, Within(0)] = 5.0
    """Weight of the conservative term."""
    samples: Annotated[int, Within(1, 1_000)] = 10
    """Actions sampled from each source (the policy at s, the policy at s', uniform)."""
    gradient_clip: Annotated[float, Within(0)] = 0.0
    """Largest norm of the actor's gradient; 0 does not clip."""

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        return replace(super().init(key, space), extra=Extra(Temperature.start(self.actor_lr)))

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        local_key, *critic_keys, imitation_key = jax.random.split(key, 6)
        critic, critic_metrics = self.update_critics(learner, batch, critic_keys)
        actor, temperature, actor_metrics = self.update_actor(learner, broadcast, batch, local_key, imitation_key)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        learner = Learner(actor, critic, target_critic, Extra(temperature))
        return learner, critic_metrics | actor_metrics

    def update_critics(self, learner: Learner, batch: Batch, keys: list[PRNGKeyArray]) -> tuple[Model, Metrics]:
        """One step of both critics on the conservative objective."""
        s, a, next_s = batch.observations, batch.actions, batch.next_observations
        next_key, here_key, there_key, uniform_key = keys
        policy, next_policy = learner.actor(s), learner.actor(next_s)

        # --- Target: the policy's action at s' under the target critics ---
        next_q = learner.target_critic(next_s, next_policy.sample(next_key)).min(axis=0)
        y = self.target(batch, next_q)

        # --- Actions of the soft maximum, all scored at s ---
        here, log_here = sample_many(policy, here_key, self.samples)
        there, log_there = sample_many(next_policy, there_key, self.samples)
        uniform = jax.random.uniform(uniform_key, here.shape, minval=-1.0, maxval=1.0)
        log_uniform = jnp.full_like(log_here, -a.shape[-1] * jnp.log(2.0))
        actions = jnp.concatenate([a[None], here, there, uniform])
        log_density = jnp.concatenate([log_here, log_there, log_uniform])

        def loss(critic: TwinCritic) -> tuple[Float[Array, ""], tuple[Array, Array]]:
            q = critic(s, actions)
            q_data = q[:, 0]
            gap = soft_maximum(q[:, 1:], log_density) - q_data
            return cql_loss(q_data, y, gap, self.alpha), (q_data, gap)

        critic, objective, (q_data, gap) = learner.critic.descend(loss, has_aux=True)
        metrics = {
            "q_data": q_data.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q_data - y).mean(),
            "critic_loss": objective,
        }
        return critic, metrics

    def update_actor(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray, imitation_key: PRNGKeyArray
    ) -> tuple[Model, Temperature, Metrics]:
        """One step of the actor on SAC's objective, and one of the temperature."""
        s, temperature = batch.observations, learner.extra.temperature

        def loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = actor(s)
            a_l, log_prob = policy.sample_with_log_prob(key)
            q_local = learner.critic(s, a_l).min(axis=0)
            objective = sac_actor_loss(temperature.value, log_prob, q_local)
            return objective + self.imitation(policy, broadcast, batch, imitation_key), log_prob

        actor, objective, log_prob = learner.actor.descend(loss, has_aux=True, clip=self.gradient_clip)
        temperature = temperature.follow(log_prob, target=-batch.actions.shape[-1])
        return actor, temperature, {"entropy": -log_prob.mean(), "actor_loss": objective}

    def imitation(
        self, policy: Squashed | Clipped, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The term that is added to SAC's actor loss: 0 in CQL."""
        return jnp.zeros(())
