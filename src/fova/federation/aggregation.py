"""How a server makes one set of parameters out of many submissions, stacked along a leading axis of clients.

An aggregation is two pure functions: how much each client counts (`weigh`) and how the parameters are combined.
An absent or rejected client has a log-weight of -inf and counts for nothing, whatever it sent. `median`,
`trimmed_mean` and `krum` use the weights for nothing else, so a client gains nothing by lying about them. They
compare clients with one another and therefore need a whole round at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fova.algorithms.base import Submission, replace
from fova.errors import FovaError, unknown

Networks = Callable[[Any], Any]  # `Algorithm.networks`: the part of the parameters that is compared


class Aggregation(NamedTuple):
    """What a server does with submissions. The default leaves both to the algorithm."""

    # (submissions, log-weights by the returns in the clients' data) -> log-weights
    weigh: Callable[[Submission, Float[Array, " clients"]], Float[Array, " clients"]] | None = None
    combine: Callable[[Submission, Networks], Any] | None = None
    whole_rounds: bool = False  # needs every client of a round at once


def counted(submissions: Submission) -> Bool[Array, " clients"]:
    return submissions.log_weight > -jnp.inf


# --- How much a client counts ---


def uniform(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """Everybody the same: the plain mean."""
    return jnp.zeros_like(submissions.log_weight)


def by_size(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """By how many transitions a client has."""
    return jnp.log(submissions.metrics["rows"])


def by_value(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """softmax(0.1 * estimated value), as FEDORA does."""
    if "value" not in submissions.metrics:
        raise FovaError("Aggregation by value needs critics, and this algorithm has none. Choose uniform or size.")
    return 0.1 * submissions.metrics["value"]


def by_data_returns(submissions: Submission, by_returns: Float[Array, " clients"]) -> Float[Array, " clients"]:
    """By the returns that a client's data shows: a statistic of the federation (`statistics.py`)."""
    return by_returns


def weigh(aggregation: Aggregation, submissions: Submission, by_returns: Float[Array, " clients"]) -> Submission:
    """The submissions with the aggregation's weights; a client that counted for nothing still does."""
    if aggregation.weigh is None:
        return submissions
    log_weight = jnp.where(counted(submissions), aggregation.weigh(submissions, by_returns), -jnp.inf)
    return replace(submissions, log_weight=log_weight)


# --- How parameters are combined other than by their weighted mean ---


def median(submissions: Submission, networks: Networks) -> Any:
    """Coordinate by coordinate, the middle value."""
    here = counted(submissions)
    return jax.tree.map(lambda leaf: jnp.nanmedian(_hide(leaf, here), axis=0), submissions.parameters)


def trimmed_mean(submissions: Submission, networks: Networks, share: float = 0.2) -> Any:
    """Coordinate by coordinate, the mean without the `share` largest and smallest values (at least one of each)."""
    here = counted(submissions)
    count = here.sum()
    cut = jnp.maximum(1, jnp.floor(share * count)).astype(jnp.int32)
    cut = jnp.where(count > 2 * cut, cut, 0)  # too few clients to leave any out

    def mean(leaf: Float[Array, "clients ..."]) -> Float[Array, "..."]:
        ordered = jnp.sort(jnp.where(_column(here, leaf), leaf, jnp.inf), axis=0)
        rank = jnp.arange(len(leaf))
        kept = _column((rank >= cut) & (rank < count - cut), leaf)
        return jnp.where(kept, ordered, 0.0).sum(axis=0) / (count - 2 * cut)

    return jax.tree.map(mean, submissions.parameters)


def krum(submissions: Submission, networks: Networks, attackers: float = 0.2) -> Any:
    """The submission whose nearest neighbours are nearest: all but the assumed share of attackers and two more.

    Distances are those of the networks. What an algorithm federates beside them follows a client's data, and honest
    clients may differ in it by any amount.
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
    neighbours = jnp.minimum(wanted, count - 1)  # a client that is left alone has none, and is chosen
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


def for_algorithm(name: str, algorithm: Any) -> Aggregation:
    """The aggregation of that name; `algorithm` is what the algorithm asks for."""
    if name == "algorithm" and algorithm.client_weights == "returns":
        return AGGREGATIONS["returns"]
    return get(name)


def _column(mask: Bool[Array, " clients"], leaf: Float[Array, "clients ..."]) -> Bool[Array, "clients ..."]:
    return mask.reshape(-1, *[1] * (leaf.ndim - 1))


def _hide(leaf: Float[Array, "clients ..."], here: Bool[Array, " clients"]) -> Float[Array, "clients ..."]:
    return jnp.where(_column(here, leaf), leaf, jnp.nan)
