"""Estimates with confidence intervals from a few runs. Plain arrays in, plain numbers out.

Scores are matrices [runs, tasks]. Intervals are percentile intervals of a stratified bootstrap: runs are resampled
with replacement within each task. The intervals describe what other seeds might give on the same tasks. The method
is that of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"; the tests compare
it with their package rliable. With fewer than two runs there is no interval: its ends are NaN. The same arrays
always give the same interval.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000

Floats = NDArray[np.float64]
# [..., runs, tasks] -> [...]
Aggregate = Callable[[Floats], Floats]


class Interval(NamedTuple):
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        known = not math.isnan(self.low)  # a single run has no interval
        return f"{self.value:.1f} [{self.low:.1f}, {self.high:.1f}]" if known else f"{self.value:.1f}"


# --- Aggregates over runs and tasks ---------------------------------------------------------------------


def mean(scores: Floats) -> Floats:
    return np.mean(scores, axis=(-2, -1))


def median(scores: Floats) -> Floats:
    """The median over tasks of the mean over runs."""
    return np.median(np.mean(scores, axis=-2), axis=-1)


def interquartile_mean(scores: Floats) -> Floats:
    """The mean of the middle half of all runs of all tasks."""
    ordered = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = ordered.shape[-1] // 4
    return np.mean(ordered[..., cut : ordered.shape[-1] - cut], axis=-1)


def improvement(x: Floats, y: Floats) -> Floats:
    """Probability that a run of X beats a run of Y on a task, averaged over tasks. A tie counts half."""
    pairs = x[..., :, None, :] - y[..., None, :, :]
    return np.mean((pairs > 0) + 0.5 * (pairs == 0), axis=(-3, -2, -1))


# --- Intervals ------------------------------------------------------------------------------------------


def bootstrap_mean(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean over the runs of one task, with its interval."""
    return estimate(np.asarray(values, np.float64)[:, None], mean, confidence)


def estimate(scores: ArrayLike, aggregate: Aggregate, confidence: float = 0.95) -> Interval:
    """An aggregate of [runs, tasks] with its interval."""
    scores = _matrix(scores)
    resampled = aggregate(_resamples(scores, np.random.default_rng(0))) if len(scores) > 1 else None
    return _interval(aggregate(scores), resampled, confidence)


def probability_of_improvement(x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> Interval:
    """P(X > Y) with its interval; the two may have different numbers of runs on the same tasks."""
    x, y = _matrix(x), _matrix(y)
    if min(len(x), len(y)) < 2:
        return _interval(improvement(x, y), None, confidence)
    rng = np.random.default_rng(0)
    return _interval(improvement(x, y), improvement(_resamples(x, rng), _resamples(y, rng)), confidence)


class Profile(NamedTuple):
    """The share of runs that score above each threshold, with its interval."""

    thresholds: Floats
    share: Floats
    low: Floats
    high: Floats


def performance_profile(scores: ArrayLike, thresholds: ArrayLike, confidence: float = 0.95) -> Profile:
    scores, thresholds = _matrix(scores), np.asarray(thresholds, np.float64)
    intervals = [
        estimate(scores, lambda runs, least=least: np.mean(runs > least, axis=(-2, -1)), confidence)  # type: ignore[misc]
        for least in thresholds
    ]
    return Profile(thresholds, *(np.array(column) for column in zip(*intervals)))


def _matrix(scores: ArrayLike) -> Floats:
    matrix = np.asarray(scores, np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(
            f"scores have the shape {matrix.shape}, but must be [runs, tasks] with at least one of each"
        )
    return matrix


def _resamples(scores: Floats, rng: np.random.Generator) -> Floats:
    """[resamples, runs, tasks]: within each task, the same number of runs, drawn with replacement."""
    drawn = rng.integers(0, len(scores), (RESAMPLES, *scores.shape))
    return np.take_along_axis(scores[None], drawn, axis=1)


def _interval(value: Floats, resampled: Floats | None, confidence: float) -> Interval:
    if resampled is None:
        return Interval(float(value), float("nan"), float("nan"))
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(value), float(low), float(high))
