"""Estimates with confidence intervals from a few runs. Plain arrays in, plain numbers out.

Intervals describe what other seeds might give on the same tasks. Every seed trains anew and plays other start
states, so both kinds of luck are in the spread of the runs.

For the mean over the runs of one task the interval is Student's: a bootstrap of five runs covers the truth less
often than it promises. Below five runs there is none (its ends are NaN), and the single runs are shown. For
aggregates over tasks, scores are matrices [runs, tasks] and intervals are percentiles of a stratified bootstrap:
runs are resampled with replacement within each task. The method is that of Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice"; the tests compare it with their package rliable. The same arrays
always give the same interval.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
FEWEST_RUNS = 5  # for an interval of the mean over the runs of one task

Floats = NDArray[np.float64]
# [..., runs, tasks] -> [...]
Aggregate = Callable[[Floats], Floats]


def one_decimal(value: float) -> str:
    return f"{value:.1f}"


class Interval(NamedTuple):
    value: float
    low: float
    high: float
    runs: tuple[float, ...] = ()  # shown where there are too few of them for an interval

    @property
    def known(self) -> bool:
        return not math.isnan(self.low)

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; where it is not known, the lowest and the highest run."""
        return (self.low, self.high) if self.known or not self.runs else (min(self.runs), max(self.runs))

    def text(self, number: Callable[[float], str] = one_decimal) -> str:
        """`3.0 [2.5, 3.8]`, or `3.0 (2.6, 3.4)` with the single runs, or `3.0` for one run."""
        if self.known:
            return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"
        runs = f" ({', '.join(map(number, self.runs))})" if len(self.runs) > 1 else ""
        return number(self.value) + runs


def how_sure(runs: Sequence[int]) -> str:
    """What stands in brackets and parentheses behind means over so many runs each."""
    several = [count for count in runs if count > 1]
    words = ["in brackets 95 % intervals over seeds"] if any(count >= FEWEST_RUNS for count in several) else []
    words += ["in parentheses the single seeds"] if any(count < FEWEST_RUNS for count in several) else []
    return "; ".join(words) or "one seed has no interval"


def bands(runs: Sequence[int]) -> str:
    """What the bands of charts mean whose lines are means over so many runs each."""
    several = [count for count in runs if count > 1]
    words = ["95 % intervals over seeds"] if any(count >= FEWEST_RUNS for count in several) else []
    words += ["lowest to highest seed"] if any(count < FEWEST_RUNS for count in several) else []
    return f"Bands: {', or '.join(words)}" if words else "One seed, no band"


# --- Aggregates over runs and tasks ---------------------------------------------------------------------


def mean(scores: Floats) -> Floats:
    return np.mean(scores, axis=(-2, -1))


def median(scores: Floats) -> Floats:
    """The median over tasks of the mean over runs."""
    return np.median(np.mean(scores, axis=-2), axis=-1)


def interquartile_mean(scores: Floats) -> Floats:
    """The mean of the middle half of all runs of all tasks."""
    ordered = np.sort(scores.reshape(*scores.shape[:-2], -1))
    cut = ordered.shape[-1] // 4
    return np.mean(ordered[..., cut : ordered.shape[-1] - cut], axis=-1)


def improvement(x: Floats, y: Floats) -> Floats:
    """Probability that a run of X beats a run of Y on a task, averaged over tasks. A tie counts half."""
    pairs = x[..., :, None, :] - y[..., None, :, :]
    return np.mean((pairs > 0) + 0.5 * (pairs == 0), axis=(-3, -2, -1))


# --- Intervals ------------------------------------------------------------------------------------------


def mean_over_runs(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean over the runs of one task, with Student's interval from five runs on."""
    runs = np.asarray(values, np.float64)
    value, count = float(runs.mean()), len(runs)
    if count < FEWEST_RUNS:
        return Interval(value, math.nan, math.nan, tuple(map(float, runs)))
    from scipy.special import stdtrit  # takes a tenth of a second, which every run would pay

    half = float(stdtrit(count - 1, (1 + confidence) / 2) * runs.std(ddof=1) / math.sqrt(count))
    return Interval(value, value - half, value + half)


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
    return Profile(thresholds, *(np.array(column) for column in zip(*(interval[:3] for interval in intervals))))


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
