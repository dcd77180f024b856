"""Differential privacy for whole clients: a limit on what the published parameters reveal about one client's data.

A client's update (its parameters minus the broadcast) is clipped to a largest norm, and Gaussian noise is added.
There are two places to add the noise:

- `server`: the server clips every update, sums them and adds noise once. It sees every update without noise, so the
  clients must trust it. The guarantee covers everyone else who sees the broadcasts or the trained policy. Clients
  are drawn independently of one another, and only the server knows which ones were drawn. The accounting uses this.
- `client`: every client adds noise to what it sends. Clients need not trust the server. The noise is much larger.

In both cases nothing else leaves a client: no weight and no metric. docs/privacy.md describes the guarantee and its
limits.
"""

import math
import os
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from fova.algorithms.base import Submission, clip_gradient
from fova.errors import FovaError
from fova.federation import accountant
from fova.federation.compression import moved, update_of
from fova.federation.wire import PLAIN, Envelope

T = TypeVar("T")
NoiseAt = Literal["server", "client"]

FEWEST_CLIENTS = 2
# The norm of d standard normal numbers exceeds sqrt(d) + t with probability below exp(-t^2 / 2): 1.5e-8 for this t.
UNLIKELY = 6.0


@dataclass(frozen=True)
class Privacy:
    """The privacy settings of a federation. Raises an error for settings that give no guarantee."""

    noise_at: NoiseAt
    clip: float  # the largest norm of a client's update, over all of its parameters together
    noise: float  # standard deviation of the noise on every coordinate, as a multiple of `clip`
    delta: float
    clients: int  # all clients of the federation, drawn or not
    participation: float = 1.0
    method: accountant.Method = "rdp"  # how epsilon is computed

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0.0):
            raise FovaError(
                f"The clipping norm is {self.clip}, but must be a number above 0. A run without privacy logs "
                "clients' norms as update_norm; their median is a good start."
            )
        if self.clients < FEWEST_CLIENTS:
            raise FovaError(
                f"Privacy hides one client among others, and there are {self.clients}. At least {FEWEST_CLIENTS} "
                f"are needed, and hundreds for noise that leaves something to learn."
            )
        accountant.epsilon(self._multiplier, self._sampling, 1, self.delta)  # checks noise, sampling and delta
        if self.delta >= 1 / self.clients:
            raise FovaError(
                f"delta is {self.delta:g}, but must be below 1/{self.clients}: publishing all data of one of the "
                f"{self.clients} clients would keep such a promise. 1e-5 is usual."
            )
        if self.expected_clients < 1.0:
            raise FovaError(
                f"participation {self.participation:g} draws {self.expected_clients:.2g} of {self.clients} clients "
                f"in a round on average. Raise it to at least {1 / self.clients:.2g}."
            )

    @property
    def expected_clients(self) -> float:
        """The average number of clients that a round draws."""
        return self.participation * self.clients

    def envelope(self, inner: Envelope) -> "Private":
        """The envelope of a client's submission. `inner` is the form in which it is sent afterwards."""
        return Private(self.clip, self.noise * self.clip if self.noise_at == "client" else 0.0, inner)

    def epsilon(self, rounds: int) -> float:
        """The epsilon that is spent after this number of rounds.

        `server`: neighbouring federations differ in whether one client takes part, which moves the sum by one norm.
        `client`: the server sees which clients take part. Neighbouring federations differ in one client's data,
        which moves its message by two norms, and random participation hides nothing.
        """
        return accountant.epsilon(self._multiplier, self._sampling, rounds, self.delta, self.method)

    def spent(self, rounds: int) -> dict[str, float]:
        """Values for a round's log: epsilon of one round, epsilon of all rounds so far, and delta."""
        return {"epsilon_round": self.epsilon(1), "epsilon": self.epsilon(rounds), "delta": self.delta}

    def noise_for(self, epsilon: float, rounds: int) -> float:
        """The noise with which this number of rounds spends at most `epsilon`."""
        needed = accountant.noise_for(epsilon, self._sampling, rounds, self.delta, self.method)
        return needed * self.noise / self._multiplier

    @property
    def _multiplier(self) -> float:
        return self.noise if self.noise_at == "server" else self.noise / 2

    @property
    def _sampling(self) -> float:
        return self.participation if self.noise_at == "server" else 1.0


@dataclass(frozen=True)
class Private:
    """The envelope of a private submission. `inner` is the form in which it is sent afterwards."""

    clip: float
    deviation: float = 0.0  # standard deviation of the noise that the client adds
    inner: Envelope = PLAIN

    def encode(self, submission: Submission, broadcast: Any, key: PRNGKeyArray) -> Submission:
        noise_key, inner_key = jax.random.split(key)
        update = shortened(update_of(submission.parameters, broadcast), self.clip)
        if self.deviation:
            update = with_noise(update, self.deviation, noise_key)
        return self.inner.encode(_bare(moved(broadcast, update)), broadcast, inner_key)

    def decode(self, sent: Submission, broadcast: Any) -> Submission:
        received = self.inner.decode(sent, broadcast).parameters
        if self.deviation:
            # What an honest client can send is bounded, too: its update and its noise.
            numbers = sum(leaf.size for leaf in jax.tree.leaves(received))
            longest = self.clip + self.deviation * (math.sqrt(numbers) + UNLIKELY)
            return _bare(moved(broadcast, clip_gradient(update_of(received, broadcast), longest)))
        # Clip again at the server: the guarantee must not depend on honest clients or on rounding in transit.
        return _bare(moved(broadcast, shortened(update_of(received, broadcast), self.clip)))


def publish(privacy: Privacy, broadcast: T, mean: T, count: float, key: PRNGKeyArray) -> T:
    """The next broadcast of a server that adds noise. `mean` is the mean over the `count` accepted clients.

    The noisy sum is divided by the expected number of clients. The actual number depends on which clients were
    drawn, and so on whether one client exists.
    """
    total = jax.tree.map(lambda leaf: jnp.where(count > 0, count * leaf, 0.0), update_of(mean, broadcast))
    noisy = with_noise(total, privacy.noise * privacy.clip, key)
    return moved(broadcast, jax.tree.map(lambda leaf: leaf / privacy.expected_clients, noisy))


def secret_key() -> PRNGKeyArray:
    """A secret random key from the operating system. Without it nobody can remove the noise."""
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(os.urandom(8), np.uint32)))


def shortened(update: T, largest: float) -> T:
    """The update, scaled down to norm `largest` if it is longer. An update that is not finite becomes zeros."""
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(update)]).all()
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0), clip_gradient(update, largest))


def with_noise(tree: T, deviation: float, key: PRNGKeyArray) -> T:
    """The tree with independent Gaussian noise added to every number."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + deviation * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys)]
    return jax.tree.unflatten(structure, noisy)


def _bare(parameters: Any) -> Submission:
    """A submission of parameters only. A weight or a metric would reveal what clipping and noise hide."""
    return Submission(parameters, jnp.zeros(()), {})
