"""Estimates of a policy's value from logged episodes. Plain arrays in, plain arrays out.

The value that all of them estimate is the discounted return from the first state of an episode,

    V = E[ r_0 + gamma r_1 + gamma^2 r_2 + ... ],

where first states come from the episodes at hand. An episode that ended by itself earns nothing afterwards. One
that was cut off (a time limit, the end of the record) goes on: what it would have earned is its `tail`, the value
of the state in which it was cut.

Episodes of different lengths are matrices [episodes, steps], padded with zeros, with the true lengths beside them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.data.transitions import Transitions

Floats = NDArray[np.float64]


class Episodes(NamedTuple):
    """What the estimators need to know of logged episodes."""

    rewards: Floats  # [episodes, steps]; 0 after the end
    lengths: NDArray[np.int64]  # [episodes]
    terminated: NDArray[np.bool_]  # [episodes] False where the episode was cut off

    @staticmethod
    def of(data: Transitions) -> "Episodes":
        lengths = data.episode_lengths()
        last = np.cumsum(lengths) - 1
        return Episodes(padded(data.rewards, lengths), lengths, data.terminals[last] > 0)

    @property
    def going_on(self) -> NDArray[np.bool_]:
        """[episodes, steps] True for steps that were logged."""
        return np.arange(self.rewards.shape[1]) < self.lengths[:, None]


def padded(values: ArrayLike, lengths: NDArray[np.int64]) -> Floats:
    """Rows of consecutive episodes as a matrix [episodes, steps], padded with zeros."""
    matrix = np.zeros((len(lengths), int(lengths.max(initial=0))))
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = np.asarray(values, np.float64)
    return matrix


# --- What the data earned ---------------------------------------------------------------------------------


def discounted_returns(episodes: Episodes, discount: float, tail: ArrayLike = 0.0) -> Floats:
    """The discounted return of each logged episode, [episodes]: the line that a policy has to beat.

    `tail` is the value of the state in which an episode was cut off. It counts where the task did not end.
    """
    earned = episodes.rewards @ discount ** np.arange(episodes.rewards.shape[1])
    return earned + np.where(episodes.terminated, 0.0, discount**episodes.lengths * np.asarray(tail, np.float64))


def mean_state_value(data: Transitions, discount: float) -> float:
    """The value of a stream that pays the data's mean reward and ends as often as the data does.

    V = r + gamma (1 - d) V with the mean reward r and the share d of rows in which the task ended. It stands for
    what follows where an episode was cut off.
    """
    ends = float((data.terminals > 0).mean())
    return float(data.rewards.astype(np.float64).mean()) / (1.0 - discount * (1.0 - ends))


# --- Importance sampling ----------------------------------------------------------------------------------


def cumulative_ratios(ratios: Floats, lengths: NDArray[np.int64]) -> Floats:
    """The product of pi(a|s) / beta(a|s) up to each step, [episodes, steps].

    After the end of an episode the product stays as it is: nothing is decided any more.
    """
    logged = np.arange(ratios.shape[1]) < lengths[:, None]
    return np.cumprod(np.where(logged, ratios, 1.0), axis=1, dtype=np.float64)


def importance_sampling(episodes: Episodes, ratios: Floats, discount: float, tail: ArrayLike = 0.0) -> Floats:
    """Per-decision importance sampling: each episode's estimate, [episodes]. Their mean is the estimate.

    sum_t gamma^t rho_{0:t} r_t; the tail of an episode that was cut off counts with the last ratio.
    """
    weights = cumulative_ratios(ratios, episodes.lengths)
    powers = discount ** np.arange(weights.shape[1])
    return (weights * episodes.rewards) @ powers + _tails(episodes, discount, tail) * weights[:, -1]


def weighted_importance_sampling(
    episodes: Episodes,
    ratios: Floats,
    discount: float,
    tail: ArrayLike = 0.0,
    counts: NDArray[np.floating] | None = None,
) -> float:
    """Per-decision weighted importance sampling (Precup, Sutton and Singh, 2000).

    sum_t gamma^t (sum_i rho^i_{0:t} r^i_t) / (sum_i rho^i_{0:t}). Biased for few episodes, but of far smaller
    variance than plain importance sampling. `counts` says how often each episode counts, for the bootstrap. A step
    that the policy would reach in no episode contributes nothing.
    """
    weights = _normalised(cumulative_ratios(ratios, episodes.lengths), counts)
    powers = discount ** np.arange(weights.shape[1])
    earned = float((weights * episodes.rewards).sum(axis=0) @ powers)
    return earned + float((weights[:, -1] * _tails(episodes, discount, tail)).sum())


def weighted_doubly_robust(
    episodes: Episodes,
    ratios: Floats,
    q: Floats,
    v: Floats,
    discount: float,
    tail: ArrayLike = 0.0,
    counts: NDArray[np.floating] | None = None,
) -> float:
    """Weighted doubly robust (Thomas and Brunskill, 2016): a value model, corrected by weighted ratios.

    sum_t gamma^t sum_i [ w^i_t r^i_t - w^i_t Q(s_t, a_t) + w^i_{t-1} V(s_t) ] with w^i_t = rho^i_{0:t} / sum_j
    rho^j_{0:t} and w_{-1} = 1/n. `q` is Q of the logged action and `v` is E_pi[Q], both [episodes, steps].
    """
    weights = _normalised(cumulative_ratios(ratios, episodes.lengths), counts)
    first = np.ones(len(weights)) if counts is None else np.asarray(counts, np.float64)
    before = np.concatenate([(first / first.sum())[:, None], weights[:, :-1]], axis=1)
    logged = episodes.going_on
    terms = np.where(logged, weights * (episodes.rewards - q) + before * v, 0.0)
    powers = discount ** np.arange(weights.shape[1])
    return float(terms.sum(axis=0) @ powers) + float((weights[:, -1] * _tails(episodes, discount, tail)).sum())


def effective_sample_size(ratios: Floats, lengths: NDArray[np.int64]) -> float:
    """(sum w)^2 / sum w^2 of the whole episodes' ratios: how many logged episodes the estimate rests on."""
    weights = cumulative_ratios(ratios, lengths)[:, -1]
    largest = weights.max(initial=0.0)
    if largest == 0.0:
        return 0.0
    weights = weights / largest  # squares of large ratios would overflow
    return float(weights.sum() ** 2 / np.square(weights).sum())


def _normalised(weights: Floats, counts: NDArray[np.floating] | None) -> Floats:
    """Weights that add up to 1 at every step; all 0 where no episode has any."""
    counted = weights if counts is None else weights * np.asarray(counts, np.float64)[:, None]
    total = counted.sum(axis=0)
    return np.divide(counted, total, out=np.zeros_like(counted), where=total > 0.0)


def _tails(episodes: Episodes, discount: float, tail: ArrayLike) -> Floats:
    """What each episode would have earned after it was cut off, discounted to its first state."""
    cut = np.where(episodes.terminated, 0.0, np.asarray(tail, np.float64))
    return np.asarray(discount**episodes.lengths * cut, np.float64)


# --- A value model on logged episodes ---------------------------------------------------------------------


def bellman_errors(episodes: Episodes, q: Floats, v: Floats, last_value: ArrayLike, discount: float) -> Floats:
    """r_t + gamma V(s_{t+1}) - Q(s_t, a_t) at each logged step, [episodes, steps]; 0 after the end.

    `last_value` is V of the state in which an episode was cut off, [episodes].
    """
    following = np.concatenate([v[:, 1:], np.zeros((len(v), 1))], axis=1)
    rows = np.arange(len(v))
    following[rows, episodes.lengths - 1] = np.where(episodes.terminated, 0.0, last_value)
    return np.where(episodes.going_on, episodes.rewards + discount * following - q, 0.0)


def accumulated_errors(errors: Floats, discount: float) -> Floats:
    """sum_t gamma^t delta_t of each episode, [episodes]: by how much a value model is off along the log.

    Zero in the mean if the model is right wherever the log goes. Along the policy's own episodes the same sum
    would be the model's exact error.
    """
    return errors @ discount ** np.arange(errors.shape[1])
