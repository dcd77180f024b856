"""Limits on what one client of a round can do: its share of the mean, the length and the direction of its update.

The limits hold from five clients on (`FEWEST_CLIENTS`). With fewer, a client that lies cannot be told from a client
whose data is better than everybody else's, so every claim counts as it is. They are off, too, where the operator
sets `--largest-share 1`. Honest clients stay within them, except a lone client whose data is far better than that
of all others: it would have more than the largest share, and in time its update points away from all others'. Pure
functions of arrays.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

T = TypeVar("T")

FEWEST_CLIENTS = 5
LARGEST_SHARE = 0.4  # of the mean, for a claim that no other client supports, unless the operator says otherwise
MOST_COLLUDING = 2  # clients, from seven on; below that, one
# Adam moves all clients of a round by similar lengths. Most stay below 1.5 times the median; 2.4 times was seen,
# with two good clients among five.
LONGEST = 2.0
# A client is alone against all if its update's cosine with the mean direction of the others is below the first
# number, and below the second with each of them. Different data gives cosines around 0, a flipped sign about -0.5.
LEAST_AGREEMENT, LEAST_SUPPORT = -0.2, 0.1
ALONE_LOG_WEIGHT = -4.0  # its weight relative to the average of the others


def believes_all(largest_share: float | None) -> bool:
    """Whether the operator believes every claim."""
    return largest_share == 1.0


def colluding(clients: Any) -> Any:
    """The number of clients that may pull together against all others: a third of all, but at most two."""
    return jnp.clip((clients - 1) // 3, 1, MOST_COLLUDING)


def capped(log_weights: Float[Array, " clients"], largest_share: float | None) -> Float[Array, " clients"]:
    """The log-weights with no share above the largest. What is cut off goes to the other clients in proportion.

    None is the default: `supported`, from five clients on. A share that is given holds for any number of clients.

    If the k heaviest clients are cut to a weight t and the others weigh r together, t is the largest share s of
    k t + r, so t = s r / (1 - k s). The smallest such t over all k is the right one: any k that is too small or too
    large gives a larger t. In logarithms, so that a claim of a million neither overflows nor makes the honest
    weights vanish.
    """
    if largest_share is None:
        return supported(log_weights) if len(log_weights) >= FEWEST_CLIENTS else log_weights
    if believes_all(largest_share):
        return log_weights
    share = jnp.maximum(largest_share, 1 / (log_weights > -jnp.inf).sum())  # all cannot stay below an even share
    ordered = jnp.sort(log_weights, descending=True)
    rest = jax.lax.cumlogsumexp(ordered, reverse=True)  # of all clients but the k heaviest
    cut_share = jnp.arange(len(ordered)) * share  # k s
    level = jnp.log(share) + rest - jnp.log1p(-cut_share)
    cut = jnp.where((cut_share < 1.0) & (rest > -jnp.inf), level, jnp.inf).min()
    return jnp.minimum(log_weights, cut)


def supported(log_weights: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """The log-weights with the heaviest client cut to its largest share, but not below the second heaviest.

    Two clients with better data than all others support each other, and keep half of the mean each. With fewer than
    five clients present nothing is cut.
    """
    ordered = jnp.sort(log_weights, descending=True)
    rest = jax.nn.logsumexp(ordered[1:])
    limit = jnp.maximum(ordered[1], rest + jnp.log(LARGEST_SHARE / (1.0 - LARGEST_SHARE)))
    compares = (log_weights > -jnp.inf).sum() >= FEWEST_CLIENTS
    return jnp.where(compares, jnp.minimum(log_weights, limit), log_weights)


def lightened(log_weights: Float[Array, " clients"], alone: Bool[Array, " clients"]) -> Float[Array, " clients"]:
    """The log-weights, where a client that is alone against all has the least weight, a fiftieth of the average."""
    others = ~alone & (log_weights > -jnp.inf)
    average = jax.nn.logsumexp(jnp.where(others, log_weights, -jnp.inf)) - jnp.log(others.sum())
    return jnp.where(alone & others.any(), jnp.minimum(log_weights, average + ALONE_LOG_WEIGHT), log_weights)


def alone_against_all(
    updates: Float[Array, "clients parameters"], compared: Bool[Array, " clients"]
) -> Bool[Array, " clients"]:
    """Which clients' updates point away from those of the others, as one with a flipped sign does.

    Clients whose data is better than that of all others pull away from them, but they support one another. So that
    liars cannot do the same, a client needs as many supporters as may collude (`colluding`).
    """
    lengths = jnp.linalg.norm(updates, axis=1, keepdims=True)
    directions = jnp.where(compared[:, None] & (lengths > 0.0), updates / lengths, 0.0)
    cosines = directions @ directions.T
    others = compared[None] & ~jnp.eye(len(updates), dtype=bool)
    supporters = jnp.sort(jnp.where(others, cosines, -jnp.inf), axis=1, descending=True)
    support = supporters[:, colluding(compared.sum()) - 1]
    with_others = jnp.where(others, cosines, 0.0).sum(axis=1)
    # the squared length of the sum of the others' directions: all pairs without those of the client itself
    squares = cosines.sum() - 2.0 * with_others - jnp.diag(cosines)
    agreement = with_others / jnp.sqrt(jnp.maximum(squares, 1e-6))
    alone = (agreement < LEAST_AGREEMENT) & (support < LEAST_SUPPORT)
    return compared & alone & (compared.sum() >= FEWEST_CLIENTS)


def shortened(parameters: T, broadcast: T, factors: Float[Array, " clients"]) -> T:
    """Every client's parameters, with its update times its factor. A factor of 1 changes no byte."""

    def scale(own: Any, sent: Any) -> Any:
        factor = factors.reshape(-1, *[1] * (own.ndim - 1))
        return jnp.where(factor < 1.0, sent + factor * (own - sent), own)

    return jax.tree.map(scale, parameters, broadcast)
