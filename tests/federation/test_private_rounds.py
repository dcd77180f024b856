"""Bad clients, private rounds and bytes in the engine, on the smallest algorithm there is."""

import dataclasses

import jax
import numpy as np
import pytest

from fova.algorithms import configure
from fova.algorithms.base import Broadcast, Submission
from fova.algorithms.bc import FedBc
from fova.federation import rounds
from fova.federation.aggregation import Aggregation
from fova.federation.compression import COMPRESSIONS
from fova.federation.engine import RoundSettings
from fova.federation.privacy import Privacy
from fova.federation.simulation import Simulation
from fova.spaces import Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)
TINY = configure("fed-bc", hidden=(8,), batch_size=8, actor_lr=1e-3)


def federation(clients=5):
    return {f"c{i}": make_transitions(i) for i in range(clients)}


def run(clients, number=3, algorithm=TINY, **options):
    simulation = Simulation(algorithm, clients, SPACE, RoundSettings(local_steps=2, **options))
    state, reports = simulation.start(), []
    for _ in range(number):
        state, report = simulation.round(state)
        reports.append(report)
    return state, reports


def distance(one, other):
    squares = jax.tree.map(lambda a, b: np.sum(np.square(np.asarray(a) - np.asarray(b))), one, other)
    return float(np.sqrt(sum(jax.tree.leaves(squares))))


# --- Whose submission counts ---


def submissions(updates, extra=None, **changes):
    values = np.array(updates, np.float32)[:, None]
    whole = {"log_weight": np.zeros(len(values), "f"), "metrics": {"rows": np.ones(len(values), "f")}} | changes
    return Submission(Broadcast({"w": values}, None, extra), **whole)


def verdicts(sent, present=None):
    norms = rounds.update_norms(TINY, sent, Broadcast({"w": np.zeros(1, "f")}, None, np.zeros((), "f")))
    everybody = np.ones(len(sent.log_weight), bool)
    return np.asarray(rounds.judge(sent, norms, everybody if present is None else np.array(present))).tolist()


OK, NAN, HUGE = rounds.ACCEPTED, rounds.NOT_FINITE, rounds.HUGE


def test_ten_times_the_median_is_the_limit():
    assert verdicts(submissions([1, 2, 3, 20, -20.5])) == [OK] * 3 + [OK, OK], "the median of all five is 3"
    assert verdicts(submissions([1, 2, 3, 20, -30.5])) == [OK] * 4 + [HUGE]
    assert verdicts(submissions([1, 2, 3, 1e30, -1e38])) == [OK] * 3 + [HUGE] * 2
    assert verdicts(submissions([1, 1, 1, 10])) == [OK] * 4, "exactly 10 times is not more than 10 times"


def test_the_limit_follows_updates_of_any_size():
    assert verdicts(submissions([0.01, 0.01, 0.01, 0.09])) == [OK] * 4
    assert verdicts(submissions([0.01, 0.01, 0.01, 0.11])) == [OK] * 3 + [HUGE]


def test_what_is_federated_beside_networks_is_not_compared():
    assert verdicts(submissions([1, 1, 1], extra=np.array([0, 0, 500], "f"))) == [OK] * 3
    assert verdicts(submissions([1, 1, 1], extra=np.array([0, 0, np.inf], "f"))) == [OK, OK, NAN]


def test_rubbish_is_left_out_of_the_median():
    assert verdicts(submissions([1, np.nan, np.inf, 1, 1, 11])) == [OK, NAN, NAN, OK, OK, HUGE]


def test_absent_clients_are_left_out_of_the_median():
    # with the two absent ones the median would be 50
    assert verdicts(submissions([1, 2, 11, 100, 100, 100]), [1, 1, 1, 0, 0, 0])[:3] == [OK, OK, OK]
    assert verdicts(submissions([1, 2, 21, 100, 100, 100]), [1, 1, 1, 0, 0, 0])[:3] == [OK, OK, HUGE]


def test_two_clients_cannot_be_compared_and_standing_still_condemns_nobody():
    assert verdicts(submissions([1, 1000])) == [OK, OK]
    assert verdicts(submissions([0, 0, 0, 1])) == [OK] * 4


@pytest.mark.parametrize(
    "field", [{"log_weight": np.array([0, np.inf, 0], "f")}, {"metrics": {"rows": np.array([1, np.nan, 1], "f")}}]
)
def test_a_weight_or_a_metric_that_is_no_number_is_rubbish_too(field):
    assert verdicts(submissions([1, 1, 1], **field)) == [OK, NAN, OK]


@dataclasses.dataclass(frozen=True)
class Boastful(FedBc):
    """Whoever has only one reward, 7, submits a thousand times its update."""

    def submit(self, learner, broadcast, data):
        learner, submission = super().submit(learner, broadcast, data)
        lies = (data.spread(8).rewards == 7.0).all()
        far = jax.tree.map(
            lambda own, sent: sent + jax.numpy.where(lies, 1000.0, 1.0) * (own - sent),
            submission.parameters.actor,
            broadcast.actor,
        )
        return learner, dataclasses.replace(
            submission, parameters=dataclasses.replace(submission.parameters, actor=far)
        )


def test_a_huge_submission_is_rejected_and_named_and_the_round_goes_on():
    clients = federation()
    liar = clients["c3"]
    clients["c3"] = dataclasses.replace(liar, rewards=np.full(len(liar), 7.0, np.float32))
    algorithm = Boastful(hidden=(8,), batch_size=8, actor_lr=1e-3)
    state, reports = run(clients, 2, algorithm)
    for report in reports:
        assert list(report.rejected) == ["c3"]
        assert "10 times" in report.rejected["c3"]
    honest = [0, 1, 2, 4]
    mean = jax.tree.map(lambda leaf: leaf[honest].mean(axis=0), state.learners.actor.network)
    assert distance(state.broadcast.actor, mean) < 1e-5


# --- Weights ---


def test_shares_of_the_mean_by_hand():
    np.testing.assert_allclose(rounds.server_weights(np.log([1.0, 3.0])), [0.25, 0.75])
    np.testing.assert_allclose(rounds.server_weights(np.array([1000.0, -np.inf, 1000.0])), [0.5, 0.0, 0.5])
    assert rounds.server_weights(np.full(3, -np.inf)).tolist() == [0.0, 0.0, 0.0]
    assert rounds.server_weights(np.zeros(0)).tolist() == []


def test_two_groups_count_by_their_weights():
    """Means of 1 with weight 1 and of 5 with weight 3: (1 + 15) / 4."""
    one, other = (rounds.alone({"w": np.array([mean], "f")}) for mean in (1.0, 5.0))
    merged, log_total = rounds.merge_groups(one, np.log(1.0), other, np.log(3.0))
    np.testing.assert_allclose(merged.parameters["w"], [[4.0]], rtol=1e-6)
    np.testing.assert_allclose(log_total, np.log(4.0), rtol=1e-6)
    assert merged.log_weight.tolist() == [0.0]
    assert merged.metrics == {}


class Combining:
    """An algorithm as `rounds.combine` sees it."""

    def __init__(self, mergeable):
        self.mergeable = mergeable

    def networks(self, parameters):
        return parameters["w"]


def test_what_is_combined_before_the_algorithm_sees_it():
    sent = Submission({"w": np.array([[1.0], [5.0]], "f")}, np.log([1.0, 3.0]), {"rows": np.ones(2)})
    plain, first = Aggregation(), Aggregation(combine=lambda sent, networks: {"w": networks(sent.parameters)[0]})
    assert rounds.combine(Combining(True), plain, sent).parameters["w"].tolist() == [[4.0]]
    assert rounds.combine(Combining(False), plain, sent) is sent
    assert rounds.combine(Combining(False), first, sent).parameters["w"].tolist() == [[1.0]]


def test_clients_on_their_own_are_judged_and_measured_each():
    broken = dataclasses.replace(
        make_transitions(1), observations=np.full_like(make_transitions(1).observations, np.nan)
    )
    state, (report,) = run({"a": make_transitions(0), "b": broken}, 1, together=False)
    assert list(report.clients) == ["a"]
    assert list(report.rejected) == ["b"]
    start = Simulation(TINY, federation(1), SPACE, RoundSettings(local_steps=2)).start()
    moved = distance(jax.tree.map(lambda leaf: leaf[0], state.server.broadcast), start.broadcast)
    assert report.clients["a"]["update_norm"] == pytest.approx(moved, rel=1e-5)


# --- Keys ---


def test_every_use_of_randomness_has_a_key_of_its_own():
    root = jax.random.key(0)
    keys = [rounds.init_key(root)]
    for number in (0, 1):
        keys += [rounds.participation_key(root, number), rounds.publication_key(root, number)]
        for client in map(rounds.identity, ("east", "west")):
            keys += [rounds.client_key(root, number, client), rounds.envelope_key(root, number, client)]
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == len(keys) == 13


def test_a_client_is_known_by_the_checksum_of_its_name():
    assert rounds.identity("123456789") == 0xCBF43926  # the check value of CRC-32


# --- Bytes ---


def test_a_made_up_row_is_as_wide_as_a_row_of_data():
    # two observations of 3, two actions of 2, reward, terminal, has_next_action, next_returns
    made_up = rounds.no_data(SPACE)
    assert made_up.rows.shape == (1, 14)
    assert int(made_up.length) == 1
    assert rounds.rows_of(make_transitions(0), 0.9).shape[1] == 14


def test_bytes_of_a_message_by_hand():
    state, reports = run(federation(2), 1)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(state.broadcast))
    arrays = len(jax.tree.leaves(state.broadcast))
    beside = 4 * len({"actor_loss", "policy_distance", "rows", "the weight"})
    assert reports[0].traffic == (4 * numbers, 4 * numbers + beside)
    _, reports = run(federation(2), 1, envelope=COMPRESSIONS["int8"])
    assert reports[0].traffic == (4 * numbers, numbers + 4 * arrays + beside)


@pytest.mark.parametrize(("name", "error"), [("float16", 1e-4), ("int8", 2e-2)])
def test_compressed_training_stays_near_the_uncompressed_one(name, error):
    plain, _ = run(federation(2), 3)
    small, _ = run(federation(2), 3, envelope=COMPRESSIONS[name])
    moved = distance(plain.broadcast, run(federation(2), 0)[0].broadcast)
    assert 0 < distance(plain.broadcast, small.broadcast) < error * moved


# --- Privacy ---


def private(noise_at="server", noise=1.0, clip=1e-3, clients=5, participation=1.0):
    return Privacy(noise_at, clip, noise, 1e-5, clients, participation)


def test_a_private_round_reports_no_metric():
    for noise_at in ("server", "client"):
        _, reports = run(federation(), 1, privacy=private(noise_at))
        assert list(reports[0].clients.values()) == [{}] * 5
        assert reports[0].traffic is not None


def test_one_private_round_moves_by_the_mean_of_shortened_updates_and_noise_of_the_right_size():
    first = run(federation(), 0)[0].broadcast
    numbers = sum(leaf.size for leaf in jax.tree.leaves(first))
    state, _ = run(federation(), 1, privacy=private(noise=50.0))
    # 5 updates of norm 0.001 are lost in noise of 0.05 per number, which is divided by 5
    assert distance(state.broadcast, first) == pytest.approx(0.05 / 5 * np.sqrt(numbers), rel=0.25)
    quiet, _ = run(federation(), 1, privacy=private(noise=0.1, clip=1e-6))
    assert 0 < distance(quiet.broadcast, first) < 2e-6


def test_private_clients_are_drawn_one_by_one_and_cohorts_change_nothing():
    setting = private(clients=6, participation=0.5)
    state, reports = run(federation(6), 8, privacy=setting, participation=0.5)
    sizes = {len(report.clients) for report in reports}
    assert len(sizes) > 1, "as many in every round would not be independent draws"
    again, _ = run(federation(6), 8, privacy=setting, participation=0.5, cohort=2)
    assert distance(state.broadcast, again.broadcast) < 1e-5


def test_a_private_client_that_diverges_is_silent_and_keeps_its_learner():
    clients = federation(3)
    clients["c1"] = dataclasses.replace(clients["c1"], actions=np.full_like(clients["c1"].actions, np.nan))
    simulation = Simulation(
        TINY, clients, SPACE, RoundSettings(local_steps=2, privacy=private("client", clients=3))
    )
    start = simulation.start()
    before = jax.tree.map(lambda leaf: leaf[1].copy(), start.learners)
    state, report = simulation.round(start)
    assert list(report.rejected) == ["c1"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.broadcast))
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf: leaf[1], state.learners), before)
