from dataclasses import replace as with_fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.numpy_fova import as_numpy, losses
from fova.algorithms import configure
from fova.algorithms.base import ActorCritic, Batch, Broadcast, Learner, Temperature, adam_step, replace
from fova.algorithms.fova import (
    Fova,
    Memory,
    awr_loss,
    awr_weight,
    memory_loss,
    relative_weight,
    vcql_loss,
)
from fova.algorithms.vote import BEHAVIOUR, GLOBAL, LOCAL, Vote, soft_maximum, vote, voted
from fova.networks import polyak
from fova.spaces import Space
from tiny import batch_of, make_transitions

SPACE = Space.unit(3, 2)
TINY = {"hidden": (8, 8), "batch_size": 16}


# --- The vote, on hand-made Q tables ---

# One state; critic 1 says 1, 4, 3 and critic 2 says 5, 2, 3 of (local, behaviour, global).
Q_TABLE = np.array([[[1.0], [4.0], [3.0]], [[5.0], [2.0], [3.0]]], "f")
ALL = np.ones((3, 1), "f")


def test_vote_takes_the_smaller_twin_first():
    held = vote(Q_TABLE, ALL, "min_then_max")  # smaller twins: 1, 2, 3
    assert held.winner.tolist() == [[GLOBAL], [GLOBAL]]
    assert held.value.tolist() == [3.0]


def test_vote_per_critic_then_the_smaller_outcome():
    held = vote(Q_TABLE, ALL, "max_then_min")  # critic 1: behaviour 4, critic 2: local 5
    assert held.winner.tolist() == [[BEHAVIOUR], [LOCAL]]
    assert held.value.tolist() == [4.0]


@pytest.mark.parametrize("order", ["min_then_max", "max_then_min"])
def test_a_candidate_not_on_the_ballot_never_wins(order):
    q = jnp.array([[[1.0], [9.0], [3.0]], [[2.0], [9.0], [4.0]]])
    held = vote(q, jnp.array([[1.0], [0.0], [1.0]]), order)
    assert held.winner.tolist() == [[GLOBAL], [GLOBAL]]
    assert held.value.tolist() == [3.0]


def test_voted_is_the_action_of_each_critics_winner():
    actions = jnp.arange(6.0).reshape(3, 1, 2)
    assert voted(actions, jnp.array([[BEHAVIOUR], [LOCAL]])).tolist() == [[[2.0, 3.0]], [[0.0, 1.0]]]
    assert voted(actions, jnp.array([[GLOBAL]])).tolist() == [[[4.0, 5.0]]]


# --- The equations, with numbers worked out by hand ---


def test_target_cuts_the_bootstrap_at_terminals_only():
    batch = mixed_batch(0)._replace(rewards=jnp.array([1.0, 1.0]), terminals=jnp.array([0.0, 1.0]))
    assert Fova(discount=0.9).target(batch, jnp.array([10.0, 10.0])).tolist() == [10.0, 1.0]


def test_vcql_loss_by_hand():
    q = jnp.array([[1.0, 3.0], [2.0, 2.0]])
    y = jnp.array([2.0, 1.0])
    gap = jnp.array([[0.5, 1.5], [0.0, 2.0]])
    # critic 1: 0.5 * (1 + 4) / 2 + 2 * 1 = 3.25; critic 2: 0.5 * (0 + 1) / 2 + 2 * 1 = 2.25
    assert float(vcql_loss(q, y, gap, alpha=2.0, td_scale=0.5)) == pytest.approx(5.5)


def test_weight_is_one_where_the_global_action_is_the_best_and_capped():
    q, v = jnp.array([3.0, 1.0, 50.0]), jnp.array([3.0, 3.0, 0.0])
    np.testing.assert_allclose(awr_weight(q, v, beta=2.0, cap=100.0), [1.0, np.exp(-1.0), 100.0], rtol=1e-6)
    np.testing.assert_allclose(awr_weight(q, v, beta=2.0, cap=1.0), [1.0, np.exp(-1.0), 1.0], rtol=1e-6)


def test_awr_loss_by_hand():
    # -(3 * mean(1 * -2, 0.5 * -4) + mean(1, 5)) = -(3 * -2 + 3) = 3
    loss = awr_loss(jnp.array([-2.0, -4.0]), jnp.array([1.0, 0.5]), jnp.array([1.0, 5.0]), lam=3.0)
    assert float(loss) == pytest.approx(3.0)


def test_soft_maximum_and_memory_by_hand():
    q = jnp.log(jnp.array([[[2.0], [3.0], [5.0]]]))
    density = jnp.log(jnp.array([[[0.5], [1.0], [0.25]]]))  # the ratios are 4, 3 and 20
    assert float(soft_maximum(q, density, 1.0)[0, 0]) == pytest.approx(np.log(4 + 3 + 20))
    assert float(soft_maximum(q, density, 0.5)[0, 0]) == pytest.approx(0.5 * np.log(16 + 9 + 400))
    q_data, q_before = jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([[0.0, 0.0], [3.0, 0.0]])
    assert float(memory_loss(q_data, q_before)) == pytest.approx(2.5 + 4.5)


def test_temperature_rises_while_entropy_is_below_target():
    start = Temperature.start(0.1)
    certain = start.follow(jnp.array([5.0, 5.0]), target=-2.0)  # entropy -5 < -2
    loose = start.follow(jnp.array([-3.0, -3.0]), target=-2.0)  # entropy 3 > -2
    assert float(certain.log) == pytest.approx(0.1, abs=1e-4)  # Adam's first step has the learning rate's size
    assert float(loose.log) == pytest.approx(-0.1, abs=1e-4)


def test_relative_weights_by_hand():
    # advantages -4, -2, 0 have a spread of sqrt(8 / 3) = 1.633; beta = 1 / 1.633 leaves them as exponents
    q, v = jnp.array([-1.0, 1.0, 5.0]), jnp.array([3.0, 3.0, 5.0])
    w = np.exp([-4.0, -2.0, 0.0])
    np.testing.assert_allclose(relative_weight(q, v, beta=0.61237244), w / w.mean(), rtol=5e-3)
    # neither the unit of the critics nor a value that all states share makes a difference
    np.testing.assert_allclose(relative_weight(100 * q, 100 * v, 1.0), relative_weight(q, v, 1.0), rtol=5e-3)
    np.testing.assert_allclose(relative_weight(q, v + 7, 1.0), relative_weight(q, v, 1.0), rtol=1e-5)


def test_relative_weights_are_numbers_however_sharp_they_are():
    for advantage, beta in (
        ([-0.2, -0.2, -0.2], 1.0),
        ([-0.5], 1.0),
        ([5.0, *[0.0] * 99], 0.01),
        ([-9.0, 9.0], 1e-3),
    ):
        w = relative_weight(jnp.array(advantage), jnp.zeros(len(advantage)), beta)
        assert np.isfinite(w).all()
        assert float(w.max()) >= 1.0
        assert int(w.argmax()) == int(np.argmax(advantage))


def test_relative_weights_of_equal_actions_are_one_and_none_is_above_twenty():
    np.testing.assert_allclose(relative_weight(jnp.ones(5), jnp.ones(5), 1.0), np.ones(5))
    advantage = jnp.full(1000, -50.0).at[0].set(0.0)
    assert float(relative_weight(advantage, jnp.zeros(1000), 0.1).max()) == 20.0


def test_the_datas_action_is_worth_at_least_the_return_that_follows_it():
    zeros = jnp.zeros(3)
    rows = zeros[:, None]
    batch = Batch(
        rows, rows, jnp.array([1.0, 1.0, 5.0]), rows, rows, jnp.array([0.0, 0.0, 1.0]), zeros, zeros + 8.0
    )
    algorithm = Fova(data_returns=True, discount=0.5)
    values = Vote(jnp.zeros((2, 3), int), jnp.array([9.0, 7.0, 7.0]))
    assert algorithm.next_value(batch, values).tolist() == [9.0, 8.0, 8.0]
    assert Fova().next_value(batch, values) is values.value
    # r + 0.5 * 8 = 5, and 5 in the terminal row, where nothing follows; the other candidates stay as they are
    q = algorithm.with_data_returns(jnp.full((2, 3, 3), 2.0).at[0, 1, 1].set(6.0), batch)
    assert q[:, 1].tolist() == [[5.0, 6.0, 5.0], [5.0, 5.0, 5.0]]
    assert (q[:, jnp.array([0, 2])] == 2.0).all()


# --- A whole step against the independent NumPy implementation ---

VARIANTS = {
    "equations": {"preset": "equations"},
    "recommended": {"preset": "recommended"},
    "good episodes": {"preset": "good-episodes"},
    "released": {"preset": "released"},
    "released but votes once": {"preset": "released", "vote_order": "min_then_max", "soft_temperature": 0.7},
    "released without advantage weights": {"preset": "released", "awr": False},
    "released, one sample for all terms": {"preset": "released", "fresh_samples": False},
    "soft maximum, clipped actor": {"conservative": "logsumexp", "lam": 0.7, "beta": 0.3, "alpha": 2.0},
    "soft maximum of fresh winners": {"conservative": "logsumexp", "fresh_samples": True, "imitate": "vote"},
    "actor first": {"update_order": "actor_first", "terminal_action": "negated", "beta": 0.5},
    "vote off": {"vote": False},
    "awr off": {"awr": False},
    "per-critic vote, target critics": {"vote_order": "max_then_min", "advantage_from": "target", "beta": 0.5},
    "continual": {"continual": 1.5},
    "no imitation": {"lam": 0.0},
    "weight of the data action": {"weigh": "data", "beta": 0.5},
    "returns of the data": {"data_returns": True},
    "returns of the data and relative weights": {"data_returns": True, "weigh": "data", "relative_weights": True},
    "relative weights": {"weigh": "data", "relative_weights": True, "beta": 0.7},
    "imitate the voted action": {"imitate": "vote", "awr": False},
}


def different_networks(algorithm: Fova, seed: int) -> tuple[Learner, Broadcast]:
    """A learner in mid-training: local, global, target and remembered networks all differ."""
    keys = jax.random.split(jax.random.key(seed), 4)
    first, second, third, fourth = (algorithm.init(key, SPACE) for key in keys)

    def loud(actor):  # a last layer of ordinary size, so that log-densities and actions vary with the state
        last = replace(actor.net.last, weight=actor.net.last.weight * 2, bias=actor.net.last.bias + 0.3)
        return replace(actor, net=replace(actor.net, last=last))

    actor = replace(first.actor, network=loud(first.actor.network))
    learner = replace(first, actor=actor, target_critic=second.critic.network)
    if first.extra.memory is not None:
        memory = Memory(fourth.critic.network, jnp.array(1.7), jnp.ones(()))
        learner = replace(learner, extra=replace(first.extra, memory=memory))
    if first.extra.temperature is not None:
        warm = replace(first.extra.temperature, log=jnp.array(-0.4))
        learner = replace(learner, extra=replace(learner.extra, temperature=warm))
    return learner, Broadcast(loud(third.actor.network), third.critic.network)


def mixed_batch(seed: int) -> Batch:
    """Random rows in which some have no next action and some are terminal."""
    batch = jax.tree.map(jnp.asarray, batch_of(make_transitions(seed, episodes=6, steps=1)))
    assert 0 < batch.terminals.sum() < len(batch.rewards)
    assert 0 < batch.has_next_action.sum() < len(batch.rewards)
    return batch


def drawn(local, global_actor, batch, keys):
    """Local and global actions at s, then at s'."""
    states = (batch.observations, batch.observations, batch.next_observations, batch.next_observations)
    policies = (local, global_actor, local, global_actor)
    return [np.asarray(policy(s).sample(key)) for policy, s, key in zip(policies, states, keys)]


def keys_of(algorithm, keys, term):
    return [jax.random.fold_in(key, term) for key in keys] if algorithm.fresh_samples else keys


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_agrees_with_the_numpy_implementation(variant):
    algorithm = configure("fova", **{"hidden": (6, 5), **VARIANTS[variant]})
    learner, broadcast = different_networks(algorithm, seed=3)
    batch, key = mixed_batch(5), jax.random.key(11)
    new, metrics = jax.jit(algorithm.step)(learner, broadcast, batch, key)

    later = new.actor if algorithm.update_order == "actor_first" else learner.actor
    k = jax.random.split(key, 5)
    actions = {
        "acted": drawn(learner.actor, broadcast.actor, batch, k),
        "weight": drawn(learner.actor, broadcast.actor, batch, keys_of(algorithm, k, 1)),
        "target": drawn(later, broadcast.actor, batch, k),
        "soft": drawn(later, broadcast.actor, batch, keys_of(algorithm, k, 2)),
    }
    uniform_key = keys_of(algorithm, k, 2)[4]
    temperature, memory = learner.extra.temperature, learner.extra.memory
    nets = {
        "actor": as_numpy(learner.actor.network.net),
        "later_actor": as_numpy(later.network.net),
        "global_actor": as_numpy(broadcast.actor.net),
        "critics": [as_numpy(learner.critic.network.net, i) for i in range(2)],
        "target": [as_numpy(learner.target_critic.net, i) for i in range(2)],
        "previous": None if memory is None else [as_numpy(memory.critic.net, i) for i in range(2)],
        "rescale": None if memory is None else float(memory.rescale),
        "log_temperature": None if temperature is None else float(temperature.log),
    }
    uniform = jax.random.uniform(uniform_key, batch.actions.shape, minval=-1.0, maxval=1.0)
    rows = {name: np.asarray(values, np.float64) for name, values in batch._asdict().items()}
    printed = with_fields(algorithm, **dict(zip(("alpha", "lam", "beta"), algorithm.strengths)))
    critic, actor, details = losses(printed, algorithm.actor, nets, rows, actions, np.asarray(uniform))
    assert float(metrics["critic_loss"]) == pytest.approx(critic, rel=2e-4)
    assert float(metrics["actor_loss"]) == pytest.approx(actor, rel=2e-4)
    assert float(metrics["weight"]) == pytest.approx(np.mean(details["w"]), rel=2e-4)
    shares = [float(metrics[f"vote_{who}"]) for who in ("local", "behaviour", "global")]
    np.testing.assert_allclose(shares, details["shares"], atol=1e-6)
    assert float(metrics["q_data"]) == pytest.approx(np.mean(details["q_data"]), rel=2e-4)
    assert float(metrics["td_error"]) == pytest.approx(np.mean(details["td_error"]), rel=2e-4)
    assert float(metrics["conservative_gap"]) == pytest.approx(np.mean(details["gap"]), rel=2e-4, abs=1e-5)
    assert float(metrics["entropy"]) == pytest.approx(-np.mean(details["log_local"]), rel=2e-4)
    if variant not in ("vote off", "no imitation"):
        assert min(details["shares"]) > 0, "the case must let every candidate win somewhere"


# --- What a step does to the parameters ---


def test_target_critics_follow_and_only_follow():
    algorithm = configure("fova", **TINY)
    learner, broadcast = different_networks(algorithm, seed=0)
    new, _ = jax.jit(algorithm.step)(learner, broadcast, mixed_batch(1), jax.random.key(0))
    expected = polyak(learner.target_critic, new.critic.network, 0.005)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), new.target_critic, expected)


def test_vote_off_and_awr_off_is_a_plain_conservative_actor_critic_with_cloning():
    """One client, no vote, w = 1: the step must equal CQL with one sampled action plus behaviour cloning."""
    algorithm = configure("fova", "equations", actor="clipped", vote=False, awr=False, lam=2.0, alpha=3.0, **TINY)
    learner, broadcast = different_networks(algorithm, seed=2)
    batch, key = mixed_batch(3), jax.random.key(9)
    new, _ = jax.jit(algorithm.step)(learner, broadcast, batch, key)

    k = jax.random.split(key, 5)
    s, a = batch.observations, batch.actions
    sampled = learner.actor(s).sample(k[0])
    next_sampled = learner.actor(batch.next_observations).sample(k[2])
    next_q = learner.target_critic(batch.next_observations, next_sampled).min(axis=0)
    y = batch.rewards + 0.99 * (1 - batch.terminals) * next_q

    def plain_critic_loss(critic):
        q, q_sampled = critic(s, a), critic(s, sampled)
        return (0.5 * (q - y) ** 2 + 3.0 * (q_sampled - q)).mean(axis=1).sum()

    def plain_actor_loss(actor):
        policy = actor(s)
        return -(2.0 * policy.log_prob(a) + learner.critic(s, policy.sample(k[0])).min(axis=0)).mean()

    def after_one_step(model, loss, learning_rate):
        return adam_step(learning_rate, model.network, jax.grad(loss)(model.network), model.opt_state)[0]

    critic = after_one_step(learner.critic, plain_critic_loss, 3e-4)
    actor = after_one_step(learner.actor, plain_actor_loss, algorithm.actor_lr)
    for ours, plain in ((new.critic.network, critic), (new.actor.network, actor)):
        jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=2e-6), ours, plain)


def test_continual_pull_starts_when_the_data_changes():
    algorithm = configure("fova", continual=2.0, **TINY)
    learner = algorithm.init(jax.random.key(0), SPACE)
    assert float(learner.extra.memory.valid) == 0.0
    other = algorithm.init(jax.random.key(1), SPACE)
    changed = algorithm.data_changed(replace(learner, critic=other.critic), jnp.array(0.25))
    assert (float(changed.extra.memory.valid), float(changed.extra.memory.rescale)) == (1.0, 0.25)
    jax.tree.map(np.testing.assert_array_equal, changed.extra.memory.critic, other.critic.network)
    plain = configure("fova", **TINY)
    untouched = plain.init(jax.random.key(0), SPACE)
    assert plain.data_changed(untouched, jnp.ones(())) is untouched


def test_presets_differ_in_every_row_of_the_published_table():
    equations, released = configure("fova", "equations"), configure("fova", "released")
    differing = {f for f in Fova.__dataclass_fields__ if getattr(equations, f) != getattr(released, f)}
    assert differing == {
        "conservative",
        "soft_vote",
        "td_scale",
        "entropy",
        "vote_order",
        "advantage_from",
        "weight_gradient",
        "weight_cap",
        "update_order",
        "fresh_samples",
        "terminal_action",
        "density_offset",
        "lam",
        "beta",
        "actor_layer_norm",
    }
    recommended = configure("fova", "recommended")
    beyond = {f for f in Fova.__dataclass_fields__ if getattr(equations, f) != getattr(recommended, f)}
    assert beyond == {
        "actor", "actor_lr", "weigh", "alpha", "lam", "beta", "server_weights", "data_returns", "relative_weights",
    }  # fmt: skip
    assert isinstance(equations, ActorCritic)


# --- What an engine may rely on ---


def test_strengths_by_hand():
    auto = Fova(alpha="auto", lam="auto", beta="auto", discount=0.9)
    assert auto.strengths == pytest.approx((0.5, 1.0, 0.3), rel=1e-5)
    assert Fova(beta="auto", relative_weights=True).strengths[2] == 1.0
    assert Fova(alpha=7.0, beta="auto", discount=0.9).strengths == pytest.approx((7.0, 5.0, 0.3))
    assert Fova(alpha=7.0).strengths == (7.0, 5.0, 5.0)


RAW = {"equations": "raw", "released": "raw"}


def test_critics_learn_in_the_federations_unit_as_soon_as_one_strength_is_auto():
    assert Fova().reward_unit == "raw"
    assert {Fova(**{name: "auto"}).reward_unit for name in ("alpha", "lam", "beta")} == {"federation"}
    assert Fova(server_weights="returns").reward_unit == "raw"
    units = {preset: configure("fova", preset).reward_unit for preset in Fova.presets}
    assert units == dict.fromkeys(("recommended", "good-episodes"), "federation") | RAW


def test_who_weights_the_clients():
    weights = {preset: configure("fova", preset).client_weights for preset in Fova.presets}
    submitted = dict.fromkeys(("equations", "released"), "submitted")
    assert weights == dict.fromkeys(("recommended", "good-episodes"), "returns") | submitted


def test_good_episodes_is_the_default_with_the_logs_weights_in_place_of_advantages():
    assert configure("fova", "good-episodes").row_weights == "returns"
    assert configure("fova", "good-episodes", episode_weights="plain").row_weights == "uniform"
    assert {configure("fova", preset).row_weights for preset in Fova.presets if preset != "good-episodes"} == {
        "uniform"
    }
    back = configure("fova", "good-episodes", episode_weights="plain", awr=True, lam="auto")
    assert back == configure("fova", "recommended")


def test_the_memory_of_a_continual_run_is_rescaled():
    """Critics with half the values, learned in a unit twice as large, pull nowhere."""
    algorithm = configure("fova", continual=3.0, **TINY)
    learner, broadcast = different_networks(algorithm, seed=0)
    net = learner.critic.network.net
    halved = replace(net, last=replace(net.last, weight=net.last.weight / 2, bias=net.last.bias / 2))
    before = replace(learner, critic=replace(learner.critic, network=replace(learner.critic.network, net=halved)))
    memories = [algorithm.data_changed(before, jnp.array(rescale)).extra.memory for rescale in (2.0, 1.0)]
    memories.append(replace(memories[0], valid=jnp.zeros(())))
    batch, key = mixed_batch(1), jax.random.key(2)
    step = jax.jit(algorithm.step)
    learners = [replace(learner, extra=replace(learner.extra, memory=memory)) for memory in memories]
    same, different, free = (float(step(it, broadcast, batch, key)[1]["critic_loss"]) for it in learners)
    assert same == pytest.approx(free, rel=1e-5)
    assert different > free + 1e-3
