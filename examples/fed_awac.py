"""An algorithm of your own in one file: federated AWAC, which weights cloning by the advantage of the data action.

    fova train --algorithm examples/fed_awac.py --task maze2d-umaze --clients expert random

Nair et al., "AWAC: Accelerating Online Reinforcement Learning with Offline Datasets". `ActorCritic` provides
networks, optimisers and messages, so that only `step` is written here. Every field of the dataclass is a flag of
the command line; the text below the field is its help.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics
from fova.networks import polyak


@dataclass(frozen=True)
class FedAwac(ActorCritic):
    """AWAC at every client, plain averaging at the server."""

    name: ClassVar[str] = "fed-awac"

    temperature: float = 1.0
    """Temperature of the weights exp(advantage / temperature). Large values mean plain behaviour cloning."""

    def step(self, learner: Learner, broadcast: Broadcast, batch: Batch, key: jax.Array) -> tuple[Learner, Metrics]:
        local_key, next_key = jax.random.split(key)

        # --- Critics: the target is the value of the policy's action at s' ---
        rows = batch.for_critics  # all rows alike, also with --sampling returns
        s, a, next_s = rows.observations, rows.actions, rows.next_observations
        a_next = learner.actor(next_s).sample(next_key)
        y = self.target(batch, learner.target_critic(next_s, a_next).min(axis=0))

        def critic_loss(critic):
            return jnp.square(critic(s, a) - y).mean(axis=1).sum()

        critic, critic_objective, _ = learner.critic.descend(critic_loss)

        # --- Actor: cloning, weighted by the advantage of the data's action over the policy's ---
        s, a = batch.observations, batch.actions
        q = learner.critic(s, a)
        v = learner.critic(s, learner.actor(s).sample(local_key)).min(axis=0)
        weight = jnp.minimum(jnp.exp((q.min(axis=0) - v) / self.temperature), 100.0)

        def actor_loss(actor):
            return -jnp.mean(weight * actor(s).log_prob(a))

        actor, actor_objective, _ = learner.actor.descend(actor_loss)

        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        metrics = {"critic_loss": critic_objective, "actor_loss": actor_objective, "weight": weight.mean()}
        return Learner(actor, critic, target_critic), metrics
