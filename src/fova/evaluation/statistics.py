"""Means with intervals. Plain arrays in, plain numbers out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000


class Interval(NamedTuple):
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def bootstrap_mean(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean over runs with a percentile-bootstrap interval. With one run there is no interval: NaN."""
    array = np.asarray(values, np.float64)
    if len(array) < 2:
        return Interval(float(array.mean()), float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    means = rng.choice(array, (RESAMPLES, len(array))).mean(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(array.mean()), float(low), float(high))
