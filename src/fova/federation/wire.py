"""The form in which a submission is sent: how a client encodes it, and how the server decodes it.

An envelope is a small frozen value with two pure functions. Both engines call them at the same two places, so an
envelope (compression, noise) works in the same way in a simulation and over a network. This module handles trees of
arrays and their names. It uses no network, no files and no Flower.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Submission


class Envelope(Protocol):
    """The encoding of a submission. Implementations are frozen (hashable) dataclasses.

    Both functions handle one client, are traced by JAX and may be vmapped over clients. Only the result of `encode`
    leaves the client, including metrics and weight.
    """

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        """The submission to send. Its `parameters` may be any tree of arrays of any type.

        `broadcast` is the server's message at the start of the round. `key` is used for this message only. In a
        simulation the key is derived from the seed. Over a network it is random and never leaves the client;
        otherwise the server could remove the noise.
        """

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        """The submission that the server uses. Its `parameters` have the shape of the broadcast again."""


@dataclass(frozen=True)
class Plain:
    """Sends a submission as it is."""

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        return submission

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        return sent


PLAIN = Plain()


# --- Trees of arrays by name ---


def named_arrays(tree: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a tree as NumPy arrays, by their path in the tree: `actor/net/last/bias`, ..."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def expected_arrays(like: Any) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of every array of a tree, by its name. The leaves of `like` may be shapes only."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(like)
    return {_name(path): (tuple(leaf.shape), np.dtype(leaf.dtype)) for path, leaf in leaves}


def from_named_arrays(arrays: Mapping[str, NDArray[Any]], like: Any) -> Any:
    """The inverse of `named_arrays`: a tree with the structure of `like`, whose leaves may be shapes only."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree.unflatten(structure, [arrays[_name(path)] for path, _ in leaves])


def payload_bytes(tree: Any) -> int:
    """The size of a tree's arrays in bytes. Its leaves may be shapes only."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
