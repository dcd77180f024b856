"""Twenty gradient steps beside those of d3rlpy 2.8.1: DiscreteBC and DiscreteCQL, same weights and minibatches.

`benchmarks/d3rlpy_discrete_steps.py` recorded the other side.
"""

from pathlib import Path

import jax
import numpy as np
import pytest

from algorithms.test_d3rlpy_steps import filled
from fova.algorithms import configure, for_space
from fova.algorithms.base import Batch, replace
from fova.spaces import Discrete, Space

RECORD = Path(__file__).with_name("d3rlpy_discrete_steps.npz")
SPACE = Space(3, Discrete.numbered(4))


@pytest.fixture(scope="module")
def record():
    return np.load(RECORD)


def with_network(learner, values):
    return replace(learner, actor=replace(learner.actor, network=filled(learner.actor.network, values)))


def minibatch(record, step):
    rows = {name: record[name][step] for name in Batch._fields if name in record}
    unused = dict.fromkeys(("has_next_action", "next_returns"), np.ones_like(rows["rewards"]))
    return Batch(**rows, next_actions=rows["actions"], **unused)


def follow(algorithm, learner, record, loss, expected):
    """Every step's loss is the recorded one."""
    broadcast, step = algorithm.start(learner).broadcast, jax.jit(algorithm.step)
    for number, value in enumerate(expected):
        learner, metrics = step(learner, broadcast, minibatch(record, number), jax.random.key(0))
        assert float(metrics[loss]) == pytest.approx(float(value), rel=1e-5)
    return learner


def assert_same_network(learner, values):
    expected = filled(learner.actor.network, values)
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=1e-6), learner.actor.network, expected)


def test_twenty_steps_of_cloning_are_those_of_d3rlpy(record):
    algorithm = for_space(configure("fed-bc", hidden=(6, 5)), SPACE)
    learner = with_network(algorithm.init(jax.random.key(0), SPACE), record["bc_before"])
    assert_same_network(follow(algorithm, learner, record, "actor_loss", record["bc_losses"]), record["bc_after"])


def test_twenty_steps_of_cql_are_those_of_d3rlpy(record):
    """d3rlpy halves the squared error. Twice its loss is ours, and Adam does not see the factor."""
    algorithm = for_space(configure("cql-fl", hidden=(6, 5), alpha=2 * float(record["alpha"]), tau=0.0), SPACE)
    learner = with_network(algorithm.init(jax.random.key(0), SPACE), record["cql_before"])
    learner = replace(learner, target_critic=filled(learner.target_critic, record["cql_target"]))
    learner = follow(algorithm, learner, record, "critic_loss", 2 * record["cql_losses"])
    assert_same_network(learner, record["cql_after"])
