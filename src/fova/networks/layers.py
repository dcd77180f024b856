"""Linear layers, LayerNorm and the MLP. `products` and `reuse` keep the matrix products of a forward pass."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

T = TypeVar("T")
Initialisation = Literal["orthogonal", "fan_in"]
# The matrix products of a forward pass, one array per layer; see `MLP.products`.
Products = list[Float[Array, "*stack batch width"]]


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
        *layer_keys, last_key = jax.random.split(key, len(hidden) + 1)
        widths = [inputs, *hidden]
        self.layers = [
            Linear(layer_key, *sizes, initialisation, gain=2**0.5)
            for layer_key, sizes in zip(layer_keys, pairwise(widths), strict=True)
        ]
        self.norms = [LayerNorm(width) for width in hidden] if layer_norm else []
        self.last = Linear(last_key, widths[-1], outputs, initialisation, gain=last_gain)

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        return self.products(x)[-1]

    def products(self, x: Float[Array, "batch inputs"]) -> Products:
        """The product of every layer, the output last. `reuse` takes gradients from them."""
        products = []
        for i, layer in enumerate(self.layers):
            products.append(layer(x))
            x = self._activation(i, products[-1])
        return [*products, self.last(x)]

    def after_first(self, product: Float[Array, "batch width"]) -> Float[Array, "batch outputs"]:
        """The output, given the product of the first layer."""
        for i, layer in enumerate(self.layers[1:]):
            product = layer(self._activation(i, product))
        return self.last(self._activation(len(self.layers) - 1, product))

    def reuse(self, x: Float[Array, "batch inputs"], products: Products) -> Float[Array, "batch outputs"]:
        """`self(x)`, given `self.products(x)`. Only a backward pass has a cost."""
        for i, layer in enumerate(self.layers):
            x = self._activation(i, layer.reuse(x, products[i]))
        return self.last.reuse(x, products[-1])

    def _activation(self, i: int, x: Float[Array, "batch width"]) -> Float[Array, "batch width"]:
        return jax.nn.relu(self.norms[i](x) if self.norms else x)


def polyak(target: T, current: T, rate: float) -> T:
    """target + rate (current - target), leaf by leaf: how target networks follow the current ones."""
    return jax.tree.map(lambda t, c: t + rate * (c - t), target, current)
