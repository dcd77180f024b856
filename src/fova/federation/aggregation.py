"""Aggregation: one set of parameters from many submissions, which are stacked along a leading axis of clients.

An aggregation is two pure functions: `weigh` gives each client's weight, and `combine` combines the parameters.
An absent or rejected client has a log-weight of -inf and no influence. `median`, `trimmed_mean` and `krum` use the
weights only to leave out these clients, so a client gains nothing by sending a false weight. They compare clients
with one another and therefore need all clients of a round at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fova.algorithms.base import Submission, replace
from fova.errors import FovaError, unknown
from fova.federation import trust

Networks = Callable[[Any], Any]  # `Algorithm.networks`: the part of the parameters that is compared


class Aggregation(NamedTuple):
    """How a server weighs and combines submissions. The default leaves both to the algorithm."""

    # (submissions, log-weights by the returns in the clients' data) -> log-weights
    weigh: Callable[[Submission, Float[Array, " clients"]], Float[Array, " clients"]] | None = None
    combine: Callable[[Submission, Networks], Any] | None = None
    whole_rounds: bool = False  # needs every client of a round at once
    largest_share: float | None = None  # of the mean, for one client; None is the default of `trust.py`


def counted(submissions: Submission) -> Bool[Array, " clients"]:
    return submissions.log_weight > -jnp.inf


# --- Weights of the clients ---


def uniform(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """Equal log-weights for all clients: the plain mean."""
    return jnp.zeros_like(submissions.log_weight)


def by_size(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """Log-weights by the number of transitions of each client."""
    return jnp.log(submissions.metrics["rows"])


def by_value(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """Log-weights of softmax(0.1 * estimated value), as in FEDORA."""
    if "value" not in submissions.metrics:
        raise FovaError(
            "Aggregation by value needs an estimate of each policy's value, and this algorithm makes none. Choose "
            "returns, which weights clients by the returns in their data, or uniform or size."
        )
    return 0.1 * submissions.metrics["value"]


def by_data_returns(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """Log-weights by the returns in each client's data, a statistic of the federation (`statistics.py`)."""
    return by_returns


def weigh(
    aggregation: Aggregation,
    submissions: Submission,
    by_returns: Float[Array, " clients"],
    alone: Bool[Array, " clients"] | None = None,
) -> Submission:
    """The submissions with the aggregation's weights, within the limits for one client (`trust.py`).

    An absent or rejected client keeps its log-weight of -inf. `alone` says which clients no other one supports.
    """
    log_weight = submissions.log_weight
    if aggregation.weigh is not None:
        log_weight = jnp.where(counted(submissions), aggregation.weigh(submissions, by_returns), -jnp.inf)
    if alone is not None:
        log_weight = trust.lightened(log_weight, alone)
    return replace(submissions, log_weight=trust.capped(log_weight, aggregation.largest_share))


# --- Alternatives to the weighted mean of the parameters ---


def median(submissions: Submission, networks: Networks) -> Any:
    """The median of each coordinate."""
    here = counted(submissions)
    return jax.tree.map(lambda leaf: jnp.nanmedian(_hide(leaf, here), axis=0), submissions.parameters)


def trimmed_mean(submissions: Submission, networks: Networks, share: float = 0.2) -> Any:
    """The mean of each coordinate without the `share` largest and smallest values (at least one of each)."""
    here = counted(submissions)
    count = here.sum()
    cut = jnp.maximum(1, jnp.floor(share * count)).astype(jnp.int32)
    cut = jnp.where(count > 2 * cut, cut, 0)  # with too few clients no value is left out

    def mean(leaf: Float[Array, "clients ..."]) -> Float[Array, "..."]:
        ordered = jnp.sort(jnp.where(_column(here, leaf), leaf, jnp.inf), axis=0)
        rank = jnp.arange(len(leaf))
        kept = _column((rank >= cut) & (rank < count - cut), leaf)
        return jnp.where(kept, ordered, 0.0).sum(axis=0) / (count - 2 * cut)

    return jax.tree.map(mean, submissions.parameters)


def krum(submissions: Submission, networks: Networks, attackers: float = 0.2) -> Any:
    """The submission with the smallest sum of squared distances to its nearest neighbours.

    The number of neighbours is the number of clients minus the assumed attackers minus two. Only the networks are
    compared. Other parameters that an algorithm federates depend on a client's data, and honest clients may differ
    in them by any amount.
    """
    here = counted(submissions)
    count = here.sum()
    compared = jax.tree.leaves(networks(submissions.parameters))
    flat = jnp.concatenate(
        [jnp.where(_column(here, leaf), leaf, 0.0).reshape(len(leaf), -1) for leaf in compared], axis=1
    )
    squares = jnp.square(flat[:, None] - flat[None]).sum(axis=-1)
    strangers = here[:, None] & here[None] & ~jnp.eye(len(flat), dtype=bool)
    nearest = jnp.sort(jnp.where(strangers, squares, jnp.inf), axis=1)
    wanted = jnp.maximum(1, count - jnp.ceil(attackers * count).astype(jnp.int32) - 2)
    neighbours = jnp.minimum(wanted, count - 1)  # a single client has no neighbours and is chosen
    score = jnp.where(jnp.arange(len(flat)) < neighbours, nearest, 0.0).sum(axis=1)
    best = jnp.argmin(jnp.where(here, score, jnp.inf))
    return jax.tree.map(lambda leaf: leaf[best], submissions.parameters)


AGGREGATIONS = {
    "algorithm": Aggregation(),
    "uniform": Aggregation(weigh=uniform),
    "size": Aggregation(weigh=by_size),
    "value": Aggregation(weigh=by_value),
    "returns": Aggregation(weigh=by_data_returns),
    "median": Aggregation(combine=median, whole_rounds=True),
    "trimmed-mean": Aggregation(combine=trimmed_mean, whole_rounds=True),
    "krum": Aggregation(combine=krum, whole_rounds=True),
}


def get(name: str) -> Aggregation:
    if name not in AGGREGATIONS:
        raise unknown("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]


def for_algorithm(name: str, algorithm: Any, largest_share: float | None = None) -> Aggregation:
    """The aggregation of that name. The name `algorithm` selects the one that the algorithm asks for."""
    by_returns = name == "algorithm" and algorithm.client_weights == "returns"
    return get("returns" if by_returns else name)._replace(largest_share=largest_share)


def _column(mask: Bool[Array, " clients"], leaf: Float[Array, "clients ..."]) -> Bool[Array, "clients ..."]:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))


def _hide(leaf: Float[Array, "clients ..."], here: Bool[Array, " clients"]) -> Float[Array, "clients ..."]:
    return jnp.where(_column(here, leaf), leaf, jnp.nan)
