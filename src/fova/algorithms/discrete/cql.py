"""CQL-FL for discrete actions: conservative double Q-learning at every client, plain averaging at the server.

Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", the variant CQL(H) on Q-learning. There
is one network, Q, and no separate actor: the policy is softmax(Q), whose best action is the greedy one. The soft
maximum that the critic pushes down is an exact log sum exp over all actions.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import (
    MEASURED_STATES,
    ActorCritic,
    Batch,
    Broadcast,
    Data,
    Learner,
    Metrics,
    Model,
    Submission,
    replace,
)
from fova.algorithms.cql import CqlFl
from fova.networks import MLP, CategoricalActor, polyak, taken
from fova.spaces import Discrete, Space


def double_q(q: Float[Array, "batch count"], target_q: Float[Array, "batch count"]) -> Float[Array, " batch"]:
    """The target network's value of the action that the current network takes for the best."""
    return taken(target_q, q.argmax(axis=1, keepdims=True))


def cql_loss(
    q: Float[Array, "batch count"], a: Float[Array, "batch 1"], y: Float[Array, " batch"], alpha: float
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Float[Array, " batch"]]]:
    """E[(Q(s,a) - y)^2] + alpha E[log sum_a' exp Q(s,a') - Q(s,a)], and its Q(s,a) and gap."""
    q_data = taken(q, a)
    gap = jax.nn.logsumexp(q, axis=1) - q_data
    return jnp.square(q_data - y).mean() + alpha * gap.mean(), (q_data, gap)


@dataclass(frozen=True)
class DiscreteCqlFl(CqlFl):
    """CQL-FL on double Q-learning. The network whose outputs are Q stands in the place of the actor."""

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete,)

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        self.check_space(space)
        assert isinstance(space.action, Discrete)
        net = MLP(
            key, space.observation, self.hidden, space.action.count, self.critic_layer_norm, self.initialisation
        )
        q = CategoricalActor(net)
        return Learner(actor=Model.start(q, self.critic_lr), critic=None, target_critic=q)

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        batch = batch.for_critics  # the Q network is the policy, too
        s, next_s = batch.observations, batch.next_observations
        y = self.target(batch, double_q(learner.actor(next_s).logits, learner.target_critic(next_s).logits))

        def loss(network: CategoricalActor) -> Any:
            return cql_loss(network(s).logits, batch.actions, y, self.alpha)

        q, objective, (q_data, gap) = learner.actor.descend(loss, has_aux=True, clip=self.gradient_clip)
        target = polyak(learner.target_critic, q.network, self.tau)
        metrics = {
            "q_data": q_data.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q_data - y).mean(),
            "critic_loss": objective,
        }
        return replace(learner, actor=q, target_critic=target), metrics

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        learner, submission = ActorCritic.submit(self, learner, broadcast, data)
        value = learner.actor(data.spread(MEASURED_STATES).observations).logits.max(axis=1).mean()
        metrics = submission.metrics | {"value": value}
        return learner, Submission(submission.parameters, self.value_weight * value, metrics)
