"""Where rows come by their weights, actors learn from these and critics from uniform ones."""

import jax
import numpy as np
import pytest

from algorithms.test_baselines import TINY, mid_training, step
from algorithms.test_fova import SPACE, mixed_batch
from fova.algorithms import configure
from fova.algorithms.base import Data, minibatches, pack, row_width
from fova.algorithms.iql import awr_loss

WITH_CRITICS = [
    ("fova", "recommended", {}),
    ("fova", "good-episodes", {}),  # its actor needs only the local candidate of its own rows
    ("fova", "good-episodes", {"imitate": "vote"}),
    ("fova", "equations", {"fresh_samples": True}),
    ("fed-td3bc", None, {"policy_delay": 1}),
    ("fedora", None, {"policy_delay": 1}),
    ("fed-iql", None, {}),
    ("cql-fl", "paper", {}),
    ("drpo", "paper", {}),
]
# Actors that move before the critics, or do not see them: what they learn depends on their own rows alone.
INDEPENDENT = {"fova", "cql-fl", "drpo"}


def same(one, other):
    return all(np.allclose(a, b, atol=1e-6) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)))


@pytest.fixture(scope="module")
def rows():
    """Rows that came by their weights, and uniform ones."""
    return mixed_batch(4), mixed_batch(5)


@pytest.mark.parametrize(("name", "preset", "settings"), WITH_CRITICS)
def test_critics_learn_from_uniform_rows_and_actors_from_the_others(name, preset, settings, rows):
    algorithm = configure(name, preset, **TINY, **settings)
    learner, broadcast = mid_training(algorithm)
    weighted, uniform = rows
    key = jax.random.key(3)
    both, _ = step(algorithm, learner, broadcast, weighted._replace(uniform=uniform), key)
    by_weight, _ = step(algorithm, learner, broadcast, weighted, key)
    by_uniform, _ = step(algorithm, learner, broadcast, uniform, key)
    assert same(both.critic, by_uniform.critic)
    assert same(both.target_critic, by_uniform.target_critic)
    assert not same(both.critic, by_weight.critic)
    assert not same(both.actor, by_uniform.actor)
    if name in INDEPENDENT:
        assert same(both.actor, by_weight.actor)


def test_the_advantages_of_iql_are_those_of_the_rows_that_its_actor_clones(rows):
    """Q under the target critics minus V after its step on the uniform rows."""
    algorithm = configure("fed-iql", critic_lr=0.1, **TINY)  # V moves far
    learner, broadcast = mid_training(algorithm)
    weighted, uniform = rows
    both, metrics = step(algorithm, learner, broadcast, weighted._replace(uniform=uniform), jax.random.key(3))
    s, a = weighted.observations, weighted.actions
    v = both.extra.value.network(s).squeeze(axis=1)
    before = learner.extra.value.network(s).squeeze(axis=1)
    assert np.abs(v - before).max() > 0.05
    advantage = learner.target_critic(s, a).min(axis=0) - v
    expected = awr_loss(learner.actor.network(s).log_prob(a), advantage, algorithm.beta)
    assert float(metrics["actor_loss"]) == pytest.approx(float(expected), rel=1e-5)


def test_a_minibatch_has_both_kinds_of_rows_where_each_row_has_another_beside_it(rows):
    weighted, uniform = (np.asarray(pack(each)) for each in rows)
    data = Data.of(np.concatenate([uniform, weighted], axis=1), SPACE)
    drawn = data.sample(jax.random.key(0), 64)
    first = pack(drawn._replace(uniform=None)), pack(drawn.for_critics)
    for row, beside in zip(*first):
        (place,) = np.flatnonzero((uniform == beside).all(axis=1))
        np.testing.assert_array_equal(row, weighted[place])
    np.testing.assert_array_equal(pack(data.batch(np.arange(len(uniform)))), uniform)
    alone = Data.of(uniform, SPACE).sample(jax.random.key(0), 64)
    assert alone.uniform is None
    assert alone.for_critics is alone
    assert len(uniform[0]) == row_width(SPACE)


def test_minibatches_of_several_steps_keep_both_kinds_of_rows(rows):
    weighted, uniform = (jax.tree.map(lambda field: field[:20], each) for each in rows)
    parts = minibatches(weighted._replace(uniform=uniform), 2)
    for number, part in enumerate(parts):
        half = slice(10 * number, 10 * number + 10)
        np.testing.assert_array_equal(part.rewards, weighted.rewards[half])
        np.testing.assert_array_equal(part.for_critics.rewards, uniform.rewards[half])
    assert [part.uniform for part in minibatches(weighted, 2)] == [None, None]


def test_every_step_of_td3s_critics_is_on_uniform_rows(rows):
    algorithm = configure("fed-td3bc", policy_delay=2, **TINY)
    learner, broadcast = mid_training(algorithm)
    weighted, uniform = (jax.tree.map(lambda field: field[:20], each) for each in rows)
    both, _ = step(algorithm, learner, broadcast, weighted._replace(uniform=uniform), jax.random.key(3))
    by_uniform, _ = step(algorithm, learner, broadcast, uniform, jax.random.key(3))
    assert same(both.critic, by_uniform.critic)
    assert not same(both.actor, by_uniform.actor)
