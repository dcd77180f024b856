"""An algorithm of your own in one file: federated AWAC, which weighs cloning by the advantage of the data's action.

    fova train --algorithm examples/fed_awac.py --task maze2d-umaze --clients expert random

Deriving from `ActorCritic` brings networks, optimisers and messages; only `step` is written here. Every field of
the dataclass is a flag of the command line, with the line below it as its help.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, descend, target
from fova.networks import polyak


@dataclass(frozen=True)
class FedAwac(ActorCritic):
    """AWAC at every client, plain averaging at the server."""

    name: ClassVar[str] = "fed-awac"

    temperature: float = 1.0
    """How sharply cloning prefers actions with a higher Q than the policy's own."""

    def step(self, learner: Learner, broadcast: Broadcast, batch: Batch, key: jax.Array) -> tuple[Learner, Metrics]:
        s, a = batch.observations, batch.actions
        here_key, next_key = jax.random.split(key)

        # --- Critics: the policy's own value at s' ---
        a_next = learner.actor(batch.next_observations).sample(next_key)
        next_value = learner.slow_critic(batch.next_observations, a_next).min(axis=0)
        y = target(batch.rewards, batch.terminals, next_value, self.discount)

        def critic_loss(critic):
            q = critic(s, a)
            return jnp.square(q - y).mean(axis=1).sum(), q

        (critic_objective, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(learner.critic)
        critic, critic_moments = descend(self.critic_lr, learner.critic, gradient, learner.critic_moments)

        # --- Actor: cloning weighted by advantage ---
        own_value = learner.critic(s, learner.actor(s).sample(here_key)).min(axis=0)
        weight = jnp.minimum(jnp.exp((q.min(axis=0) - own_value) / self.temperature), 100.0)

        def actor_loss(actor):
            return -jnp.mean(weight * actor(s).log_prob(a))

        actor_objective, gradient = jax.value_and_grad(actor_loss)(learner.actor)
        actor, actor_moments = descend(self.actor_lr, learner.actor, gradient, learner.actor_moments)

        slow_critic = polyak(learner.slow_critic, critic, self.tau)
        metrics = {"critic_loss": critic_objective, "actor_loss": actor_objective, "weight": weight.mean()}
        return Learner(actor, critic, slow_critic, actor_moments, critic_moments), metrics
