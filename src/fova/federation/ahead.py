"""Compile the programs of a round before they are needed, side by side.

XLA compiles outside Python's lock, so the clients' and the server's part compile at the same time as the program
that makes the networks. `jax.jit` finds what was compiled here when it is called with the same shapes.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

AT_ONCE = 2


class Ahead:
    """Programs that are being compiled in the background.

    Errors are not reported here: the later call that needs the program raises the same error.
    """

    def __init__(self, clients: Callable[[], tuple[Any, Any]], server: Callable[[Any], Any]) -> None:
        """`clients` lowers the clients' part and returns the shapes of its results, which `server` lowers from."""
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._all = self._pool.submit(self._compile, clients, server)

    def _compile(self, clients: Callable[[], tuple[Any, Any]], server: Callable[[Any], Any]) -> None:
        lowered, results = clients()
        following = self._pool.submit(lambda: server(results).compile())
        lowered.compile()
        following.result()

    def wait(self) -> None:
        """Return when everything is compiled."""
        self._all.exception()
        self._pool.shutdown()


def shapes(tree: Any, sharding: Any, *axes: int, from_host: bool = False) -> Any:
    """The shapes of a tree's arrays with this sharding, with `axes` as leading axes.

    Arrays that come from the host have no weak types.
    """

    def of(leaf: Any) -> jax.ShapeDtypeStruct:
        weak = not from_host and leaf.weak_type
        return jax.ShapeDtypeStruct((*axes, *leaf.shape), leaf.dtype, sharding=sharding, weak_type=weak)

    return jax.tree.map(of, tree)
