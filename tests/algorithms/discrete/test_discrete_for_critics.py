"""Discrete actions, where rows come by their weights: actors learn from these and critics from uniform ones."""

import jax
import pytest

from algorithms.discrete.test_discrete_fova import SPACE, coded_batch
from algorithms.test_baselines import TINY, step
from algorithms.test_for_critics import same
from fova.algorithms import configure, for_space


@pytest.mark.parametrize(
    ("name", "settings"),
    [("fova", {}), ("fova", {"conservative": "logsumexp"}), ("fedora", {"policy_delay": 1}), ("fed-iql", {})],
)
def test_critics_learn_from_uniform_rows_and_actors_from_the_others(name, settings):
    algorithm = for_space(configure(name, **TINY, **settings), SPACE)
    learner = algorithm.init(jax.random.key(1), SPACE)
    broadcast = algorithm.start(algorithm.init(jax.random.key(2), SPACE)).broadcast
    weighted, uniform = coded_batch(2), coded_batch(3)
    key = jax.random.key(3)
    both, _ = step(algorithm, learner, broadcast, weighted._replace(uniform=uniform), key)
    by_weight, _ = step(algorithm, learner, broadcast, weighted, key)
    by_uniform, _ = step(algorithm, learner, broadcast, uniform, key)
    assert same(both.critic, by_uniform.critic)
    assert not same(both.critic, by_weight.critic)
    assert not same(both.actor, by_uniform.actor)


def test_the_q_network_of_cql_which_is_its_policy_learns_from_uniform_rows():
    algorithm = for_space(configure("cql-fl", **TINY), SPACE)
    learner = algorithm.init(jax.random.key(1), SPACE)
    broadcast = algorithm.start(learner).broadcast
    weighted, uniform = coded_batch(2), coded_batch(3)
    both, _ = step(algorithm, learner, broadcast, weighted._replace(uniform=uniform), jax.random.key(3))
    by_uniform, _ = step(algorithm, learner, broadcast, uniform, jax.random.key(3))
    assert same(both, by_uniform)
