"""Bootstrap intervals over logged episodes and over repetitions of a fit. Equal arrays give equal intervals."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fova.evaluation.statistics import Interval

Floats = NDArray[np.float64]

RESAMPLES = 1000
CONFIDENCE = 0.9
NORMAL_QUANTILE = 1.6448536269514722  # of a two-sided interval of CONFIDENCE


class Estimate(NamedTuple):
    """A mean with its interval, and the standard errors that it comes from."""

    value: float
    low: float
    high: float
    episode_error: float  # standard error from the choice of episodes
    fit_error: float  # standard deviation of a single fit


def of_values(values: Floats, allowance: float = 0.0) -> Estimate:
    """The mean of values [repetitions, episodes], with a percentile interval that resamples both.

    A resample has one repetition of the fit, not a mean of several: repetitions on the same data share most of
    their errors, so a mean of many is hardly better than one. `allowance` widens the interval on both sides. With
    a single episode there is no interval: its ends are NaN.
    """
    repetitions, episodes = values.shape
    value = float(values.mean())
    if episodes < 2:
        return Estimate(value, float("nan"), float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    fits = rng.integers(repetitions, size=RESAMPLES)
    means = np.einsum("bn,bn->b", values[fits], _counts(rng, episodes)) / episodes
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    fit_error = values.mean(axis=1).std(ddof=1) if repetitions > 1 else 0.0
    episode_error = values.mean(axis=0).std(ddof=1) / np.sqrt(episodes)
    return Estimate(value, float(low) - allowance, float(high) + allowance, float(episode_error), float(fit_error))


def of_statistic(statistic: Callable[[Floats], float], episodes: int) -> Interval:
    """A statistic of episodes with its percentile interval. `statistic` takes how often each episode counts."""
    value = statistic(np.ones(episodes))
    if episodes < 2:
        return Interval(value, float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    drawn = [statistic(counts) for counts in _counts(rng, episodes, RESAMPLES // 5)]
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value, float(low), float(high))


def combined(estimates: Sequence[Estimate], episodes: Sequence[int], allowance: float = 0.0) -> Estimate:
    """The federation's mean over all episodes, from the clients' own estimates alone.

    Clients' episodes are independent, so their variances add up. The chance in the fit is shared by all clients,
    so its standard errors add up instead.
    """
    shares = np.asarray(episodes, np.float64) / sum(episodes)
    value = float(sum(share * estimate.value for share, estimate in zip(shares, estimates)))
    known = np.array([[estimate.episode_error, estimate.fit_error] for estimate in estimates])
    known = np.nan_to_num(known, nan=0.0)
    episode_error = float(np.sqrt(np.square(shares * known[:, 0]).sum()))
    fit_error = float(shares @ known[:, 1])
    reach = NORMAL_QUANTILE * np.hypot(episode_error, fit_error) + allowance
    return Estimate(value, value - reach, value + reach, episode_error, fit_error)


def _counts(rng: np.random.Generator, count: int, resamples: int = RESAMPLES) -> Floats:
    """[resamples, count] how often each item is drawn when `count` items are drawn with replacement."""
    return rng.multinomial(count, np.full(count, 1.0 / count), size=resamples).astype(np.float64)
