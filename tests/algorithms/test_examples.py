"""The example algorithms: each against NumPy, and each on a tiny task in a loop over the contract's functions."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.numpy_fova import as_numpy, log_density, mlp
from algorithms.test_fova import mixed_batch
from fova import algorithms
from fova.algorithms.base import Batch, Data, Submission, pack, replace
from fova.spaces import Space

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACE = Space.unit(3, 2)


def example(name, **settings):
    return algorithms.configure(str(EXAMPLES / f"{name}.py"), **settings)


def arrays(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def moved(tree, key, size):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([leaf + size * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves)])


def stacked(*trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.parametrize("name", ["fed_awac", "fed_adam", "scaffold"])
def test_examples_are_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 100


# --- Fed-AWAC ---


def test_awac_losses_agree_with_numpy():
    algorithm = example("fed_awac", hidden=(6, 5), temperature=0.3)
    learner, other = (algorithm.init(jax.random.key(seed), SPACE) for seed in range(2))
    learner = replace(learner, target_critic=other.critic.network)
    batch, key = mixed_batch(4), jax.random.key(8)
    new, metrics = jax.jit(algorithm.step)(learner, algorithm.start(other).broadcast, batch, key)

    local_key, next_key = jax.random.split(key)
    a_local = np.asarray(learner.actor(batch.observations).sample(local_key))
    a_next = np.asarray(learner.actor(batch.next_observations).sample(next_key))
    actor = as_numpy(learner.actor.network.net)

    def q(critic, s, a):
        return [mlp(as_numpy(critic.net, i), np.concatenate([s, a]))[0] for i in range(2)]

    critic_loss, actor_loss, weights = 0.0, 0.0, []
    for n in range(len(batch.rewards)):
        s, a, r, next_s, _, terminal, *_ = (np.asarray(field[n], np.float64) for field in batch[:8])
        y = r + 0.99 * (1 - terminal) * min(q(learner.target_critic, next_s, a_next[n]))
        critic_loss += sum((twin - y) ** 2 for twin in q(learner.critic.network, s, a))
        advantage = min(q(learner.critic.network, s, a)) - min(q(learner.critic.network, s, a_local[n]))
        weights.append(min(np.exp(advantage / 0.3), 100.0))
        actor_loss -= weights[-1] * log_density("clipped", actor, s, a)
    rows = len(weights)
    expected = {"critic_loss": critic_loss / rows, "actor_loss": actor_loss / rows, "weight": np.mean(weights)}
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=1e-4)
    target = zip(arrays(learner.target_critic), arrays(new.critic.network), arrays(new.target_critic))
    for before, current, after in target:
        np.testing.assert_allclose(after, 0.995 * before + 0.005 * current, atol=1e-6)


# --- FedAdam ---


def test_fed_adam_agrees_with_numpy_over_two_rounds():
    algorithm = example("fed_adam", hidden=(4,), server_lr=0.05, first_decay=0.8, second_decay=0.9, adaptivity=0.01)
    server = algorithm.start(algorithm.init(jax.random.key(0), SPACE))
    x = arrays(server.broadcast)
    m, v = [np.zeros_like(leaf) for leaf in x], [np.full_like(leaf, 0.01**2) for leaf in x]
    weights = np.array([0.25, 0.75])
    for number in range(2):
        clients = [moved(server.broadcast, key, 0.1) for key in jax.random.split(jax.random.key(number), 2)]
        submissions = Submission(stacked(*clients), jnp.log(jnp.array(weights)), {})
        server = algorithm.aggregate(server, submissions)
        first, second = (arrays(client) for client in clients)
        for i in range(len(x)):
            delta = weights[0] * first[i] + weights[1] * second[i] - x[i]
            m[i] = 0.8 * m[i] + 0.2 * delta
            v[i] = 0.9 * v[i] + 0.1 * delta**2
            x[i] = x[i] + 0.05 * m[i] / (np.sqrt(v[i]) + 0.01)
        for ours, expected in zip(arrays((server.broadcast, server.kept.m, server.kept.v)), [*x, *m, *v]):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)


def test_fed_adam_clients_are_those_of_fova():
    ours = example("fed_adam", hidden=(4,))
    theirs = algorithms.configure("fova", hidden=(4,))
    learner = ours.init(jax.random.key(0), SPACE)
    broadcast = ours.start(learner).broadcast
    arguments = (learner, broadcast, mixed_batch(1), jax.random.key(2))
    jax.tree.map(np.testing.assert_array_equal, jax.jit(ours.step)(*arguments), jax.jit(theirs.step)(*arguments))
    assert (ours.reward_unit, ours.client_weights, ours.mergeable) == ("federation", "returns", True)


# --- SCAFFOLD ---


def numpy_gradient(parameters, s, a):
    """Of the mean squared error of tanh(relu(s W + b) V + c), in the order of the parameters."""
    w, b, v, c = parameters
    hidden = np.maximum(s @ w + b, 0.0)
    action = np.tanh(hidden @ v + c)
    slope = 2.0 * (action - a) / a.size * (1.0 - action**2)
    inner = (slope @ v.T) * (hidden > 0)
    return [s.T @ inner, inner.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)]


def test_scaffold_agrees_with_numpy_over_two_rounds_of_two_clients():
    rate, share, steps = 0.1, 0.5, 3
    algorithm = example("scaffold", actor="deterministic", hidden=(5,), actor_lr=rate, client_share=share)
    fresh = algorithm.init(jax.random.key(0), SPACE)
    server, learners = algorithm.start(fresh), [fresh, fresh]
    datasets = [mixed_batch(seed) for seed in (1, 2)]
    step = jax.jit(algorithm.step)
    x = arrays(fresh.actor.network)
    c, c_k = [0.0 * leaf for leaf in x], [[0.0 * leaf for leaf in x] for _ in datasets]
    for _ in range(2):
        submissions, y, change = [], [], []
        for k, batch in enumerate(datasets):
            learner = algorithm.receive(learners[k], server.broadcast)
            for _ in range(steps):
                learner, _ = step(learner, server.broadcast, batch, jax.random.key(0))
            learners[k], submission = algorithm.submit(learner, server.broadcast, packed(batch))
            submissions.append(submission)

            y.append([leaf.copy() for leaf in x])
            s, a = (np.asarray(part, np.float64) for part in (batch.observations, batch.actions))
            for _ in range(steps):
                corrected = [g - mine + c_ for g, mine, c_ in zip(numpy_gradient(y[k], s, a), c_k[k], c)]
                y[k] = [leaf - rate * g for leaf, g in zip(y[k], corrected)]
            new = [mine - c_ + (x_ - y_) / (steps * rate) for mine, c_, x_, y_ in zip(c_k[k], c, x, y[k])]
            change.append([n - mine for n, mine in zip(new, c_k[k])])
            c_k[k] = new
            for ours, expected in zip(arrays((learner.actor.network, learners[k].extra.control)), [*y[k], *c_k[k]]):
                np.testing.assert_allclose(ours, expected, atol=1e-5)
        server = algorithm.aggregate(server, stacked(*submissions))
        x = [(one + other) / 2 for one, other in zip(*y)]
        c = [c_ + share * (one + other) / 2 for c_, one, other in zip(c, *change)]
        for ours, expected in zip(arrays((server.broadcast.actor, server.broadcast.extra)), [*x, *c]):
            np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert max(np.abs(leaf).max() for leaf in c) > 1e-3, "the control variates must have an effect"


# --- A tiny task: reward is highest at the action that the best policy takes ---


def packed(batch):
    rows = pack(jax.tree.map(np.asarray, batch))
    return Data.of(rows, SPACE)


def best_action(s):
    return 0.8 * np.tanh(s[:, :2] - s[:, 2:])


def tiny_task(seed, noise, rows=400):
    """Episodes of one step: noisy actions around the best ones, states of a region that only this client has."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(rows, 3)).astype(np.float32) + 0.5 * (-1) ** seed
    a = np.clip(best_action(s) + noise * rng.normal(size=(rows, 2)), -1.0, 1.0).astype(np.float32)
    r = -np.square(a - best_action(s)).sum(axis=1)
    zeros, ones = np.zeros(rows, np.float32), np.ones(rows, np.float32)
    return packed(Batch(s, a, r, s, a, terminals=ones, has_next_action=zeros, next_returns=zeros))


def train(algorithm, data, rounds, local_steps):
    """A federation in ten lines: what an engine does with the functions of the contract."""
    clients = len(data.length)
    learner = jax.jit(algorithm.init, static_argnums=1)(jax.random.key(0), SPACE)
    server, learners = algorithm.start(learner), stacked(*[learner] * clients)

    @jax.jit
    def one_round(server, learners, key):
        def local_round(learner, data, key):
            def step(learner, key):
                batch_key, step_key = jax.random.split(key)
                batch = data.sample(batch_key, algorithm.stride * algorithm.batch_size)
                return algorithm.step(learner, server.broadcast, batch, step_key)

            learner = algorithm.receive(learner, server.broadcast)
            learner, _ = jax.lax.scan(step, learner, jax.random.split(key, local_steps))
            return algorithm.submit(learner, server.broadcast, data)

        learners, submissions = jax.vmap(local_round)(learners, data, jax.random.split(key, clients))
        return algorithm.aggregate(server, submissions), learners

    for number in range(rounds):
        server, learners = one_round(server, learners, jax.random.key(number))
    return server


@pytest.mark.parametrize(
    ("name", "settings", "noise"),
    [
        ("fed_awac", {"actor_lr": 3e-3, "critic_lr": 3e-3, "temperature": 0.2}, 0.6),
        ("fed_adam", {"actor_lr": 3e-3, "critic_lr": 3e-3, "server_lr": 0.03}, 0.6),
        ("scaffold", {"actor": "deterministic", "actor_lr": 0.2}, 0.1),
    ],
)
def test_an_example_learns_a_tiny_task(name, settings, noise):
    algorithm = example(name, hidden=(16, 16), batch_size=64, **settings)
    data = stacked(*(tiny_task(seed, noise) for seed in range(2)))
    server = train(algorithm, data, rounds=20, local_steps=40)
    states = np.random.default_rng(9).normal(size=(300, 3)).astype(np.float32)

    def error(broadcast):
        return np.abs(algorithm.policy(broadcast)(jnp.asarray(states)).mode() - best_action(states)).mean()

    before = error(algorithm.start(algorithm.init(jax.random.key(0), SPACE)).broadcast)
    assert error(server.broadcast) < 0.4 * before
