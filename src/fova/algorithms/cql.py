"""CQL-FL: conservative Q-learning at every client, plain averaging at the server.

Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", the variant CQL(H) on soft actor-critic:
the critics push down a soft maximum of Q over sampled actions and push up the Q of the data's actions.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.algorithms.base import (
    ActorCritic,
    Batch,
    Broadcast,
    Learner,
    Metrics,
    Model,
    Temperature,
    TemperatureLoss,
    replace,
)
from fova.errors import FovaError
from fova.networks import LOG_STD_RANGE, Clipped, GaussianActor, GaussianForm, Squashed, TwinCritic, polyak
from fova.settings import Within
from fova.spaces import Space

Pool = Literal["all", "triples"]
SMALL_GAIN = 0.01  # of the last layer of orthogonal critics

# --- What a client carries beyond the skeleton ------------------------------------------------------------


class Extra(eqx.Module):
    temperature: Temperature | None  # None if it is fixed


# --- The equations ----------------------------------------------------------------------------------------


def sample_many(
    policy: Squashed | Clipped, key: PRNGKeyArray, count: int
) -> tuple[Float[Array, "sample batch action"], Float[Array, "sample batch"]]:
    """`count` actions per state with their log-densities."""
    return jax.vmap(policy.sample_with_log_prob)(jax.random.split(key, count))


class Sampled(NamedTuple):
    """Actions of the soft maximum. One soft maximum is over the members of a group; groups are averaged."""

    actions: Float[Array, "member group batch action"]
    log_density: Float[Array, "member group batch"]

    @property
    def listed(self) -> Float[Array, "sample batch action"]:
        """All actions of a state, one after another."""
        return self.actions.reshape(-1, *self.actions.shape[2:])


def soft_maximum(
    q: Float[Array, "2 member group batch"], log_density: Float[Array, "member group batch"]
) -> Float[Array, "2 batch"]:
    """The mean over groups of log sum exp over their members of Q minus the log-density."""
    return jax.nn.logsumexp(q - log_density, axis=1).mean(axis=1)


def exact_soft_maximum(
    critic: TwinCritic, batch: Batch, sampled: Sampled
) -> tuple[Float[Array, "2 batch"], Float[Array, "2 batch"]]:
    """Q of the data's action and the soft maximum, with their gradients for `critic`."""
    q = critic.of_many(batch.observations, jnp.concatenate([batch.actions[None], sampled.listed]))
    return q[:, 0], soft_maximum(q[:, 1:].reshape(2, *sampled.log_density.shape), sampled.log_density)


def estimated_soft_maximum(
    critic: TwinCritic, batch: Batch, sampled: Sampled, key: PRNGKeyArray
) -> tuple[Float[Array, "2 batch"], Float[Array, "2 batch"]]:
    """The same values, with an unbiased estimate of the soft maximum's gradient.

    That gradient is the mean of the gradients of Q with weights softmax(Q - log-density). One action is drawn with
    these probabilities in each group, and only its Q is differentiated.
    """
    frozen = jax.lax.stop_gradient(critic)
    q = frozen.of_many(batch.observations, sampled.listed).reshape(2, *sampled.log_density.shape)
    drawn = jax.random.categorical(key, q - sampled.log_density, axis=1)  # [2, group, batch]
    both = jnp.broadcast_to(sampled.actions, (2, *sampled.actions.shape))
    a_drawn = jnp.take_along_axis(both, drawn[:, None, ..., None], axis=1)[:, 0]
    a_data = jnp.broadcast_to(batch.actions, (2, 1, *batch.actions.shape))
    pair = critic.paired(batch.observations, jnp.concatenate([a_data, a_drawn], axis=1))
    q_data, q_drawn = pair[:, 0], pair[:, 1:].mean(axis=1)
    return q_data, soft_maximum(q, sampled.log_density) + q_drawn - jax.lax.stop_gradient(q_drawn)


def cql_loss(
    q_data: Float[Array, "2 batch"], y: Float[Array, " batch"], gap: Float[Array, "2 batch"], alpha: float
) -> Float[Array, ""]:
    """The sum over both critics of E[(Q - y)^2] + alpha E[soft maximum of Q - Q]."""
    return jnp.sum(jnp.square(q_data - y).mean(axis=1) + alpha * gap.mean(axis=1))


def sac_actor_loss(
    temperature: Float[Array, ""] | float, log_prob: Float[Array, " batch"], q: Float[Array, " batch"]
) -> Float[Array, ""]:
    """E[T log pi(a_l|s) - min_i Q_i(s, a_l)]."""
    return jnp.mean(temperature * log_prob - q)


# --- The algorithm ----------------------------------------------------------------------------------------


PROGRAM = {"update_order": "actor_first", "pool": "triples", "density_offset": 1e-6}


@dataclass(frozen=True)
class CqlFl(ActorCritic):
    """CQL-FL: CQL(H) at every client, plain averaging at the server."""

    name: ClassVar[str] = "cql-fl"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        # the program that the FOVA paper's baseline derives from, OfflineRL-Kit
        "published": PROGRAM,
        "layer-norm": PROGRAM | {"critic_layer_norm": True},
        # the variant in the FOVA authors' program
        "fova-program": PROGRAM | {"temperature": 0.2, "actor_layer_norm": True, "critic_layer_norm": True},
        # the text of the CQL paper
        "paper": {},
        # the actor and the critics of FOVA; one action of each source has the same objective in expectation
        "assisted": PROGRAM | {"actor": "clipped", "critic_layer_norm": True, "samples": 1},
    }

    actor: Literal["clipped", "squashed"] = "squashed"
    """Distribution of continuous actions: squashed (tanh of a Gaussian) or clipped."""
    critic_layer_norm: bool = False
    """LayerNorm after each hidden layer of the critics."""
    alpha: Annotated[float, Within(0)] = 5.0
    """Weight of the conservative term."""
    samples: Annotated[int, Within(1, 1_000)] = 10
    """Actions sampled from each source (the policy at s, the policy at s', uniform)."""
    pool: Pool = "all"
    """Actions in one soft maximum of the critics: all sampled actions, or triples of one action of each source,
    whose soft maxima are averaged (OfflineRL-Kit)."""
    soft_gradient: Literal["exact", "estimated"] = "exact"
    """Gradient of the soft maximum: exact, through all of its actions, or estimated, through one action drawn with
    their weights. The estimate is the same in expectation and takes less than half of the operations."""
    update_order: Literal["together", "actor_first"] = "together"
    """Update both from the same parameters, or first the actor and then the critics with its new actions."""
    gradient_clip: Annotated[float, Within(0)] = 0.0
    """Largest norm of the actor's gradient; 0 does not clip."""
    temperature: Annotated[float | Literal["auto"], Within(0)] = "auto"
    """Weight of the entropy in the actor's loss: a fixed number, or auto (SAC's, with target -dim(A))."""
    temperature_lr: Annotated[float, Within(0)] = 1e-4
    """Adam's learning rate for an automatic temperature T."""
    temperature_loss: TemperatureLoss = "log"
    """Loss of an automatic temperature T: linear in log T, or in its value T (DRPO's program)."""
    density_offset: Annotated[float, Within(0, 1)] = 0.0
    """Number added to 1 - a^2 in the log-density of a squashed action: 0 is exact, 1e-6 in OfflineRL-Kit."""
    saturation: Annotated[float, Within(1e-7, 0.1)] = 1e-6
    """Distance from the bounds to which squashed actions are moved for their likelihood; 1e-7 in DRPO's program."""
    log_std_least: Annotated[float, Within(-20, 0)] = LOG_STD_RANGE[0]
    """Least log-standard-deviation of the actor; the largest is 2."""
    trained_log_std: bool = False
    """Train a multiplier and an offset of the actor's log-standard-deviation, which start at 1 and -1."""
    critic_initialisation: Literal["same", "orthogonal"] = "same"
    """First weights of the critics: as the actor's, or orthogonal with gain 0.01 in the last layer (DRPO)."""

    @property
    def gaussian(self) -> GaussianForm:
        log_std_range = (self.log_std_least, LOG_STD_RANGE[1])
        if self.trained_log_std and self.shared_std:
            raise FovaError("trained_log_std and shared_std exclude each other. Set at most one of them.")
        form = log_std_range, self.trained_log_std, self.density_offset, self.saturation
        return GaussianForm(*form, self.shared_std)

    @property
    def fixed_temperature(self) -> float:
        assert self.temperature != "auto"
        return self.temperature

    def init(self, key: PRNGKeyArray, space: Space) -> Learner:
        learner = super().init(key, space)
        if self.critic_initialisation == "orthogonal":
            layers = self.hidden, self.critic_layer_norm, self.critic_initialisation
            critic = TwinCritic(jax.random.fold_in(key, 1), space, *layers, last_gain=SMALL_GAIN)
            learner = replace(learner, critic=Model.start(critic, self.critic_lr), target_critic=critic)
        temperature = Temperature.start(self.temperature_lr) if self.temperature == "auto" else None
        return replace(learner, extra=Extra(temperature))

    def step(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Learner, Metrics]:
        local_key, *critic_keys, imitation_key = jax.random.split(key, 6)
        actor, temperature, actor_metrics = self.update_actor(learner, broadcast, batch, local_key, imitation_key)
        if self.update_order == "actor_first":
            learner = replace(learner, actor=actor)
        critic, critic_metrics = self.update_critics(learner, batch.for_critics, critic_keys)
        target_critic = polyak(learner.target_critic, critic.network, self.tau)
        learner = Learner(actor, critic, target_critic, Extra(temperature))
        return learner, critic_metrics | actor_metrics

    def update_critics(self, learner: Learner, batch: Batch, keys: list[PRNGKeyArray]) -> tuple[Model, Metrics]:
        """One step of both critics on the conservative objective."""
        next_key, *sample_keys = keys

        # --- Target: the policy's action at s' under the target critics ---
        next_policy = learner.actor(batch.next_observations)
        next_q = learner.target_critic(batch.next_observations, next_policy.sample(next_key)).min(axis=0)
        y = self.target(batch, next_q)
        sampled = self.sample(learner, batch, sample_keys)

        def loss(critic: TwinCritic) -> tuple[Float[Array, ""], tuple[Array, Array]]:
            if self.soft_gradient == "exact":
                q_data, q_soft = exact_soft_maximum(critic, batch, sampled)
            else:
                key = jax.random.fold_in(sample_keys[-1], 1)
                q_data, q_soft = estimated_soft_maximum(critic, batch, sampled, key)
            gap = q_soft - q_data
            return cql_loss(q_data, y, gap, self.alpha), (q_data, gap)

        critic, objective, (q_data, gap) = learner.critic.descend(loss, has_aux=True)
        metrics = {
            "q_data": q_data.mean(),
            "conservative_gap": gap.mean(),
            "td_error": jnp.abs(q_data - y).mean(),
            "critic_loss": objective,
        }
        return critic, metrics

    def sample(self, learner: Learner, batch: Batch, keys: list[PRNGKeyArray]) -> Sampled:
        """The actions of the soft maximum: from the policy at s and at s', and uniform ones."""
        here_key, there_key, uniform_key = keys
        here, log_here = sample_many(learner.actor(batch.observations), here_key, self.samples)
        there, log_there = sample_many(learner.actor(batch.next_observations), there_key, self.samples)
        uniform = jax.random.uniform(uniform_key, here.shape, minval=-1.0, maxval=1.0)
        log_uniform = jnp.full_like(log_here, -here.shape[-1] * jnp.log(2.0))
        actions, log_density = jnp.stack([here, there, uniform]), jnp.stack([log_here, log_there, log_uniform])
        if self.pool == "triples":
            return Sampled(actions, log_density)
        return Sampled(*(values.reshape(-1, 1, *values.shape[2:]) for values in (actions, log_density)))

    def update_actor(
        self, learner: Learner, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray, imitation_key: PRNGKeyArray
    ) -> tuple[Model, Temperature | None, Metrics]:
        """One step of the actor on SAC's objective, and one of the temperature."""
        s, temperature = batch.observations, learner.extra.temperature
        weight = self.fixed_temperature if temperature is None else temperature.value

        def loss(actor: GaussianActor) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
            policy = actor(s)
            a_l, log_prob = policy.sample_with_log_prob(key)
            q_local = learner.critic(s, a_l).min(axis=0)
            objective = sac_actor_loss(weight, log_prob, q_local)
            return objective + self.imitation(policy, broadcast, batch, imitation_key), log_prob

        actor, objective, log_prob = learner.actor.descend(loss, has_aux=True, clip=self.gradient_clip)
        if temperature is not None:
            temperature = temperature.follow(log_prob, -batch.actions.shape[-1], self.temperature_loss)
        return actor, temperature, {"entropy": -log_prob.mean(), "actor_loss": objective}

    def imitation(
        self, policy: Squashed | Clipped, broadcast: Broadcast, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """The term that is added to SAC's actor loss: 0 in CQL."""
        return jnp.zeros(())
