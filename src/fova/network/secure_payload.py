"""A client's submission as numbers that can be added up, and the mean that the sum gives.

A client adds w (x_1, ..., x_n, 1) to the sum: its update, its metrics and, as the last number, its weight w. The
server divides the sum by the sum of the weights. No single update, metric or weight is needed. Pure functions.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float64

from fova.algorithms.base import Submission
from fova.errors import FovaError
from fova.network.masking import FixedPoint, Masked

Vector = Float64[np.ndarray, " numbers"]
# The weight of a client is 1, or the number of its rows. The error of a mean is then at most 2^-37 or 2^-21.
PRECISION = {"uniform": FixedPoint(36), "size": FixedPoint(20)}
LARGEST_METRIC = 1e6  # larger ones count as this, so that a metric never stops a round


@dataclass(frozen=True)
class Mean:
    """What the server learns in a round."""

    parameters: Any
    metrics: dict[str, float]
    weight: float  # of all clients together


class Payload:
    """The layout of the numbers, which follows from the plan alone."""

    def __init__(self, like: Submission, aggregation: str) -> None:
        self.metrics = sorted(like.metrics)
        self.shapes = [leaf.shape for leaf in jax.tree.leaves(like.parameters)]
        self.by_size = aggregation == "size"
        self.point = PRECISION[aggregation]
        self.length = sum(int(np.prod(shape)) for shape in self.shapes) + len(self.metrics) + 1

    def numbers(self, sent: Submission, broadcast: Any) -> Vector:
        """What one client adds to the sum."""
        pairs = zip(jax.tree.leaves(sent.parameters), jax.tree.leaves(broadcast))
        update = [np.ravel(np.asarray(own, np.float64) - np.asarray(was, np.float64)) for own, was in pairs]
        metrics = np.array([float(sent.metrics[name]) for name in self.metrics], np.float64)
        metrics = np.clip(metrics, -LARGEST_METRIC, LARGEST_METRIC)
        weight = float(sent.metrics["rows"]) if self.by_size else 1.0
        return weight * np.concatenate([*update, metrics, np.ones(1)])

    def encode(self, sent: Submission, broadcast: Any, clients: int) -> Masked:
        """The same in fixed point, for a sum over so many clients."""
        return self.point.encode(self.numbers(sent, broadcast), clients)

    def mean(self, total: Masked, broadcast: Any, clients: int) -> Mean:
        """The mean over the clients in a sum without masks. A sum that no honest clients have is refused."""
        numbers = self.point.decode(total)
        weight = float(numbers[-1])
        if weight < clients or (not self.by_size and weight != clients):
            raise FovaError(
                f"The {clients} clients of this round weigh {weight:g} together, which honest clients cannot. One "
                "of them sent rubbish under its masks; nobody can say which."
            )
        numbers = numbers / weight
        leaves, structure = jax.tree.flatten(broadcast)
        parts = np.split(numbers, np.cumsum([int(np.prod(shape)) for shape in self.shapes]))
        moved = [
            (np.asarray(was, np.float64) + part.reshape(np.shape(was))).astype(np.asarray(was).dtype)
            for was, part in zip(leaves, parts)
        ]
        metrics = dict(zip(self.metrics, map(float, parts[-1])))
        return Mean(jax.tree.unflatten(structure, moved), metrics, weight)

    def error(self, clients: int, weight: float) -> float:
        """The largest error of a number of the mean, from the rounding to fixed point."""
        return self.point.error(clients) / weight
