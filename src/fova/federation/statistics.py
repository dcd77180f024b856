"""Statistics of the federation: what clients send about their data before the first round, and its results.

Each client sends sums over its own rows (`client_statistics`). From these the server derives, once for a whole run,
three constants that every algorithm can use:

- the observation normaliser, equal to that of the pooled data;
- the unit of reward: what one step is worth to the clients with the best data;
- how much each client counts by the returns that its data shows (`--aggregation returns`).

The sums run over rows, so they do not depend on where an episode was cut by a time limit. If rows have weights, the
weights do: they follow the returns of whole records.

Nothing shows the server that a client's sums are true. From five clients on no single client decides any of the
three constants, unless the operator sets `--largest-share 1`: see docs/statistics.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fova.data.normalise import LEAST_VARIATION, Normaliser, Sums, client_sums, combine, scaled
from fova.data.sampling import LEAST_LOG_WEIGHT, low, low_of
from fova.data.transitions import Transitions
from fova.errors import FovaError
from fova.federation import trust
from fova.settings import LARGEST, SMALLEST

# A client counts e^(-SHARPNESS x) times as much as the best one, where x is how far it stays behind, as a share of
# the distance between the best client and the lowest rewards of the federation. No client counts less than
# e^LEAST_LOG_WEIGHT: it may be the only one that knows some of the states.
SHARPNESS = 20.0
LOWEST_TIMES = 3.0  # largest ratio of the distances of the lowest and the next lowest rewards to the best client
MOST_OF_A_UNIT = 2.0  # the factor by which one client can move the unit of reward
FARTHEST = 10.0  # largest distance of a client's observations, relative to those of most clients


@dataclass(frozen=True)
class ClientStatistics:
    """What a client sends about its data: counts and sums over all its rows, never a row.

    If the client trains on some rows more often than on others, each row counts by its weight in `terminals` and in
    the sums over rewards, and `counted_rows` is the sum of the weights. No weight is larger than 1.
    """

    rows: int
    episodes: int
    terminals: float
    reward_sum: float
    reward_squares: float
    reward_deviations: float  # sum of |reward - the client's mean reward|
    behaviour_return: float  # mean return of the whole episodes, in the units of the log
    observations: Sums | None = None  # None where observations are not normalised
    reward_range: tuple[float, float] | None = None  # coarse bounds; only sent where a policy is judged
    counted_rows: float | None = None  # None: each row counts once
    low_of_all: float | None = None  # `low_reward` of all rows alike, where rows have weights

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, from which `from_json` restores the same statistics."""
        sums = self.observations
        told = None if sums is None else [sums.count, sums.total.tolist(), sums.squares.tolist()]
        return vars(self) | {"observations": told}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "ClientStatistics":
        told = content["observations"]
        sums = None if told is None else Sums(told[0], np.array(told[1]), np.array(told[2]))
        ends = content["reward_range"]
        return ClientStatistics(
            **{**content, "observations": sums, "reward_range": None if ends is None else tuple(ends)}
        )

    @property
    def mean_reward(self) -> float:
        return self.reward_sum / self.counted

    @property
    def counted(self) -> float:
        """The sum of the rows' weights; the number of rows where each counts once."""
        return self.rows if self.counted_rows is None else self.counted_rows

    @property
    def log_share(self) -> float:
        """The logarithm of the mean weight of a row: 0 if each row counts once."""
        return math.log(self.counted / self.rows)

    @property
    def low_reward(self) -> float:
        """A reward that few of the client's rows stay below."""
        return low(self.mean_reward, self.reward_deviations / self.counted)

    def step_value(self, discount: float) -> float:
        """(1 - gamma) times the discounted value of the data's behaviour: what one step is worth.

        The value is that of a stream which pays the data's mean reward at every step and ends as often as the data
        does: V = r + gamma (1 - d) V with d the share of terminal rows. A time limit is no end.
        """
        ends = self.terminals / self.counted
        return (1.0 - discount) * self.mean_reward / (1.0 - discount * (1.0 - ends))

    def reward_unit(self, discount: float, zero: float = 0.0) -> float:
        """The size of what one step is worth above `zero`, or the spread of the rewards if they cancel out."""
        variance = max(self.reward_squares / self.counted - self.mean_reward**2, 0.0)
        # (1 - gamma) times the standard deviation of a discounted sum of independent rewards.
        spread = variance * (1.0 - discount) / (1.0 + discount)
        return math.sqrt((self.step_value(discount) - zero) ** 2 + spread)


def client_statistics(
    data: Transitions,
    reward_scale: float = 1.0,
    normalise: bool = True,
    weights: NDArray[np.float64] | None = None,
) -> ClientStatistics:
    """The statistics of a client's raw data. Rewards are multiplied by `reward_scale`, as in training.

    `weights` say how much each row counts, if not all count alike (`fova.data.sampling`).
    """
    rewards = (data.rewards * np.float32(reward_scale)).astype(np.float64)
    each = 1.0 if weights is None else weights
    mean = np.average(rewards, weights=weights)
    return ClientStatistics(
        rows=len(data),
        episodes=len(data.episode_lengths()),
        terminals=float((data.terminals * each).sum(dtype=np.float64)),
        reward_sum=float((rewards * each).sum()),
        reward_squares=float((np.square(rewards) * each).sum()),
        reward_deviations=float((np.abs(rewards - mean) * each).sum()),
        behaviour_return=float(data.whole_episode_returns().mean()),
        observations=client_sums(data.observations) if normalise else None,
        counted_rows=None if weights is None else float(weights.sum()),
        low_of_all=None if weights is None else low_of(rewards),
    )


def coarse_range(data: Transitions) -> tuple[float, float]:
    """Bounds of the rewards that show no row: 0, or a power of two beyond them.

    Where an episode ends, nothing is paid afterwards, so 0 is inside.
    """
    least, most = float(data.rewards.min()), float(data.rewards.max())
    if data.terminals.any():
        least, most = min(least, 0.0), max(most, 0.0)
    return -_power_above(-least), _power_above(most)


def _power_above(number: float) -> float:
    """The smallest power of two, or 0, or minus a power of two, that is not below the number."""
    if number == 0.0:
        return 0.0
    exponent = math.log2(abs(number))
    return 2.0 ** math.ceil(exponent) if number > 0.0 else -(2.0 ** math.floor(exponent))


# --- What the server derives ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """The constants of a federation."""

    normaliser: Normaliser
    reward_unit: float = 1.0  # rewards are divided by it during training
    log_weights: Mapping[str, float] = field(default_factory=dict)  # by the returns in each client's data
    remarks: tuple[str, ...] = ()  # for the operator, about claims that were not believed
    reward_zero: float = 0.0  # rewards are counted from it during training

    def to_json(self) -> dict[str, Any]:
        frame = {"mean": self.normaliser.mean.tolist(), "std": self.normaliser.std.tolist()}
        reward = {"reward_unit": self.reward_unit, "reward_zero": self.reward_zero}
        return {"normaliser": frame, **reward, "log_weights": dict(self.log_weights)}

    @staticmethod
    def from_json(content: Any) -> "Statistics":
        frame = content["normaliser"]
        mean, std = (np.asarray(frame[name], np.float32) for name in ("mean", "std"))
        return Statistics(
            Normaliser(mean, std),
            float(content["reward_unit"]),
            dict(content["log_weights"]),
            reward_zero=float(content.get("reward_zero", 0.0)),  # older runs counted from 0
        )


def common_normaliser(
    clients: Mapping[str, ClientStatistics], columns: int, largest_share: float | None = None
) -> tuple[Normaliser, tuple[str, ...]]:
    """The normaliser of all observations together, and remarks about clients whose sums do not count.

    It is the identity if clients sent no sums. No client counts for more rows than its largest share.
    """
    sums = {name: client.observations for name, client in clients.items() if client.observations is not None}
    if not sums:
        return Normaliser.identity(columns), ()
    if not _compares(len(sums), largest_share):
        return combine(sums.values()), ()
    outside = far_outside(sums)
    kept = [client for name, client in sums.items() if name not in outside]
    log_rows = np.log([float(client.count) for client in kept])
    factors = np.exp(_capped(log_rows, largest_share) - log_rows)
    counted = [scaled(client, float(factor)) for client, factor in zip(kept, factors)]
    remarks = [
        f"{name}: its observations are {times:,.0f} times as large as those of the other clients. They are not "
        "counted for the normaliser."
        for name, times in outside.items()
    ]
    return combine(counted), tuple(remarks)


def far_outside(sums: Mapping[str, Sums]) -> dict[str, float]:
    """The clients whose observations lie much farther out than those of most clients, and how much farther.

    For each column, the distance is the root mean square around the median of the clients' means. A column that is
    constant at most clients is not compared.
    """
    means = np.stack([client.total / client.count for client in sums.values()])
    squares = np.stack([client.squares / client.count for client in sums.values()])
    centre = np.median(means, axis=0)
    distances = np.sqrt(np.maximum(squares - 2.0 * centre * means + centre**2, 0.0))
    usual = np.median(distances, axis=0)
    varies = usual > LEAST_VARIATION * np.sqrt(np.median(squares, axis=0))
    farther = np.max(distances / np.where(varies, usual, 1.0), axis=1, where=varies, initial=0.0)
    return {name: float(times) for name, times in zip(sums, farther) if times > FARTHEST}


def derive(
    clients: Mapping[str, ClientStatistics],
    normaliser: Normaliser,
    discount: float,
    unit: float | None,
    largest_share: float | None = None,
    zero: float | None = None,
) -> Statistics:
    """The federation's constants. `unit` is the unit of reward where one is given; None derives unit and zero.

    `zero` is the zero of reward where it is that of more data than these clients hold now.
    """
    log_weights = weights_by_returns(clients, discount, largest_share)
    remarks: tuple[str, ...] = ()
    if unit is not None:
        zero = 0.0
    else:
        zero = common_zero(clients, discount, largest_share) if zero is None else zero
        unit, remarks = common_unit(clients, log_weights, discount, largest_share, zero)
        if not SMALLEST <= unit <= LARGEST:
            raise FovaError(
                f"One step is worth about {unit:.3g} to these clients, and training computes in single precision. "
                f"Give the rewards in a unit between {SMALLEST:g} and {LARGEST:g}, or set --reward-scale."
            )
    return Statistics(normaliser, unit, log_weights, remarks, zero)


def weights_by_returns(
    clients: Mapping[str, ClientStatistics], discount: float, largest_share: float | None = None
) -> dict[str, float]:
    """The log-weight of each client by the returns in its data: 0 for the best client, less for the others.

    The result does not change if all rewards are multiplied by a number. Where no episode ends by itself, it does
    not change either if a constant is added to all rewards: a client's distance from the best one is compared with
    the distance between the best one and the lowest rewards, and neither distance changes.

    From five clients on, a client that claims so much that all others are at the minimum does not decide how the
    others count among themselves: they are weighed without it.
    """
    weights = _weights(clients, discount, _compares(len(clients), largest_share))
    if not _compares(len(clients), largest_share):
        return weights
    first = max(weights, key=weights.__getitem__)
    others = {name: client for name, client in clients.items() if name != first}
    if any(weights[name] > LEAST_LOG_WEIGHT for name in others):
        return weights
    among = _weights(others, discount, True)
    return {name: 0.0 if name == first else LEAST_LOG_WEIGHT + among[name] for name in clients}


def _weights(clients: Mapping[str, ClientStatistics], discount: float, compare: bool) -> dict[str, float]:
    values = {name: client.step_value(discount) for name, client in clients.items()}
    best, lowest = _best_and_lowest(clients, discount, compare)
    distance = best - lowest
    if not distance > 1e-9 * max(abs(best), abs(lowest)):  # all rewards are alike
        return dict.fromkeys(values, 0.0)
    logs = {name: SHARPNESS * (value - best) / distance + clients[name].log_share for name, value in values.items()}
    most = max(logs.values())
    return {name: max(LEAST_LOG_WEIGHT, log - most) for name, log in logs.items()}


def _best_and_lowest(
    clients: Mapping[str, ClientStatistics], discount: float, compare: bool, lows: Sequence[float] | None = None
) -> tuple[float, float]:
    """What one step is worth to the best client, and the lowest reward: that of `lows` if they are given."""
    best = max((client.step_value(discount) for client in clients.values()), default=0.0)
    lows = [client.low_reward for client in clients.values()] if lows is None else lows
    lowest = _lowest(lows, best, compare)
    if any(client.terminals for client in clients.values()):
        lowest = min(lowest, 0.0)  # nothing is paid after an end
    return best, lowest


def _lowest(low_rewards: Sequence[float], best: float, compare: bool) -> float:
    """The lowest reward. Compared with the next client's, so that a single claim cannot switch the weights off."""
    if not compare:
        return min(low_rewards, default=0.0)
    lowest, following = sorted(low_rewards)[:2]
    return max(lowest, best - LOWEST_TIMES * (best - following))


def common_zero(
    clients: Mapping[str, ClientStatistics], discount: float, largest_share: float | None = None
) -> float:
    """The reward from which rewards are counted: 0, or the lowest reward if even the best client's data costs.

    New critics are close to 0. If all that can be earned is below 0, every untrained value is better than the
    truth, and where the larger of two values counts it is the untrained one. Counted from the lowest reward, the
    same task has values above 0.
    """
    # Critics see all rows alike, whatever weights the rows have.
    lows = [client.low_reward if client.low_of_all is None else client.low_of_all for client in clients.values()]
    best, lowest = _best_and_lowest(clients, discount, _compares(len(clients), largest_share), lows)
    return min(lowest, 0.0) if best < 0.0 else 0.0


def common_unit(
    clients: Mapping[str, ClientStatistics],
    log_weights: Mapping[str, float],
    discount: float,
    largest_share: float | None = None,
    zero: float = 0.0,
) -> tuple[float, tuple[str, ...]]:
    """The geometric mean of the clients' units, each counted by its weight; 1 if no client has a reward.

    From five clients on, a client is compared with the median of the others. If it would move the unit away from
    there by more than a factor of 2, it does not count; remarks name such clients.
    """
    units = {name: client.reward_unit(discount, zero) for name, client in clients.items()}
    paid = [name for name, unit in units.items() if unit > 0.0]
    if not paid:
        return 1.0, ()
    logs, weights = np.log([units[name] for name in paid]), np.exp([log_weights[name] for name in paid])
    shares, believed, remarks = weights / weights.sum(), logs.copy(), []
    for i, name in enumerate(paid if _compares(len(paid), largest_share) else ()):
        usual = weighted_median(np.delete(logs, i), np.delete(shares, i))
        furthest = math.log(MOST_OF_A_UNIT) / shares[i]
        if abs(logs[i] - usual) > furthest:
            believed[i] = usual
            remarks.append(
                f"{name}: one step is worth {math.exp(logs[i]):.3g} by its rewards, {math.exp(usual):.3g} by those "
                "of the other clients. It does not count for the unit of reward."
            )
    return float(np.exp(np.average(believed, weights=weights))), tuple(remarks)


def weighted_median(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The smallest value up to which the weights reach half of their sum."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, 0.5 * reached[-1])])


def _compares(clients: int, largest_share: float | None) -> bool:
    """Whether claims are compared: there are enough clients, and the operator does not believe them all."""
    return clients >= trust.FEWEST_CLIENTS and not trust.believes_all(largest_share)


def _capped(log_weights: NDArray[np.float64], largest_share: float | None) -> NDArray[np.float64]:
    """`trust.capped` in double precision: a weight that is not cut keeps all its digits."""
    single = jnp.asarray(log_weights, jnp.float32)
    cut = trust.capped(single, largest_share)
    return np.where(np.asarray(cut < single), np.asarray(cut, np.float64), log_weights)
