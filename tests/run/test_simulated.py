"""The engine of `fova train`: units of reward and weights as it gives them to training."""

import dataclasses

import jax
import numpy as np
import pytest

from fova.algorithms import configure
from fova.data.sampling import drawn_rows, row_weights
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.federation.clients import Federation
from fova.federation.rounds import rows_of
from fova.run.config import Config, RunConfig
from fova.run.simulated import SimulatedEngine
from tiny import make_transitions

TINY = {"hidden": (8,), "batch_size": 8}


@pytest.fixture(scope="module")
def federation():
    clients = {name: make_transitions(i) for i, name in enumerate("abc")}
    lucky = dataclasses.replace(clients["a"], rewards=clients["a"].rewards + 2.0)
    return Federation.of(clients | {"a": lucky})


def engine_of(federation, algorithm="fova", preset=None, settings=TINY, **run):
    config = Config(
        None,
        (),
        configure(algorithm, preset, **settings),
        algorithm,
        RunConfig(**{"rounds": 2, "local_steps": 3, **run}),
    )
    return SimulatedEngine(config, federation)


def trained(engine):
    engine.prepare(None)
    state = engine.start()
    for _ in range(2):
        state, report = engine.round(state)
    return state, report


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_automatic_strengths_do_not_depend_on_the_unit_of_the_rewards(federation, factor):
    one, report = trained(engine_of(federation))
    other, scaled = trained(engine_of(federation, reward_scale=factor))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), one.broadcast, other.broadcast)
    for client, metrics in report.clients.items():
        assert metrics["server_weight"] == pytest.approx(scaled.clients[client]["server_weight"], rel=1e-5)
    fixed = [trained(engine_of(federation, preset="equations", reward_scale=f))[0].broadcast for f in (1.0, factor)]
    with pytest.raises(AssertionError):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), *fixed)


def test_a_unit_that_is_given_is_what_rewards_are_divided_by(federation):
    halved = engine_of(federation, "fed-td3bc", reward_unit=2.0, local_steps=2)
    whole = engine_of(federation, "fed-td3bc", local_steps=2)
    assert halved.prepare(None).reward_unit == 2.0
    assert whole.prepare(None).reward_unit == 1.0
    np.testing.assert_allclose(halved._prepared(0)["a"].rewards, whole._prepared(0)["a"].rewards / 2.0, rtol=1e-6)
    derived = engine_of(federation, "fed-td3bc", reward_unit="federation", local_steps=2)
    assert derived.prepare(None).reward_unit == engine_of(federation).prepare(None).reward_unit != 1.0


@pytest.mark.parametrize(
    "asked",
    [{"sampling": "returns"}, {"settings": {**TINY, "episode_weights": "returns"}}],
    ids=["run", "algorithm"],
)
def test_statistics_and_training_see_rows_by_their_weights(federation, asked):
    """Each client's data, and beside each row one that was drawn by the weights, is what is trained on."""
    engine = engine_of(federation, **asked)
    engine.prepare(None)
    for name, data in federation.clients.items():
        weights = row_weights(data, "returns", engine.config.algorithm.discount)
        rows = drawn_rows(weights)
        assert len(np.unique(rows)) < len(rows) == len(data)
        client = list(federation.clients).index(name)
        start = engine.simulation._buffer.starts[client]
        trained_on = engine.simulation._buffer.rows[start : start + len(data)]
        in_order = rows_of(engine._prepared(0)[name], engine.config.algorithm.discount)
        np.testing.assert_array_equal(trained_on, np.concatenate([in_order, in_order[rows]], axis=1))
        assert engine._told[0][name].reward_sum == pytest.approx((weights * data.rewards).sum(), rel=1e-6)
        assert engine._told[0][name].counted_rows == pytest.approx(weights.sum())
        assert engine._told[0][name].rows == len(data)


def test_rows_are_drawn_by_the_data_of_the_turn_and_of_all_clients_where_they_are_pooled(federation):
    later = Federation.of({name: make_transitions(20 + i) for i, name in enumerate("abc")})
    turns = dataclasses.replace(federation, later=(later,))
    for mode in ("federated", "centralised", "local"):
        engine = engine_of(turns, sampling="returns", mode=mode)
        trained(engine)
        buffer = engine.simulation._buffer
        for name, start, length in zip(engine._turns[1].clients, buffer.starts, buffer.lengths):
            data = engine._turns[1].clients[name]
            drawn = drawn_rows(row_weights(data, "returns", engine.config.algorithm.discount))
            alike, weighted = np.split(buffer.rows[start : start + length], 2, axis=1)
            np.testing.assert_array_equal(weighted, alike[drawn])
        assert len(buffer.lengths) == (1 if mode == "centralised" else 3)


def test_pooled_data_is_trained_on_for_as_many_steps_as_all_clients_that_take_part(federation):
    for participation, expected in ((1.0, 3 * 3), (0.67, 3 * 2), (0.1, 3)):
        engine = engine_of(federation, mode="centralised", participation=participation)
        assert engine.simulation.settings.local_steps == expected
        assert len(engine.simulation._choose(1)) == 1


def half_good(seed):
    """Episodes of which every second one does the opposite of the others, for nothing."""
    rng = np.random.default_rng(seed)

    def one(good):
        states = rng.normal(size=(21, 3)).astype(np.float32)
        actions, rewards = np.full((20, 2), 0.8 if good else -0.8), np.full(20, float(good))
        return Episode(states, actions.astype(np.float32), rewards.astype(np.float32), terminated=False)

    return from_episodes([one(good) for good in (True, False) * 4])


def test_cloning_follows_the_better_episodes_inside_clients_if_their_rows_come_more_often():
    federation = Federation.of({name: half_good(i) for i, name in enumerate("ab")})
    means = {}
    for sampling in ("uniform", "returns"):
        settings = {**TINY, "actor_lr": 0.01}
        engine = engine_of(federation, "fed-bc", settings=settings, sampling=sampling, local_steps=150)
        actor = engine.config.algorithm.policy(trained(engine)[0].broadcast)
        means[sampling] = float(np.mean(actor(np.zeros((1, 3), np.float32)).mode()))
    assert means["returns"] > 0.6
    assert abs(means["uniform"]) < 0.3


def moved(federation, constant):
    clients = {name: dataclasses.replace(c, rewards=c.rewards + constant) for name, c in federation.clients.items()}
    return Federation.of(clients)


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_negative_rewards_are_counted_from_the_lowest(federation, scale):
    engine = engine_of(moved(federation, -20.0), reward_scale=scale)
    statistics, prepared, raw = engine.prepare(None), engine._prepared(0), engine.federation.clients
    assert statistics.reward_zero < -20.0 * scale
    for name, data in raw.items():
        goes_on = data.terminals == 0
        expected = (scale * data.rewards - statistics.reward_zero) / statistics.reward_unit
        np.testing.assert_allclose(prepared[name].rewards[goes_on], expected[goes_on], rtol=1e-4)
        bonus = -statistics.reward_zero / statistics.reward_unit * 0.99 / (1 - 0.99)
        np.testing.assert_allclose(prepared[name].rewards[~goes_on], expected[~goes_on] + bonus, rtol=1e-4)


def test_positive_rewards_and_a_unit_that_is_given_are_counted_from_zero(federation):
    assert engine_of(moved(federation, 20.0)).prepare(None).reward_zero == 0.0
    given = engine_of(moved(federation, -20.0), "fed-td3bc", local_steps=2)
    assert given.prepare(None).reward_zero == 0.0
    np.testing.assert_array_equal(given._prepared(0)["b"].rewards, given.federation.clients["b"].rewards)


def test_a_client_that_trains_alone_has_its_own_zero(federation):
    engine = engine_of(moved(federation, -1.0), mode="local")
    zeros = {name: zero for name, (zero, _) in engine._scales(0).items()}
    assert zeros["a"] == 0.0, "its rewards are above 0"
    assert zeros["b"] < -1.0


def test_a_client_that_trains_alone_has_its_own_unit(federation):
    engine = engine_of(moved(federation, 0.5), mode="local")
    units = {name: unit for name, (_, unit) in engine._scales(0).items()}
    assert units["a"] > 2 * units["b"], "the rewards of a are larger"
    assert len(set(engine_of(federation)._scales(0).values())) == 1, "together they share one"


def test_a_private_run_has_no_statistics_and_must_say_its_unit(federation):
    private = {"privacy": "client", "privacy_clip": 1.0, "privacy_noise": 2.0, "normalise": False}
    with pytest.raises(FovaError, match="--reward-unit 1"):
        engine_of(federation, aggregation="uniform", **private)
    statistics = engine_of(federation, aggregation="uniform", reward_unit=3.0, **private).prepare(None)
    assert statistics.reward_unit == 3.0
    assert statistics.log_weights == {}
    np.testing.assert_array_equal(statistics.normaliser.mean, np.zeros(3))
