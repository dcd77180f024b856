"""The federation's statistics: numbers worked out by hand, and what they must not depend on."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fova.data.normalise import Normaliser, Sums, combine
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.federation.statistics import (
    LEAST_LOG_WEIGHT,
    ClientStatistics,
    Statistics,
    client_statistics,
    coarse_range,
    common_normaliser,
    common_unit,
    common_zero,
    derive,
    far_outside,
    weighted_median,
    weights_by_returns,
)

GAMMA = 0.99


def client(rewards, terminals=0, **changes):
    """The statistics of a client with these rewards."""
    rewards = np.asarray(rewards, np.float64)
    fields = {
        "rows": len(rewards),
        "episodes": max(1, terminals),
        "terminals": terminals,
        "reward_sum": rewards.sum(),
        "reward_squares": np.square(rewards).sum(),
        "reward_deviations": np.abs(rewards - rewards.mean()).sum(),
        "behaviour_return": rewards.sum(),
    }
    return ClientStatistics(**fields | changes)


def episode(rewards, terminated=False):
    steps = len(rewards)
    rewards = np.asarray(rewards, np.float32)
    return Episode(np.zeros((steps + 1, 2), np.float32), np.zeros((steps, 1), np.float32), rewards, terminated)


# --- By hand ---


def test_what_a_client_tells_by_hand():
    data = from_episodes([episode([1.0, 2.0, 3.0]), episode([6.0], terminated=True)])
    told = client_statistics(data, reward_scale=2.0, normalise=False)
    assert dataclasses.asdict(told) == {
        "rows": 4,
        "episodes": 2,
        "terminals": 1,
        "reward_sum": 24.0,
        "reward_squares": 4.0 + 16.0 + 36.0 + 144.0,
        "reward_deviations": 4.0 + 2.0 + 0.0 + 6.0,  # the mean is 6
        "behaviour_return": 6.0,  # in the units of the log: the mean of 6 and 6
        "observations": None,
        "reward_range": None,
        "counted_rows": None,
        "low_of_all": None,
    }
    assert told.low_reward == 6.0 - 3 * 12.0 / 4
    assert told.log_share == 0.0


def test_what_a_client_tells_about_weighted_rows_by_hand():
    """The first episode counts half: as if the data were one row of 2 and two rows of 6, of which one is an end."""
    data = from_episodes([episode([2.0, 6.0]), episode([6.0], terminated=True)])
    told = client_statistics(data, normalise=False, weights=np.array([0.5, 0.5, 1.0]))
    assert (told.rows, told.episodes, told.counted_rows, told.terminals) == (3, 2, 2.0, 1.0)
    assert told.reward_sum == 0.5 * 2 + 0.5 * 6 + 6
    assert told.mean_reward == 5.0
    assert told.reward_squares == 0.5 * 4 + 0.5 * 36 + 36
    assert told.reward_deviations == 0.5 * 3 + 0.5 * 1 + 1
    assert told.low_reward == 5.0 - 3 * 3.0 / 2
    assert told.step_value(GAMMA) == pytest.approx(
        0.01 * 5.0 / (1 - 0.99 * 0.5)
    )  # every second counted row is an end
    variance = (0.5 * 4 + 0.5 * 36 + 36) / 2 - 25.0
    assert told.reward_unit(GAMMA) == pytest.approx(np.sqrt(told.step_value(GAMMA) ** 2 + variance * 0.01 / 1.99))
    assert told.log_share == pytest.approx(np.log(2 / 3))
    assert told.low_of_all == pytest.approx(14 / 3 - 3 * 16 / 9)  # 2, 6 and 6: the mean is 14 / 3


def test_the_zero_of_reward_is_that_of_all_rows_alike():
    """Critics see the poor rows, too: rewards are counted from below them, though they hardly count otherwise."""
    data = from_episodes([episode([-1.0] * 20), episode([-10.0] * 20)])
    weights = np.repeat([1.0, 0.02], 20)
    weighted = client_statistics(data, normalise=False, weights=weights)
    alike = client_statistics(data, normalise=False)
    assert common_zero({"a": weighted}, GAMMA) == common_zero({"a": alike}, GAMMA) == -5.5 - 3 * 4.5
    assert weighted.low_reward > -2.5
    assert common_zero({"a": dataclasses.replace(weighted, low_of_all=None)}, GAMMA) == weighted.low_reward


def test_rewards_count_as_they_are_and_observations_are_summed_unless_told_otherwise():
    told = client_statistics(from_episodes([episode([1.0, 2.0])]))
    assert told.reward_sum == 3.0
    assert told.observations.count == 2
    assert Statistics(common_normaliser({"a": told}, 2)[0]).reward_unit == 1.0


def test_what_a_client_tells_travels_as_plain_numbers():
    told = client([1.0, 2.0], observations=sums([1.0, 2.0], [1.0, 0.5]), reward_range=(-1.0, 2.0))
    again = ClientStatistics.from_json(json.loads(json.dumps(told.to_json())))
    assert again.to_json() == told.to_json()
    assert again.reward_range == (-1.0, 2.0)
    assert (again.observations.count, again.observations.squares.tolist()) == (100, [200.0, 425.0])
    nothing = client([1.0])
    assert ClientStatistics.from_json(nothing.to_json()) == nothing


@pytest.mark.parametrize(
    ("rewards", "terminated", "expected"),
    [
        ([0.3, 3.0], False, (0.25, 4.0)),
        ([0.3, 3.0], True, (0.0, 4.0)),  # nothing is paid behind an end
        ([-3.0, -0.3], False, (-4.0, -0.25)),
        ([-3.0, -0.3], True, (-4.0, 0.0)),
        ([-1.0, 1.0], False, (-1.0, 1.0)),  # a power of two is its own bound
        ([2.0, 2.0], False, (2.0, 2.0)),
        ([0.0, 0.0], False, (0.0, 0.0)),
    ],
)
def test_coarse_bounds_of_the_rewards(rewards, terminated, expected):
    assert coarse_range(from_episodes([episode(rewards, terminated)])) == expected


def test_what_one_step_is_worth_by_hand():
    assert client([2.0] * 10).step_value(GAMMA) == pytest.approx(2.0), "without an end a step pays the mean reward"
    # one row in five is an end: V = 2 + 0.99 * 0.8 V, so V = 2 / 0.208, and a step is worth a hundredth of it
    assert client([2.0] * 10, terminals=2).step_value(GAMMA) == pytest.approx(0.01 * 2 / 0.208)


def test_the_unit_of_reward_by_hand():
    assert client([-3.0] * 4).reward_unit(GAMMA) == pytest.approx(3.0)
    # mean 0, variance 4: (1 - gamma) times the standard deviation of the sum of gamma^t r_t
    assert client([2.0, -2.0]).reward_unit(GAMMA) == pytest.approx(0.01 * 2 / np.sqrt(1 - GAMMA**2))


def test_a_unit_that_single_precision_cannot_hold_is_refused():
    normaliser, _ = common_normaliser({}, 1)
    for reward in (1e-40, 1e35):
        with pytest.raises(FovaError, match=r"worth about 1e[-+]\d\d to .* between 1e-30 and 1e\+30"):
            derive({"a": client([reward] * 4)}, normaliser, GAMMA, None)
        assert derive({"a": client([reward] * 4)}, normaliser, GAMMA, 2.0).reward_unit == 2.0
    for reward in (2e-30, 0.5e30):
        unit = derive({"a": client([reward] * 4)}, normaliser, GAMMA, None).reward_unit
        assert unit == pytest.approx(reward, rel=1e-6)


def test_weights_by_hand():
    """The best client earns 4 a step, the others 3.8 and 1; the lowest rewards are 1 - 3 * 0.5."""
    clients = {"best": client([4.0] * 6), "near": client([3.8] * 6), "far": client([0.5, 1.5] * 3)}
    weights = weights_by_returns(clients, GAMMA)
    assert weights["best"] == 0.0
    assert weights["near"] == pytest.approx(-20 * 0.2 / 4.5)
    assert weights["far"] == LEAST_LOG_WEIGHT


def test_a_client_counts_by_the_share_of_its_rows_that_count():
    """As much is earned in a tenth of b's rows as in all of a's; c is both a little worse and only half good."""
    clients = {"a": client([4.0] * 10), "b": client([4.0], rows=10, counted_rows=1.0)}
    clients["c"] = client([3.8] * 5, rows=10, counted_rows=5.0)
    clients["far"] = client([0.5, 1.5] * 3)  # the lowest rewards are 1 - 3 * 0.5
    weights = weights_by_returns(clients, GAMMA)
    assert weights == pytest.approx({"a": 0.0, "b": np.log(0.1), "c": np.log(0.5) - 20 * 0.2 / 4.5, "far": -4.0})
    del clients["a"]
    heaviest = weights_by_returns(clients, GAMMA)
    assert heaviest["c"] == 0.0, "the heaviest client has 0, whichever it is"
    assert heaviest["b"] == pytest.approx(weights["b"] - weights["c"])


def test_every_client_keeps_a_minimum_weight():
    """A share of e^-4, about a fiftieth of the best client's."""
    weights = weights_by_returns({"best": client([4.0] * 6), "far": client([0.5, 1.5] * 3)}, GAMMA)
    assert weights == {"best": 0.0, "far": -4.0}


@pytest.mark.parametrize("reward", [1.0, -1.0])
@pytest.mark.parametrize(("behind", "weight"), [(1.5e-9, -4.0), (0.5e-9, 0.0)])
def test_a_difference_below_a_billionth_is_rounding(reward, behind, weight):
    clients = {"best": client([reward]), "other": client([reward - behind])}
    assert weights_by_returns(clients, GAMMA) == {"best": 0.0, "other": weight}


def test_ends_count_as_nothing_paid_afterwards():
    """A reward of 1 at every step; who survives earns more than who falls after 20 steps."""
    clients = {"survives": client([1.0] * 100), "falls": client([1.0] * 100, terminals=5)}
    weights = weights_by_returns(clients, GAMMA)
    assert weights == {"survives": 0.0, "falls": LEAST_LOG_WEIGHT}


def test_clients_whose_rewards_are_all_alike_count_alike():
    assert weights_by_returns({"a": client([7.0] * 3), "b": client([7.0] * 5)}, GAMMA) == {"a": 0.0, "b": 0.0}
    assert weights_by_returns({"a": client([0.0] * 3), "b": client([0.0] * 5)}, GAMMA) == {"a": 0.0, "b": 0.0}
    assert weights_by_returns({}, GAMMA) == {}


def test_the_common_unit_leans_towards_the_clients_that_count():
    clients = {"good": client([4.0] * 6), "poor": client([0.0] * 6, reward_squares=0.01)}
    weights = weights_by_returns(clients, GAMMA)
    share = np.exp(LEAST_LOG_WEIGHT) / (1 + np.exp(LEAST_LOG_WEIGHT))
    small = clients["poor"].reward_unit(GAMMA)
    expected = np.exp((1 - share) * np.log(4.0) + share * np.log(small))
    assert common_unit(clients, weights, GAMMA) == (pytest.approx(expected), ())
    assert common_unit({"unpaid": client([0.0] * 4)}, {"unpaid": 0.0}, GAMMA) == (1.0, ())


def test_a_chosen_unit_wins_and_statistics_survive_a_file():
    clients = {"a": client([4.0] * 6)}
    normaliser, _ = common_normaliser(clients, 2)
    statistics = derive(clients, normaliser, GAMMA, unit=2.5)
    assert statistics.reward_unit == 2.5
    again = Statistics.from_json(statistics.to_json())
    assert again.to_json() == statistics.to_json()
    assert derive(clients, normaliser, GAMMA, unit=None).reward_unit == pytest.approx(4.0)


def test_the_glucose_federation_is_weighed_although_all_rewards_are_negative():
    """Clinics with returns of -47, -92 and -69 over 480 steps: the best one counts most, nobody is at the floor."""
    rng = np.random.default_rng(0)
    clients = {
        name: client(-rng.gamma(1.0, -total / 480, 4800)) for name, total in (("a", -47), ("b", -92), ("c", -69))
    }
    weights = weights_by_returns(clients, GAMMA)
    assert weights["a"] == 0.0
    assert LEAST_LOG_WEIGHT < weights["b"] < weights["c"] < -0.5


# --- Claims that are not true ---


def five(**liar):
    """Five clients that earn 4 a step; the last one changes what it tells."""
    clients = {name: client([4.0, 4.4, 3.6] * 4) for name in "abcde"}
    return clients | {"e": dataclasses.replace(clients["e"], **liar)}


def test_a_client_that_claims_too_much_does_not_decide_how_the_others_count():
    clients = five(reward_sum=1e9) | {"d": client([3.0] * 12)}
    weights = weights_by_returns(clients, GAMMA)
    honest = weights_by_returns({name: clients[name] for name in "abcd"}, GAMMA)
    assert weights["e"] == 0.0
    assert weights["d"] - weights["a"] == pytest.approx(honest["d"] - honest["a"])
    assert honest["d"] - honest["a"] < -1.0
    believed = weights_by_returns(clients, GAMMA, largest_share=1.0)
    assert believed["a"] == believed["d"] == LEAST_LOG_WEIGHT


def test_a_claim_of_terrible_rewards_does_not_switch_the_weights_off():
    clients = five(reward_deviations=1e12) | {"d": client([1.0] * 12)}
    assert weights_by_returns(clients, GAMMA)["d"] == LEAST_LOG_WEIGHT
    assert weights_by_returns(clients, GAMMA, largest_share=1.0)["d"] == pytest.approx(0.0, abs=1e-6)


def test_one_client_moves_the_unit_by_no_more_than_a_factor_of_two():
    honest = five()["a"].reward_unit(GAMMA)
    for lie in ({"reward_squares": 1e20}, {"reward_sum": 1e12, "reward_squares": 1e24}, {"reward_sum": 1e-9}):
        clients = five(**lie)
        unit, remarks = common_unit(clients, weights_by_returns(clients, GAMMA), GAMMA)
        assert honest / 2.001 < unit < honest * 2.001
        believed, silence = common_unit(clients, weights_by_returns(clients, GAMMA), GAMMA, largest_share=1.0)
        assert not silence
        if abs(np.log(believed / honest)) > np.log(2):
            assert [remark.partition(":")[0] for remark in remarks] == ["e"]
            assert unit == pytest.approx(honest), "a claim beyond the limit is ignored"


@pytest.mark.parametrize(("claim", "unit"), [(31.0, 31.0**0.2), (33.0, 1.0), (1 / 31, 31.0**-0.2), (1 / 33, 1.0)])
def test_one_of_five_moves_the_unit_by_a_factor_of_two_at_most_by_hand(claim, unit):
    """A claim of 2^5 = 32 times the others' unit, counted for a fifth, moves the geometric mean by 2."""
    clients = {name: client([1.0] * 4) for name in "abcd"} | {"e": client([claim] * 4)}
    found, remarks = common_unit(clients, dict.fromkeys(clients, 0.0), GAMMA)
    assert found == pytest.approx(unit)
    assert len(remarks) == (unit == 1.0)


def test_a_claim_is_compared_with_the_weighted_median_of_the_others():
    """Of the others a, with half of their weight, decides. e is 40 times as large, d and its like 80 times."""
    clients = {"a": client([1.0] * 4), "b": client([2.0] * 4), "c": client([2.0] * 4), "d": client([2.0] * 4)}
    clients |= {"e": client([40.0] * 4)}
    weights = {"a": np.log(3.0), "b": 0.0, "c": 0.0, "d": 0.0, "e": 0.0}  # shares 3/7 and 1/7
    believed = np.exp((3 * np.log(1.0) + 3 * np.log(2.0) + np.log(40.0)) / 7)
    assert common_unit(clients, weights, GAMMA) == (pytest.approx(believed), ())  # 40 is below 2^7
    clients["e"] = client([2.0**7.1] * 4)
    unit, remarks = common_unit(clients, weights, GAMMA)
    assert unit == pytest.approx(np.exp(3 * np.log(2.0) / 7))
    assert "worth 137 by its rewards, 1 by those of" in remarks[0]


def test_a_weighted_median_by_hand():
    def median(values, weights):
        return weighted_median(np.array(values), np.array(weights))

    assert median([3.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == 2.0
    assert median([5.0, 7.0], [1.0, 1.0]) == 5.0, "half of the weight is enough"
    assert median([5.0, 7.0], [1.0, 3.0]) == 7.0
    assert median([7.0, 5.0, 6.0], [0.1, 0.6, 0.3]) == 5.0


def test_the_lowest_rewards_are_at_most_three_times_as_far_from_the_best_as_the_next():
    """Four clients earn 4, one of them with a low reward of 3; d earns 3.8 and claims a low reward of -10.

    The lowest is then 4 - 3 * (4 - 3) = 1, so d stays behind by 0.2 of 3.
    """
    alike = client([4.0] * 6)
    clients = dict.fromkeys("abc", alike) | {"e": dataclasses.replace(alike, reward_deviations=2.0)}
    clients["d"] = client([3.8] * 6, reward_deviations=6 * 13.8 / 3)
    assert clients["e"].low_reward == pytest.approx(3.0)
    assert clients["d"].low_reward == pytest.approx(-10.0)
    assert weights_by_returns(clients, GAMMA)["d"] == pytest.approx(-20 * 0.2 / 3)
    assert weights_by_returns(clients, GAMMA, largest_share=1.0)["d"] == pytest.approx(-20 * 0.2 / 14)
    four = {name: clients[name] for name in "abde"}
    assert weights_by_returns(four, GAMMA)["d"] == pytest.approx(-20 * 0.2 / 14), "four are not compared"


def test_the_unit_of_honest_clients_is_what_it_was():
    """Two good clients and three poor ones, a hundredth of whose rewards they see: the weighted geometric mean."""
    clients = {"a": client([4.0] * 6), "b": client([3.9] * 6)} | {n: client([0.0, 0.08] * 3) for n in "cde"}
    weights = weights_by_returns(clients, GAMMA)
    assert common_unit(clients, weights, GAMMA) == common_unit(clients, weights, GAMMA, largest_share=1.0)


def sums(mean, spread, rows=100):
    mean = np.asarray(mean, np.float64)
    return Sums(rows, rows * mean, rows * (mean**2 + np.square(spread)))


def observing(**clients):
    return {name: client([1.0], observations=told) for name, told in clients.items()}


def test_observations_far_from_all_others_do_not_count():
    usual = {name: sums([1.0, 2.0], [1.0, 0.5]) for name in "abcd"}
    normaliser, remarks = common_normaliser(observing(**usual, e=sums([1.0, 1e6], [1.0, 0.5])), 2)
    np.testing.assert_allclose(normaliser.mean, [1.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(normaliser.std, [1.0, 0.5], rtol=1e-6)
    assert len(remarks) == 1
    assert remarks[0].startswith("e: its observations are 1,999,996 times as large")


def test_a_column_that_is_constant_elsewhere_is_not_compared():
    usual = {name: sums([1.0, 3.0], [1.0, 0.0]) for name in "abcd"}
    _, remarks = common_normaliser(observing(**usual, e=sums([1.0, 7.0], [1.0, 0.0])), 2)
    assert remarks == ()


def test_how_far_outside_by_hand():
    """The median of the means is 3. Around it the distances are the roots of 5, 2, 1 and 2, and that of e."""
    usual = {
        name: sums([mean, 3.0], [1.0, 0.0], rows) for name, mean, rows in zip("abcd", (1, 2, 3, 4), (5, 6, 7, 8))
    }
    assert far_outside(usual | {"e": sums([30.0, 9.0], [1.0, 0.0])}) == {"e": pytest.approx(np.sqrt(730 / 2))}
    assert far_outside(usual | {"e": sums([3.0 + 14.0, 3.0], [1.0, 0.0])}) == {}  # the root of 197 / 2: 9.9 times
    assert list(far_outside(usual | {"e": sums([3.0 + 14.2, 3.0], [1.0, 0.0])})) == ["e"]  # 10.1 times


def test_four_clients_are_too_few_to_compare_their_observations():
    four = observing(**{name: sums([1.0], [1.0]) for name in "abc"}, d=sums([1e6], [1.0]))
    normaliser, remarks = common_normaliser(four, 1)
    assert (normaliser.mean[0], remarks) == (pytest.approx((3 + 1e6) / 4), ())
    all_believed, _ = common_normaliser(four | observing(e=sums([1.0], [1.0])), 1, largest_share=1.0)
    assert all_believed.mean[0] == pytest.approx((4 + 1e6) / 5)


def test_no_client_counts_for_more_rows_than_its_largest_share():
    usual = {name: sums([0.0], [1.0]) for name in "abcd"}
    normaliser, _ = common_normaliser(observing(**usual, e=sums([2.0], [1.0], rows=10**9)), 1)
    np.testing.assert_allclose(normaliser.mean, [0.4 * 2.0], rtol=1e-5)
    within = observing(**usual, e=sums([2.0], [1.0], rows=150))
    pooled = combine(told.observations for told in within.values())
    np.testing.assert_array_equal(common_normaliser(within, 1)[0].mean, pooled.mean)
    np.testing.assert_array_equal(common_normaliser(within, 1)[0].std, pooled.std)


# --- What must not change the weights ---

reward_lists = st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=30)
federations = st.lists(reward_lists, min_size=2, max_size=4)


def weights_of(federation, ends=()):
    clients = {str(i): client(rewards, *ends[i : i + 1]) for i, rewards in enumerate(federation)}
    return np.array(list(weights_by_returns(clients, GAMMA).values()))


def different_enough(federation):
    everything = np.concatenate(federation)
    return np.ptp(everything) > 0.1


@settings(deadline=None)
@given(federations, st.floats(1e-6, 1e6))
def test_rewards_times_any_number_leave_the_weights_as_they_are(federation, factor):
    assume(different_enough(federation))
    scaled = [np.multiply(rewards, factor) for rewards in federation]
    ends = [i % 3 for i in range(len(federation))]
    np.testing.assert_allclose(weights_of(scaled, ends), weights_of(federation, ends), atol=1e-6)


@settings(deadline=None)
@given(federations, st.floats(-1e3, 1e3))
def test_a_constant_added_to_all_rewards_leaves_the_weights_where_no_episode_ends(federation, constant):
    assume(different_enough(federation))
    shifted = [np.add(rewards, constant) for rewards in federation]
    np.testing.assert_allclose(weights_of(shifted), weights_of(federation), atol=1e-3)


@settings(deadline=None)
@given(reward_lists, st.integers(1, 30))
def test_where_a_time_limit_cuts_episodes_changes_nothing(rewards, cut):
    whole = client_statistics(from_episodes([episode(rewards)]))
    pieces = [rewards[i : i + cut] for i in range(0, len(rewards), cut)]
    parts = client_statistics(from_episodes([episode(piece) for piece in pieces]))
    for discount in (0.9, 0.99):
        assert parts.step_value(discount) == whole.step_value(discount)
        assert parts.reward_unit(discount) == whole.reward_unit(discount)
    assert parts.low_reward == whole.low_reward


def test_the_length_of_records_does_not_decide_who_counts():
    """Reward 1 at every step, records of 500 and of 10 steps."""
    long = client_statistics(from_episodes([episode([1.0] * 500) for _ in range(2)]))
    short = client_statistics(from_episodes([episode([1.0] * 10) for _ in range(100)]))
    assert weights_by_returns({"long": long, "short": short}, GAMMA) == {"long": 0.0, "short": 0.0}


# --- The zero of reward -----------------------------------------------------------------------------------


def test_the_zero_by_hand():
    # rewards -1 and -3: mean -2, mean absolute deviation 1, so few are below -2 - 3; the other client pays -4 alone
    costs = {"good": client([-1.0, -3.0]), "bad": client([-4.0, -4.0])}
    assert common_zero(costs, GAMMA) == -5.0
    assert common_zero(costs | {"paid": client([0.5, 0.5])}, GAMMA) == 0.0, "one client earns more than nothing"
    assert common_zero({"nothing": client([0.0, 0.0])}, GAMMA) == 0.0


def test_the_unit_is_what_a_step_is_worth_above_the_zero():
    costs = {"good": client([-2.0] * 4), "bad": client([-4.0] * 4)}
    assert costs["good"].reward_unit(GAMMA, zero=-4.0) == pytest.approx(2.0)
    statistics = derive(costs, Normaliser.identity(1), GAMMA, None)
    assert statistics.reward_zero == -4.0
    assert statistics.reward_unit == pytest.approx(2.0), "the worst client is worth nothing and does not count"
    assert derive(costs, Normaliser.identity(1), GAMMA, 3.0).reward_zero == 0.0, (
        "a unit that is given is the user's"
    )
    assert derive(costs, Normaliser.identity(1), GAMMA, None, zero=-6.0).reward_zero == -6.0


@settings(max_examples=30, deadline=None)
@given(first=st.floats(-100, -20), second=st.floats(-100, -20), seed=st.integers(0, 99))
def test_training_sees_the_same_rewards_wherever_their_zero_lies(first, second, seed):
    """Two federations whose rewards differ by a constant, both below 0, and no episode ends by itself."""
    rewards = np.random.default_rng(seed).normal(0, 1, (3, 12))

    def seen(constant):
        told = {str(i): client(row + constant) for i, row in enumerate(rewards)}
        found = derive(told, Normaliser.identity(1), GAMMA, None)
        return (rewards + constant - found.reward_zero) / found.reward_unit

    np.testing.assert_allclose(seen(first), seen(second), rtol=1e-6, atol=1e-6)
    assert seen(first).mean() > 0.0


def test_one_of_five_cannot_move_the_zero_far_away():
    costs = {name: client([-1.0, -3.0]) for name in "abcd"}
    honest = common_zero(costs | {"e": client([-1.0, -3.0])}, GAMMA)
    assert honest == -5.0
    claimed = common_zero(costs | {"e": client([-1e6, -1e6])}, GAMMA)
    assert claimed == pytest.approx(-2.0 - 3 * 3.0), "three times as far below the best as the next client's"
    assert common_zero(costs | {"e": client([-1e6, -1e6])}, GAMMA, largest_share=1.0) == -1e6


def test_statistics_of_older_runs_count_from_zero():
    told = Statistics(Normaliser.identity(2), 2.0, {"a": 0.0}, reward_zero=-3.0).to_json()
    assert Statistics.from_json(json.loads(json.dumps(told))).reward_zero == -3.0
    del told["reward_zero"]
    assert Statistics.from_json(told).reward_zero == 0.0
