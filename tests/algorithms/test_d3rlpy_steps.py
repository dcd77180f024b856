"""Twenty gradient steps of TD3+BC and IQL beside those of d3rlpy 2.8.1: the same weights, minibatches and settings.

`benchmarks/d3rlpy_steps.py` and `d3rlpy_iql_steps.py` recorded the other side.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.algorithms import configure
from fova.algorithms.base import Batch, replace
from fova.spaces import Space

RECORD = Path(__file__).with_name("d3rlpy_td3bc_steps.npz")
IQL_RECORD = Path(__file__).with_name("d3rlpy_iql_steps.npz")


def filled(network, values):
    """The network with the recorded parameters: layer by layer, first weights, then biases."""
    net, parts, used = getattr(network, "net", network), [], 0
    order = [part for layer in (*net.layers, net.last) for part in (layer.weight, layer.bias)]
    stack = values.shape[:-1]  # empty, or 2 for twin critics
    for part in order:
        size = part.size // int(np.prod(stack))
        parts.append(jnp.asarray(values[..., used : used + size].reshape(part.shape)))
        used += size
    assert used == values.shape[-1]
    layers = [replace(layer, weight=w, bias=b) for layer, w, b in zip(net.layers, parts[0::2], parts[1::2])]
    last = replace(net.last, weight=parts[-2], bias=parts[-1])
    net = replace(net, layers=layers, last=last)
    return replace(network, net=net) if hasattr(network, "net") else net  # a value network is the net itself


def learner_of(algorithm, record, moment):
    fresh = algorithm.init(
        jax.random.key(0), Space.unit(*(record[n].shape[-1] for n in ("observations", "actions")))
    )
    actor, critic = fresh.actor.network, fresh.critic.network
    return replace(
        fresh,
        actor=replace(fresh.actor, network=filled(actor, record[f"{moment}_actor"])),
        critic=replace(fresh.critic, network=filled(critic, record[f"{moment}_critic"])),
        target_critic=filled(critic, record[f"{moment}_slow_critic"]),
        extra=replace(fresh.extra, target_actor=filled(actor, record[f"{moment}_slow_actor"])),
    )


def minibatches(record, first, count):
    rows = {name: np.concatenate(record[name][first : first + count]) for name in Batch._fields if name in record}
    unused = {"next_actions": rows["actions"]}
    unused |= dict.fromkeys(("has_next_action", "next_returns"), np.ones_like(rows["rewards"]))
    return Batch(**rows, **unused)


def test_twenty_steps_of_td3bc_are_those_of_d3rlpy():
    record = np.load(RECORD)
    steps, batch_size = record["rewards"].shape
    algorithm = configure("fed-td3bc", hidden=(6, 5), batch_size=batch_size, target_noise=0.0)
    learner = learner_of(algorithm, record, "before")
    broadcast, step = algorithm.start(learner).broadcast, jax.jit(algorithm.step)
    for first in range(0, steps, 2):
        learner, metrics = step(learner, broadcast, minibatches(record, first, 2), jax.random.key(0))
        ours = [float(metrics[name]) for name in ("critic_loss", "actor_loss")]
        assert ours == pytest.approx(record["losses"][first + 1], rel=1e-5)
    expected = learner_of(algorithm, record, "after")
    for part in (
        lambda it: it.actor.network,
        lambda it: it.critic.network,
        lambda it: (it.target_critic, it.extra),
    ):
        both = (part(side) for side in (learner, expected))
        jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=1e-6), *both)


def iql_learner_of(algorithm, record, moment):
    fresh = algorithm.init(
        jax.random.key(0), Space.unit(*(record[n].shape[-1] for n in ("observations", "actions")))
    )
    critic, value = fresh.critic.network, fresh.extra.value
    return replace(
        fresh,
        actor=replace(fresh.actor, network=filled(fresh.actor.network, record[f"{moment}_actor"])),
        critic=replace(fresh.critic, network=filled(critic, record[f"{moment}_critic"])),
        target_critic=filled(critic, record[f"{moment}_target_critic"]),
        extra=replace(fresh.extra, value=replace(value, network=filled(value.network, record[f"{moment}_value"]))),
    )


def test_twenty_steps_of_iql_are_those_of_d3rlpy():
    record = np.load(IQL_RECORD)
    steps, batch_size = record["rewards"].shape
    algorithm = configure("fed-iql", shared_std=False, hidden=(6, 5), batch_size=batch_size)
    learner = iql_learner_of(algorithm, record, "before")
    broadcast, step = algorithm.start(learner).broadcast, jax.jit(algorithm.step)
    for number in range(steps):
        learner, metrics = step(learner, broadcast, minibatches(record, number, 1), jax.random.key(0))
        ours = [float(metrics[name]) for name in ("critic_loss", "value_loss", "actor_loss")]
        assert ours == pytest.approx(record["losses"][number], rel=1e-5)
    expected = iql_learner_of(algorithm, record, "after")
    for part in (
        lambda it: it.actor.network,
        lambda it: it.critic.network,
        lambda it: (it.target_critic, it.extra.value.network),
    ):
        both = (part(side) for side in (learner, expected))
        jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=1e-6), *both)
