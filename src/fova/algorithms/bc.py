"""Fed-BC: behaviour cloning at every client, plain averaging at the server. No critic, no reward.

The same loss serves continuous and discrete actions: minus the log-likelihood of the data's action.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Metrics, replace
from fova.networks import Actor, Point
from fova.spaces import Box, Discrete, Space


def cloning_loss(policy: object, action: Float[Array, "batch action"]) -> Float[Array, ""]:
    """-E[log pi(a|s)]; for a deterministic policy, which has no likelihood, E[(pi(s) - a)^2]."""
    if isinstance(policy, Point):
        return jnp.square(policy.action - action).mean()
    return -policy.log_prob(action).mean()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class FedBc(ActorCritic):
    """Fed-BC: behaviour cloning at every client, plain averaging at the server."""

    name: ClassVar[str] = "fed-bc"
    action_spaces: ClassVar[tuple[type, ...]] = (Box, Discrete)

    actor_lr: float = 3e-4
    """Adam's learning rate for the actor."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the actor's hidden layers."""

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        return replace(super().init(key, space), critic=None, target_critic=None)

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        def loss(actor: Actor) -> Float[Array, ""]:
            return cloning_loss(actor(batch.observations), batch.actions)

        actor, objective, _ = learner.actor.descend(loss)
        return replace(learner, actor=actor), {"actor_loss": objective}
