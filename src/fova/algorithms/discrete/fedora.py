"""FEDORA for discrete actions: a categorical actor, and exact sums over actions.

Read it beside `fova.algorithms.fedora`. The publication has continuous actions only; this is its counterpart:

- An expectation over the policy's action is a sum over all actions. Target smoothing has no counterpart.
- Cloning and both pulls, squared differences of actions there, are Kullback-Leibler divergences from the policy.
  For Gaussians of one spread they are the same up to a factor.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import Batch, Broadcast, Data, Learner, Metrics, Model
from fova.algorithms.fedora import Fedora
from fova.algorithms.td3bc import q_term
from fova.networks import Categorical, CategoricalActor, DiscreteTwinCritic
from fova.spaces import Discrete


def optimistic_value(
    policy: Categorical, local: Float[Array, "2 batch count"], federated: Float[Array, "2 batch count"] | None
) -> Float[Array, " batch"]:
    """sum_a pi(a|s) max(min_i Q_i(s, a), min_i Qbar_i(s, a)), or without the maximum if Qbar is None."""
    q = local.min(axis=0)
    if federated is not None:
        q = jnp.maximum(q, federated.min(axis=0))
    return jnp.sum(policy.probabilities() * q, axis=1)


def pull(policy: Categorical, other: Categorical) -> Float[Array, ""]:
    """E[KL(other || policy)], 0 where both are the same."""
    difference = other.log_probabilities() - policy.log_probabilities()
    return jnp.sum(other.probabilities() * difference, axis=1).mean()


@dataclass(frozen=True)
class DiscreteFedora(Fedora):
    """FEDORA with a categorical policy and critics of one output per action.

    `target_noise` and `noise_clip` have no effect.
    """

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete,)

    def next_q(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        next_s = batch.next_observations
        federated: Any = broadcast.critic
        return optimistic_value(
            learner.extra.target_actor(next_s),
            learner.target_critic.every(next_s),
            federated.every(next_s) if self.optimistic else None,
        )

    def update_actor(self, learner: Learner, broadcast: Broadcast, batch: Batch) -> tuple[Model, Metrics]:
        """One step of the actor on the decayed cross-entropy minus the normalised Q, plus the two pulls."""
        s = batch.observations
        q = learner.critic.network.first_of_every(s)
        federated, previous = broadcast.actor(s), learner.extra.previous_actor(s)

        def loss(actor: CategoricalActor) -> Float[Array, ""]:
            policy = actor(s)
            expected_q = jnp.sum(policy.probabilities() * q, axis=1)
            local = -policy.log_prob(batch.actions).mean() - q_term(expected_q, self.q_weight)
            pulls = self.global_pull * pull(policy, federated) + self.previous_pull * pull(policy, previous)
            return learner.extra.decay * local + pulls

        actor, objective, _ = learner.actor.descend(loss)
        return actor, {"actor_loss": objective}

    def pair_value(self, actor: CategoricalActor, critic: DiscreteTwinCritic, data: Data) -> Float[Array, ""]:
        """J: the mean of sum_a pi(a|s) Q_1(s, a) over all of a client's states."""
        return data.mean(
            lambda batch: jnp.sum(
                actor(batch.observations).probabilities() * critic.first_of_every(batch.observations), axis=1
            )
        )
