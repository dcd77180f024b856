import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from fova.errors import FovaError
from fova.federation.accountant import ORDERS, divergence, epsilon, epsilon_of, noise_for


def by_binomials(order, noise, sampling):
    """The published form for whole orders: log(sum_k C(a,k) (1-q)^(a-k) q^k exp(k(k-1)/(2 s^2))) / (a-1)."""
    terms = [
        math.log(math.comb(order, k))
        + (order - k) * math.log1p(-sampling)
        + k * math.log(sampling)
        + k * (k - 1) / (2 * noise**2)
        for k in range(order + 1)
    ]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def by_scipy(order, noise, sampling):
    """The definition, integrated by somebody else's adaptive rule."""

    def integrand(z):
        ratio = (1 - sampling) + sampling * math.exp((2 * z - 1) / (2 * noise**2))
        return stats.norm.pdf(z, scale=noise) * ratio**order

    value, _ = integrate.quad(integrand, -15 * noise, order + 15 * noise, epsabs=0, epsrel=1e-11, limit=500)
    return math.log(value) / (order - 1)


@given(
    order=st.integers(2, 60),
    noise=st.floats(0.1, 8.0),
    sampling=st.floats(1e-3, 0.999),
)
@settings(max_examples=60, deadline=None)
def test_whole_orders_have_a_closed_form(order, noise, sampling):
    assert divergence(order, noise, sampling) == pytest.approx(
        by_binomials(order, noise, sampling), rel=1e-7, abs=1e-10
    )


@pytest.mark.parametrize("sampling", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("order", [2, 3, 10])
def test_the_least_noise_has_a_closed_form_too(order, sampling):
    """There the integrand is smooth only within pi s^2 = 0.03 of the real line."""
    assert divergence(order, 0.1, sampling) == pytest.approx(by_binomials(order, 0.1, sampling), rel=1e-9)


@pytest.mark.parametrize(("noise", "sampling"), [(0.7, 0.3), (1.1, 0.01), (2.5, 0.01), (4.0, 0.9)])
@pytest.mark.parametrize("order", [1.01, 1.5, 2.5, 7.3])
def test_broken_orders_against_an_independent_integral(order, noise, sampling):
    assert divergence(order, noise, sampling) == pytest.approx(by_scipy(order, noise, sampling), rel=1e-5, abs=1e-9)


def test_published_divergences():
    """50 rounds, q = 0.01, s = 2.5: the figures in the tests of TensorFlow Privacy, to the digits given there."""
    published = {1.5: 6.5007e-04, 2.5: 1.0854e-03, 5: 2.1808e-03, 50: 2.3846e-02, 100: 1.6742e02}
    for order, expected in published.items():
        assert 50 * divergence(order, 2.5, 0.01) == pytest.approx(expected, rel=1e-4)


# Computed with dp-accounting 0.6.0: its Renyi accountant, and its tight one (privacy-loss distributions).
# (sampling, noise, rounds, delta) -> (Renyi, tight)
BY_DP_ACCOUNTING = {
    (0.01, 2.5, 50, 1e-5): (0.1447864, 0.0994565),
    (256 / 60000, 1.1, 14062, 1e-5): (2.5965559, 2.3816860),
    (0.1, 1.0, 100, 1e-5): (7.9038502, 7.0466029),
    (1.0, 4.0, 30, 1e-5): (6.8133182, 6.3257155),
    (0.02, 0.8, 1000, 1e-6): (8.1359229, 7.3369468),
    (1.0, 1.0, 30, 1e-3): (33.7228783, 31.1361552),
}


@pytest.mark.parametrize(("setting", "expected"), BY_DP_ACCOUNTING.items())
def test_epsilon_against_another_accountant(setting, expected):
    sampling, noise, rounds, delta = setting
    renyi, tight = expected
    ours = epsilon(noise, sampling, rounds, delta)
    assert ours == pytest.approx(renyi, rel=2e-3)  # the two search other orders
    assert ours > tight, "a Renyi bound is never below the truth"


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (4.0, 30), (20.0, 500)])
def test_epsilon_of_everybody_is_above_the_exact_one_by_little(noise, rounds):
    """Without sampling, rounds are one Gaussian mechanism whose delta is known exactly (Balle and Wang, 2018)."""
    ours = epsilon(noise, 1.0, rounds, 1e-5)
    mu = math.sqrt(rounds) / noise

    def delta_of(eps):
        first, second = stats.norm.cdf(mu / 2 - eps / mu), stats.norm.cdf(-mu / 2 - eps / mu)
        return first - math.exp(eps) * second

    assert delta_of(ours) < 1e-5, "what is promised is kept"
    assert delta_of(0.85 * ours) > 1e-5, "and not wasted"


def test_more_noise_fewer_rounds_and_rarer_draws_spend_less():
    base = epsilon(1.0, 0.2, 50, 1e-5)
    for less in (epsilon(2.0, 0.2, 50, 1e-5), epsilon(1.0, 0.1, 50, 1e-5), epsilon(1.0, 0.2, 25, 1e-5)):
        assert 0 < less < base
    assert epsilon(1.0, 0.2, 50, 1e-3) < base


def test_noise_for_a_budget_keeps_it_with_nothing_to_spare():
    noise = noise_for(8.0, 0.1, 100, 1e-5)
    assert epsilon(noise, 0.1, 100, 1e-5) <= 8.0 < epsilon(0.997 * noise, 0.1, 100, 1e-5)


@pytest.mark.parametrize("target", [0.3, 0.7, 1.0, 2.0, 3.0, 5.0, 8.0, 20.0, 100.0, 200.0])
def test_noise_for_a_budget_is_the_least_to_one_part_in_a_thousand(target):
    noise = noise_for(target, 1.0, 10, 1e-5)
    assert epsilon(noise, 1.0, 10, 1e-5) <= target < epsilon(0.999 * noise, 1.0, 10, 1e-5)


def test_a_budget_may_be_spent_to_the_last():
    assert noise_for(epsilon(0.2, 1.0, 10, 1e-5), 1.0, 10, 1e-5) == 0.2
    middle = (0.2 + 0.4) / 2  # where the search comes by
    assert noise_for(epsilon(middle, 1.0, 10, 1e-5), 1.0, 10, 1e-5) == middle


def test_a_budget_that_nobody_can_spend_takes_the_least_noise():
    assert 0.1 <= noise_for(1e9, 1.0, 1, 1e-5) <= 0.1002


def test_a_budget_below_what_is_counted_without_any_loss_is_refused_with_that_figure():
    floor = epsilon(1e9, 1.0, 1, 1e-5)
    assert floor > 0
    with pytest.raises(FovaError, match=f"epsilon 0.001: with delta 1e-05 .* at least {floor:.2g}"):
        noise_for(0.001, 0.5, 10, 1e-5)
    assert epsilon(noise_for(1.5 * floor, 1.0, 10, 1e-5), 1.0, 10, 1e-5) <= 1.5 * floor


def test_rounds_of_different_noise_add_up():
    """Without sampling a round diverges by a / (2 s^2) at order a: four rounds with s = 2 are one with s = 1."""
    twice = epsilon(1.0, 1.0, 2, 1e-5)
    assert epsilon_of({1.0: 1, 2.0: 4}, 1e-5) == pytest.approx(twice)
    assert epsilon_of({1.0: 2, 2.0: 0}, 1e-5) == pytest.approx(twice)
    assert epsilon_of({}, 1e-5) == epsilon_of({1.0: 0}, 1e-5) == 0.0
    with pytest.raises(FovaError, match="noise multiplier"):
        epsilon_of({1.0: 1, 0.01: 1}, 1e-5)


def test_the_least_noise_is_a_tenth():
    # the best order of one round of everybody: a / (2 s^2) + log(1 - 1/a) - log(a delta) / (a - 1)
    implied = min(50 * a + math.log1p(-1 / a) - math.log(a * 1e-5) / (a - 1) for a in np.arange(1.01, 3, 1e-3))
    assert epsilon(0.1, 1.0, 1, 1e-5) == pytest.approx(implied, rel=2e-3)
    with pytest.raises(FovaError, match=r"at least 0\.1"):
        epsilon(0.0999, 1.0, 1, 1e-5)


def implied_of_everybody(order, noise, rounds, delta):
    """The epsilon that one order implies where all clients are drawn: the divergence is a / (2 s^2) each round."""
    return rounds * order / (2 * noise**2) + math.log1p(-1 / order) - math.log(order * delta) / (order - 1)


@pytest.mark.parametrize(
    "order",
    [1.01, 1 + 0.01 * 900 ** (1 / 59), 10.0, 11.0, 12.0, 63.0, 80.0, 96.0, 128.0, 192.0, 256.0, 512.0, 1024.0],
)
def test_the_best_of_these_orders_is_found(order):
    delta, rounds = 1e-5, 10_000
    # The noise for which this order is the best of all: there the derivative of `implied_of_everybody` is 0, which
    # is rounds / (2 s^2) + log(a delta) / (a - 1)^2, because the derivatives of the two logarithms of a cancel.
    noise = (order - 1) * math.sqrt(rounds / (-2 * math.log(order * delta)))
    best = implied_of_everybody(order, noise, rounds, delta)
    for near in (0.999, 1.001):
        assert implied_of_everybody(1 + near * (order - 1), noise, rounds, delta) > best
    assert epsilon(noise, 1.0, rounds, delta) == pytest.approx(best, rel=1e-12)


def test_there_are_no_more_orders_than_these():
    """Every order costs an integral: 60 up to 10, whole ones to 63, seven more."""
    assert len(ORDERS) == 60 + 53 + 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 0.1, 10, 1e-5), "noise multiplier is 0"),
        ((-1.0, 0.1, 10, 1e-5), "noise multiplier is -1"),
        ((math.nan, 0.1, 10, 1e-5), "noise multiplier is nan"),
        ((math.inf, 0.1, 10, 1e-5), "noise multiplier is inf"),
        ((1.0, 0.0, 10, 1e-5), "share of clients"),
        ((1.0, 1.5, 10, 1e-5), "share of clients"),
        ((1.0, 0.1, 0, 1e-5), "rounds"),
        ((1.0, 0.1, 10, 0.0), "delta"),
        ((1.0, 0.1, 10, 1.0), "delta"),
    ],
)
def test_nonsense_is_refused(arguments, words):
    with pytest.raises(FovaError, match=words):
        epsilon(*arguments)


# --- Google's dp-accounting as the oracle ---

SETTINGS = [(1.0, 1.0, 1), (4.0, 1.0, 30), (1.0, 0.1, 100), (2.0, 0.5, 10), (0.6, 0.02, 50)]


@pytest.mark.parametrize(("noise", "sampling", "rounds"), SETTINGS)
def test_renyi_divergences_agree_with_dp_accounting(noise, sampling, rounds):
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.rdp import RdpAccountant

    one = dp_accounting.PoissonSampledDpEvent(sampling, dp_accounting.GaussianDpEvent(noise))
    oracle = RdpAccountant().compose(dp_accounting.SelfComposedDpEvent(one, rounds)).get_epsilon(1e-5)
    assert epsilon(noise, sampling, rounds, 1e-5) == pytest.approx(oracle, rel=0.01)


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (4.0, 30)])
def test_the_loss_distribution_meets_the_exact_epsilon_of_the_gaussian(noise, rounds):
    """Without sampling, `rounds` rounds are one of noise s / sqrt(rounds), whose delta has a closed form."""
    pytest.importorskip("dp_accounting")
    found = epsilon(noise, 1.0, rounds, 1e-5, "pld")
    shift = math.sqrt(rounds) / noise
    exact = stats.norm.cdf(shift / 2 - found / shift) - math.exp(found) * stats.norm.cdf(-shift / 2 - found / shift)
    assert 0.97e-5 < exact <= 1.001e-5


@pytest.mark.parametrize(("noise", "sampling", "rounds"), SETTINGS)
def test_the_loss_distribution_promises_more_for_the_same_noise(noise, sampling, rounds):
    pytest.importorskip("dp_accounting")
    tight = epsilon(noise, sampling, rounds, 1e-5, "pld")
    assert 0.5 < tight / epsilon(noise, sampling, rounds, 1e-5) < 1.0


def test_the_noise_for_an_epsilon_follows_the_method():
    pytest.importorskip("dp_accounting")
    needed = noise_for(4.0, 1.0, 10, 1e-5, "pld")
    assert needed < noise_for(4.0, 1.0, 10, 1e-5)
    assert 3.95 < epsilon(needed, 1.0, 10, 1e-5, "pld") <= 4.0


def test_without_dp_accounting_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FovaError, match=r"pip install 'fova\[accounting\]'"):
        epsilon(3.21, 1.0, 1, 1e-5, "pld")
