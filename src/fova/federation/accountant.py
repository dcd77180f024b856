"""Privacy accounting: the epsilon that a number of noisy rounds spends. Plain arithmetic; nothing is trained here.

The mechanism: in a round every client is drawn with probability q, independently of the others. The updates of the
drawn clients, each of norm at most 1, are summed. Gaussian noise of standard deviation s is added to every
coordinate. Adding or removing one client then shifts the sum by at most 1, with probability q. The Renyi divergence
of order a that this can cause is log(A) / (a - 1) with

    A = E[((1 - q) + q exp((2 z - 1) / (2 s^2)))^a],   z ~ N(0, s^2)

(Mironov, Talwar and Zhang, "Renyi Differential Privacy of the Sampled Gaussian Mechanism", 2019). Divergences of
successive rounds add up. A total r at order a implies (epsilon, delta) with

    epsilon = r + log(1 - 1/a) - log(a delta) / (a - 1)

(Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020). The result is the smallest
epsilon over all orders.

With the method `pld` the distribution of the privacy loss itself is composed, by Google's dp-accounting. It is
tighter, and slower.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError

Method = Literal["rdp", "pld"]

# Low orders give the best bound for a large epsilon, high orders for a small one.
ORDERS = np.concatenate([1 + np.geomspace(0.01, 9, 60), np.arange(11.0, 64.0), [80, 96, 128, 192, 256, 512, 1024]])
# With less noise than this, one round of all clients spends an epsilon near 100, and the integral becomes slow.
LEAST_NOISE = 0.1


def epsilon(noise: float, sampling: float, rounds: int, delta: float, method: Method = "rdp") -> float:
    """The epsilon that `rounds` rounds spend at the given delta. `noise` is s above, `sampling` is q."""
    _insist_on_sense(noise, sampling, rounds, delta)
    if method == "pld":
        return _by_loss_distribution(noise, sampling, rounds, delta)
    return _implied(rounds * _divergences(noise, sampling), delta)


@cache
def _by_loss_distribution(noise: float, sampling: float, rounds: int, delta: float) -> float:
    """The epsilon that dp-accounting finds from the distribution of the privacy loss. It rounds upwards."""
    try:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise FovaError(
            "privacy_accountant is pld, which needs dp-accounting: pip install 'fova[accounting]'. Or leave it "
            "out: the default gives a slightly larger epsilon."
        ) from error
    one = dp_accounting.PoissonSampledDpEvent(sampling, dp_accounting.GaussianDpEvent(noise))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(dp_accounting.SelfComposedDpEvent(one, rounds)).get_epsilon(delta))


def _implied(divergences: NDArray[np.float64], delta: float) -> float:
    """The epsilon that a total divergence at every order implies."""
    implied = divergences + np.log1p(-1 / ORDERS) - np.log(ORDERS * delta) / (ORDERS - 1)
    return max(0.0, float(implied.min()))


def epsilon_of(rounds: Mapping[float, int], delta: float) -> float:
    """The epsilon of rounds without sampling, where `rounds` says how many had which noise; 0 for none."""
    counts = {noise: count for noise, count in rounds.items() if count}
    if not counts:
        return 0.0
    for noise, count in counts.items():
        _insist_on_sense(noise, 1.0, count, delta)
    return _implied(np.sum([count * _divergences(noise, 1.0) for noise, count in counts.items()], axis=0), delta)


@cache
def _divergences(noise: float, sampling: float) -> NDArray[np.float64]:
    return np.array([divergence(order, noise, sampling) for order in ORDERS])


def divergence(order: float, noise: float, sampling: float) -> float:
    """The Renyi divergence of one round."""
    if sampling == 1.0:
        return order / (2 * noise**2)
    z, step = _grid(order, noise)
    density = -np.square(z / noise) / 2 - math.log(noise * math.sqrt(2 * math.pi))
    ratio = np.logaddexp(math.log1p(-sampling), math.log(sampling) + (2 * z - 1) / (2 * noise**2))
    exponents = density + order * ratio
    largest = exponents.max()
    log_a = largest + math.log(step * np.exp(exponents - largest).sum())
    return max(0.0, log_a) / (order - 1)


def noise_for(target: float, sampling: float, rounds: int, delta: float, method: Method = "rdp") -> float:
    """The least noise with which `rounds` rounds spend at most the epsilon `target`, to one part in a thousand."""
    low, high = LEAST_NOISE, 2 * LEAST_NOISE
    floor = _implied(np.zeros(len(ORDERS)), delta)  # what the default counts however large the noise is
    if method != "rdp":  # needs no more noise than the default, and is slow for far too little
        high = noise_for(max(target, 2 * floor), sampling, rounds, delta)
        low = max(LEAST_NOISE, high / 2)
    elif target <= floor:
        raise FovaError(
            f"No noise keeps to a budget of epsilon {target:g}: with delta {delta:g} this accountant counts at "
            f"least {floor:.2g}. Allow more with --privacy-epsilon or --privacy-delta, or take "
            "--privacy-accountant pld."
        )
    while epsilon(high, sampling, rounds, delta, method) > target:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(middle, sampling, rounds, delta, method) <= target else (middle, high)
    return high


def _grid(order: float, noise: float) -> tuple[NDArray[np.float64], float]:
    """The points of the integral and their distance.

    The integrand is a mixture of bell curves of width `noise`, centred between 0 and `order`. For a smooth function
    that decays, the sum over an even grid converges faster than any power of the step. The nearest point where this
    integrand is not smooth lies pi noise^2 away from the real line, and the step must resolve that distance.
    """
    step = noise * min(1.0, noise) / 8
    return np.arange(-12 * noise, order + 12 * noise, step), step


def _insist_on_sense(noise: float, sampling: float, rounds: int, delta: float) -> None:
    if not (math.isfinite(noise) and noise >= LEAST_NOISE):
        raise FovaError(
            f"The noise multiplier is {noise}, but must be a number of at least {LEAST_NOISE}: less noise cannot "
            f"promise a useful epsilon. Between 0.5 and 10 is usual."
        )
    if not 0.0 < sampling <= 1.0:
        raise FovaError(f"The share of clients drawn is {sampling}, but must be above 0 and at most 1.")
    if rounds < 1:
        raise FovaError(f"The number of rounds is {rounds}, but must be at least 1.")
    if not 0.0 < delta < 1.0:
        raise FovaError(f"delta is {delta}, but must be above 0 and below 1; 1e-5 is usual.")
