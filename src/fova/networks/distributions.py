"""Distributions over actions, and how far apart two policies are."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

LOG_SQRT_2PI = 0.9189385332046727


def normal_log_density(
    x: Float[Array, "... action"], mean: Float[Array, "... action"], log_std: Float[Array, "... action"]
) -> Float[Array, "..."]:
    """log N(x; mean, exp(log_std)^2), summed over the action's dimensions."""
    z = (x - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * z**2 - log_std - LOG_SQRT_2PI, axis=-1)


class Squashed(eqx.Module):
    """a = tanh(u) with u Gaussian. Its density has a factor 1 / (1 - a^2), which is unbounded at the bounds."""

    mean: Float[Array, "batch action"]
    log_std: Float[Array, "batch action"]
    slope_offset: float = eqx.field(static=True, default=0.0)  # some programs add it to 1 - a^2
    # How near to the bounds the arctanh of an action is taken. At the bounds it is not finite.
    saturation: float = eqx.field(static=True, default=1e-6)

    def mode(self) -> Float[Array, "batch action"]:
        return jnp.tanh(self.mean)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "batch action"]:
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
        u = self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)
        action = jnp.tanh(u)
        return action, self._log_density(u, action)

    def log_prob(self, action: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        # An action at the bounds is moved just inside, so that its likelihood is finite.
        most = 1.0 - self.saturation
        return self._log_density(jnp.arctanh(jnp.clip(action, -most, most)), action)

    def _log_density(
        self, u: Float[Array, "batch action"], action: Float[Array, "batch action"]
    ) -> Float[Array, " batch"]:
        if self.slope_offset:
            log_slope = jnp.log(1.0 - jnp.square(action) + self.slope_offset)
        else:  # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), exact for any u
            log_slope = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
        return normal_log_density(u, self.mean, self.log_std) - jnp.sum(log_slope, axis=-1)


class Clipped(eqx.Module):
    """A Gaussian around a tanh mean. Samples are clipped to the bounds; the density is that of the Gaussian.

    Nothing is squashed, so the likelihood of an action at the bounds depends only on its distance from the mean.
    """

    mean: Float[Array, "batch action"]  # already inside (-1, 1)
    log_std: Float[Array, "batch action"]

    def mode(self) -> Float[Array, "batch action"]:
        return self.mean

    def sample(self, key: PRNGKeyArray) -> Float[Array, "batch action"]:
        noise = jax.random.normal(key, self.mean.shape)
        return jnp.clip(self.mean + jnp.exp(self.log_std) * noise, -1.0, 1.0)

    def sample_with_log_prob(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
        action = self.sample(key)
        return action, self.log_prob(action)

    def log_prob(self, action: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        return normal_log_density(action, self.mean, self.log_std)


class Point(eqx.Module):
    """A deterministic policy's action. It has no density."""

    action: Float[Array, "batch action"]

    def mode(self) -> Float[Array, "batch action"]:
        return self.action

    def sample(self, key: PRNGKeyArray) -> Float[Array, "batch action"]:
        return self.action


class Categorical(eqx.Module):
    """A distribution over the actions of a discrete space. An action is its code, a float in one column."""

    logits: Float[Array, "batch count"]

    def log_probabilities(self) -> Float[Array, "batch count"]:
        return jax.nn.log_softmax(self.logits, axis=-1)

    def probabilities(self) -> Float[Array, "batch count"]:
        return jax.nn.softmax(self.logits, axis=-1)

    def mode(self) -> Float[Array, "batch 1"]:
        return self.logits.argmax(axis=-1, keepdims=True).astype(jnp.float32)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "batch 1"]:
        return jax.random.categorical(key, self.logits)[:, None].astype(jnp.float32)

    def log_prob(self, action: Float[Array, "batch 1"]) -> Float[Array, " batch"]:
        return taken(self.log_probabilities(), action)

    def entropy(self) -> Float[Array, " batch"]:
        return -jnp.sum(self.probabilities() * self.log_probabilities(), axis=-1)


def taken(
    values: Float[Array, "*stack batch count"], action: Float[Array, "batch 1"]
) -> Float[Array, "*stack batch"]:
    """The value of each row's action, given one value for every action of a discrete space."""
    codes = jnp.broadcast_to(action.squeeze(axis=1).astype(jnp.int32), values.shape[:-1])
    return jnp.take_along_axis(values, codes[..., None], axis=-1).squeeze(axis=-1)


# --- How far apart two policies are -----------------------------------------------------------------------


Distribution = Squashed | Clipped | Point | Categorical


def distance(one: Distribution, other: Distribution) -> Float[Array, ""]:
    """Mean over states of the distance between two policies, in [0, 1].

    Between policies over discrete actions it is the total variation, 1/2 sum |p - q|. Between Gaussians it is
    1/2 integral |p - q|, estimated with samples from the even mixture of the two, where |p - q| / (p + q) =
    |tanh((log p - log q) / 2)| is bounded. A squash does not change a total variation and clipping can only reduce
    it, so both kinds are measured before either. The noise is fixed: a difference between rounds is a difference
    between policies. Deterministic actions have no density; their distance is half the mean absolute difference.
    """
    if isinstance(one, Categorical) and isinstance(other, Categorical):
        return 0.5 * jnp.abs(one.probabilities() - other.probabilities()).sum(axis=1).mean()
    if isinstance(one, Squashed | Clipped) and isinstance(other, Squashed | Clipped):
        noise = jax.random.normal(jax.random.key(0), (2, *one.mean.shape))
        actions = jnp.stack([g.mean + jnp.exp(g.log_std) * e for g, e in zip((one, other), noise)])
        log_p, log_q = (normal_log_density(actions, g.mean, g.log_std) for g in (one, other))
        return jnp.mean(jnp.abs(jnp.tanh(0.5 * (log_p - log_q))))
    return 0.5 * jnp.mean(jnp.abs(one.mode() - other.mode()))
