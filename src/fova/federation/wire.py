"""The form in which a submission travels: what is done to it before it leaves a client, and undone at the server.

An envelope is a small frozen value with two pure functions. Both engines call them at the same two places, so
whatever is plugged in here (smaller numbers, noise) works in a simulation and over a network alike. This room
knows trees of arrays and their names; nothing about networks, files or Flower.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Submission
from fova.errors import FovaError


class Envelope(Protocol):
    """What may be done to a submission on its way. Implementations are frozen (hashable) dataclasses.

    Both functions see one client, are traced by JAX and may be vmapped over clients. What `encode` returns is all
    that leaves the client, metrics and weight included.
    """

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        """What is sent. `parameters` may become any tree of arrays of any kind; `broadcast` is what the server
        sent at the start of the round; `key` is for this message alone. In a simulation the key follows from the
        seed; over a network it is fresh and never leaves the client, or the server could take noise off again."""

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        """What the server goes on with: `parameters` shaped like the broadcast again."""


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
    """The leaves of a tree on the host, by where they stand in it: `actor/net/last/bias`, ..."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def from_named_arrays(arrays: Mapping[str, NDArray[Any]], like: Any) -> Any:
    """The inverse of `named_arrays`: a tree shaped `like` another (whose leaves may be mere shapes)."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(path): leaf for path, leaf in leaves}
    if set(arrays) != set(expected):
        strange = sorted(set(arrays) ^ set(expected))
        raise FovaError(f"The arrays do not fit: {', '.join(strange[:3])} is on one side only.")
    for name, leaf in expected.items():
        given, wanted = arrays[name], (tuple(leaf.shape), np.dtype(leaf.dtype))
        if (given.shape, given.dtype) != wanted:
            raise FovaError(
                f"{name} is {given.dtype}{list(given.shape)}, but {wanted[1]}{list(wanted[0])} is needed."
            )
    return jax.tree.unflatten(structure, [arrays[name] for name in expected])


def payload_bytes(tree: Any) -> int:
    """The size of a tree's numbers; its leaves may be mere shapes."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
