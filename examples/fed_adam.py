"""A server optimiser of your own in one file: FedAdam on top of FOVA.

    fova train --algorithm examples/fed_adam.py --task maze2d-umaze --clients expert random

Reddi et al., "Adaptive Federated Optimization", algorithm 2. The difference between the weighted mean of the
clients' networks and the broadcast serves as a gradient, along which the server takes one step of Adam.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from fova.algorithms.base import Learner, Server, Submission, replace
from fova.algorithms.fova import Fova


class Moments(eqx.Module):
    """What the server keeps between rounds, each with the structure of the broadcast."""

    m: Any
    v: Any


@dataclass(frozen=True)
class FedAdam(Fova):
    """FedAdam at the server, FOVA at every client."""

    name: ClassVar[str] = "fed-adam"

    server_lr: float = 0.01
    """eta: learning rate of the server."""
    first_decay: float = 0.9
    """beta_1: decay of the mean of the differences."""
    second_decay: float = 0.99
    """beta_2: decay of the mean of their squares."""
    adaptivity: float = 1e-3
    """tau: the smallest divisor of a step. Large values mean steps proportional to the difference."""

    def start(self, learner: Learner) -> Server:
        server = super().start(learner)
        m = jax.tree.map(jnp.zeros_like, server.broadcast)
        v = jax.tree.map(lambda x: jnp.full_like(x, self.adaptivity**2), server.broadcast)
        return replace(server, kept=Moments(m, v))

    def aggregate(self, server: Server, submissions: Submission) -> Server:
        x, kept = server.broadcast, server.kept
        mean = super().aggregate(server, submissions).broadcast

        # Delta = mean_k x_k - x;  m <- b1 m + (1 - b1) Delta;  v <- b2 v + (1 - b2) Delta^2
        delta = jax.tree.map(jnp.subtract, mean, x)
        b1, b2 = self.first_decay, self.second_decay
        m = jax.tree.map(lambda m, d: b1 * m + (1.0 - b1) * d, kept.m, delta)
        v = jax.tree.map(lambda v, d: b2 * v + (1.0 - b2) * jnp.square(d), kept.v, delta)

        # x <- x + eta m / (sqrt(v) + tau)
        eta, tau = self.server_lr, self.adaptivity
        x = jax.tree.map(lambda x, m, v: x + eta * m / (jnp.sqrt(v) + tau), x, m, v)
        return Server(broadcast=x, kept=Moments(m, v))
