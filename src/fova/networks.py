"""Actors and critics: plain pytrees of weights that act on whole batches.

Networks take normalised observations and give actions in [-1, 1]. Nothing in this file knows about clients, losses
or data. A stack of networks (twin critics, the clients of a federation) is the same pytree with a leading axis.
Averaging is then a tree map, and running a stack is one `jax.vmap`.

`GaussianActor.forward` and `TwinCritic.score` keep the matrix products of a forward pass. A loss that needs the
same values again takes its gradients from them and repeats no product.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fova.spaces import Space

T = TypeVar("T")
Initialisation = Literal["orthogonal", "fan_in"]
ActorKind = Literal["clipped", "squashed", "deterministic"]
# The matrix products of a forward pass, one array per layer; see `MLP.products`.
Products = list[Float[Array, "*stack batch width"]]

LOG_STD_RANGE = (-5.0, 2.0)
# The largest |action| whose arctanh is taken. Beyond it the result in float32 is not finite.
SATURATED = 1.0 - 1e-6
LOG_SQRT_2PI = 0.9189385332046727


# --- Layers -----------------------------------------------------------------------------------------------


class Linear(eqx.Module):
    """x @ weight + bias for a batch of rows."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(
        self, key: PRNGKeyArray, inputs: int, outputs: int, initialisation: Initialisation, gain: float
    ) -> None:
        weight_key, bias_key = jax.random.split(key)
        if initialisation == "orthogonal":
            self.weight = jax.nn.initializers.orthogonal(gain)(weight_key, (inputs, outputs), jnp.float32)
            self.bias = jnp.zeros(outputs, jnp.float32)
        elif initialisation == "fan_in":  # uniform in +-1/sqrt(inputs), weights and biases alike
            limit = inputs**-0.5
            self.weight = jax.random.uniform(weight_key, (inputs, outputs), jnp.float32, -limit, limit)
            self.bias = jax.random.uniform(bias_key, (outputs,), jnp.float32, -limit, limit)
        else:
            raise ValueError(f"unknown initialisation {initialisation!r}")

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        return x @ self.weight + self.bias

    def reuse(
        self, x: Float[Array, "batch inputs"], product: Float[Array, "batch outputs"]
    ) -> Float[Array, "batch outputs"]:
        """`self(x)`, given its value. Nothing is multiplied; gradients are those of `self(x)`."""
        return known_product(self.weight, self.bias, x, product)


@jax.custom_vjp
def known_product(
    weight: Float[Array, "inputs outputs"],
    bias: Float[Array, " outputs"],
    x: Float[Array, "batch inputs"],
    product: Float[Array, "batch outputs"],
) -> Float[Array, "batch outputs"]:
    """x @ weight + bias, given its value: the forward pass is free and the gradients are the usual ones."""
    return product


def _known_product_forward(
    weight: Array, bias: Array, x: Array, product: Array
) -> tuple[Array, tuple[Array, Array]]:
    return product, (weight, x)


def _known_product_backward(kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array, Array, None]:
    weight, x = kept
    return x.T @ slope, slope.sum(axis=0), slope @ weight.T, None


known_product.defvjp(_known_product_forward, _known_product_backward)


class LayerNorm(eqx.Module):
    """Normalises each row to mean 0 and variance 1, then scales and shifts it."""

    scale: Float[Array, " width"]
    shift: Float[Array, " width"]

    def __init__(self, width: int) -> None:
        self.scale = jnp.ones(width, jnp.float32)
        self.shift = jnp.zeros(width, jnp.float32)

    def __call__(self, x: Float[Array, "batch width"]) -> Float[Array, "batch width"]:
        return normalised(x, self.scale, self.shift)


@jax.custom_vjp
def normalised(
    x: Float[Array, "batch width"], scale: Float[Array, " width"], shift: Float[Array, " width"]
) -> Float[Array, "batch width"]:
    """Layer normalisation. The gradient is written out, because autodiff's is slower and stores more."""
    return _normalised_forward(x, scale, shift)[0]


def _normalised_forward(x: Array, scale: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    from_mean = x - _row_means(x)
    inverse_std = jax.lax.rsqrt(_row_means(jnp.square(from_mean)) + 1e-5)
    unit = from_mean * inverse_std
    return unit * scale + shift, (unit, inverse_std, scale)


def _normalised_backward(kept: tuple[Array, ...], slope: Array) -> tuple[Array, Array, Array]:
    unit, inverse_std, scale = kept
    into = slope * scale
    along_unit = _row_means(into * unit)
    x_slope = inverse_std * (into - _row_means(into) - unit * along_unit)
    return x_slope, jnp.sum(slope * unit, axis=0), jnp.sum(slope, axis=0)


def _row_means(x: Float[Array, "batch width"]) -> Float[Array, "batch 1"]:
    """The mean of each row as a matrix product, which XLA runs faster on a CPU than a sum along a row."""
    column = jnp.full((x.shape[-1], 1), 1.0 / x.shape[-1], x.dtype)
    return jnp.matmul(x, column, precision="highest")  # full float32 on a GPU, too


normalised.defvjp(_normalised_forward, _normalised_backward)


class MLP(eqx.Module):
    """Hidden layers of Linear, optional LayerNorm and ReLU, then a last Linear."""

    layers: list[Linear]
    norms: list[LayerNorm]
    last: Linear

    def __init__(
        self,
        key: PRNGKeyArray,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        layer_norm: bool = False,
        initialisation: Initialisation = "orthogonal",
        last_gain: float = 1.0,
    ) -> None:
        keys = jax.random.split(key, len(hidden) + 1)
        widths = [inputs, *hidden]
        self.layers = [
            Linear(keys[i], widths[i], widths[i + 1], initialisation, gain=2**0.5) for i in range(len(hidden))
        ]
        self.norms = [LayerNorm(width) for width in hidden] if layer_norm else []
        self.last = Linear(keys[-1], widths[-1], outputs, initialisation, gain=last_gain)

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        return self.products(x)[-1]

    def products(self, x: Float[Array, "batch inputs"]) -> Products:
        """The product of every layer, the output last. `reuse` takes gradients from them."""
        products = []
        for i, layer in enumerate(self.layers):
            products.append(layer(x))
            x = self._activation(i, products[-1])
        return [*products, self.last(x)]

    def reuse(self, x: Float[Array, "batch inputs"], products: Products) -> Float[Array, "batch outputs"]:
        """`self(x)`, given `self.products(x)`. Only a backward pass has a cost."""
        for i, layer in enumerate(self.layers):
            x = self._activation(i, layer.reuse(x, products[i]))
        return self.last.reuse(x, products[-1])

    def _activation(self, i: int, x: Float[Array, "batch width"]) -> Float[Array, "batch width"]:
        return jax.nn.relu(self.norms[i](x) if self.norms else x)


# --- Action distributions ---------------------------------------------------------------------------------


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

    def mode(self) -> Float[Array, "batch action"]:
        return jnp.tanh(self.mean)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "batch action"]:
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(
        self, key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch action"], Float[Array, " batch"]]:
        u = self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)
        return jnp.tanh(u), self._log_density_of(u)

    def log_prob(self, action: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        # An action at the bounds is moved just inside, so that its likelihood is finite.
        return self._log_density_of(jnp.arctanh(jnp.clip(action, -SATURATED, SATURATED)))

    def _log_density_of(self, u: Float[Array, "batch action"]) -> Float[Array, " batch"]:
        # log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), exact for any u
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


# --- Actors and critics -----------------------------------------------------------------------------------


class GaussianActor(eqx.Module):
    """State -> distribution over actions, `Squashed` or `Clipped`."""

    net: MLP
    kind: Literal["squashed", "clipped"] = eqx.field(static=True)

    def __call__(self, observation: Float[Array, "batch observation"]) -> Squashed | Clipped:
        return self.distribution(self.net(observation))

    def forward(self, observation: Float[Array, "batch observation"]) -> "Forward":
        """The distribution at each observation, kept so that a loss can use it again without a forward pass."""
        return Forward(self, observation, self.net.products(observation))

    def distribution(self, output: Float[Array, "batch parameters"]) -> Squashed | Clipped:
        """The action distribution whose parameters are the network's output."""
        mean, log_std = jnp.split(output, 2, axis=-1)
        log_std = jnp.clip(log_std, *LOG_STD_RANGE)
        return Squashed(mean, log_std) if self.kind == "squashed" else Clipped(jnp.tanh(mean), log_std)


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


Actor = GaussianActor | DeterministicActor


def make_actor(
    key: PRNGKeyArray,
    space: Space,
    kind: ActorKind,
    hidden: Sequence[int],
    layer_norm: bool = False,
    initialisation: Initialisation = "orthogonal",
) -> Actor:
    """An actor of the given kind. With orthogonal weights its first actions hardly depend on the state."""
    outputs = space.action.size if kind == "deterministic" else 2 * space.action.size
    net = MLP(key, space.observation, hidden, outputs, layer_norm, initialisation, last_gain=0.01)
    return DeterministicActor(net) if kind == "deterministic" else GaussianActor(net, kind)


class TwinCritic(eqx.Module):
    """Two critics stacked along the leading axis of one pytree, so that each layer is one batched product."""

    net: MLP  # every leaf has a leading axis of 2

    def __init__(
        self,
        key: PRNGKeyArray,
        space: Space,
        hidden: Sequence[int],
        layer_norm: bool = True,
        initialisation: Initialisation = "orthogonal",
    ) -> None:
        def one(member_key: PRNGKeyArray) -> MLP:
            return MLP(member_key, space.observation + space.action.size, hidden, 1, layer_norm, initialisation)

        self.net = jax.vmap(one)(jax.random.split(key, 2))

    def __call__(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "*stack batch action"]
    ) -> Float[Array, "2 *stack batch"]:
        """Q1 and Q2 of each action at its observation. A stack of candidates per state is scored in one call."""
        return self.score(observation, action).q

    def score(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "*stack batch action"]
    ) -> "Scored":
        """Q1 and Q2 as in a call, kept so that losses can use them again without a forward pass."""
        rows = state_action_rows(observation, action)
        products = jax.vmap(lambda net: net.products(rows))(self.net)
        shaped = [product.reshape(2, *action.shape[:-1], product.shape[-1]) for product in products]
        return Scored(self, observation, action, shaped)

    def paired(
        self, observation: Float[Array, "batch observation"], action: Float[Array, "2 *stack batch action"]
    ) -> Float[Array, "2 *stack batch"]:
        """Q1 of the first critic's actions and Q2 of the second's."""

        def score(net: MLP, action: Float[Array, "*stack batch action"]) -> Float[Array, "*stack batch"]:
            return net(state_action_rows(observation, action))[..., 0].reshape(action.shape[:-1])

        return jax.vmap(score)(self.net, action)

    def reuse(
        self,
        observation: Float[Array, "batch observation"],
        action: Float[Array, "2 *stack batch action"],
        products: Products,
    ) -> Float[Array, "2 *stack batch"]:
        """`paired(observation, action)`, given the products of that forward pass."""

        def score(
            net: MLP, action: Float[Array, "*stack batch action"], products: Products
        ) -> Float[Array, "*stack batch"]:
            flat = [product.reshape(-1, product.shape[-1]) for product in products]
            return net.reuse(state_action_rows(observation, action), flat)[..., 0].reshape(action.shape[:-1])

        return jax.vmap(score)(self.net, action, products)


class Scored(eqx.Module):
    """Q of a stack of candidate actions: a finished forward pass of twin critics."""

    critic: TwinCritic
    observation: Float[Array, "batch observation"]
    actions: Float[Array, "*stack batch action"]
    products: Products  # [2, *stack, batch, width] each

    @property
    def q(self) -> Float[Array, "2 *stack batch"]:
        return self.products[-1][..., 0]

    def for_critic(
        self, critic: TwinCritic, candidate: int, winner: Int[Array, "2 batch"]
    ) -> tuple[Float[Array, "2 batch"], Float[Array, "2 batch"]]:
        """Q of one candidate and Q of each critic's winner, with gradients for `critic`.

        `critic` has the parameters of this forward pass. Candidates without a gradient cost nothing.
        """
        pair = [
            jnp.stack([values[:, candidate], pick(values, winner)], axis=1)
            for values in (jnp.broadcast_to(self.actions, (2, *self.actions.shape)), *self.products)
        ]
        q = critic.reuse(self.observation, pair[0], pair[1:])
        return q[:, 0], q[:, 1]

    def for_action(self, candidate: int, action: Float[Array, "batch action"]) -> Float[Array, "2 batch"]:
        """Q of one candidate with gradients for `action`, which has the value of that candidate."""
        both = jnp.broadcast_to(action, (2, *action.shape))
        return self.critic.reuse(self.observation, both, [values[:, candidate] for values in self.products])


def pick(
    values: Float[Array, "2 candidates batch ..."], winner: Int[Array, "2 batch"]
) -> Float[Array, "2 batch ..."]:
    """For each critic and state, the value of the winning candidate."""
    won = winner.reshape(*winner.shape, *[1] * (values.ndim - 3))
    picked = values[:, 0]
    for candidate in range(1, values.shape[1]):  # selections are faster than a gather
        picked = jnp.where(won == candidate, values[:, candidate], picked)
    return picked


def state_action_rows(
    observation: Float[Array, "batch observation"], action: Float[Array, "*stack batch action"]
) -> Float[Array, "rows inputs"]:
    """One row for each action: its observation, then the action itself."""
    states = jnp.broadcast_to(observation, (*action.shape[:-1], observation.shape[-1]))
    rows = jnp.concatenate([states, action], axis=-1)
    return rows.reshape(-1, rows.shape[-1])


def polyak(target: T, current: T, rate: float) -> T:
    """target + rate (current - target), leaf by leaf: how target networks follow the current ones."""
    return jax.tree.map(lambda t, c: t + rate * (c - t), target, current)


# --- How far apart two policies are -----------------------------------------------------------------------


def distance(one: Squashed | Clipped | Point, other: Squashed | Clipped | Point) -> Float[Array, ""]:
    """Mean over states of the distance between two policies, in [0, 1].

    Between Gaussians it is the total variation, 1/2 integral |p - q|. It is estimated with samples from the even
    mixture of the two, where |p - q| / (p + q) = |tanh((log p - log q) / 2)| is bounded. A squash does not change a
    total variation and clipping can only reduce it, so both kinds are measured before either. The noise is fixed:
    a difference between rounds is a difference between policies. Deterministic actions have no density; their
    distance is half the mean absolute difference.
    """
    if isinstance(one, Point) or isinstance(other, Point):
        return 0.5 * jnp.mean(jnp.abs(one.mode() - other.mode()))
    noise = jax.random.normal(jax.random.key(0), (2, *one.mean.shape))
    actions = jnp.stack([g.mean + jnp.exp(g.log_std) * e for g, e in zip((one, other), noise)])
    log_p, log_q = (normal_log_density(actions, g.mean, g.log_std) for g in (one, other))
    return jnp.mean(jnp.abs(jnp.tanh(0.5 * (log_p - log_q))))
