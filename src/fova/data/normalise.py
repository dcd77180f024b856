"""Observation statistics without sharing observations.

Each client sends a count, a sum and a sum of squares per column; the server adds them up. No raw row and no
per-row value leaves a client, and the result equals the statistics of the pooled data.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Floats

# Added to every standard deviation, so that a column that never changes does not divide by zero.
SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True)
class Sums:
    """What a client sends, in double precision."""

    count: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64]


@dataclass(frozen=True)
class Normaliser:
    """(observation - mean) / std, column by column."""

    mean: Floats
    std: Floats

    def __call__(self, observations: Floats) -> Floats:
        return (observations - self.mean) / self.std

    @staticmethod
    def identity(size: int) -> "Normaliser":
        return Normaliser(np.zeros(size, np.float32), np.ones(size, np.float32))


def client_sums(observations: Floats) -> Sums:
    """Computed by a client on its own data."""
    exact = observations.astype(np.float64)
    return Sums(len(exact), exact.sum(axis=0), np.square(exact).sum(axis=0))


def combine(sums: Iterable[Sums]) -> Normaliser:
    """Computed by the server from what the clients sent."""
    sums = list(sums)
    count = sum(s.count for s in sums)
    mean = sum((s.total for s in sums), np.zeros(())) / count
    variance = sum((s.squares for s in sums), np.zeros(())) / count - mean**2
    std = np.sqrt(np.maximum(variance, 0.0)) + SMALLEST_SPREAD
    return Normaliser(mean.astype(np.float32), std.astype(np.float32))
