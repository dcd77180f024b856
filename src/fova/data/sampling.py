"""How often a client's rows come: all alike, or those of better episodes more often.

Only the client's own data decides. No weight of a row or an episode is sent, only their sum.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fova.data.returns import returns
from fova.data.transitions import Transitions

Sampling = Literal["uniform", "returns"]

SHARPNESS = 10.0
LEAST_LOG_WEIGHT = -4.0  # of a row, and of a client
LEAST_WEIGHT = float(np.exp(LEAST_LOG_WEIGHT))
BEST_SHARE = 0.1  # the episodes that hold the best tenth of the rows have the full weight
SPREADS_BELOW = 3.0  # mean absolute deviations between the mean and a low reward


def row_weights(data: Transitions, sampling: Sampling, discount: float) -> NDArray[np.float64] | None:
    """How much each row counts, at most 1; None if all count alike."""
    return None if sampling == "uniform" else weights_by_episode(data, discount)


def drawn_rows(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """As many rows as there are weights, in a random order that is always the same.

    A row comes as often as its weight says, rounded up or down. So some rows of little weight are left out.
    """
    reached = np.cumsum(weights)
    places = (np.arange(len(weights)) + 0.5) / len(weights)
    rows = np.searchsorted(reached, places * reached[-1]).astype(np.int64)
    return np.random.default_rng(0).permutation(rows)


def weights_by_episode(data: Transitions, discount: float) -> NDArray[np.float64]:
    """The weight of each row by what its episode is worth: 1 for the best episodes, less for the others.

    The rule is that of the clients' weights by returns (`fova.federation.statistics`), within one client. If all
    rewards are multiplied by a number, the weights do not change. If a constant is added to all, they do not change
    either where no episode ends by itself.
    """
    lengths = data.episode_lengths()
    worth = episode_values(data, discount)
    best = _reached_by(BEST_SHARE, worth, lengths)
    distance = best - low_reward(data)
    if not distance > 1e-9 * np.abs(worth).max(initial=0.0):  # all rewards are alike
        return np.ones(len(data))
    log_weights = np.maximum(LEAST_LOG_WEIGHT, -SHARPNESS * np.maximum(best - worth, 0.0) / distance)
    return np.repeat(np.exp(log_weights), lengths)


def episode_values(data: Transitions, discount: float) -> NDArray[np.float64]:
    """What one step of each episode is worth: (1 - gamma) times the mean discounted return from its rows on."""
    lengths = data.episode_lengths()
    starts = np.append(0, np.cumsum(lengths)[:-1])
    followed = (1.0 - discount) * returns(data, discount)
    return np.asarray(np.add.reduceat(followed, starts) / lengths)


def low_reward(data: Transitions) -> float:
    """A reward that few rows stay below; at most 0 if an episode ends by itself, for nothing is paid afterwards."""
    lowest = low_of(data.rewards.astype(np.float64))
    return min(lowest, 0.0) if data.terminals.any() else lowest


def low_of(rewards: NDArray[np.float64]) -> float:
    """A number that few of these rewards stay below."""
    return low(float(rewards.mean()), float(np.abs(rewards - rewards.mean()).mean()))


def low(mean: float, deviation: float) -> float:
    """A number that few rewards of this mean and mean absolute deviation stay below."""
    return mean - SPREADS_BELOW * deviation


def _reached_by(share: float, worth: NDArray[np.float64], lengths: NDArray[np.int64]) -> float:
    """The largest value that episodes with at least this share of all rows reach."""
    order = np.argsort(-worth, kind="stable")
    held = np.cumsum(lengths[order])
    return float(worth[order][np.searchsorted(held, share * held[-1])])
