"""Soft actor-critic against numbers worked out by hand and in NumPy."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms.base import Batch, Learner, replace
from fova.spaces import Space
from fova.tasks import soft_actor_critic
from fova.tasks.soft_actor_critic import SoftActorCritic, critic_loss, learn, soft_value, temperature_loss

SPACE = Space.unit(3, 2)
SMALL = SoftActorCritic(
    batch_size=8, hidden=(6,), critic_hidden=(5, 4), actor_lr=0.01, critic_lr=0.02, critic_updates=2
)


def random_batch(seed: int = 0, rows: int = 8) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(
        observations=rng.normal(size=(rows, 3)).astype(np.float32),
        actions=rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        next_observations=rng.normal(size=(rows, 3)).astype(np.float32),
        next_actions=np.full((rows, 2), np.nan, np.float32),  # must not matter
        terminals=(np.arange(rows) % 3 == 0).astype(np.float32),
        has_next_action=np.zeros(rows, np.float32),
        next_returns=np.full(rows, np.nan, np.float32),
    )


def numpy_mlp(net, x, member=None):
    """The network's forward pass written out, in float64; `member` picks one of a stack."""

    def take(leaf):
        return np.asarray(leaf if member is None else leaf[member], np.float64)

    for i, layer in enumerate(net.layers):
        x = x @ take(layer.weight) + take(layer.bias)
        if net.norms:
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
            x = x * take(net.norms[i].scale) + take(net.norms[i].shift)
        x = np.maximum(x, 0)
    return x @ take(net.last.weight) + take(net.last.bias)


def numpy_values(critic, observations, actions):
    rows = np.concatenate([observations, actions], axis=1).astype(np.float64)
    return np.stack([numpy_mlp(critic.net, rows, member)[:, 0] for member in range(2)])


def numpy_sample(actor, observations, key):
    """Action and log-density, the density by the textbook change of variables."""
    mean, log_std = np.split(numpy_mlp(actor.net, observations.astype(np.float64)), 2, axis=1)
    log_std = np.clip(log_std, -5, 2)
    noise = np.asarray(jax.random.normal(key, mean.shape), np.float64)
    u = mean + np.exp(log_std) * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(u), (gaussian - np.log(1 - np.tanh(u) ** 2)).sum(1)


def random_learner() -> Learner:
    """A learner with random weights everywhere, a temperature of exp(-0.7) and an Adam that has not begun."""
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(lambda: SMALL.init(jax.random.key(0), SPACE))
    zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    drawn = jax.tree.map(lambda leaf: rng.normal(0.0, 0.5, leaf.shape).astype(np.float32), shapes)
    return eqx.tree_at(
        lambda part: (part.actor.network, part.critic.network, part.target_critic, part.extra.network),
        zero,
        (drawn.actor.network, drawn.critic.network, drawn.target_critic, np.float32(-0.7)),
    )


class Overheard(NamedTuple):
    """A learner, the learner after an update of each kind, and the values of the losses and targets on the way."""

    learner: Learner
    batch: Batch
    key: jax.Array
    after_critic: Learner
    after_actor: Learner
    values: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def overheard() -> Overheard:
    learner, batch, key, values = random_learner(), random_batch(), jax.random.key(1), {}

    def report(name, value):
        jax.debug.callback(lambda number: values.__setitem__(name, np.asarray(number)), value)

    def speaking(name):
        original = getattr(soft_actor_critic, name)

        def speak(*arguments):
            value = original(*arguments)
            report(name, value)
            if name == "critic_loss":
                report("target", arguments[1])
            return value

        return speak

    with pytest.MonkeyPatch.context() as patch:
        for name in ("critic_loss", "sac_actor_loss", "temperature_loss"):
            patch.setattr(soft_actor_critic, name, speaking(name))
        both = jax.jit(lambda *given: (SMALL.update_critics(*given), SMALL.update_actor(*given)))
        after_critic, after_actor = both(learner, batch, key)
        jax.effects_barrier()
    return Overheard(learner, batch, key, after_critic, after_actor, values)


def shifted(network, index, step):
    """The network with one bias of its last layer moved."""
    bias = np.array(network.net.last.bias, np.float64)
    bias[index] += step
    return eqx.tree_at(lambda part: part.net.last.bias, network, bias)


def first_gradient(model) -> np.ndarray:
    """The flat gradient of the first update: Adam's first moment is then a tenth of it."""
    return 10.0 * np.asarray(model.opt_state[0].mu)


def test_target_by_hand():
    q, log_prob = np.array([[3.0, 9.0], [5.0, 7.0]]), np.array([-2.0, 1.0])
    values = soft_value(q, log_prob, 0.5)
    np.testing.assert_allclose(values, [3.0 + 1.0, 7.0 - 0.5])
    batch = random_batch(rows=2)._replace(rewards=np.array([1.0, 2.0]), terminals=np.array([0.0, 1.0]))
    # row 0: 1 + 0.9 (min(3, 5) + 0.5 * 2) = 4.6; row 1 is terminal: its reward alone
    np.testing.assert_allclose(SoftActorCritic(discount=0.9).target(batch, values), [4.6, 2.0], rtol=1e-6)


def test_losses_by_hand():
    # critics: 1/2 (mean(1, 4) + mean(0, 1)) with target (2, 2) -> differences (-1, 2) and (0, 1)
    q = jnp.array([[1.0, 4.0], [2.0, 3.0]])
    np.testing.assert_allclose(critic_loss(q, jnp.array([2.0, 2.0])), 0.5 * (2.5 + 0.5))
    # temperature: -e^0 * (mean(-2, 4) - 3) = 2
    np.testing.assert_allclose(temperature_loss(jnp.zeros(()), jnp.array([-2.0, 4.0]), 3), 2.0)


@pytest.mark.parametrize(("log_probs", "sign"), [((5.0, 5.0), +1), ((-5.0, -5.0), -1)])
def test_temperature_rises_when_the_entropy_is_too_small(log_probs, sign):
    slope = jax.grad(temperature_loss)(jnp.zeros(()), jnp.array(log_probs), 2)
    assert np.sign(-slope) == sign


def numpy_target(learner: Learner, batch: Batch, key: jax.Array) -> np.ndarray:
    actions, log_probs = numpy_sample(learner.actor.network, batch.next_observations, key)
    soft = numpy_values(learner.target_critic, batch.next_observations, actions).min(0) - np.exp(-0.7) * log_probs
    return batch.rewards + 0.99 * (1 - batch.terminals) * soft


def slope(loss, network, index) -> float:
    """The loss's slope in one bias of the network's last layer, by central difference."""
    return (loss(shifted(network, index, 1e-4)) - loss(shifted(network, index, -1e-4))) / 2e-4


def test_critic_update_against_numpy(overheard: Overheard):
    learner, batch, key, updated, _, values = overheard
    target = numpy_target(learner, batch, key)

    def loss(critic) -> float:
        errors = numpy_values(critic, batch.observations, batch.actions) - target
        return 0.5 * (errors**2).mean(1).sum()

    np.testing.assert_allclose(values["target"], target, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values["critic_loss"], loss(learner.critic.network), rtol=1e-4)
    slopes = [slope(loss, learner.critic.network, (i, 0)) for i in range(2)]
    np.testing.assert_allclose(first_gradient(updated.critic)[-2:], slopes, rtol=1e-3)
    # Adam's first step moves each weight by its rate against the sign of the slope.
    bias, moved = learner.critic.network.net.last.bias, updated.critic.network.net.last.bias
    np.testing.assert_allclose((moved - bias)[:, 0], -0.02 * np.sign(slopes), rtol=1e-3)
    target_bias = 0.995 * learner.target_critic.net.last.bias + 0.005 * np.asarray(moved)
    np.testing.assert_allclose(updated.target_critic.net.last.bias, target_bias, rtol=1e-5)
    assert jax.tree.all(jax.tree.map(np.array_equal, updated.actor, learner.actor))


def test_actor_update_against_numpy(overheard: Overheard):
    learner, batch, key, _, updated, values = overheard

    def loss(actor) -> float:
        actions, log_probs = numpy_sample(actor, batch.observations, key)
        scores = numpy_values(learner.critic.network, batch.observations, actions).min(0)
        return float((np.exp(-0.7) * log_probs - scores).mean())

    np.testing.assert_allclose(values["sac_actor_loss"], loss(learner.actor.network), rtol=1e-4)
    slopes = [slope(loss, learner.actor.network, i) for i in range(4)]
    np.testing.assert_allclose(first_gradient(updated.actor)[-4:], slopes, rtol=1e-3, atol=1e-5)
    bias, moved = learner.actor.network.net.last.bias, updated.actor.network.net.last.bias
    np.testing.assert_allclose(moved - bias, -0.01 * np.sign(slopes), rtol=1e-3)
    assert jax.tree.all(jax.tree.map(np.array_equal, updated.critic, learner.critic))


def test_temperature_update_against_numpy(overheard: Overheard):
    learner, batch, key, _, updated, values = overheard
    _, log_probs = numpy_sample(learner.actor.network, batch.observations, key)
    loss = -np.exp(-0.7) * (log_probs.mean() - 2)  # which is also its slope in the log-temperature
    np.testing.assert_allclose(values["temperature_loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(first_gradient(updated.extra)[-1], loss, rtol=1e-4)
    np.testing.assert_allclose(updated.extra.network, -0.7 - 0.01 * np.sign(loss), rtol=1e-3)


# --- Steps ------------------------------------------------------------------------------------------------


def assert_close(one: Learner, other: Learner) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_step_updates_the_critics_on_every_minibatch_and_the_actor_on_the_last():
    learner, key = random_learner(), jax.random.key(4)
    first, last = random_batch(1), random_batch(2)
    both = jax.tree.map(lambda *fields: np.concatenate(fields), first, last)
    keys = jax.random.split(key, 3)
    expected = SMALL.update_critics(learner, first, keys[0])
    expected = SMALL.update_critics(expected, last, keys[1])
    expected = SMALL.update_actor(expected, last, keys[2])
    stepped, _ = SMALL.step(learner, None, both, key)
    assert_close(stepped, expected)

    steps = jax.tree.map(lambda *fields: np.stack(fields), both, both)
    key_one, key_two = jax.random.split(key, 2)
    expected, _ = SMALL.step(SMALL.step(learner, None, both, key_one)[0], None, both, key_two)
    assert_close(learn(jax.tree.map(jnp.asarray, learner), steps, key, SMALL), expected)


def test_other_learning_rates_change_nothing_else():
    learner = random_learner()
    slower = dataclasses.replace(SMALL, actor_lr=0.001, critic_lr=0.002).with_learning_rates(learner)
    assert (slower.actor.learning_rate, slower.critic.learning_rate, slower.extra.learning_rate) == (
        0.001,
        0.002,
        0.001,
    )
    assert all(map(np.array_equal, jax.tree.leaves(slower), jax.tree.leaves(learner)))


def test_the_target_critic_starts_as_a_copy():
    learner = SMALL.init(jax.random.key(0), SPACE)
    assert_close(learner.target_critic, learner.critic.network)
    assert_close(replace(learner, extra=learner.extra.network).extra, jnp.zeros(()))
