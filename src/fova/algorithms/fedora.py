"""FEDORA: an ensemble of offline learners that follows the better ones.

Rengarajan et al., "Federated Ensemble-Directed Offline Reinforcement Learning". TD3+BC at every client, with four
additions:

- The target uses the larger of the local and the federated value.
- The actor is held near the federated policy and near the client's previous one.
- The local objective decays while the federated pair does better.
- The server weights clients by the value of their policies.

`fova.algorithms.discrete.fedora` is the counterpart for discrete actions.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import Batch, Broadcast, Data, Learner, Submission, replace
from fova.algorithms.td3bc import FedTd3Bc, cloning_loss, q_term, smoothed_action
from fova.networks import DeterministicActor
from fova.settings import Within


class Extra(eqx.Module):
    target_actor: DeterministicActor
    previous_actor: DeterministicActor  # the client's actor at the end of its previous round
    decay: Float[Array, ""]  # factor on the local objective


@dataclass(frozen=True)
class Fedora(FedTd3Bc):
    """FEDORA: ensemble-directed offline learners on TD3+BC."""

    name: ClassVar[str] = "fedora"

    value_weight: float = 0.1
    """Sharpness of the server's weights softmax(value_weight * J_k), for actor and critics; 0 is the plain mean."""
    decay: Annotated[float, Within(0, 1)] = 0.995
    """Factor on the local objective whenever the federated pair has the larger J. 1 never decays."""
    optimistic: bool = True
    """Take the larger of the local and the federated value as target."""
    global_pull: Annotated[float, Within(0)] = 1.0
    """Weight of E[(pi - pibar)^2]."""
    previous_pull: Annotated[float, Within(0)] = 1.0
    """Weight of E[(pi - pi_prev)^2], pi_prev the client's policy at the end of its previous round."""

    def first_extra(self, actor: DeterministicActor) -> Extra:
        return Extra(target_actor=actor, previous_actor=actor, decay=jnp.ones(()))

    def next_q(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        local = super().next_q(learner, broadcast, batch, key)
        if not self.optimistic:
            return local
        next_s = batch.next_observations
        a_next = smoothed_action(learner.extra.target_actor, next_s, key, self.target_noise, self.noise_clip)
        assert broadcast.critic is not None
        return jnp.maximum(local, broadcast.critic(next_s, a_next).min(axis=0))

    def actor_loss(
        self,
        learner: Learner,
        broadcast: Broadcast,
        batch: Batch,
        action: Float[Array, "batch action"],
        q: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """The decayed loss of TD3+BC plus the pulls to the federated and to the previous policy."""
        s = batch.observations
        local = cloning_loss(action, batch.actions) - q_term(q, self.q_weight)
        near_global = cloning_loss(action, broadcast.actor(s).mode())
        near_previous = cloning_loss(action, learner.extra.previous_actor(s).mode())
        return learner.extra.decay * local + self.global_pull * near_global + self.previous_pull * near_previous

    def submit(self, learner: Learner, broadcast: Broadcast, data: Data) -> tuple[Learner, Submission]:
        assert broadcast.critic is not None
        value = self.pair_value(learner.actor.network, learner.critic.network, data)
        federated_value = self.pair_value(broadcast.actor, broadcast.critic, data)
        decay = jnp.where(federated_value > value, learner.extra.decay * self.decay, learner.extra.decay)
        learner, submission = super().submit(learner, broadcast, data)
        metrics = submission.metrics | {"value": value, "decay": decay}
        extra = Extra(learner.extra.target_actor, previous_actor=learner.actor.network, decay=decay)
        return replace(learner, extra=extra), Submission(submission.parameters, self.value_weight * value, metrics)

    def pair_value(self, actor: Any, critic: Any, data: Data) -> Float[Array, ""]:
        """J: the mean of Q_1(s, pi(s)) over all of a client's states."""
        return data.mean(lambda batch: critic.first(batch.observations, actor(batch.observations).mode()))
