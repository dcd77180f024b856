"""Statistics of the federation: what clients tell about their data before the first round, and what follows.

Each client sends sums over its own rows (`client_statistics`). From these the server derives, once for a whole run,
three constants that every algorithm can use:

- the observation normaliser, equal to that of the pooled data;
- the unit of reward: what one step is worth to the clients with the best data;
- how much each client counts by the returns that its data shows (`--aggregation returns`).

The sums run over rows, so they do not depend on where an episode was cut by a time limit.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fova.data.normalise import Normaliser, Sums, client_sums, combine
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.settings import LARGEST, SMALLEST

# A client counts e^(-SHARPNESS x) times as much as the best one, where x is how far it stays behind, as a share of
# the distance between the best client and the lowest rewards of the federation.
SHARPNESS = 20.0
LEAST_LOG_WEIGHT = -4.0  # every client keeps this weight: it may be the only one that knows some of the states
SPREADS_BELOW = 3.0  # the lowest rewards are so many mean absolute deviations below the mean


@dataclass(frozen=True)
class ClientStatistics:
    """What a client tells about its data: counts and sums over all its rows, never a row."""

    rows: int
    episodes: int
    terminals: int
    reward_sum: float
    reward_squares: float
    reward_deviations: float  # sum of |reward - the client's mean reward|
    behaviour_return: float  # mean return of the whole episodes, in the units of the log
    observations: Sums | None = None  # None where observations are not normalised

    @property
    def mean_reward(self) -> float:
        return self.reward_sum / self.rows

    @property
    def low_reward(self) -> float:
        """A reward that few of the client's rows stay below."""
        return self.mean_reward - SPREADS_BELOW * self.reward_deviations / self.rows

    def step_value(self, discount: float) -> float:
        """(1 - gamma) times the discounted value of the data's behaviour: what one step is worth.

        The value is that of a stream which pays the data's mean reward at every step and ends as often as the data
        does: V = r + gamma (1 - d) V with d the share of terminal rows. A time limit is no end.
        """
        ends = self.terminals / self.rows
        return (1.0 - discount) * self.mean_reward / (1.0 - discount * (1.0 - ends))

    def reward_unit(self, discount: float) -> float:
        """The size of what one step is worth; rewards that cancel out still have the size of their spread."""
        variance = max(self.reward_squares / self.rows - self.mean_reward**2, 0.0)
        # (1 - gamma) times the standard deviation of a discounted sum of independent rewards.
        spread = variance * (1.0 - discount) / (1.0 + discount)
        return math.sqrt(self.step_value(discount) ** 2 + spread)


def client_statistics(data: Transitions, reward_scale: float = 1.0, normalise: bool = True) -> ClientStatistics:
    """Computed by a client on its own raw data. Rewards count as training sees them, times `reward_scale`."""
    rewards = (data.rewards * np.float32(reward_scale)).astype(np.float64)
    return ClientStatistics(
        rows=len(data),
        episodes=len(data.episode_lengths()),
        terminals=int(np.count_nonzero(data.terminals)),
        reward_sum=float(rewards.sum()),
        reward_squares=float(np.square(rewards).sum()),
        reward_deviations=float(np.abs(rewards - rewards.mean()).sum()),
        behaviour_return=float(data.whole_episode_returns().mean()),
        observations=client_sums(data.observations) if normalise else None,
    )


# --- What the server derives ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """The constants of a federation."""

    normaliser: Normaliser
    reward_unit: float = 1.0  # rewards are divided by it during training
    log_weights: Mapping[str, float] = field(default_factory=dict)  # by the returns in each client's data

    def to_json(self) -> dict[str, Any]:
        frame = {"mean": self.normaliser.mean.tolist(), "std": self.normaliser.std.tolist()}
        return {"normaliser": frame, "reward_unit": self.reward_unit, "log_weights": dict(self.log_weights)}

    @staticmethod
    def from_json(content: Any) -> "Statistics":
        frame = content["normaliser"]
        mean, std = (np.asarray(frame[name], np.float32) for name in ("mean", "std"))
        return Statistics(Normaliser(mean, std), float(content["reward_unit"]), dict(content["log_weights"]))


def common_normaliser(clients: Iterable[ClientStatistics], columns: int) -> Normaliser:
    """The normaliser of all observations together; the identity where clients told none."""
    sums = [client.observations for client in clients if client.observations is not None]
    return combine(sums) if sums else Normaliser.identity(columns)


def derive(
    clients: Mapping[str, ClientStatistics], normaliser: Normaliser, discount: float, unit: float | None
) -> Statistics:
    """The federation's constants. `unit` is the unit of reward where one is given; None derives it."""
    log_weights = weights_by_returns(clients, discount)
    if unit is None:
        unit = common_unit(clients, log_weights, discount)
        if not SMALLEST <= unit <= LARGEST:
            raise FovaError(
                f"One step is worth about {unit:.3g} to these clients, and training computes in single precision. "
                f"Give the rewards in a unit between {SMALLEST:g} and {LARGEST:g}, or set --reward-scale."
            )
    return Statistics(normaliser=normaliser, reward_unit=unit, log_weights=log_weights)


def weights_by_returns(clients: Mapping[str, ClientStatistics], discount: float) -> dict[str, float]:
    """How much each client counts by what its data earned: 0 for the best client, less for the others.

    The result does not change if all rewards are multiplied by a number. Where no episode ends by itself, it does
    not change either if a constant is added to all rewards: a client's distance from the best one is compared with
    the distance between the best one and the lowest rewards, and neither distance changes.
    """
    values = {name: client.step_value(discount) for name, client in clients.items()}
    best = max(values.values(), default=0.0)
    lowest = min((client.low_reward for client in clients.values()), default=0.0)
    if any(client.terminals for client in clients.values()):
        lowest = min(lowest, 0.0)  # nothing is paid after an end
    distance = best - lowest
    if not distance > 1e-9 * max(abs(best), abs(lowest)):  # all rewards are alike
        return dict.fromkeys(values, 0.0)
    return {name: max(LEAST_LOG_WEIGHT, SHARPNESS * (value - best) / distance) for name, value in values.items()}


def common_unit(
    clients: Mapping[str, ClientStatistics], log_weights: Mapping[str, float], discount: float
) -> float:
    """The geometric mean of the clients' units, each counted by its weight; 1 where nobody saw a reward."""
    units = {name: client.reward_unit(discount) for name, client in clients.items()}
    paid = [name for name, unit in units.items() if unit > 0.0]
    if not paid:
        return 1.0
    weights = np.exp([log_weights[name] for name in paid])
    return float(np.exp(np.average(np.log([units[name] for name in paid]), weights=weights)))
