"""Fitted Q evaluation: its equations by hand, its steps beside d3rlpy's, and its values where the truth is known.

`benchmarks/d3rlpy_fqe_steps.py` recorded d3rlpy's side.
"""

from dataclasses import replace as changed
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_d3rlpy_steps import filled

import fova
from fova import algorithms
from fova.algorithms import configure
from fova.algorithms.base import Batch, replace
from fova.algorithms.fqe import loss_of, target
from fova.data.transitions import Episode, from_episodes
from fova.errors import FovaError
from fova.federation.aggregation import AGGREGATIONS
from fova.federation.engine import RoundSettings
from fova.federation.privacy import Privacy
from fova.federation.simulation import Simulation
from fova.networks import make_actor
from fova.spaces import Discrete, Space
from tiny import make_transitions

RECORD = Path(__file__).with_name("d3rlpy_fqe_steps.npz")


def test_the_target_by_hand():
    # 0.1 * 2 + 0.9 * 5; nothing follows an end
    assert target(jnp.array(2.0), jnp.array(0.0), jnp.array(5.0), 0.9) == pytest.approx(4.7)
    assert target(jnp.array(2.0), jnp.array(1.0), jnp.array(5.0), 0.9) == pytest.approx(0.2)


def test_the_loss_by_hand():
    errors = jnp.array([0.5, -2.0])
    np.testing.assert_allclose(loss_of(errors, 0.0), [0.125, 2.0])
    np.testing.assert_allclose(loss_of(errors, 1.0), [0.125, 1.5])  # 1 * (2 - 0.5)
    np.testing.assert_allclose(loss_of(jnp.array([1.5, 2.0, -3.0]), 2.0), [1.125, 2.0, 4.0])  # 2 * (3 - 1)


def test_metrics_are_means_over_the_critics():
    """Critics that say 1 and 3 everywhere; rewards of 2 and 6 end the episodes, so the targets are 0.2 and 0.6."""
    algorithm = configure("fqe", critics=2, hidden=(4,), batch_size=1, discount=0.9, huber=0.0)
    learner = algorithm.init(jax.random.key(0), SPACE)
    net = learner.critic.network.net
    last = replace(net.last, weight=jnp.zeros_like(net.last.weight), bias=jnp.array([[1.0], [3.0]]))
    critics = replace(learner.critic.network, net=replace(net, last=last))
    learner = replace(learner, critic=replace(learner.critic, network=critics), target_critic=critics)
    states, actions, ones = np.zeros((2, 3)), np.zeros((2, 2)), np.ones(2)
    batch = Batch(states, actions, np.array([2.0, 6.0]), states, actions, ones, ones, ones)
    _, metrics = algorithm.step(learner, None, batch, jax.random.key(0))
    assert float(metrics["q_data"]) == pytest.approx(2.0)
    assert float(metrics["td_error"]) == pytest.approx((0.8 + 2.4) / 2)
    assert float(metrics["critic_loss"]) == pytest.approx((0.5 * 0.8**2 + 0.5 * 2.4**2) / 2)


@pytest.mark.parametrize(("kind", "squares"), [("continuous", True), ("discrete", False)])
def test_twenty_steps_are_those_of_d3rlpy(kind, squares):
    """d3rlpy has the squared loss for continuous actions, without our factor 1/2, and Huber's for discrete ones."""
    record = np.load(RECORD)
    actions = record["codes"] if kind == "discrete" else record["actions"]
    steps, size = record["rewards"].shape
    space = Space.unit(3, 2) if kind == "continuous" else Space(3, Discrete.numbered(3))
    algorithm = configure(
        "fqe", critics=1, hidden=(6, 5), batch_size=size, discount=0.9, tau=1.0, huber=0.0 if squares else 1.0,
        critic_layer_norm=False,
    )  # fmt: skip
    learner = algorithm.init(jax.random.key(0), space)
    before, after = (
        filled(learner.critic.network, record[f"{kind}_{moment}"][None]) for moment in ("before", "after")
    )
    learner = replace(learner, critic=replace(learner.critic, network=before), target_critic=before)
    actor = filled(make_actor(jax.random.key(0), space, "deterministic", (6, 5)), record[f"{kind}_policy"])
    step = jax.jit(algorithm.step)
    for i in range(steps):
        rows = {name: record[name][i] for name in ("observations", "rewards", "next_observations", "terminals")}
        unused = dict.fromkeys(("has_next_action", "next_returns"), np.ones(size))
        chosen = actor(rows["next_observations"]).mode()
        batch = Batch(**rows, actions=actions[i], next_actions=chosen, **unused)
        learner, metrics = step(learner, None, batch, jax.random.key(0))
        expected = record[f"{kind}_losses"][i] / (2.0 if squares else 1.0)
        assert float(metrics["critic_loss"]) == pytest.approx(float(expected), rel=1e-4)
    # Half the loss makes a difference to Adam only through its epsilon, where a gradient is next to nothing.
    close = 3e-5 if squares else 2e-6
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=close), learner.critic.network, after)


# --- A federation -----------------------------------------------------------------------------------------

SPACE = Space.unit(3, 2)
TINY = {"hidden": (8,), "batch_size": 8, "critics": 2}


def acting(actor, data):
    """The data, with the actions of this policy in the next states."""
    return changed(data, next_actions=np.asarray(actor(data.next_observations).mode(), np.float32))


def fitted(clients, space=SPACE, rounds=2, steps=2, names=TINY, **settings):
    algorithm = configure("fqe", **names)
    settings = RoundSettings(local_steps=steps * algorithm.critics, **settings)
    actor = make_actor(jax.random.key(9), space, "clipped", (8,))
    acted = {name: acting(actor, data) for name, data in clients.items()}
    simulation = Simulation(algorithm, acted, space, settings)
    state = simulation.start()
    for _ in range(rounds):
        state, report = simulation.round(state)
    return state, report, actor


def clients():
    return {name: make_transitions(i) for i, name in enumerate("abc")}


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_only_critics_travel():
    state, report, _ = fitted(clients())
    assert state.broadcast.actor is None
    assert {"critic_loss", "td_error", "q_data", "value", "rows"} <= set(report.clients["a"])


def test_targets_stay_within_the_range_of_rewards():
    """The target is 0.1 * 5 + 0.9 * v; a value per step of at most 0.2 cuts it off."""
    algorithm = configure("fqe", critics=1, hidden=(4,), discount=0.9, critic_lr=0.0, huber=0.0)
    learner = algorithm.init(jax.random.key(0), SPACE)
    zeros = {name: np.zeros((4, width), np.float32) for name, width in
             (("observations", 3), ("next_observations", 3), ("actions", 2), ("next_actions", 2))}  # fmt: skip
    rows = {"rewards": np.full(4, 5.0, np.float32), "terminals": np.ones(4), "has_next_action": np.ones(4)}
    batch = Batch(**zeros, **rows, next_returns=np.zeros(4))
    value = float(learner.critic(batch.observations, batch.actions)[0, 0])
    for highest, expected in ((9.0, 0.5), (0.2, 0.2)):
        _, metrics = changed(algorithm, highest=highest).step(learner, None, batch, jax.random.key(0))
        assert float(metrics["td_error"]) == pytest.approx(abs(value - expected), rel=1e-5)
    _, metrics = changed(algorithm, lowest=0.8).step(learner, None, batch, jax.random.key(0))
    assert float(metrics["td_error"]) == pytest.approx(abs(value - 0.8), rel=1e-5)


def test_the_same_seed_gives_the_same_critics_and_another_does_not():
    one, again, other = (fitted(clients(), seed=seed)[0].broadcast.critic for seed in (0, 0, 1))
    assert same(one, again)
    assert not same(one, other)


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregation": AGGREGATIONS["median"]},
        {"aggregation": AGGREGATIONS["krum"]},
        {"aggregation": AGGREGATIONS["uniform"], "privacy": Privacy("client", 1.0, 1.0, 1e-5, 3, 1.0)},
    ],
    ids=["median", "krum", "privacy"],
)
def test_rounds_may_be_robust_or_private(settings):
    state, _, _ = fitted(clients(), **settings)
    assert not same(state.broadcast.critic, fitted(clients())[0].broadcast.critic)


def test_clients_count_by_their_rows():
    algorithm = configure("fqe", **TINY)
    state, report, _ = fitted({"large": make_transitions(0, episodes=6), "small": make_transitions(1, episodes=2)})
    weights = {name: metrics["server_weight"] for name, metrics in report.clients.items()}
    rows = {name: metrics["rows"] for name, metrics in report.clients.items()}
    assert weights["large"] / weights["small"] == pytest.approx(rows["large"] / rows["small"], rel=1e-4)
    assert algorithm.networks(state.broadcast) is state.broadcast.critic


def one_state(reward, terminated, episodes=20, steps=5, seed=0, discrete=False):
    """A single state with a constant reward; every episode ends by itself, or is cut by a time-out."""
    rng = np.random.default_rng(seed)
    draw = (lambda: rng.integers(0, 2, (steps, 1))) if discrete else (lambda: rng.uniform(-1, 1, (steps, 1)))
    return from_episodes(
        Episode(np.zeros((steps + 1, 1), np.float32), draw().astype(np.float32),
                np.full(steps, reward, np.float32), terminated) for _ in range(episodes)
    )  # fmt: skip


LEARNS = {"hidden": (8,), "batch_size": 32, "critics": 2, "critic_lr": 0.02, "tau": 0.1}


@pytest.mark.parametrize(("terminated", "value"), [(False, 1.0), (True, 0.1 / (1 - 0.9 * 0.8))])
@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
def test_it_finds_the_value_of_a_single_state(terminated, value, discrete):
    """Reward 1 forever is worth 1 per step. If each step ends with chance 1/5: v = 0.1 + 0.9 * 4/5 v."""
    data = {name: one_state(1.0, terminated, seed=i, discrete=discrete) for i, name in enumerate("ab")}
    space = Space(1, Discrete.numbered(2)) if discrete else Space.unit(1, 1)
    state, _, actor = fitted(data, space, rounds=5, steps=60, names=LEARNS | {"discount": 0.9})
    found = state.broadcast.critic(jnp.zeros((1, 1)), actor(jnp.zeros((1, 1))).mode())
    np.testing.assert_allclose(found, value, atol=0.06)


def test_it_evaluates_the_policy_and_not_the_data():
    """Action 1 pays 1, action 0 pays nothing, and the data takes both alike. The policy takes action 1."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (400, 1)).astype(np.float32)
    data = from_episodes([Episode(np.zeros((401, 1), np.float32), actions, actions[:, 0], False)])
    space = Space(1, Discrete.numbered(2))
    algorithm = configure("fqe", **LEARNS | {"discount": 0.9})
    data = changed(data, next_actions=np.ones_like(data.next_actions))
    simulation = Simulation(algorithm, {"a": data, "b": data}, space, RoundSettings(local_steps=120))
    state = simulation.start()
    for _ in range(5):
        state, _ = simulation.round(state)
    found = state.broadcast.critic(jnp.zeros((2, 1)), jnp.array([[0.0], [1.0]])).mean(axis=0)
    np.testing.assert_allclose(found, [0.9, 1.0], atol=0.06)  # v = 1; q of action 0 is 0.9 v


def test_it_trains_no_policy(tmp_path):
    assert "fqe" not in algorithms.by_name()
    with pytest.raises(FovaError, match="fova judge RUN"):
        fova.train(clients=fova.Federation.of(clients()), algorithm="fqe", directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_are_checked():
    with pytest.raises(FovaError, match="critics"):
        configure("fqe", critics=0)
    assert changed(configure("fqe"), critics=3).stride == 3
