from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np
import pytest

from federation.test_simulation import SPACE, TINY, assert_close, assert_same_metrics
from fova.algorithms.bc import FedBc
from fova.errors import FovaError
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.engine import RoundSettings
from fova.federation.gathered import Gathered
from fova.federation.privacy import Privacy
from fova.federation.rounds import ACCEPTED, NOT_FINITE, alone
from fova.federation.shares import Share, deal_out, mean_of_all
from fova.federation.simulation import Simulation
from in_threads import in_threads
from tiny import make_transitions

# --- Dealing out ---


def test_every_process_gets_whole_cohorts():
    assert deal_out(1000, 64, 2) == [range(0, 512), range(512, 1000)], "16 cohorts, the last one of 40 clients"
    assert deal_out(10, 3, 2) == [range(0, 6), range(6, 10)]
    assert deal_out(10, 3, 3) == [range(0, 6), range(6, 9), range(9, 10)], "4 cohorts: the first process has two"
    assert deal_out(5, 64, 1) == [range(0, 5)]


@pytest.mark.parametrize(("clients", "cohort", "processes"), [(1000, 64, 7), (17, 1, 4), (64, 8, 8), (65, 8, 8)])
def test_every_client_is_with_one_process(clients, cohort, processes):
    shares = deal_out(clients, cohort, processes)
    assert len(shares) == processes
    assert [client for share in shares for client in share] == list(range(clients))
    assert all(share.start % cohort == 0 and len(share) for share in shares)


def test_too_few_cohorts_are_refused_with_a_cohort_that_fits():
    with pytest.raises(FovaError, match=r"10 clients make 1 cohort of 64, too few for 3 processes. Add --cohort 4"):
        deal_out(10, 64, 3)
    assert len(deal_out(10, 4, 3)) == 3, "the advice works"
    with pytest.raises(FovaError, match=r"There are 4 processes for 3 clients. Start at most 3"):
        deal_out(3, 64, 4)


# --- Merging ---


def test_the_mean_of_all_processes_is_weighted():
    means = [
        ({"w": np.array([1.0, 2.0]), "b": np.float32(4.0)}, 0.25),
        ({"w": np.array([5.0, 6.0]), "b": 8.0}, 0.75),
    ]
    merged = in_threads(2, lambda cluster: mean_of_all(cluster, *means[cluster.index]))
    for each in merged:  # 0.25 * 1 + 0.75 * 5, ...
        np.testing.assert_array_equal(each["w"], [4.0, 5.0])
        assert each["b"] == 7.0


def test_a_process_without_weight_does_not_count_even_with_nan():
    means = [(np.array([np.nan]), 0.0), (np.array([3.0]), 1.0)]
    merged = in_threads(2, lambda cluster: mean_of_all(cluster, *means[cluster.index]))
    assert [each.item() for each in merged] == [3.0, 3.0]


def test_what_clients_brought_is_merged_in_their_order():
    """Two processes with two clients each. The second client of the second one is rejected."""
    weights = [[1.0, 2.0], [5.0, 0.0]]
    means = [[10.0], [2.0]]  # of each process

    def work(cluster):
        share = Share(["a", "b", "c", "d"], [range(0, 2), range(2, 4)], cluster)
        brought = Gathered()
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.array(weights[cluster.index], np.float32))
        verdicts = np.array([ACCEPTED, ACCEPTED if cluster.index == 0 else NOT_FINITE])
        metrics = {"loss": np.array([1.0, 2.0], np.float32) + 2 * cluster.index}
        brought.add([0, 1], verdicts, metrics, log_weights)
        brought.merge(alone(np.array(means[cluster.index], np.float32)), np.log(sum(weights[cluster.index])))
        return share.merged(brought, np.zeros(1, np.float32))

    for merged in in_threads(2, work):
        assert merged.members == [0, 1, 2, 3]
        assert merged.verdicts == [ACCEPTED, ACCEPTED, ACCEPTED, NOT_FINITE]
        np.testing.assert_array_equal(merged.metrics()["loss"], [1.0, 2.0, 3.0, 4.0])
        np.testing.assert_allclose(np.exp(merged.log_weights), [1.0, 2.0, 5.0, 0.0], rtol=1e-6)
        assert np.exp(merged.log_total) == pytest.approx(8.0)
        # (3 * 10 + 5 * 2) / 8
        np.testing.assert_allclose(merged.submissions.parameters, [[5.0]], rtol=1e-6)


def test_processes_without_a_client_in_the_round():
    def work(cluster, nobody):
        share = Share(["a", "b"], [range(0, 1), range(1, 2)], cluster)
        brought = Gathered()
        if cluster.index == 1 and not nobody:
            brought.add([0], np.array([ACCEPTED]), {"loss": np.ones(1, np.float32)}, np.zeros(1, np.float32))
            brought.merge(alone(np.array([7.0], np.float32)), np.float32(0.0))
        return share.merged(brought, np.zeros(1, np.float32))

    for merged in in_threads(2, lambda cluster: work(cluster, nobody=False)):
        assert merged.members == [1]
        np.testing.assert_array_equal(merged.submissions.parameters, [[7.0]])
    for merged in in_threads(2, lambda cluster: work(cluster, nobody=True)):
        assert merged.members == []
        assert merged.submissions is None
        assert merged.log_total == -np.inf


# --- Rounds ---

CLIENTS = {f"client-{i}": make_transitions(i, episodes=2 + i % 3) for i in range(8)}
WEIGHTS = {name: -0.1 * i for i, name in enumerate(CLIENTS)}


def rounds_of(simulation, rounds=2):
    state = simulation.start()
    for _ in range(rounds):
        state, report = simulation.round(state)
    return state, report


def together_and_apart(processes=2, **options):
    """The state and last report of one simulation, and those of several processes."""
    settings = RoundSettings(**{"local_steps": 3, "cohort": 2, "aggregation": AGGREGATIONS["returns"], **options})
    names = list(CLIENTS)

    def work(cluster):
        cohort = settings.cohort if settings.participation == 1.0 else 1
        share = Share(names, deal_out(len(names), cohort, cluster.count), cluster)
        own = {name: CLIENTS[name] for name in share.own_names}
        return rounds_of(Simulation(TINY, own, SPACE, settings, WEIGHTS, share))

    return rounds_of(Simulation(TINY, CLIENTS, SPACE, settings, WEIGHTS)), in_threads(processes, work)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"processes": 3},
        {"participation": 0.5},
        {
            "aggregation": AGGREGATIONS["uniform"],
            "privacy": Privacy("server", 1.0, 0.5, 1e-5, len(CLIENTS), 0.3),
            "participation": 0.3,
        },
    ],
    ids=["two processes", "three processes", "half of the clients in a round", "privacy"],
)
def test_several_processes_agree_with_one_simulation(options):
    (state, report), parts = together_and_apart(**options)
    for part, told in parts:
        assert_close(part.server, state.server, atol=1e-5)
        assert part.round == state.round
        assert list(told.clients) == list(report.clients)
        assert told.traffic == report.traffic
        if "privacy" not in options:  # where clients tell no metrics
            assert_same_metrics(told, report)
    learners = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[part.learners for part, _ in parts])
    assert_close(learners, state.learners, atol=1e-5)


def test_what_travels_does_not_grow_with_the_clients_but_for_their_metrics():
    """A client's parameters are over 800 bytes. Its metrics, verdict and weight are less than 200."""
    sent = []

    def work(cluster, names):
        share = Share(names, deal_out(len(names), 1, 2), cluster)
        own = dict.fromkeys(share.own_names, CLIENTS["client-0"])
        simulation = Simulation(TINY, own, SPACE, RoundSettings(local_steps=1, cohort=1), None, share)
        simulation.round(simulation.start())
        sent.append(sum(cluster.bytes_sent))

    in_threads(2, lambda cluster: work(cluster, ["a", "b"]))
    few = sent[0]
    in_threads(2, lambda cluster: work(cluster, [f"c{i}" for i in range(12)]))
    assert sent[-1] - few < 5 * 200


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "krum"])
def test_aggregations_of_whole_rounds_are_refused(name):
    with pytest.raises(FovaError, match="This aggregation needs all clients of a round at once, but several proc"):
        together_and_apart(processes=1, aggregation=AGGREGATIONS[name], cohort=8)


@dataclass(frozen=True)
class WholeRounds(FedBc):
    """Its aggregation is said to need all clients of a round."""

    name: ClassVar[str] = "whole-rounds"
    mergeable: ClassVar[bool] = False


def test_an_algorithm_that_needs_whole_rounds_is_refused_by_name_unless_clients_train_alone():
    algorithm = WholeRounds(hidden=(8,), batch_size=8)
    share = Share(["client-0", "client-1"], [range(0, 1), range(1, 2)], None)
    own = {"client-0": CLIENTS["client-0"]}
    with pytest.raises(FovaError, match="WholeRounds needs all clients of a round at once"):
        Simulation(algorithm, own, SPACE, RoundSettings(local_steps=1), None, share)
    alone = Simulation(algorithm, own, SPACE, RoundSettings(local_steps=1, together=False), None, share)
    assert (alone.names, alone.participants) == (["client-0"], 2)
