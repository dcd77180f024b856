"""Observation statistics without sharing observations.

Each client sends a count, a sum and a sum of squares per column; the server adds them up. No raw row and no
per-row value leaves a client, and the result equals the statistics of the pooled data.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Floats

# A column counts as constant if its standard deviation is a smaller share of its root mean square than this.
# Rounding in single precision alone causes about this much variation.
LEAST_VARIATION = 1e-6
AT_ONCE = 1 << 16  # rows in double precision, so that a large client is not copied as a whole


@dataclass(frozen=True)
class Sums:
    """The sums that a client sends, in double precision."""

    count: float  # rows; not a whole number after `scaled`
    total: NDArray[np.float64]
    squares: NDArray[np.float64]


@dataclass(frozen=True)
class Normaliser:
    """(observation - mean) / std for each column, so that every column has unit variance.

    A constant column is only shifted: its std is 1.
    """

    mean: Floats
    std: Floats

    def __call__(self, observations: Floats) -> Floats:
        centred = observations - self.mean
        centred /= self.std  # in place: a large client is not copied twice
        return centred

    @staticmethod
    def identity(size: int) -> "Normaliser":
        return Normaliser(np.zeros(size, np.float32), np.ones(size, np.float32))


def client_sums(observations: Floats) -> Sums:
    """The sums of a client's observations. The client computes them on its own data."""
    total, squares = np.zeros((2, observations.shape[1]))
    for start in range(0, len(observations), AT_ONCE):
        exact = observations[start : start + AT_ONCE].astype(np.float64)
        total += exact.sum(axis=0)
        squares += np.square(exact).sum(axis=0)
    return Sums(len(observations), total, squares)


def scaled(sums: Sums, factor: float) -> Sums:
    """The sums as if each row counted `factor` times."""
    return Sums(sums.count * factor, sums.total * factor, sums.squares * factor)


def combine(sums: Iterable[Sums]) -> Normaliser:
    """The normaliser of the pooled data. The server computes it from the clients' sums."""
    sums = list(sums)
    count = sum(s.count for s in sums)
    mean = sum((s.total for s in sums), np.zeros(())) / count
    square = sum((s.squares for s in sums), np.zeros(())) / count
    std = np.sqrt(np.maximum(square - mean**2, 0.0))
    varies = (std > LEAST_VARIATION * np.sqrt(square)) & (std > np.finfo(np.float32).tiny)
    return Normaliser(mean.astype(np.float32), np.where(varies, std, 1.0).astype(np.float32))
