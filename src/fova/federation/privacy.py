"""Differential privacy for whole clients: what anybody can learn about one client's data from what is made public.

A client's update (its parameters minus the broadcast) is shortened to a largest norm, and Gaussian noise is added.
Who adds it is a question of trust:

- `server`: the server shortens every update, sums them and adds noise once. It sees every update as it is and must
  be trusted; the promise is towards everybody who sees broadcasts or the trained policy. Clients are drawn
  independently of one another, and nobody but the server learns who was: that is part of the accounting.
- `client`: every client adds noise to what it sends. Nobody needs to be trusted, the server neither, and the noise
  is larger by far.

Either way nothing else leaves a client: no weight, no metric. docs/privacy.md says what is promised and what not.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from fova.algorithms.base import Submission, clip_gradient
from fova.errors import FovaError
from fova.federation import accountant
from fova.federation.compression import moved, update_of
from fova.federation.wire import PLAIN, Envelope

T = TypeVar("T")
NoiseAt = Literal["server", "client"]

FEWEST_CLIENTS = 2


@dataclass(frozen=True)
class Privacy:
    """How a federation is kept private. Refuses settings that could promise nothing."""

    noise_at: NoiseAt
    clip: float  # the largest norm of a client's update, over all of its parameters together
    noise: float  # standard deviation of the noise on every coordinate, as a multiple of `clip`
    delta: float
    clients: int  # of the federation, drawn or not
    participation: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip > 0.0):
            raise FovaError(
                f"The clipping norm is {self.clip}, but must be a number above 0. A run without privacy logs "
                "clients' norms as update_norm; their median is a good start."
            )
        if self.clients < FEWEST_CLIENTS:
            raise FovaError(
                f"Privacy hides one client among others, and there are {self.clients}. Take at least "
                f"{FEWEST_CLIENTS}; hundreds, for noise that leaves something to learn."
            )
        self.epsilon(1)  # the accountant checks noise, sampling and delta
        if self.delta >= 1 / self.clients:
            raise FovaError(
                f"delta is {self.delta:g}, but must be below 1/{self.clients}: publishing one of the "
                f"{self.clients} clients' data outright would keep such a promise. 1e-5 is usual."
            )
        if self.expected_clients < 1.0:
            raise FovaError(
                f"participation {self.participation:g} draws {self.expected_clients:.2g} of {self.clients} clients "
                f"in a round on average. Raise it to at least {1 / self.clients:.2g}."
            )

    @property
    def expected_clients(self) -> float:
        """How many clients a round draws on average."""
        return self.participation * self.clients

    def envelope(self, inner: Envelope) -> "Private":
        """How a client's submission leaves it; `inner` is the form in which it then travels."""
        return Private(self.clip, self.noise * self.clip if self.noise_at == "client" else 0.0, inner)

    def epsilon(self, rounds: int) -> float:
        """What is spent after so many rounds.

        `server`: the difference is whether a client takes part at all, which moves the sum by one norm. `client`:
        who takes part is seen; the difference is what data a client has, which moves its message by two norms, and
        being drawn by chance hides nothing.
        """
        return accountant.epsilon(self._multiplier, self._sampling, rounds, self.delta)

    def spent(self, rounds: int) -> dict[str, float]:
        """For a round's log: what anybody may know about a client at most, from one round and from all so far."""
        return {"epsilon_round": self.epsilon(1), "epsilon": self.epsilon(rounds), "delta": self.delta}

    def noise_for(self, epsilon: float, rounds: int) -> float:
        """The noise with which so many rounds would spend no more than `epsilon`."""
        needed = accountant.noise_for(epsilon, self._sampling, rounds, self.delta)
        return needed * self.noise / self._multiplier

    @property
    def _multiplier(self) -> float:
        return self.noise if self.noise_at == "server" else self.noise / 2

    @property
    def _sampling(self) -> float:
        return self.participation if self.noise_at == "server" else 1.0


@dataclass(frozen=True)
class Private:
    """The envelope of a private submission; `inner` is the form in which it then travels."""

    clip: float
    deviation: float = 0.0  # of the noise that a client adds itself
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
            return _bare(received)
        # Once more at the server: its promise must not rest on a client that behaves, or on rounding underway.
        return _bare(moved(broadcast, shortened(update_of(received, broadcast), self.clip)))


def publish(privacy: Privacy, broadcast: T, mean: T, count: float, key: PRNGKeyArray) -> T:
    """The next broadcast of a server that adds the noise; `mean` is that of the `count` clients it heard from.

    The noisy sum is divided by the number of clients that was expected: how many really came depends on who was
    drawn, and so on whether one client exists.
    """
    total = jax.tree.map(lambda leaf: jnp.where(count > 0, count * leaf, 0.0), update_of(mean, broadcast))
    noisy = with_noise(total, privacy.noise * privacy.clip, key)
    return moved(broadcast, jax.tree.map(lambda leaf: leaf / privacy.expected_clients, noisy))


def shortened(update: T, largest: float) -> T:
    """The update, scaled down to norm `largest` if it is longer. One that is not finite says nothing: zeros."""
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(update)]).all()
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0), clip_gradient(update, largest))


def with_noise(tree: T, deviation: float, key: PRNGKeyArray) -> T:
    """Every number plus Gaussian noise of its own."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + deviation * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys)]
    return jax.tree.unflatten(structure, noisy)


def _bare(parameters: Any) -> Submission:
    """Parameters and nothing else: a weight or a metric would tell what clipping and noise hide."""
    return Submission(parameters, jnp.zeros(()), {})
