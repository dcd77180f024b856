"""The steps of a round as functions of arrays, with numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms import configure
from fova.algorithms.base import FIELDS, Broadcast, Submission
from fova.federation import rounds
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.compression import EightBits
from fova.federation.wire import PLAIN
from fova.spaces import Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)
TINY = configure("fed-bc", hidden=(4,), batch_size=8)


# --- Keys ---


def test_every_use_of_randomness_has_a_stream_of_its_own():
    root = jax.random.key(3)
    made = [rounds.init_key(root)]
    made += [
        derive(root, number)
        for derive in (rounds.participation_key, rounds.publication_key, rounds.groups_key)
        for number in (0, 1)
    ]
    made += [
        derive(root, number, client)
        for derive in (rounds.client_key, rounds.envelope_key)
        for number in (0, 1)
        for client in (5, 6)
    ]
    numbers = {tuple(jax.random.key_data(key).tolist()) for key in made}
    assert len(numbers) == len(made) == 15


def test_a_name_gives_the_same_key_on_every_machine():
    assert rounds.identity("123456789") == 0xCBF43926  # the published check value of CRC-32
    first = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(1), 2), 7), 9)
    np.testing.assert_array_equal(
        jax.random.key_data(rounds.client_key(jax.random.key(1), 7, 9)), jax.random.key_data(first)
    )


# --- A client's part ---


class Counting:
    """Adds up the rewards of its batches. Two gradient steps a call, as its stride says."""

    stride, batch_size = 2, 3

    def receive(self, learner, broadcast):
        return learner + broadcast

    def step(self, learner, broadcast, batch, key):
        assert batch.rewards.shape == (6,)
        return learner + batch.rewards.sum(), {"before": learner, "loss": jnp.zeros(())}

    def submit(self, learner, broadcast, data):
        return learner + 100.0, Submission(learner, jnp.float32(0.5), {"loss": jnp.float32(7.0)})


def test_a_local_round_by_hand():
    """Eight steps are four calls. Every reward is 1, so a call adds 6: 10, 16, 22, 28 and at last 34."""
    rows = np.ones((5, rounds.row_width(SPACE)), "f")
    learner, sent = rounds.local_round(
        Counting(), 8, jnp.float32(3.0), jnp.float32(7.0), rounds.Data.of(rows, SPACE), jax.random.key(0)
    )
    assert (float(learner), float(sent.parameters), float(sent.log_weight)) == (134.0, 34.0, 0.5)
    assert float(sent.metrics["before"]) == (10 + 16 + 22 + 28) / 4
    assert float(sent.metrics["loss"]) == 7.0, "what is measured at the end of a round counts before a mean"


def test_steps_of_a_round_draw_other_rows():
    class Remembers(Counting):
        def step(self, learner, broadcast, batch, key):
            return learner, {"seen": batch.rewards, "drawn": jax.random.uniform(key)}

    rows = np.arange(1000, dtype="f")[:, None] * np.ones(rounds.row_width(SPACE), "f")
    data = rounds.Data.of(rows, SPACE)
    _, one = rounds.local_round(Remembers(), 2, 0.0, 0.0, data, jax.random.key(0))
    _, two = rounds.local_round(Remembers(), 4, 0.0, 0.0, data, jax.random.key(0))
    assert (np.asarray(one.metrics["seen"]) != np.asarray(two.metrics["seen"])).all()
    assert float(one.metrics["drawn"]) != float(two.metrics["drawn"])


# --- Rows ---


def test_a_row_has_the_fields_of_a_batch_side_by_side():
    data = make_transitions(0)
    rows = rounds.rows_of(data, 0.9)
    assert rounds.row_width(SPACE) == rows.shape[1] == 3 + 2 + 1 + 3 + 2 + 1 + 1 + 1
    batch = rounds.Data.of(rows, SPACE).batch(np.arange(len(rows)))
    for name in set(FIELDS) - {"next_returns"}:
        np.testing.assert_array_equal(getattr(batch, name), getattr(data, name))
    first = int(np.flatnonzero(data.episode_ends)[0])  # the first episode ends by itself
    discounted = sum(0.9**i * reward for i, reward in enumerate(data.rewards[1 : first + 1]))
    assert float(batch.next_returns[0]) == pytest.approx(discounted, rel=1e-5)


def test_a_dataset_for_shapes_alone():
    data = rounds.no_data(SPACE)
    assert data.rows.shape == (1, 14)
    assert (int(data.length), not np.asarray(data.rows).any()) == (1, True)


# --- The server's part ---


def sent(updates, log_weight=None):
    values = np.asarray(updates, "f")
    weights = np.zeros(len(values), "f") if log_weight is None else np.asarray(log_weight, "f")
    return Submission(Broadcast(values, None), weights, {})


def judge(updates, present, algorithm=TINY, log_weight=None):
    before = Broadcast(np.zeros(np.shape(updates)[1:], "f"), None)
    whole = AGGREGATIONS["algorithm"]
    here = np.asarray(present, bool)
    return rounds.judge_submissions(
        algorithm, whole, PLAIN, before, sent(updates, log_weight), here, np.zeros(len(here), "f")
    )


def test_absent_and_rejected_clients_have_no_weight():
    judged = judge([[1.0, 0.0], [3.0, 0.0], [np.nan, 0.0], [9.0, 9.0]], [True, True, True, False])
    assert judged.verdicts.tolist() == [rounds.ACCEPTED, rounds.ACCEPTED, rounds.NOT_FINITE, rounds.ACCEPTED]
    assert judged.log_weights.tolist() == [0.0, 0.0, -np.inf, -np.inf]
    assert judged.submissions.parameters.actor.tolist() == [[2.0, 0.0]]
    assert judged.submissions.log_weight.tolist() == [0.0]
    assert float(judged.log_total) == pytest.approx(np.log(2.0))
    np.testing.assert_allclose(judged.metrics["update_norm"], [1.0, 3.0, np.nan, np.sqrt(162.0)], rtol=1e-6)


def test_submissions_that_cannot_be_merged_are_passed_on_whole():
    class Whole(type(TINY)):
        mergeable = False

    judged = judge([[1.0], [3.0]], [True, True], Whole(hidden=(4,)), [0.0, 1.0])
    assert judged.submissions.parameters.actor.tolist() == [[1.0], [3.0]]
    assert judged.submissions.log_weight.tolist() == [0.0, 1.0]


def test_two_groups_are_merged_by_their_weights():
    one, other = rounds.alone({"w": jnp.array([1.0, 2.0])}), rounds.alone({"w": jnp.array([5.0, 10.0])})
    merged, total = rounds.merge_groups(one, jnp.log(3.0), other, jnp.log(1.0))
    np.testing.assert_allclose(merged.parameters["w"], [[2.0, 4.0]], rtol=1e-6)
    assert float(total) == pytest.approx(np.log(4.0))
    assert merged.log_weight.tolist() == [0.0]
    assert rounds.parameters_of(other)["w"].tolist() == [5.0, 10.0]


def test_weights_in_the_mean():
    np.testing.assert_allclose(rounds.server_weights(np.array([0.0, np.log(3.0), -np.inf])), [0.25, 0.75, 0.0])
    np.testing.assert_allclose(rounds.server_weights(np.array([900.0, 900.0])), [0.5, 0.5])
    assert rounds.server_weights(np.array([-np.inf, -np.inf])).tolist() == [0.0, 0.0]
    assert rounds.server_weights(np.array([])).tolist() == []


def test_bytes_of_a_round_by_hand():
    broadcast = {"w": jax.ShapeDtypeStruct((3, 5), jnp.float32), "b": jax.ShapeDtypeStruct((4,), jnp.float32)}
    assert rounds.traffic(PLAIN, broadcast, ["loss", "rows"]) == (4 * 19, 4 * (19 + 1 + 2))
    # a byte for each number, a scale for each array
    assert rounds.traffic(EightBits(), broadcast, ["loss"]) == (4 * 19, 19 + 4 * (2 + 1 + 1))


# --- Which submissions are accepted ---


def test_one_number_that_is_not_finite_is_seen_wherever_it_is():
    good = np.ones((4, 2, 3), "f")
    bad = good.copy()
    bad[1, 1, 2] = np.inf
    weights, rows = np.array([0, 0, np.nan, 0], "f"), np.array([1, 1, 1, np.inf], "f")
    assert rounds.all_finite(Submission([good, bad], weights, {"rows": rows})).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_clients_are_compared_from_three_on_and_only_if_most_of_them_moved():
    def verdicts(norms):
        everybody = np.ones(len(norms), bool)
        return rounds.judge(sent(np.ones((len(norms), 1))), np.asarray(norms, "f"), everybody).tolist()

    ok, huge = rounds.ACCEPTED, rounds.HUGE
    assert verdicts([1.0, 100.0]) == [ok, ok]
    assert verdicts([1.0, 1.0, 10.0]) == [ok, ok, ok]
    assert verdicts([1.0, 1.0, 10.1]) == [ok, ok, huge]
    assert verdicts([0.0, 0.0, 0.1]) == [ok, ok, ok], "two of three have not moved"
    assert verdicts([1e-3, 1e-3, 1e-3, 0.5]) == [ok, ok, ok, huge], "small updates are compared, too"


def test_how_much_each_update_is_shortened():
    norms, nobody = jnp.array([0.1, 0.2, 0.3, 0.5, 0.9]), jnp.zeros(5, bool)
    everybody = jnp.ones(5, bool)
    factors = rounds.length_factors(norms, everybody, nobody)  # the median is 0.3, so 0.6 is the longest
    np.testing.assert_allclose(factors, [1.0, 1.0, 1.0, 1.0, 0.6 / 0.9], rtol=1e-6)
    alone = rounds.length_factors(norms, everybody, nobody.at[3].set(True))
    np.testing.assert_allclose(alone, [1.0, 1.0, 1.0, 0.3 / 0.5, 0.6 / 0.9], rtol=1e-6)
    # four that are compared are too few; a sixth that is not compared is left as it is
    four = rounds.length_factors(norms, everybody.at[0].set(False), nobody)
    assert four.tolist() == [1.0] * 5
    six = rounds.length_factors(jnp.append(norms, 7.0), jnp.append(everybody, False), jnp.append(nobody, False))
    np.testing.assert_allclose(six, [1.0, 1.0, 1.0, 1.0, 0.6 / 0.9, 1.0], rtol=1e-6)
    assert rounds.length_factors(jnp.array([0.0, 0, 0, 0, 1]), everybody, nobody).tolist() == [1.0] * 5


def test_updates_as_vectors_and_their_lengths():
    actor = {
        "a": np.array([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 2.0]]], "f"),
        "b": np.array([5.0, 0.0], "f"),
    }
    before = Broadcast({"a": np.array([[1.0, 0.0], [0.0, 0.0]], "f"), "b": np.float32(1.0)}, None)
    submissions = Submission(Broadcast(actor, None), np.zeros(2, "f"), {})
    updates = rounds.network_updates(TINY, submissions, before)
    assert updates.tolist() == [[0.0, 2.0, 3.0, 4.0, 4.0], [-1.0, 0.0, 0.0, 2.0, -1.0]]
    np.testing.assert_allclose(
        rounds.update_norms(TINY, submissions, before), [np.sqrt(45.0), np.sqrt(6.0)], rtol=1e-6
    )


def test_without_norms_only_numbers_that_are_not_finite_are_rejected():
    updates = sent([[1.0], [np.nan], [1e30]])
    expected = [rounds.ACCEPTED, rounds.NOT_FINITE, rounds.ACCEPTED]
    assert rounds.judge(updates, None, None).tolist() == expected
    assert rounds.judge(updates, np.ones(3, "f"), None).tolist() == expected
