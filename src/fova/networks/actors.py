"""Actors: from states to distributions over actions."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fova.networks.distributions import Categorical, Clipped, Point, Squashed
from fova.networks.layers import MLP, Initialisation, Products
from fova.spaces import Discrete, Space

ActorKind = Literal["clipped", "squashed", "deterministic"]
LOG_STD_RANGE = (-5.0, 2.0)


class GaussianForm(NamedTuple):
    """In what the Gaussian actors of published programs differ."""

    log_std_range: tuple[float, float] = LOG_STD_RANGE
    trained_log_std: bool = False  # log_std = multiplier * output + offset, with trained numbers
    slope_offset: float = 0.0  # added to 1 - a^2 in the log-density of a squashed action
    saturation: float = 1e-6  # distance from the bounds at which the arctanh of a squashed action is taken
    shared_std: bool = False  # one trained log_std per action column, the same in every state


PLAIN = GaussianForm()


class GaussianActor(eqx.Module):
    """State -> distribution over actions, `Squashed` or `Clipped`."""

    net: MLP
    kind: Literal["squashed", "clipped"] = eqx.field(static=True)
    form: GaussianForm = eqx.field(static=True, default=PLAIN)
    # Multiplier and offset if they are trained, the log-std of each action column if it is shared.
    log_std: Float[Array, " numbers"] | None = None

    @staticmethod
    def start(net: MLP, kind: Literal["squashed", "clipped"], form: GaussianForm) -> "GaussianActor":
        """An actor that has not been trained. Its log-std starts near 0 (times 1, minus 1 if these are trained)."""
        if form.shared_std:
            return GaussianActor(net, kind, form, jnp.zeros_like(net.last.bias))
        return GaussianActor(net, kind, form, jnp.array([1.0, -1.0]) if form.trained_log_std else None)

    def __call__(self, observation: Float[Array, "batch observation"]) -> Squashed | Clipped:
        return self.distribution(self.net(observation))

    def forward(self, observation: Float[Array, "batch observation"]) -> "Forward":
        """The distribution at each observation, kept so that a loss can use it again without a forward pass."""
        return Forward(self, observation, self.net.products(observation))

    def distribution(self, output: Float[Array, "batch parameters"]) -> Squashed | Clipped:
        """The action distribution whose parameters are the network's output."""
        mean, log_std = self._parameters(output)
        log_std = jnp.clip(log_std, *self.form.log_std_range)
        if self.kind == "squashed":
            return Squashed(mean, log_std, self.form.slope_offset, self.form.saturation)
        return Clipped(jnp.tanh(mean), log_std)

    def _parameters(
        self, output: Float[Array, "batch parameters"]
    ) -> tuple[Float[Array, "batch action"], Float[Array, "batch action"]]:
        """Mean and log-std before their limits."""
        if self.form.shared_std:
            assert self.log_std is not None
            return output, jnp.broadcast_to(self.log_std, output.shape)
        mean, log_std = jnp.split(output, 2, axis=-1)
        if self.log_std is not None:
            log_std = self.log_std[0] * log_std + self.log_std[1]
        return mean, log_std


class Forward(eqx.Module):
    """A finished forward pass of an actor."""

    actor: GaussianActor
    observation: Float[Array, "batch observation"]
    products: Products

    @property
    def policy(self) -> Squashed | Clipped:
        return self.actor.distribution(self.products[-1])

    def for_actor(self, actor: GaussianActor) -> Squashed | Clipped:
        """The same distribution with gradients for `actor`, which has the parameters of this forward pass."""
        return actor.distribution(actor.net.reuse(self.observation, self.products))


class DeterministicActor(eqx.Module):
    """State -> one action."""

    net: MLP

    def __call__(self, observation: Float[Array, "batch observation"]) -> Point:
        return Point(jnp.tanh(self.net(observation)))


class CategoricalActor(eqx.Module):
    """State -> distribution over the actions of a discrete space."""

    net: MLP

    def __call__(self, observation: Float[Array, "batch observation"]) -> Categorical:
        return Categorical(self.net(observation))


Actor = GaussianActor | DeterministicActor | CategoricalActor


def make_actor(
    key: PRNGKeyArray,
    space: Space,
    kind: ActorKind,
    hidden: Sequence[int],
    layer_norm: bool = False,
    initialisation: Initialisation = "orthogonal",
    form: GaussianForm = PLAIN,
) -> Actor:
    """An actor for the space: categorical if its actions are discrete, else of the given kind.

    With orthogonal weights its first actions hardly depend on the state.
    """

    def net(outputs: int) -> MLP:
        return MLP(key, space.observation, hidden, outputs, layer_norm, initialisation, last_gain=0.01)

    if isinstance(space.action, Discrete):
        return CategoricalActor(net(space.action.count))
    if kind == "deterministic":
        return DeterministicActor(net(space.action.size))
    return GaussianActor.start(net(space.action.size if form.shared_std else 2 * space.action.size), kind, form)
