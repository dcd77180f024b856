"""Limits on what one client can do to a round: numbers worked out by hand, and properties of the cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fova.algorithms.base import Broadcast, Submission
from fova.federation import rounds, trust
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.wire import PLAIN


def shares(log_weights, largest=None):
    return rounds.server_weights(np.asarray(trust.capped(jnp.asarray(log_weights, jnp.float32), largest)))


# --- The share of the mean ---


def test_a_claim_of_a_million_gets_the_largest_share_and_the_others_the_rest():
    np.testing.assert_allclose(shares([0.0, 0.0, 0.0, 0.0, 1e6]), [0.15] * 4 + [0.4], rtol=1e-5)
    np.testing.assert_allclose(shares([0.0, 0.0, 0.0, 0.0, 1e6], 0.5), [0.125] * 4 + [0.5], rtol=1e-5)


def test_the_rest_is_shared_as_before():
    # weights 1, 1, 2, 2 and a liar: six tenths of the mean go to the honest ones, in these proportions
    honest = np.log([1.0, 1.0, 2.0, 2.0])
    np.testing.assert_allclose(shares([*honest, 50.0]), [0.1, 0.1, 0.2, 0.2, 0.4], rtol=1e-5)


def test_a_claim_that_another_client_supports_is_not_cut_below_it():
    # weights 1, 1, 1, 7 and 8: two thirds of the first four are 6.67, less than the second heaviest
    weights = np.log([1.0, 1.0, 1.0, 7.0, 8.0])
    np.testing.assert_allclose(shares(weights), np.array([1, 1, 1, 7, 7]) / 17, rtol=1e-5)
    two_good = [-4.0] * 5 + [0.0, -0.1]
    expected = np.exp([-4.0] * 5 + [-0.1, -0.1])
    np.testing.assert_allclose(shares(two_good), expected / expected.sum(), rtol=1e-5)


def test_two_of_seven_get_the_largest_share_each():
    np.testing.assert_allclose(shares([0.0] * 5 + [1e6, 1e6], 0.4), [0.04] * 5 + [0.4, 0.4], rtol=1e-4)
    np.testing.assert_allclose(shares([0.0] * 5 + [1e6, 1e6], 2 / 7), [3 / 35] * 5 + [2 / 7] * 2, rtol=1e-4)


def test_how_many_may_collude():
    assert [int(trust.colluding(n)) for n in (5, 6, 7, 10, 1000)] == [1, 1, 2, 2, 2]


def test_a_share_that_all_cannot_stay_below_becomes_an_even_one():
    np.testing.assert_allclose(shares([3.0, 1.0, 0.0, -2.0], 0.1), [0.25] * 4, rtol=1e-6)
    np.testing.assert_allclose(shares([3.0, 1.0, -2.0, -np.inf], 0.1), [1 / 3] * 3 + [0.0], rtol=1e-6)
    # 1 / 41 is rounded down, so that 41 times it is below 1
    np.testing.assert_allclose(shares([9.0] + [0.0] * 40 + [-np.inf], 0.01), [1 / 41] * 41 + [0.0], rtol=1e-5)


def test_no_client_is_accepted_or_only_one():
    assert shares([-np.inf] * 3, 0.4).tolist() == [0.0, 0.0, 0.0]
    assert shares([-np.inf, 7.0, -np.inf], 0.4).tolist() == [0.0, 1.0, 0.0]


def test_rounding_does_not_give_everybody_an_even_share():
    """So many clients outweigh the others that each has exactly the largest share, but for rounding."""
    np.testing.assert_allclose(shares([1e6, 1e6, 9.170056, -140.0, -140.0], 1 / 3), [1 / 3] * 3 + [0, 0], atol=1e-5)
    np.testing.assert_allclose(shares([1e6] * 4 + [0.5595198, -149, -149], 0.2), [0.2] * 5 + [0, 0], atol=1e-5)


def test_weights_within_the_limit_keep_their_bytes():
    log_weights = jnp.asarray([0.1, -0.3, 0.2, 0.0, -4.0], jnp.float32)
    np.testing.assert_array_equal(trust.capped(log_weights, None), log_weights)


def test_with_few_clients_or_if_the_operator_says_so_every_claim_counts():
    four = jnp.asarray([0.0, 0.0, 0.0, 9.0])
    np.testing.assert_array_equal(trust.capped(four, None), four)
    absent = jnp.asarray([0.0, 0.0, 0.0, 9.0, -jnp.inf])
    np.testing.assert_array_equal(trust.capped(absent, None), absent), "an absent client is none of five"
    six = jnp.asarray([0.0] * 5 + [9.0])
    np.testing.assert_array_equal(trust.capped(six, 1.0), six)
    assert shares([0.0, 0.0, 9.0], 0.5).max() == pytest.approx(0.5), "a limit that is given holds for three, too"


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(-30, 300, width=32), min_size=5, max_size=9), st.floats(0.05, 0.95))
def test_no_share_exceeds_the_limit_and_the_order_stays(log_weights, largest):
    cut = shares(log_weights, largest)
    assert cut.sum() == pytest.approx(1.0)
    assert cut.max() <= max(largest, 1 / len(log_weights)) * (1 + 1e-3)
    assert (np.diff(cut[np.argsort(log_weights)]) >= -1e-6).all()


# --- Length and direction of an update ---


class Flat:
    """The part of an algorithm that judging uses."""

    mergeable = True

    def networks(self, parameters):
        return parameters.actor


def judged(updates, largest_share=None, weights=None):
    updates = np.asarray(updates, np.float32)
    before = Broadcast(jnp.asarray([5.0, -7.0]), None)
    log_weight = jnp.zeros(len(updates)) if weights is None else jnp.asarray(weights)
    sent = Submission(Broadcast(before.actor + updates, None), log_weight, {})
    aggregation = AGGREGATIONS["algorithm"]._replace(largest_share=largest_share)
    present = np.ones(len(updates), bool)
    result = rounds.judge_submissions(
        Flat(), aggregation, PLAIN, before, sent, present, np.zeros(len(updates), "f")
    )
    return result.verdicts.tolist(), np.asarray(result.submissions.parameters.actor[0] - before.actor)


HONEST = [[1.0, 0.0], [0.8, 0.6], [1.0, 0.0], [0.8, -0.6]]  # all of length 1


def test_an_update_against_all_others_has_the_least_weight_and_is_no_longer_than_the_others():
    # its cosines with the others are -1, -0.8, -1, -0.8; it claims a weight of e^5 and is nine times as long
    alone, weights = [*HONEST, [-9.0, 0.0]], [0.0] * 4 + [5.0]
    least = np.exp(-4.0)
    np.testing.assert_allclose(judged(alone, weights=weights)[1], [(3.6 - least) / (4 + least), 0.0], atol=1e-6)
    share = np.exp(5.0) / (4.0 + np.exp(5.0))
    believed = judged(alone, largest_share=1.0, weights=weights)[1]
    np.testing.assert_allclose(believed, [(1 - share) * 0.9 - 9 * share, 0.0], rtol=1e-4, atol=1e-5)


def test_a_client_that_one_other_supports_is_not_alone():
    """Two clients with better data than the other three pull away from them, together."""
    both = [[1.0, 0.0], [1.0, 0.1], [-1.0, 0.1], [-1.0, 0.0], [-1.0, -0.1]]
    mean = judged(both, weights=[2.0, 2.0, 0.0, 0.0, 0.0])[1]
    share = np.exp(2.0) / (2 * np.exp(2.0) + 3)
    np.testing.assert_allclose(mean[0], 2 * share - 3 * (1 - 2 * share) / 3, atol=1e-5)


def test_a_client_that_pulls_elsewhere_is_not_alone_against_all():
    np.testing.assert_allclose(judged([*HONEST, [0.0, 2.0]])[1], [3.6 / 5, 0.4], atol=1e-6)


def test_four_clients_are_too_few_to_compare():
    assert judged([*HONEST[:3], [-9.0, 0.0]])[1][0] == pytest.approx((2.8 - 9.0) / 4)


def test_a_long_update_is_shortened_to_twice_the_median():
    verdicts, mean = judged([*HONEST, [9.0, 0.0]])
    assert verdicts == [rounds.ACCEPTED] * 5
    np.testing.assert_allclose(mean, [(3.6 + 2.0) / 5, 0.0], atol=1e-6)
    np.testing.assert_allclose(judged([*HONEST, [9.0, 0.0]], 1.0)[1], [(3.6 + 9.0) / 5, 0.0], atol=1e-6)


def test_two_of_seven_that_support_one_another_are_alone_and_three_are_not():
    updates = jnp.array([[1.0, 0.1], [1.0, -0.1], [1.0, 0.2], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    everybody = jnp.ones(7, bool)
    assert trust.alone_against_all(updates, everybody).tolist() == [False] * 5 + [True] * 2
    three = updates.at[4].set(jnp.array([-1.0, 0.0]))
    assert trust.alone_against_all(three, everybody).tolist() == [False] * 7
    # of five, one supporter is enough
    assert trust.alone_against_all(updates[2:], everybody[2:]).tolist() == [False] * 5


def test_who_is_alone_against_all_by_hand():
    """The others' directions add up to (3.2, 0), so that the cosine of (-0.6, 0.8) with it is -0.6."""
    updates = jnp.asarray([[1.0, 0.0], [0.8, 0.6], [0.8, -0.6], [0.6, 0.0], [-0.6, 0.8]])
    five = np.ones(5, bool)
    assert trust.alone_against_all(updates, five).tolist() == [False] * 4 + [True]
    supported = updates.at[0].set(jnp.asarray([0.0, 1.0]))  # cosine 0.8 with the last one
    assert trust.alone_against_all(supported, five).tolist() == [False] * 5
    assert not trust.alone_against_all(updates, np.array([True] * 4 + [False])).any(), "four are compared"


def alone_by_loops(updates, compared):
    """Which clients are alone against all, one at a time, and whether the numbers are clear of the limits."""
    found, clear, present = np.zeros(len(updates), bool), True, np.flatnonzero(compared)
    for i in present if len(present) >= 5 else ():
        unit = {j: updates[j] / np.linalg.norm(updates[j]) for j in present}
        others = sum(unit[j] for j in present if j != i)
        agreement = unit[i] @ others / np.linalg.norm(others)
        supporters = sorted((unit[i] @ unit[j] for j in present if j != i), reverse=True)
        support = supporters[1 if len(present) >= 7 else 0]
        clear &= abs(agreement + 0.2) > 1e-4 and abs(support - 0.1) > 1e-4
        found[i] = agreement < -0.2 and support < 0.1
    return found, clear


def test_who_is_alone_against_all_agrees_with_loops():
    random, judge = np.random.default_rng(0), jax.jit(trust.alone_against_all)
    counts = []
    for _ in range(200):
        clients, columns = random.integers(4, 9), random.integers(2, 4)
        updates = random.normal(size=(clients, columns)) + 0.4 * random.integers(-1, 2, (clients, 1))
        updates = (updates * 10.0 ** random.integers(-3, 3, (clients, 1))).astype(np.float32)
        compared = random.uniform(size=clients) < 0.9
        expected, clear = alone_by_loops(updates.astype(np.float64), compared)
        if clear:
            assert judge(updates, compared).tolist() == expected.tolist()
            counts.append(expected.sum())
    assert len(counts) > 150
    assert sum(count > 0 for count in counts) > 20


def test_a_client_that_did_not_move_supports_nobody_and_is_not_alone():
    updates = jnp.asarray([[1.0, 0.0], [0.8, 0.6], [0.8, -0.6], [0.0, 0.0], [-0.6, 0.8]])
    assert trust.alone_against_all(updates, np.ones(5, bool)).tolist() == [False] * 4 + [True]


# --- The limits in numbers ---


def test_the_limits():
    """Seen in honest rounds and in rounds with liars; docs/privacy.md tells what they do."""
    assert (trust.FEWEST_CLIENTS, trust.LARGEST_SHARE, trust.MOST_COLLUDING, trust.LONGEST) == (5, 0.4, 2, 2.0)
    assert (trust.LEAST_AGREEMENT, trust.LEAST_SUPPORT, trust.ALONE_LOG_WEIGHT) == (-0.2, 0.1, -4.0)


def test_the_largest_share_of_so_many_clients():
    assert [shares([0.0] * (clients - 1) + [50.0]).max() for clients in (4, 5)] == pytest.approx([1.0, 0.4])
    assert shares([0.0] * 9 + [50.0], 0.3).max() == pytest.approx(0.3)
    assert shares([0.0, 50.0], 0.3).max() == pytest.approx(0.5)  # two clients cannot both stay below a third


def test_a_client_alone_weighs_a_fiftieth_of_the_average():
    weights = jnp.log(jnp.array([1.0, 3.0, 100.0]))
    found = jnp.exp(trust.lightened(weights, jnp.array([False, False, True])))
    np.testing.assert_allclose(found, [1.0, 3.0, 2.0 * np.exp(-4.0)], rtol=1e-5)
    light = trust.lightened(jnp.array([0.0, 0.0, -9.0]), jnp.array([False, False, True]))
    assert light.tolist() == [0.0, 0.0, -9.0]  # never more than it had
    nobody_else = trust.lightened(jnp.array([1.0, -jnp.inf]), jnp.array([True, False]))
    assert nobody_else.tolist() == [1.0, -np.inf]


def test_updates_are_shortened_by_their_factors():
    own = {"a": jnp.array([[3.0, 5.0], [3.0, 5.0]]), "b": jnp.array([2.0, 2.0])}
    sent = {"a": jnp.array([1.0, 1.0]), "b": jnp.array(0.0)}
    found = trust.shortened(own, sent, jnp.array([0.5, 1.0]))
    assert found["a"].tolist() == [[2.0, 3.0], [3.0, 5.0]]
    assert found["b"].tolist() == [1.0, 2.0]
