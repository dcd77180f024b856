"""Smaller submissions: a client sends how far it moved from the broadcast, in fewer bits.

Updates are small beside the parameters themselves, so a rounded update loses far less than rounded parameters
would. Numbers that are not finite stay so on the other side, where they are rejected. The broadcast travels
uncompressed: every client must add its update to exactly what the server has. Pure functions of arrays.
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

LEVELS = 127  # of an 8-bit integer on either side of zero


def update_of(parameters: T, broadcast: T) -> T:
    """How far a client moved in a round."""
    return jax.tree.map(jnp.subtract, parameters, broadcast)


def moved(broadcast: T, update: T) -> T:
    """Where an update leads."""
    return jax.tree.map(jnp.add, broadcast, update)


@dataclass(frozen=True)
class HalfPrecision:
    """The update in float16: half the bytes, a relative error of at most 1/2048."""

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        update = update_of(submission.parameters, broadcast)
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), update)
        return replace(submission, parameters=half)

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        update = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), sent.parameters, broadcast)
        return replace(sent, parameters=moved(broadcast, update))


@dataclass(frozen=True)
class EightBits:
    """The update as 8-bit integers, with one scale per array: a quarter of the bytes.

    Rounding is up or down by chance, so that a number is right on average. Rounded to the nearest, whatever is
    smaller than half a level would be lost in every round, and a slow drift would never arrive.
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
    """Whole multiples of `scale` next to the values, up or down with the odds that make them right on average."""
    exact = values / jnp.where(scale == 0, 1.0, scale)
    up = jax.random.uniform(key, values.shape)
    return jnp.clip(jnp.floor(exact + up), -LEVELS, LEVELS).astype(jnp.int8)


COMPRESSIONS: dict[Compression, Envelope] = {"none": PLAIN, "float16": HalfPrecision(), "int8": EightBits()}
