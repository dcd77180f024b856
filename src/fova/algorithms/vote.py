"""The vote of FOVA, and the soft maximum over its winners.

Three candidates compete at a state x: a_l ~ pi_k(.|x) of the client's policy, a_b the action of the data at x, and
a_g ~ pibar(.|x) of the global policy.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fova.networks import Clipped, Scored, Squashed, TwinCritic, pick

LOCAL, BEHAVIOUR, GLOBAL = range(3)
VoteOrder = Literal["min_then_max", "max_then_min"]


class Candidates(NamedTuple):
    actions: Float[Array, "3 batch action"]  # a_l, a_b, a_g
    log_density: Float[Array, "3 batch"]  # under the policy that proposed it; 0 for the data's action


class Vote(NamedTuple):
    winner: Int[Array, "2 batch"]  # the candidate that each critic takes
    value: Float[Array, " batch"]


def candidates(
    local: Squashed | Clipped,
    behaviour: Float[Array, "batch action"],
    global_policy: Squashed | Clipped,
    local_key: PRNGKeyArray,
    global_key: PRNGKeyArray,
) -> Candidates:
    """One action from each of pi_k, the data and pibar."""
    a_l, log_l = local.sample_with_log_prob(local_key)
    a_g, log_g = global_policy.sample_with_log_prob(global_key)
    return Candidates(jnp.stack([a_l, behaviour, a_g]), jnp.stack([log_l, jnp.zeros_like(log_l), log_g]))


def vote(q: Float[Array, "2 candidates batch"], ballot: Float[Array, "candidates batch"], order: VoteOrder) -> Vote:
    """eq. (vote_policy): the candidate with the largest Q wins. `ballot` is 0 for a candidate that may not win."""
    q = jnp.where(ballot > 0, q, -jnp.inf)
    if order == "min_then_max":  # one vote on the smaller value of the twins
        q = jnp.broadcast_to(q.min(axis=0), q.shape)
    return Vote(q.argmax(axis=1), q.max(axis=1).min(axis=0))


def vote_shares(winner: Int[Array, "2 batch"]) -> dict[str, Float[Array, ""]]:
    """The share of votes that each candidate won."""
    return {
        "vote_local": jnp.mean(winner == LOCAL),
        "vote_behaviour": jnp.mean(winner == BEHAVIOUR),
        "vote_global": jnp.mean(winner == GLOBAL),
    }


def voted(
    values: Float[Array, "3 batch ..."], winner: Int[Array, "critic batch"]
) -> Float[Array, "critic batch ..."]:
    """For each critic and state, the winning candidate's action or log-density."""
    return pick(jnp.broadcast_to(values, (len(winner), *values.shape)), winner)


# --- The conservative term of the authors' program --------------------------------------------------------


class SoftSources(NamedTuple):
    """The three actions per critic and state whose soft maximum is pushed down, with their densities."""

    here: Scored  # the candidates drawn at s
    others: Scored  # those drawn at s', then a uniform action, all scored at s
    winner: Int[Array, "2 batch"]  # among the candidates drawn at s
    next_winner: Int[Array, "2 batch"]  # among those drawn at s'
    log_density: Float[Array, "2 3 batch"]

    def data_and_maximum(
        self, critic: TwinCritic, temperature: float
    ) -> tuple[Float[Array, "2 batch"], Float[Array, "2 batch"]]:
        """Q of the data's action and the soft maximum of the three sources, with gradients for `critic`."""
        q_data, q_here = self.here.for_critic(critic, [BEHAVIOUR, self.winner])
        q_next, q_uniform = self.others.for_critic(critic, [self.next_winner, -1])
        return q_data, soft_maximum(jnp.stack([q_here, q_next, q_uniform], axis=1), self.log_density, temperature)


def soft_sources(
    here: Scored,
    others: Scored,
    winner: Int[Array, "2 batch"],
    next_winner: Int[Array, "2 batch"],
    log_densities: tuple[Float[Array, "3 batch"], Float[Array, "3 batch"]],
) -> SoftSources:
    """The winners of the votes at s and at s' beside a uniform action in [-1, 1]."""
    log_here, log_next = voted(log_densities[0], winner), voted(log_densities[1], next_winner)
    log_uniform = jnp.full_like(log_here, -others.actions.shape[-1] * jnp.log(2.0))
    log_density = jnp.stack([log_here, log_next, log_uniform], axis=1)
    return SoftSources(here, others, winner, next_winner, log_density)


def soft_maximum(
    q: Float[Array, "2 source batch"], log_density: Float[Array, "2 source batch"], temperature: float
) -> Float[Array, "2 batch"]:
    """T log sum exp over the sources of (Q - log-density) / T."""
    return temperature * jax.nn.logsumexp((q - log_density) / temperature, axis=1)
