"""The baselines on discrete actions: against NumPy loops, on a tiny task, and which algorithms refuse them."""

from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.discrete.corridor import EVERY_PLACE, trained, walks
from algorithms.discrete.corridor import SPACE as CORRIDOR
from algorithms.discrete.test_discrete_fova import SPACE, coded_batch, loud, softmax
from algorithms.numpy_fova import as_numpy, mlp
from fova.algorithms import by_name, configure, for_space
from fova.algorithms.base import Data, pack, replace
from fova.algorithms.discrete.cql import DiscreteCqlFl, cql_loss, double_q
from fova.errors import FovaError
from fova.spaces import Space

TINY = {"hidden": (6, 5)}


def rows_of(batch):
    return {name: np.asarray(values, np.float64) for name, values in batch._asdict().items()}


def assert_metrics(metrics, expected):
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=2e-4, abs=1e-5)


def two(algorithm):
    return (algorithm.init(key, SPACE) for key in jax.random.split(jax.random.key(1)))


# --- Losses ---


def test_cloning_is_the_cross_entropy():
    algorithm = for_space(configure("fed-bc", **TINY), SPACE)
    learner, _ = two(algorithm)
    learner = replace(learner, actor=replace(learner.actor, network=loud(learner.actor.network)))
    batch = coded_batch(2)
    _, metrics = jax.jit(algorithm.step)(learner, algorithm.start(learner).broadcast, batch, jax.random.key(0))
    b, net = rows_of(batch), as_numpy(learner.actor.network.net)
    chosen = [softmax(mlp(net, s))[int(a)] for s, a in zip(b["observations"], b["actions"][:, 0])]
    assert_metrics(metrics, {"actor_loss": -np.mean(np.log(chosen))})


def test_cql_equations_by_hand():
    q = jnp.log(jnp.array([[1.0, 2.0, 5.0]]))
    loss, (q_data, gap) = cql_loss(q, jnp.array([[1.0]]), jnp.array([0.0]), alpha=3.0)
    assert float(q_data[0]) == pytest.approx(np.log(2.0))
    assert float(gap[0]) == pytest.approx(np.log(8.0) - np.log(2.0))
    assert float(loss) == pytest.approx(np.log(2.0) ** 2 + 3.0 * np.log(4.0))
    target = jnp.array([[7.0, 8.0, 9.0]])
    assert double_q(jnp.array([[0.0, 2.0, 1.0]]), target).tolist() == [8.0]


def test_cql_agrees_with_numpy():
    algorithm = for_space(configure("cql-fl", alpha=2.0, **TINY), SPACE)
    assert type(algorithm) is DiscreteCqlFl
    first, second = two(algorithm)
    learner = replace(first, target_critic=loud(second.target_critic))
    batch = coded_batch(3)
    new, metrics = jax.jit(algorithm.step)(learner, algorithm.start(learner).broadcast, batch, jax.random.key(0))
    b = rows_of(batch)
    q_net, target = as_numpy(learner.actor.network.net), as_numpy(learner.target_critic.net)
    loss, seen, gaps, errors = 0.0, [], [], []
    for n in range(len(b["rewards"])):
        q, a = mlp(q_net, b["observations"][n]), int(b["actions"][n, 0])
        best = int(np.argmax(mlp(q_net, b["next_observations"][n])))
        y = b["rewards"][n] + 0.99 * (1 - b["terminals"][n]) * mlp(target, b["next_observations"][n])[best]
        gaps.append(np.log(np.exp(q).sum()) - q[a])
        seen.append(q[a])
        errors.append(abs(q[a] - y))
        loss += ((q[a] - y) ** 2 + 2.0 * gaps[-1]) / len(b["rewards"])
    expected = {"critic_loss": loss, "q_data": np.mean(seen)}
    assert_metrics(metrics, expected | {"conservative_gap": np.mean(gaps), "td_error": np.mean(errors)})
    moved = jax.tree.map(lambda t, c: t + 0.005 * (c - t), learner.target_critic, new.actor.network)
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=1e-7), new.target_critic, moved)


def test_a_client_of_cql_submits_the_value_of_its_greedy_policy():
    algorithm = for_space(configure("cql-fl", value_weight=0.5, **TINY), SPACE)
    learner, _ = two(algorithm)
    net = learner.actor.network.net
    q = jnp.arange(SPACE.action.count, dtype=jnp.float32)  # everywhere, so that the best action is worth the last
    last = replace(net.last, weight=jnp.zeros_like(net.last.weight), bias=q)
    network = replace(learner.actor.network, net=replace(net, last=last))
    learner = replace(learner, actor=replace(learner.actor, network=network))
    data = Data.of(pack(coded_batch(3)), SPACE)
    _, submission = algorithm.submit(learner, algorithm.start(learner).broadcast, data)
    best = SPACE.action.count - 1.0
    assert float(submission.metrics["value"]) == pytest.approx(best)
    assert float(submission.log_weight) == pytest.approx(0.5 * best)


def test_iql_agrees_with_numpy():
    algorithm = for_space(configure("fed-iql", **TINY), SPACE)
    first, second = two(algorithm)
    learner = replace(first, target_critic=loud(second.target_critic))
    batch = coded_batch(4)
    after, metrics = jax.jit(algorithm.step)(learner, algorithm.start(learner).broadcast, batch, jax.random.key(0))
    b, v_net, new_v_net = rows_of(batch), *(as_numpy(one.extra.value.network) for one in (learner, after))
    seen = {"advantage": [], "value_loss": [], "actor_loss": [], "q_data": [], "td_error": [], "critic_loss": []}
    for n in range(len(b["rewards"])):
        s, a, next_s = b["observations"][n], int(b["actions"][n, 0]), b["next_observations"][n]
        slow = min(mlp(as_numpy(learner.target_critic.net, i), s)[a] for i in range(2))
        difference, advantage = slow - mlp(v_net, s)[0], slow - mlp(new_v_net, s)[0]
        y = b["rewards"][n] + 0.99 * (1 - b["terminals"][n]) * mlp(v_net, next_s)[0]
        q = [mlp(as_numpy(learner.critic.network.net, i), s)[a] for i in range(2)]
        log_pi = np.log(softmax(mlp(as_numpy(learner.actor.network.net), s))[a])
        seen["advantage"].append(advantage)
        seen["value_loss"].append((0.7 if difference > 0 else 0.3) * difference**2)
        seen["actor_loss"].append(-min(np.exp(3.0 * advantage), 100.0) * log_pi)
        seen["q_data"].append(np.mean(q))
        seen["td_error"].append(np.mean(np.abs(np.array(q) - y)))
        seen["critic_loss"].append(sum((x - y) ** 2 for x in q))
    assert_metrics(metrics, {name: np.mean(values) for name, values in seen.items()})


# --- A tiny task ---

QUICK = {"hidden": (16,), "batch_size": 64, "discount": 0.9, "actor_lr": 3e-3, "critic_lr": 3e-3, "tau": 0.02}


@pytest.mark.parametrize(
    ("name", "settings", "right"),
    [
        ("fed-bc", {}, 0.75),  # cloning can follow the majority of the data's actions, no more
        ("fed-iql", {"beta": 30.0, "expectile": 0.9}, 0.5),
        ("cql-fl", {"alpha": 0.05}, 0.5),
    ],
)
def test_each_learns_to_walk_to_the_end_of_the_corridor(name, settings, right):
    algorithm = for_space(configure(name, **QUICK, **settings), CORRIDOR)
    actor, _ = trained(algorithm, walks(0, right), steps=400)
    np.testing.assert_array_equal(actor(jnp.asarray(EVERY_PLACE)).mode(), 1.0)


# --- Which algorithms serve discrete actions ---


def test_settings_are_kept_and_continuous_actions_change_nothing():
    algorithm = configure("fova", "released", alpha=0.25)
    discrete = for_space(algorithm, SPACE)
    assert asdict(discrete) == asdict(algorithm)
    assert discrete.name == "fova"
    assert for_space(discrete, SPACE) is discrete
    assert for_space(algorithm, Space.unit(3, 2)) is algorithm


def test_every_algorithm_serves_discrete_actions_or_says_in_one_sentence_which_do():
    served, refused = [], {}
    for name in sorted(by_name()):
        try:
            for_space(configure(name), SPACE)
            served.append(name)
        except FovaError as error:
            refused[name] = str(error)
    assert served == ["cql-fl", "fed-bc", "fed-iql", "fedora", "fova"]
    for name, sentence in refused.items():
        assert sentence == (
            f"{name} serves continuous actions only, but these are discrete; choose one of cql-fl, fed-bc, "
            "fed-iql, fedora, fova."
        )
    assert set(refused) == {"drpo", "fed-td3bc"}
