"""Fed-IQL: implicit Q-learning at every client, plain averaging at the server.

Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning": a state value that estimates an upper
expectile of Q over the data's actions, so that no action outside the data is ever scored, and a policy fitted by
advantage-weighted regression.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import (
    ActorCritic,
    Batch,
    Broadcast,
    Data,
    Learner,
    Metrics,
    Submission,
    adam,
    descend,
    replace,
    target,
)
from fova.networks import MLP, GaussianActor, TwinCritic, polyak
from fova.spaces import Space

MAX_WEIGHT = 100.0


class Extra(eqx.Module):
    value: MLP  # V(s); federated with actor and critics
    moments: optax.OptState


def expectile_loss(difference: Float[Array, " batch"], expectile: float) -> Float[Array, ""]:
    """E[|expectile - 1(Q - V < 0)| (Q - V)^2]."""
    return jnp.mean(jnp.where(difference > 0, expectile, 1.0 - expectile) * jnp.square(difference))


def awr_loss(log_prob: Float[Array, " batch"], advantage: Float[Array, " batch"], beta: float) -> Float[Array, ""]:
    """-E[exp(beta (Q - V)) log pi(a|s)], the weight capped at 100."""
    return -jnp.mean(jnp.minimum(jnp.exp(beta * advantage), MAX_WEIGHT) * log_prob)


@dataclass(frozen=True)
class FedIql(ActorCritic):
    """Fed-IQL: implicit Q-learning at every client, plain averaging at the server."""

    name: ClassVar[str] = "fed-iql"

    actor: Literal["clipped", "squashed"] = "clipped"
    """How the actor turns a state into actions: clipped (as IQL has it) or squashed."""
    actor_lr: float = 3e-4
    """Adam's learning rate for the actor."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of all networks."""
    critic_layer_norm: bool = False
    """LayerNorm after each hidden layer of the critics and the value."""
    expectile: float = 0.7
    """Which expectile of Q the value estimates; 0.5 is the mean, towards 1 the maximum."""
    beta: float = 3.0
    """Inverse temperature of the advantage weights."""

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        value_key, rest = jax.random.split(key)
        value = MLP(value_key, space.observation, self.hidden, 1, self.critic_layer_norm, self.initialisation)
        return replace(super().init(rest, space), extra=Extra(value, adam(self.critic_lr).init(value)))

    def receive(self, learner: Learner, broadcast: Broadcast) -> Learner:
        learner = super().receive(learner, broadcast)
        return replace(learner, extra=Extra(broadcast.extra, learner.extra.moments))

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        learner, submission = super().submit(learner, broadcast, data)
        parameters = replace(submission.parameters, extra=learner.extra.value)
        return learner, replace(submission, parameters=parameters)

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        s, a = batch.observations, batch.actions

        # --- Value: an upper expectile of the slow critics over the data's actions ---
        q_slow = learner.slow_critic(s, a).min(axis=0)

        def value_loss(value: MLP) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            v = value(s)[:, 0]
            return expectile_loss(q_slow - v, self.expectile), v

        (value_objective, v), gradient = jax.value_and_grad(value_loss, has_aux=True)(learner.extra.value)
        value, moments = descend(self.critic_lr, learner.extra.value, gradient, learner.extra.moments)

        # --- Actor: advantage-weighted regression ---
        def actor_loss(actor: GaussianActor) -> Float[Array, ""]:
            return awr_loss(actor(s).log_prob(a), q_slow - v, self.beta)

        actor_objective, gradient = jax.value_and_grad(actor_loss)(learner.actor)
        actor, actor_moments = descend(self.actor_lr, learner.actor, gradient, learner.actor_moments)

        # --- Critics ---
        next_v = learner.extra.value(batch.next_observations)[:, 0]
        y = target(batch.rewards, batch.terminals, next_v, self.discount)

        def critic_loss(critic: TwinCritic) -> tuple[Float[Array, ""], Any]:
            q = critic(s, a)
            return jnp.square(q - y).mean(axis=1).sum(), q

        (critic_objective, q), gradient = jax.value_and_grad(critic_loss, has_aux=True)(learner.critic)
        critic, critic_moments = descend(self.critic_lr, learner.critic, gradient, learner.critic_moments)

        slow_critic = polyak(learner.slow_critic, critic, self.tau)
        metrics = {
            "q_data": q.mean(),
            "td_error": jnp.abs(q - y).mean(),
            "advantage": (q_slow - v).mean(),
            "value_loss": value_objective,
            "critic_loss": critic_objective,
            "actor_loss": actor_objective,
        }
        return Learner(actor, critic, slow_critic, actor_moments, critic_moments, Extra(value, moments)), metrics
