"""FEDORA on discrete actions: by hand, against NumPy loops, and on a tiny task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.discrete.corridor import EVERY_PLACE, trained, walks
from algorithms.discrete.corridor import SPACE as CORRIDOR
from algorithms.discrete.test_discrete_fova import SPACE, coded_batch, loud, softmax
from algorithms.numpy_fova import as_numpy, mlp
from fova.algorithms import configure, for_space
from fova.algorithms.base import Data, pack, replace
from fova.algorithms.discrete.fedora import DiscreteFedora, optimistic_value, pull
from fova.networks import Categorical

OFF = {"optimistic": False, "global_pull": 0.0, "previous_pull": 0.0}


def fedora(**settings):
    return for_space(configure("fedora", hidden=(6, 5), policy_delay=1, **settings), SPACE)


def mid_training(algorithm):
    """A learner and a broadcast whose networks all differ, and whose local objective has decayed to 0.8."""
    learner, second, third, fourth = (algorithm.init(key, SPACE) for key in jax.random.split(jax.random.key(0), 4))
    # Q is of both signs: the normalised Q of values of one sign is the same whatever they are
    critic = learner.critic.network
    bias = critic.net.last.bias + 0.107
    critic = replace(critic, net=replace(critic.net, last=replace(critic.net.last, bias=bias)))
    learner = replace(learner, critic=replace(learner.critic, network=critic))
    learner = replace(learner, target_critic=loud(second.target_critic))
    learner = replace(learner, actor=replace(learner.actor, network=loud(learner.actor.network, 40.0)))
    target, previous = loud(second.actor.network, 40.0), loud(third.actor.network, 40.0)
    extra = replace(learner.extra, target_actor=target, previous_actor=previous, decay=jnp.array(0.8))
    broadcast = algorithm.start(fourth).broadcast
    broadcast = replace(broadcast, actor=loud(broadcast.actor, 40.0), critic=loud(broadcast.critic))
    return replace(learner, extra=extra), broadcast


def chances(actor, s):
    return softmax(mlp(as_numpy(actor.net), s))


def every(critic, s):
    """[2, actions]"""
    return np.array([mlp(as_numpy(critic.net, i), s) for i in range(2)])


def divergence(p, q):
    return sum(p[a] * np.log(p[a] / q[a]) for a in range(len(p)))


# --- By hand ---


def test_the_larger_of_local_and_federated_value_is_taken_action_by_action():
    policy = Categorical(jnp.log(jnp.array([[0.25, 0.75]])))
    local, federated = jnp.array([[[4.0, 1.0]], [[6.0, 0.0]]]), jnp.array([[[2.0, 8.0]], [[3.0, 9.0]]])
    # the smaller twins are (4, 0) and (2, 8), the larger of the two (4, 8)
    assert float(optimistic_value(policy, local, federated)[0]) == pytest.approx(0.25 * 4 + 0.75 * 8)
    assert float(optimistic_value(policy, local, None)[0]) == pytest.approx(0.25 * 4)


def test_a_pull_is_the_divergence_from_the_policy_to_the_other():
    policy, other = (Categorical(jnp.log(jnp.array([p]))) for p in ([0.5, 0.5], [0.25, 0.75]))
    assert float(pull(policy, other)) == pytest.approx(0.25 * np.log(0.5) + 0.75 * np.log(1.5))
    assert float(pull(other, other)) == pytest.approx(0.0, abs=1e-7)


# --- Against NumPy ---


@pytest.mark.parametrize("settings", [{}, OFF], ids=["all ideas", "none"])
def test_a_step_agrees_with_numpy(settings):
    algorithm = fedora(**settings)
    assert type(algorithm) is DiscreteFedora
    learner, broadcast = mid_training(algorithm)
    batch = coded_batch(5)
    new, metrics = jax.jit(algorithm.step)(learner, broadcast, batch, jax.random.key(0))
    b = {name: np.asarray(values, np.float64) for name, values in batch._asdict().items()}
    q_data, errors, cloned, expected_q, pulls = [], [], [], [], []
    for n in range(len(b["rewards"])):
        s, a, next_s = b["observations"][n], int(b["actions"][n, 0]), b["next_observations"][n]
        q = every(learner.target_critic, next_s).min(axis=0)
        if algorithm.optimistic:
            q = np.maximum(q, every(broadcast.critic, next_s).min(axis=0))
        value = chances(learner.extra.target_actor, next_s) @ q
        y = b["rewards"][n] + 0.99 * (1 - b["terminals"][n]) * value
        q_data.append(every(learner.critic.network, s)[:, a])
        errors.append(q_data[-1] - y)
        pi = chances(learner.actor.network, s)
        cloned.append(-np.log(pi[a]))
        expected_q.append(pi @ every(new.critic.network, s)[0])  # the critics after their step judge the actor
        others = (broadcast.actor, learner.extra.previous_actor)
        pulls.append([divergence(chances(other, s), pi) for other in others])
    assert min(expected_q) < 0 < max(expected_q)
    local = np.mean(cloned) - 2.5 * np.mean(expected_q) / np.mean(np.abs(expected_q))
    pulled = np.mean(pulls, axis=0) @ [algorithm.global_pull, algorithm.previous_pull]
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(
        {
            "q_data": np.mean(q_data),
            "td_error": np.abs(errors).mean(),
            "critic_loss": np.square(errors).sum() / len(errors),
            "actor_loss": 0.8 * local + pulled,
        },
        rel=2e-4,
        abs=1e-5,
    )


def test_the_weight_and_the_decay_follow_the_value_of_the_pairs():
    algorithm = fedora()
    learner, broadcast = mid_training(algorithm)
    batch = coded_batch(6)
    data = Data.of(pack(type(batch)(*map(np.asarray, batch))), SPACE)

    def j(actor, critic):
        states = np.asarray(batch.observations, np.float64)
        return np.mean([chances(actor, s) @ every(critic, s)[0] for s in states])

    local, federated = j(learner.actor.network, learner.critic.network), j(broadcast.actor, broadcast.critic)
    new, submission = algorithm.submit(learner, broadcast, data)
    assert float(submission.log_weight) == pytest.approx(0.1 * local, rel=1e-4)
    assert float(submission.metrics["value"]) == pytest.approx(local, rel=1e-4)
    assert float(new.extra.decay) == pytest.approx(0.8 * (0.995 if federated > local else 1.0))
    jax.tree.map(np.testing.assert_array_equal, new.extra.previous_actor, learner.actor.network)
    other, _ = algorithm.submit(algorithm.receive(learner, broadcast), algorithm.start(learner).broadcast, data)
    assert float(other.extra.decay) != float(new.extra.decay), "one of the two pairs is the better one"


# --- A tiny task ---


def test_it_learns_to_walk_to_the_end_of_the_corridor():
    quick = {"hidden": (16,), "batch_size": 64, "discount": 0.9, "actor_lr": 3e-3, "critic_lr": 3e-3, "tau": 0.02}
    # Alone, a client is pulled to the first policy, which the server would replace; the federated one is in
    # tests/run/test_discrete_runs.py.
    algorithm = for_space(configure("fedora", policy_delay=1, **quick, **OFF), CORRIDOR)
    actor, _ = trained(algorithm, walks(0, right=0.5), steps=400)
    np.testing.assert_array_equal(actor(jnp.asarray(EVERY_PLACE)).mode(), 1.0)
