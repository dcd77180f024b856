"""Compressed submissions: a client sends its update (its parameters minus the broadcast) in fewer bits.

Updates are small compared with the parameters, so rounding an update loses much less than rounding the parameters.
Numbers that are not finite stay not finite after decoding, and the server rejects them. The broadcast is sent
uncompressed, because every client must add its update to exactly the server's parameters. Pure functions of arrays.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8, PRNGKeyArray

from fova.algorithms.base import Submission, replace
from fova.federation.wire import PLAIN, Envelope

T = TypeVar("T")
Compression = Literal["none", "float16", "int8"]

LEVELS = 127  # the levels of an 8-bit integer on each side of zero


def update_of(parameters: T, broadcast: T) -> T:
    """A client's update in a round: its parameters minus the broadcast."""
    return jax.tree.map(jnp.subtract, parameters, broadcast)


def moved(broadcast: T, update: T) -> T:
    """The broadcast plus an update."""
    return jax.tree.map(jnp.add, broadcast, update)


@dataclass(frozen=True)
class HalfPrecision:
    """Sends the update in float16: half the bytes, with a relative error of at most 1/2048."""

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        update = update_of(submission.parameters, broadcast)
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), update)
        return replace(submission, parameters=half)

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        update = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), sent.parameters, broadcast)
        return replace(sent, parameters=moved(broadcast, update))


@dataclass(frozen=True)
class EightBits:
    """Sends the update as 8-bit integers with one scale per array: a quarter of the bytes.

    Numbers are rounded up or down at random, so that they are correct on average. Rounding to the nearest level
    would lose everything below half a level in every round, and a slow drift would never reach the server.
    """

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        leaves, structure = jax.tree.flatten(update_of(submission.parameters, broadcast))
        keys = jax.random.split(key, len(leaves))
        scales = [jnp.abs(leaf).max() / LEVELS for leaf in leaves]
        levels = [quantise(leaf, scale, k) for leaf, scale, k in zip(leaves, scales, keys)]
        sent = {"levels": jax.tree.unflatten(structure, levels), "scales": jax.tree.unflatten(structure, scales)}
        return replace(submission, parameters=sent)

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        coded: Any = sent.parameters
        update = jax.tree.map(jnp.multiply, coded["levels"], coded["scales"])
        return replace(sent, parameters=moved(broadcast, update))


def quantise(values: Float[Array, "..."], scale: Float[Array, ""], key: PRNGKeyArray) -> Int8[Array, "..."]:
    """The values as integer multiples of `scale`, rounded up or down at random so that they are unbiased."""
    exact = values / jnp.where(scale == 0, 1.0, scale)
    up = jax.random.uniform(key, values.shape)
    return jnp.clip(jnp.floor(exact + up), -LEVELS, LEVELS).astype(jnp.int8)


COMPRESSIONS: dict[Compression, Envelope] = {"none": PLAIN, "float16": HalfPrecision(), "int8": EightBits()}
