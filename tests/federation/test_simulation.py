import dataclasses
import gc
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms import configure
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.federation import placement
from fova.federation import simulation as simulation_module
from fova.federation.aggregation import AGGREGATIONS, Aggregation
from fova.federation.engine import RoundSettings
from fova.federation.placement import Placed
from fova.federation.simulation import Simulation
from fova.spaces import Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)
TINY = configure("fova", hidden=(8,), batch_size=8, actor_lr=1e-3)


def run(clients, rounds=2, **options):
    simulation = Simulation(TINY, clients, SPACE, RoundSettings(**{"local_steps": 3, **options}))
    state = simulation.start()
    reports = []
    for _ in range(rounds):
        state, report = simulation.round(state)
        reports.append(report)
    return state, reports


def assert_close(one, other, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, other)


def assert_same_metrics(one, other):
    assert set(one.clients) == set(other.clients)
    for client, metrics in one.clients.items():
        assert metrics
        assert set(metrics) == set(other.clients[client])
        for name, value in metrics.items():
            np.testing.assert_allclose(value, other.clients[client][name], atol=1e-4, rtol=1e-4, err_msg=name)


def assert_same_bytes(one, other):
    assert jax.tree.all(jax.tree.map(lambda a, b: np.asarray(a).tobytes() == np.asarray(b).tobytes(), one, other))


@pytest.fixture(scope="module")
def unequal_clients():
    return {f"client-{i}": make_transitions(i, episodes=2 + i) for i in range(3)}


def test_all_clients_start_from_the_same_networks(unequal_clients):
    state = Simulation(TINY, unequal_clients, SPACE, RoundSettings(local_steps=1)).start()
    for leaf in jax.tree.leaves(state.learners):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    first = jax.tree.map(lambda leaf: leaf[0], state.learners)
    assert_close(state.broadcast.actor, first.actor.network, atol=1e-7)


def test_what_is_on_the_device_is_bounded_by_the_cohort_not_by_the_federation(monkeypatch):
    data = make_transitions(0)

    def most_bytes(clients):
        seen = []
        original = simulation_module.clients_part

        def watched(*arguments):
            outcome = original(*arguments)
            (placed,) = [argument for argument in arguments if isinstance(argument, Placed)]
            # All devices use the rows where they are, in host memory: see test_placement.py.
            seen.append(sum(array.nbytes for array in jax.live_arrays()) - placed.rows.nbytes)
            return outcome

        watched.lower, watched.eval_shape = original.lower, original.eval_shape  # programs are compiled ahead
        gc.collect()
        held = jax.live_arrays()  # of other tests: held, so that none of them is freed on the way
        before = sum(array.nbytes for array in held)
        with monkeypatch.context() as patch:
            patch.setattr(simulation_module, "clients_part", watched)
            run({f"client-{i}": data for i in range(clients)}, rounds=2, cohort=2)
        assert len(seen) == clients  # two rounds of clients / 2 cohorts
        return max(seen) - before

    few_cohorts, many_cohorts = most_bytes(8), most_bytes(24)
    assert 0 < many_cohorts <= few_cohorts * 1.01


def test_clients_dealt_out_among_devices_learn_what_they_learn_on_one(unequal_clients, monkeypatch):
    assert len(jax.local_devices()) == 2
    for together in (True, False):
        dealt_out, reports = run(
            unequal_clients, together=together
        )  # three clients and a filling one on two devices
        with monkeypatch.context() as patch:
            patch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
            on_one, reports_of_one = run(unequal_clients, together=together)
        assert_close(dealt_out.broadcast, on_one.broadcast, atol=1e-6)
        assert_close(dealt_out.learners, on_one.learners, atol=1e-5)
        assert_same_metrics(reports[-1], reports_of_one[-1])


def test_devices_never_wait_for_one_another(unequal_clients, monkeypatch):
    texts = []
    original = simulation_module.clients_part

    def watched(*arguments):
        texts.append(original.lower(*arguments).compile().as_text())
        return original(*arguments)

    monkeypatch.setattr(simulation_module, "clients_part", watched)
    run(unequal_clients, rounds=1)
    (text,) = texts
    assert "num_partitions=2" in text
    assert not re.search(r"all-reduce|all-gather|all-to-all|collective|reduce-scatter", text)


@pytest.mark.parametrize(
    ("clients", "devices", "slots", "used"),
    [(1, 8, 1, 1), (4, 8, 4, 4), (5, 4, 6, 3), (5, 2, 6, 2), (9, 4, 9, 3), (64, 8, 64, 8)],
)
def test_no_more_devices_are_used_than_make_a_round_shorter(monkeypatch, clients, devices, slots, used):
    pretended = jax.devices() * 4
    monkeypatch.setattr(jax, "local_devices", lambda: pretended[:devices])
    assert placement.deal_out(clients) == (pretended[:used], slots)


def test_same_seed_same_bytes(unequal_clients):
    (one, _), (other, _) = run(unequal_clients, seed=4), run(unequal_clients, seed=4)
    assert_same_bytes(one[1:], other[1:])
    different, _ = run(unequal_clients, seed=5)
    with pytest.raises(AssertionError):
        assert_close(one.broadcast, different.broadcast, atol=1e-4)


def test_the_server_is_the_plain_mean_of_its_clients(unequal_clients):
    state, _ = run(unequal_clients)
    mean = jax.tree.map(
        lambda leaf: leaf.mean(axis=0), (state.learners.actor.network, state.learners.critic.network)
    )
    assert_close((state.broadcast.actor, state.broadcast.critic), mean, atol=1e-6)


def test_order_of_clients_changes_nothing(unequal_clients):
    turned = dict(reversed(unequal_clients.items()))
    (one, reports), (other, turned_reports) = run(unequal_clients), run(turned)
    assert_close(one.broadcast, other.broadcast, atol=1e-5)
    assert_same_metrics(reports[-1], turned_reports[-1])


def test_identical_clients_with_identical_batches_equal_one_client():
    data = make_transitions(7)
    alone = Simulation(TINY, {"a": data}, SPACE, RoundSettings(local_steps=3))
    together = Simulation(TINY, {"a": data, "b": data, "c": data}, SPACE, RoundSettings(local_steps=3))
    together._identities[:] = alone._identities[0]  # the name decides the batches: give all the same
    one, three = alone.start(), together.start()
    for _ in range(2):
        one, _ = alone.round(one)
        three, _ = together.round(three)
    assert_close(one.broadcast, three.broadcast, atol=1e-6)


@pytest.mark.parametrize("cohort", [1, 2])
def test_cohorts_change_nothing_but_memory(unequal_clients, cohort):
    (whole, reports), (parts, part_reports) = run(unequal_clients), run(unequal_clients, cohort=cohort)
    assert_close(whole.broadcast, parts.broadcast, atol=1e-5)
    assert_close(whole.learners, parts.learners, atol=1e-5)
    assert_same_metrics(reports[0], part_reports[0])


def test_partial_participation_leaves_the_others_alone():
    clients = {f"c{i}": make_transitions(i) for i in range(6)}
    simulation = Simulation(TINY, clients, SPACE, RoundSettings(local_steps=2, participation=0.5))
    state, seen = simulation.start(), set()
    for _ in range(5):
        before = [leaf.copy() for leaf in jax.tree.leaves(state.learners)]
        state, report = simulation.round(state)
        assert len(report.clients) == 3
        absent = [i for i, name in enumerate(clients) if name not in report.clients]
        for old, new in zip(before, jax.tree.leaves(state.learners)):
            np.testing.assert_array_equal(old[absent], new[absent])
        seen |= set(report.clients)
    assert seen == set(clients), "over some rounds everybody takes part"


@pytest.mark.parametrize(
    ("clients", "participation", "participants"),
    [(3, 0.01, 1), (5, 0.3, 2), (5, 0.5, 2), (5, 0.7, 4), (5, 1.0, 5)],  # halves go to the even number
)
def test_how_many_clients_take_part(clients, participation, participants):
    data = make_transitions(0)
    settings = RoundSettings(local_steps=1, participation=participation, cohort=4)
    simulation = Simulation(TINY, {f"c{i}": data for i in range(clients)}, SPACE, settings)
    assert simulation.participants == participants
    assert simulation.cohort == min(4, participants)
    for number in range(3):
        chosen = simulation._choose(number)
        assert len(chosen) == participants
        assert chosen == sorted(set(chosen)), "nobody is chosen twice"
        assert set(chosen) <= set(range(clients))


def test_new_data_keeps_the_clients_and_their_learners(unequal_clients):
    simulation = Simulation(TINY, unequal_clients, SPACE, RoundSettings(local_steps=2))
    state, _ = simulation.round(simulation.start())
    simulation.set_data({name: make_transitions(50 + i) for i, name in enumerate(unequal_clients)})
    state, _ = simulation.round(simulation.data_changed(state))
    assert state.round == 2
    other, _ = simulation.round(simulation.round(simulation.start())[0])
    with pytest.raises(AssertionError):  # the first round was on other data, and it is remembered
        assert_close(state.learners, other.learners, atol=1e-6)
    with pytest.raises(FovaError, match="client-0"):
        simulation.set_data({"somebody else": make_transitions(0)})


def test_a_client_that_diverges_is_rejected_and_named_and_the_rest_goes_on(unequal_clients):
    broken = dataclasses.replace(
        unequal_clients["client-1"], rewards=np.full(len(unequal_clients["client-1"]), np.inf, "f")
    )
    clients = unequal_clients | {"client-1": broken}
    simulation = Simulation(TINY, clients, SPACE, RoundSettings(local_steps=2))
    start = simulation.start()
    before = jax.tree.map(lambda leaf: leaf[1].copy(), start.learners)
    state, report = simulation.round(start)
    assert list(report.rejected) == ["client-1"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.broadcast))
    assert_close(jax.tree.map(lambda leaf: leaf[1], state.learners), before, atol=0)
    others = [0, 2]
    mean = jax.tree.map(lambda leaf: leaf[others].mean(axis=0), state.learners.actor.network)
    assert_close(state.broadcast.actor, mean, atol=1e-6)


def test_divergence_of_everybody_says_what_to_do(unequal_clients):
    algorithm = configure("fova", hidden=(8,), batch_size=8, critic_lr=1e30)
    simulation = Simulation(algorithm, unequal_clients, SPACE, RoundSettings(local_steps=3))
    with pytest.raises(FovaError, match=r"diverged in round 1(.|\n)*--critic-lr"):
        simulation.round(simulation.start())


def test_alone_nobody_hears_of_anybody(unequal_clients):
    state, _ = run(unequal_clients, together=False)
    name, data = next(iter(unequal_clients.items()))
    alone, _ = run({name: data})
    assert_close(
        jax.tree.map(lambda leaf: leaf[0], state.learners),
        jax.tree.map(lambda leaf: leaf[0], alone.learners),
        atol=1e-5,
    )


def test_a_different_aggregation_is_one_argument(unequal_clients):
    def first_client(submissions, networks):
        return jax.tree.map(lambda leaf: leaf[0], submissions.parameters)

    state, _ = run(unequal_clients, rounds=1, aggregation=Aggregation(combine=first_client))
    assert_close(state.broadcast.actor, jax.tree.map(lambda leaf: leaf[0], state.learners.actor.network), atol=0)


@pytest.mark.parametrize("cohort", [64, 2])
def test_weights_by_size_hold_across_cohorts(unequal_clients, cohort):
    state, _ = run(unequal_clients, rounds=1, aggregation=AGGREGATIONS["size"], cohort=cohort)
    sizes = np.array([len(data) for data in unequal_clients.values()], np.float32)
    mean = jax.tree.map(lambda leaf: np.average(leaf, axis=0, weights=sizes), state.learners.actor.network)
    assert_close(state.broadcast.actor, mean, atol=1e-6)


def test_a_cohort_of_everybody_is_enough_to_compare_clients(unequal_clients):
    state, _ = run(unequal_clients, rounds=1, aggregation=AGGREGATIONS["median"], cohort=3)
    median = jax.tree.map(lambda leaf: np.median(leaf, axis=0), state.learners.actor.network)
    assert_close(state.broadcast.actor, median, atol=1e-6)


def test_each_learner_is_told_its_own_change_of_the_unit(unequal_clients):
    simulation = Simulation(TINY, unequal_clients, SPACE, RoundSettings(local_steps=1))
    state = simulation.start()._replace(learners=np.array([10.0, 20.0, 30.0]))
    simulation.algorithm = SimpleNamespace(data_changed=lambda learner, factor: learner * factor)
    assert simulation.data_changed(state, {"client-1": 3.0}).learners.tolist() == [10.0, 60.0, 30.0]
    assert simulation.data_changed(state).learners.tolist() == [10.0, 20.0, 30.0]


def test_aggregations_that_need_everybody_refuse_cohorts(unequal_clients):
    with pytest.raises(FovaError, match="--cohort to 3"):
        run(unequal_clients, aggregation=AGGREGATIONS["median"], cohort=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"participation": 0.0}, "participation"), ({"local_steps": 0}, "local_steps"), ({"cohort": 0}, "cohort")],
)
def test_settings_without_meaning_are_refused(unequal_clients, options, words):
    with pytest.raises(FovaError, match=words):
        run(unequal_clients, **options)


LEARNERS = {
    "fova": {"alpha": 0.1, "lam": 0.01},
    "fed-td3bc": {"q_weight": 20.0},
    "fedora": {"q_weight": 20.0},
    "cql-fl": {"alpha": 0.1, "samples": 2, "temperature_lr": 3e-3},
    "drpo": {"alpha": 0.1, "samples": 2, "regularisation": 0.01, "temperature_lr": 3e-3},
    "fed-iql": {"beta": 20.0},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_algorithm_learns_a_tiny_task(name):
    """One step, reward = 1 - (a - 0.5)^2: from uniformly random actions the policy must find 0.5."""
    rng = np.random.default_rng(0)
    clients = {}
    for client in ("a", "b"):
        actions = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
        rewards = 1.0 - np.square(actions - 0.5).sum(axis=1)
        clients[client] = from_episodes(
            Episode(np.zeros((2, 3), np.float32), a[None], r[None], terminated=True)
            for a, r in zip(actions, rewards)
        )
    common = {"hidden": (32,), "batch_size": 64, "actor_lr": 3e-3, "critic_lr": 3e-3}
    algorithm = configure(name, **common, **LEARNERS[name])
    simulation = Simulation(algorithm, clients, SPACE, RoundSettings(local_steps=100))
    state = simulation.start()
    for _ in range(6):
        state, _ = simulation.round(state)
    best = np.asarray(state.broadcast.actor(jnp.zeros((1, 3))).mode())
    np.testing.assert_allclose(best, 0.5, atol=0.15)


def test_fed_bc_learns_what_its_clients_do():
    """One client plays 0.2 and the other -0.6 in different states; the shared policy must tell the states apart."""
    clients = {}
    for name, state, action in (("a", 1.0, 0.2), ("b", -1.0, -0.6)):
        steps = 50
        episode = Episode(
            np.full((steps + 1, 3), state, np.float32),
            np.full((steps, 2), action, np.float32),
            np.zeros(steps, "f"),
            False,
        )
        clients[name] = from_episodes([episode])
    algorithm = configure("fed-bc", hidden=(32,), batch_size=16, actor_lr=3e-3)
    simulation = Simulation(algorithm, clients, SPACE, RoundSettings(local_steps=20))
    state = simulation.start()
    for _ in range(25):
        state, _ = simulation.round(state)
    best = np.asarray(state.broadcast.actor(jnp.array([[1.0] * 3, [-1.0] * 3])).mode())
    np.testing.assert_allclose(best, [[0.2, 0.2], [-0.6, -0.6]], atol=0.1)
