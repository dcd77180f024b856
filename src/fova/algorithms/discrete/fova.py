"""FOVA for discrete actions: every expectation over a policy's actions is an exact sum.

Read it beside `fova.algorithms.fova`. Three candidates compete at state x, each a distribution over the actions:
pi_k(.|x) of the client's policy, the data's action at x (all its probability on one action), and pibar(.|x) of the
global policy. Nothing is sampled, so a step needs no randomness.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fova.algorithms.base import Batch, Broadcast, Learner, Metrics, Model, Temperature, replace
from fova.algorithms.fova import Extra, Fova, awr_loss, memory_loss, vcql_loss
from fova.algorithms.vote import BEHAVIOUR, GLOBAL, LOCAL, Vote, VoteOrder, vote, vote_shares, voted
from fova.networks import Categorical, CategoricalActor, DiscreteTwinCritic, polyak, taken
from fova.spaces import Discrete

# Target of the automatic temperature, as a share of the largest possible entropy: that of discrete SAC
# (Christodoulou, "Soft Actor-Critic for Discrete Action Settings"). The continuous target, -dim(A), is below any
# entropy that discrete actions can have.
TARGET_ENTROPY = 0.98


# --- The equations ----------------------------------------------------------------------------------------


def candidates(
    local: Categorical, behaviour: Float[Array, "batch 1"], global_policy: Categorical
) -> Float[Array, "3 batch count"]:
    """The probabilities that pi_k, the data and pibar give to every action. They are constants for every loss."""
    data = jax.nn.one_hot(behaviour[:, 0].astype(jnp.int32), local.logits.shape[1])
    return jax.lax.stop_gradient(jnp.stack([local.probabilities(), data, global_policy.probabilities()]))


def expected_q(
    q: Float[Array, "2 batch count"], probabilities: Float[Array, "candidates batch count"], order: VoteOrder
) -> Float[Array, "2 candidates batch"]:
    """Q_i(x, mu) = sum_a mu(a) Q_i(x, a) of every candidate mu.

    With `min_then_max` the smaller twin is taken action by action, before the sum, as it is for sampled actions.
    """
    if order == "min_then_max":
        q = jnp.broadcast_to(q.min(axis=0), q.shape)
    return jnp.einsum("iba,cba->icb", q, probabilities)


def pushed_q(
    q: Float[Array, "2 batch count"], probabilities: Float[Array, "2 batch count"]
) -> Float[Array, "2 batch"]:
    """sum_a mu_v(a|s) Q_i(s, a): what each critic says of the candidate that won its vote."""
    return jnp.sum(probabilities * q, axis=2)


def soft_maximum(q: Float[Array, "2 batch count"], temperature: float) -> Float[Array, "2 batch"]:
    """T log sum_a exp(Q_i(s, a) / T), which the continuous version estimates from three sampled actions."""
    return temperature * jax.nn.logsumexp(q / temperature, axis=2)


# --- The algorithm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiscreteFova(Fova):
    """FOVA with a categorical policy and critics of one output per action.

    Settings about sampled or continuous actions have no effect: `actor`, `soft_vote`, `fresh_samples`,
    `terminal_action` and `density_offset`.
    """

    action_spaces: ClassVar[tuple[type, ...]] = (Discrete,)

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        q = learner.critic.network.every(batch.observations)
        actor, temperature, actor_metrics = self.step_actor(learner, broadcast, batch, q)
        if self.update_order == "actor_first":
            learner = replace(learner, actor=actor)
        rows = batch.for_critics
        if batch.uniform is not None:
            q = learner.critic.network.every(rows.observations)
        critic, critic_metrics = self.step_critics(learner, broadcast, rows, q)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        learner = Learner(actor, critic, target_critic, Extra(temperature, learner.extra.memory))
        return learner, critic_metrics | actor_metrics

    def hold_vote(
        self,
        q: Float[Array, "2 batch count"],
        mu: Float[Array, "3 batch count"],
        has_action: Float[Array, " batch"],
    ) -> Vote:
        """eq. (vote_policy): the candidate with the largest expected Q wins."""
        return vote(expected_q(q, mu, self.vote_order), self.ballot(has_action), self.vote_order)

    # --- The critics ---

    def step_critics(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, q: Float[Array, "2 batch count"]
    ) -> tuple[Model, Metrics]:
        """eq. (vcql): one step of both critics on the conservative objective."""
        s, a, next_s = batch.observations, batch.actions, batch.next_observations
        (alpha, _, _), memory = self.strengths, learner.extra.memory

        # --- Target: the vote at s' under the target critics ---
        there = candidates(learner.actor(next_s), batch.next_actions, broadcast.actor(next_s))
        next_vote = self.hold_vote(learner.target_critic.every(next_s), there, batch.has_next_action)
        y = self.target(batch, self.next_value(batch, next_vote))

        # --- What is pushed down: the winner of the vote at s ---
        here = candidates(learner.actor(s), a, broadcast.actor(s))
        mu_v = voted(here, self.hold_vote(q, here, jnp.ones_like(y)).winner)

        def loss(critic: DiscreteTwinCritic) -> tuple[Float[Array, ""], tuple[Array, Array]]:
            q = critic.every(s)
            q_data = taken(q, a)
            soft = self.conservative == "logsumexp"
            gap = (soft_maximum(q, self.soft_temperature) if soft else pushed_q(q, mu_v)) - q_data
            objective = vcql_loss(q_data, y, gap, alpha, self.td_scale)
            if memory is not None:
                q_before = memory.rescale * memory.critic(s, a)
                objective += self.continual * memory.valid * memory_loss(q_data, q_before)
            return objective, (q_data, gap)

        critic, objective, (q_data, gap) = learner.critic.descend(loss, has_aux=True)
        return critic, vote_shares(next_vote.winner) | {
            "q_data": q_data.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q_data - y).mean(),
            "critic_loss": objective,
        }

    # --- The actor ---

    def step_actor(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, q: Float[Array, "2 batch count"]
    ) -> tuple[Model, Temperature | None, Metrics]:
        """eq. (awr): one step of the actor on the weighted regression, and one of the temperature."""
        s = batch.observations
        (_, lam, _), temperature = self.strengths, learner.extra.temperature
        here = candidates(learner.actor(s), batch.actions, broadcast.actor(s))
        judged = q if self.advantage_from == "current" else learner.target_critic.every(s)
        w, winner = self.weight_and_winner(judged, here, batch)
        imitated = here[BEHAVIOUR] if self.imitate == "data" else voted(here, winner)[0]

        def loss(actor: CategoricalActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = actor(s)
            local, entropy = policy.probabilities(), policy.entropy()
            log_likelihood = jnp.sum(imitated * policy.log_probabilities(), axis=1)
            weight = (
                self.weight_and_winner(judged, here.at[LOCAL].set(local), batch)[0] if self.weight_gradient else w
            )
            objective = awr_loss(log_likelihood, weight, jnp.sum(local * q.min(axis=0), axis=1), lam)
            if temperature is not None:
                objective -= temperature.value * entropy.mean()
            return objective, entropy

        actor, objective, entropy = learner.actor.descend(loss, has_aux=True)
        if temperature is not None:
            temperature = temperature.follow(-entropy, target=TARGET_ENTROPY * math.log(q.shape[2]))
        return actor, temperature, {"weight": w.mean(), "entropy": entropy.mean(), "actor_loss": objective}

    def weight_and_winner(
        self, q: Float[Array, "2 batch count"], here: Float[Array, "3 batch count"], batch: Batch
    ) -> tuple[Float[Array, " batch"], Int[Array, "2 batch"]]:
        """w(s), whose V(s) is the value of the vote at s, and the winners of that vote."""
        values = self.with_data_returns(expected_q(q, here, self.vote_order), batch)
        held = self.vote_here(values)
        q_weighed = values[:, GLOBAL if self.weigh == "global" else BEHAVIOUR].min(axis=0)
        return self.weight_of(q_weighed, held.value), held.winner
