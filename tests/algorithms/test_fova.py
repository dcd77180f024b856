from dataclasses import replace as with_fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.numpy_fova import as_numpy, losses
from fova.algorithms import configure
from fova.algorithms.base import (
    ActorCritic,
    Batch,
    Broadcast,
    Data,
    Learner,
    Temperature,
    descend,
    pack,
    replace,
    target,
    weighted_mean,
)
from fova.algorithms.fova import (
    BEHAVIOUR,
    GLOBAL,
    LOCAL,
    Fova,
    Memory,
    Unit,
    awr_loss,
    awr_weight,
    client_log_weight,
    elected,
    memory_loss,
    soft_maximum,
    vcql_loss,
    vote,
)
from fova.federation.simulation import Simulation
from fova.networks import polyak
from fova.spaces import Space
from tiny import make_transitions

SPACE = Space.unit(3, 2)
TINY = {"hidden": (8, 8), "batch_size": 16}


# --- The vote, on hand-made Q tables ---

# One state; critic 1 says 1, 4, 3 and critic 2 says 5, 2, 3 of (local, behaviour, global).
Q_TABLE = jnp.array([[[1.0], [4.0], [3.0]], [[5.0], [2.0], [3.0]]])
ALL = jnp.ones((3, 1))


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


def test_elected_picks_each_critics_own_winner():
    assert elected(Q_TABLE, jnp.array([[BEHAVIOUR], [LOCAL]])).tolist() == [[4.0], [5.0]]
    actions = jnp.arange(12.0).reshape(2, 3, 1, 2)
    assert elected(actions, jnp.array([[0], [2]])).tolist() == [[[0.0, 1.0]], [[10.0, 11.0]]]


# --- The equations, with numbers worked out by hand ---


def test_target_cuts_the_bootstrap_at_terminals_only():
    y = target(jnp.array([1.0, 1.0]), jnp.array([0.0, 1.0]), jnp.array([10.0, 10.0]), 0.9)
    assert y.tolist() == [10.0, 1.0]


def test_vcql_loss_by_hand():
    q = jnp.array([[1.0, 3.0], [2.0, 2.0]])
    y = jnp.array([2.0, 1.0])
    gap = jnp.array([[0.5, 1.5], [0.0, 2.0]])
    # critic 1: 0.5 * (1 + 4) / 2 + 2 * 1 = 3.25; critic 2: 0.5 * (0 + 1) / 2 + 2 * 1 = 2.25
    assert float(vcql_loss(q, y, gap, alpha=2.0, td_scale=0.5)) == pytest.approx(5.5)


def test_weight_is_one_where_the_global_action_is_the_best_and_capped():
    w = awr_weight(jnp.array([3.0, 1.0, 50.0]), jnp.array([3.0, 3.0, 0.0]), beta=2.0)
    np.testing.assert_allclose(w, [1.0, np.exp(-1.0), 100.0], rtol=1e-6)


def test_awr_loss_by_hand():
    # -(3 * mean(1 * -2, 0.5 * -4) + mean(1, 5)) = -(3 * -2 + 3) = 3
    loss = awr_loss(jnp.array([-2.0, -4.0]), jnp.array([1.0, 0.5]), jnp.array([1.0, 5.0]), lam=3.0)
    assert float(loss) == pytest.approx(3.0)


def test_soft_maximum_and_memory_by_hand():
    q, density = jnp.log(jnp.array([[[2.0], [3.0]]])), jnp.log(jnp.array([[[0.5], [1.0]]]))
    assert float(soft_maximum(q, density)[0, 0]) == pytest.approx(np.log(2 / 0.5 + 3))
    q_data, q_before = jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([[0.0, 0.0], [3.0, 0.0]])
    assert float(memory_loss(q_data, q_before)) == pytest.approx(2.5 + 4.5)


def test_temperature_rises_while_entropy_is_below_target():
    start = Temperature.start(0.1)
    certain = start.follow(jnp.array([5.0, 5.0]), target=-2.0, learning_rate=0.1)  # entropy -5 < -2
    loose = start.follow(jnp.array([-3.0, -3.0]), target=-2.0, learning_rate=0.1)  # entropy 3 > -2
    assert float(certain.log) == pytest.approx(0.1, abs=1e-4)  # Adam's first step has the learning rate's size
    assert float(loose.log) == pytest.approx(-0.1, abs=1e-4)


# --- A whole step against the independent NumPy implementation ---

VARIANTS = {
    "equations": {"preset": "equations"},
    "recommended": {"preset": "recommended"},
    "released": {"preset": "released"},
    "released but votes once": {"preset": "released", "vote_order": "min_then_max"},
    "soft maximum, clipped actor": {"conservative": "logsumexp", "lam": 0.7, "beta": 0.3, "alpha": 2.0},
    "vote off": {"vote": False},
    "awr off": {"awr": False},
    "per-critic vote, slow judges": {"vote_order": "max_then_min", "advantage_from": "slow", "beta": 0.5},
    "continual": {"continual": 1.5},
    "no imitation": {"lam": 0.0},
    "weight of the data action": {"weigh": "data", "beta": 0.5},
    "imitate the voted action": {"imitate": "vote", "awr": False},
}


def different_networks(algorithm: Fova, seed: int) -> tuple[Learner, Broadcast]:
    """A learner in mid-training: local, global, slow and remembered networks all differ."""
    keys = jax.random.split(jax.random.key(seed), 4)
    first, second, third, fourth = (algorithm.init(key, SPACE) for key in keys)

    def loud(actor):  # a last layer of ordinary size, so that log-densities and actions vary with the state
        last = replace(actor.net.last, weight=actor.net.last.weight * 2, bias=actor.net.last.bias + 0.3)
        return replace(actor, net=replace(actor.net, last=last))

    learner = replace(first, actor=loud(first.actor), slow_critic=second.critic)
    if first.extra.memory is not None:
        memory = Memory(fourth.critic, first.extra.unit and unit_of(1.7), jnp.ones(()))
        learner = replace(learner, extra=replace(first.extra, memory=memory))
    if first.extra.temperature is not None:
        warm = replace(first.extra.temperature, log=jnp.array(-0.4))
        learner = replace(learner, extra=replace(learner.extra, temperature=warm))
    if first.extra.unit is not None:
        learner = replace(learner, extra=replace(learner.extra, unit=unit_of(1.7)))
    return learner, Broadcast(loud(third.actor), third.critic)


def unit_of(reward: float | None) -> Unit:
    return Unit(jnp.log(jnp.array(reward or 1.0)), jnp.array(0.0 if reward is None else 1.0))


def mixed_batch(seed: int) -> Batch:
    """Random rows in which some have no next action and some are terminal."""
    data = make_transitions(seed, episodes=6, steps=1)
    batch = Batch(*(jnp.asarray(getattr(data, field)) for field in Batch._fields))
    assert 0 < batch.terminals.sum() < len(batch.rewards)
    assert 0 < batch.has_next_action.sum() < len(batch.rewards)
    return batch


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_agrees_with_the_numpy_implementation(variant):
    algorithm = configure("fova", **{"hidden": (6, 5), **VARIANTS[variant]})
    learner, broadcast = different_networks(algorithm, seed=3)
    batch, key = mixed_batch(5), jax.random.key(11)
    _, metrics = jax.jit(algorithm.step)(learner, broadcast, batch, key)

    k = jax.random.split(key, 5)
    actions = {
        "local": learner.actor(batch.observations).sample(k[0]),
        "world": broadcast.actor(batch.observations).sample(k[1]),
        "next_local": learner.actor(batch.next_observations).sample(k[2]),
        "next_world": broadcast.actor(batch.next_observations).sample(k[3]),
    }
    temperature, memory = learner.extra.temperature, learner.extra.memory
    nets = {
        "actor": as_numpy(learner.actor.net),
        "global_actor": as_numpy(broadcast.actor.net),
        "critics": [as_numpy(learner.critic.net, i) for i in range(2)],
        "slow": [as_numpy(learner.slow_critic.net, i) for i in range(2)],
        "previous": None if memory is None else [as_numpy(memory.critic.net, i) for i in range(2)],
        "log_temperature": None if temperature is None else float(temperature.log),
    }
    uniform = jax.random.uniform(k[4], batch.actions.shape, minval=-1.0, maxval=1.0)
    rows = {name: np.asarray(values, np.float64) for name, values in batch._asdict().items()}
    rows["rewards"] = rows["rewards"] / (1.0 if learner.extra.unit is None else 1.7)
    strengths = algorithm.strengths(learner.extra.unit)._asdict()
    printed = with_fields(algorithm, **{name: float(strength) for name, strength in strengths.items()})
    critic, actor, details = losses(
        printed, algorithm.actor, nets, rows, {n: np.asarray(v) for n, v in actions.items()}, np.asarray(uniform)
    )
    assert float(metrics["critic_loss"]) == pytest.approx(critic, rel=2e-4)
    assert float(metrics["actor_loss"]) == pytest.approx(actor, rel=2e-4)
    assert float(metrics["weight"]) == pytest.approx(np.mean(details["w"]), rel=2e-4)
    shares = [float(metrics[f"vote_{who}"]) for who in ("local", "behaviour", "global")]
    np.testing.assert_allclose(shares, details["shares"], atol=1e-6)
    if variant not in ("vote off", "no imitation"):
        assert min(details["shares"]) > 0, "the case must let every candidate win somewhere"


# --- What a step does to the parameters ---


def test_slow_critics_follow_and_only_follow():
    algorithm = configure("fova", **TINY)
    learner, broadcast = different_networks(algorithm, seed=0)
    new, _ = jax.jit(algorithm.step)(learner, broadcast, mixed_batch(1), jax.random.key(0))
    expected = polyak(learner.slow_critic, new.critic, 0.005)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), new.slow_critic, expected)


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
    y = batch.rewards + 0.99 * (1 - batch.terminals) * learner.slow_critic(
        batch.next_observations, next_sampled
    ).min(axis=0)

    def plain_critic_loss(critic):
        q, q_sampled = critic(s, a), critic(s, sampled)
        return (0.5 * (q - y) ** 2 + 3.0 * (q_sampled - q)).mean(axis=1).sum()

    def plain_actor_loss(actor):
        policy = actor(s)
        return -(2.0 * policy.log_prob(a) + learner.critic(s, policy.sample(k[0])).min(axis=0)).mean()

    critic, _ = descend(3e-4, learner.critic, jax.grad(plain_critic_loss)(learner.critic), learner.critic_moments)
    actor, _ = descend(
        algorithm.actor_lr, learner.actor, jax.grad(plain_actor_loss)(learner.actor), learner.actor_moments
    )
    for ours, plain in ((new.critic, critic), (new.actor, actor)):
        jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=2e-6), ours, plain)


def test_continual_pull_starts_when_the_data_changes():
    algorithm = configure("fova", continual=2.0, **TINY)
    learner = algorithm.init(jax.random.key(0), SPACE)
    assert float(learner.extra.memory.valid) == 0.0
    other = algorithm.init(jax.random.key(1), SPACE)
    changed = algorithm.data_changed(replace(learner, critic=other.critic))
    assert float(changed.extra.memory.valid) == 1.0
    jax.tree.map(np.testing.assert_array_equal, changed.extra.memory.critic, other.critic)
    plain = configure("fova", **TINY)
    untouched = plain.init(jax.random.key(0), SPACE)
    assert plain.data_changed(untouched) is untouched


def test_presets_differ_in_every_row_of_the_published_table():
    equations, released = configure("fova", "equations"), configure("fova", "released")
    differing = {f for f in Fova.__dataclass_fields__ if getattr(equations, f) != getattr(released, f)}
    assert differing == {
        "conservative",
        "td_scale",
        "entropy",
        "vote_order",
        "advantage_from",
        "lam",
        "beta",
        "actor_layer_norm",
    }
    recommended = configure("fova", "recommended")
    beyond = {f for f in Fova.__dataclass_fields__ if getattr(equations, f) != getattr(recommended, f)}
    assert beyond == {"actor", "actor_lr", "weigh", "alpha", "lam", "beta", "server_weights"}
    assert isinstance(equations, ActorCritic)


# --- Settings in the federation's own unit of reward ---


def test_strengths_by_hand():
    auto = Fova(alpha="auto", lam="auto", beta="auto", discount=0.9)
    assert auto.strengths(unit_of(5.0)) == pytest.approx((0.5, 10.0, 0.3), rel=1e-5)  # whatever the unit is
    # Fixed strengths are in units of reward, of which five make one of the critics' units.
    assert Fova(alpha=7.0, beta="auto", discount=0.9).strengths(unit_of(5.0)) == pytest.approx((1.4, 1.0, 0.3))
    assert Fova(alpha=7.0).strengths(None) == (7.0, 5.0, 5.0)
    assert Fova(server_weights="value").strengths(unit_of(None)) == (5.0, 5.0, 5.0), "nothing vanishes in round 1"


def test_a_clients_weight_by_hand_and_nobody_is_silenced():
    weights = [float(client_log_weight(jnp.array(value), 0.99)) for value in (105.0, 90.0, 0.0, -500.0, 900.0)]
    assert weights == pytest.approx([1.0, -2.0, -4.0, -4.0, 2.0], abs=1e-4)


def data_of(rewards, terminals, has_next_action) -> Data:
    rows = len(rewards)
    columns = (np.zeros((rows, 3)), np.zeros((rows, 2)), np.array(rewards), np.ones((rows, 3)), np.zeros((rows, 2)))
    packed = pack(Batch(*columns, np.array(terminals), np.array(has_next_action)))
    padding = np.full((3, packed.shape[1]), 1e6, np.float32)  # must never count
    return Data(jnp.asarray(np.concatenate([packed, padding])), jnp.array(rows), SPACE)


def test_returns_to_go_by_hand():
    # An episode of three steps that ends, then one of two steps that is cut short before a state worth 8.
    data = data_of(rewards=[1, 2, 4, 1, 1], terminals=[0, 0, 1, 0, 0], has_next_action=[1, 1, 0, 1, 0])
    to_go = [1 + 2 / 2 + 4 / 4, 2 + 4 / 2, 4, 1 + (1 + 8 / 2) / 2, 1 + 8 / 2, 0, 0, 0]
    np.testing.assert_allclose(data.returns_to_go(0.5, lambda states: 8.0 * states[:, 0]), to_go)
    np.testing.assert_allclose(data.returns_to_go(0.5), [*to_go[:3], 1.5, 1, 0, 0, 0])


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 17, 50])
def test_returns_to_go_of_one_long_episode(rows):
    rewards = np.random.default_rng(rows).normal(size=rows)
    last = np.arange(rows) == rows - 1
    expected, to_go = 0.0, []
    for reward in rewards[::-1]:
        expected = reward + 0.9 * expected
        to_go.insert(0, expected)
    found = jax.jit(lambda data: data.returns_to_go(0.9))(data_of(rewards, last, ~last))
    np.testing.assert_allclose(found, [*to_go, 0, 0, 0], rtol=1e-5, atol=1e-6)


def test_returns_to_go_where_every_row_is_cut_short():
    """More ends than one chunk holds, under vmap beside a client with none."""
    rows = 20
    cut = data_of(rewards=np.arange(rows), terminals=np.zeros(rows), has_next_action=np.zeros(rows))
    whole = data_of(rewards=np.zeros(rows), terminals=np.ones(rows), has_next_action=np.zeros(rows))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), cut, whole)
    shown = jax.vmap(lambda data: data.returns_to_go(0.5, lambda states: 6.0 * states[:, 0], chunk=3))(both)
    np.testing.assert_allclose(shown[0, :rows], np.arange(rows) + 3.0)
    np.testing.assert_allclose(shown[1], 0.0)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_auto_settings_are_blind_to_the_unit_of_reward(factor):
    """Three rounds of a federation: rewards times c give the same networks, and c times the unit."""
    algorithm = configure("fova", batch_size=16, hidden=(8, 8))
    outcomes = []
    for scale in (1.0, factor):
        clients = {
            name: with_fields(data, rewards=np.float32(scale) * data.rewards)
            for name, data in ((str(seed), make_transitions(seed, episodes=4, steps=6)) for seed in range(3))
        }
        simulation = Simulation(algorithm, clients, SPACE, local_steps=5)
        state = simulation.start()
        for _ in range(3):
            state, report = simulation.round(state)
        outcomes.append((state, report.metrics))
    (one, metrics), (other, metrics_of_other) = outcomes
    np.testing.assert_allclose(metrics_of_other["unit"], factor * metrics["unit"], rtol=1e-4)
    assert 0 < metrics["unit"][0] < 100, "the federation must have agreed on a unit"
    assert metrics["weight"].max() < 0.9999
    for networks in ("actor", "critic"):
        leaves = (jax.tree.leaves(getattr(state.broadcast, networks)) for state in (one, other))
        for mine, theirs in zip(*leaves):
            np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_the_unit_travels_with_the_parameters_and_only_where_something_needs_it():
    data = data_of(rewards=[1, 2, 4, 1, -1], terminals=[0, 0, 1, 0, 0], has_next_action=[1, 1, 0, 1, 0])
    for algorithm, expected in ((Fova(**TINY), False), (Fova(**TINY, server_weights="value", discount=0.5), True)):
        learner = algorithm.init(jax.random.key(0), SPACE)
        first = Broadcast(learner.actor, learner.critic, learner.extra.unit)
        _, submission = algorithm.submit(algorithm.receive(learner, first), first, data)
        assert (submission.parameters.extra is not None) == expected
    # Half of the mean |return to go|: 3, 4, 4, 1/2, -1
    assert float(jnp.exp(submission.parameters.extra.log_value)) == pytest.approx(0.5 * 12.5 / 5)
    assert float(submission.log_weight) == -4.0, "nobody knows the unit yet: all clients count alike"
    received = algorithm.receive(learner, submission.parameters)
    assert received.extra.unit == submission.parameters.extra
    assert float(algorithm.submit(learner, first, data)[1].parameters.extra.known) == 0.0, "nobody was asked yet"


def test_who_saw_no_reward_agrees_with_the_unit_of_the_others():
    data = data_of(rewards=[0, 0, 0], terminals=[0, 0, 1], has_next_action=[1, 1, 0])
    algorithm = configure("fova", **TINY)
    learner = algorithm.init(jax.random.key(0), SPACE)
    for heard, expected in ((unit_of(None), 0.0), (unit_of(7.0), np.log(7.0))):
        told = algorithm.receive(learner, Broadcast(learner.actor, learner.critic, heard))
        _, submission = algorithm.submit(told, Broadcast(learner.actor, learner.critic, heard), data)
        assert float(submission.parameters.extra.log) == pytest.approx(expected)
        assert float(submission.parameters.extra.known) == 1.0


def test_the_unit_settles_where_one_client_earns_much_more_than_many():
    """The unit decides who counts and who counts decides the unit: iterated, the two must come to rest."""
    algorithm = configure("fova", **TINY)
    learner = algorithm.init(jax.random.key(0), SPACE)
    nothing = jax.tree.map(jnp.zeros_like, learner)  # critics that say 0: what the data shows decides
    clients = [data_of([reward] * 5, [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]) for reward in (100.0, 1.0, 1.0, 1.0)]
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *clients)

    @jax.jit
    def after_a_round(unit):
        broadcast = Broadcast(nothing.actor, nothing.critic, unit)
        told = algorithm.receive(nothing, broadcast)
        submissions = jax.vmap(lambda own: algorithm.submit(told, broadcast, own)[1])(data)
        return weighted_mean(submissions.parameters.extra, submissions.log_weight), submissions.parameters.extra.log

    unit, units = learner.extra.unit, []
    for _ in range(40):
        unit, own = after_a_round(unit)
        units.append(float(unit.log_value))
    assert float(unit.known) == pytest.approx(1.0)
    np.testing.assert_allclose(units[-4:], units[-1], atol=0.01)
    assert units[-1] > 0.5 * (own[0] + own[1]), "the client that earns most decides"


@pytest.mark.parametrize("claim", [-1e6, 1e6])
def test_an_absurd_unit_spoils_no_number(claim):
    algorithm = configure("fova", **TINY)
    learner, broadcast = different_networks(algorithm, seed=0)
    absurd = replace(learner, extra=replace(learner.extra, unit=Unit(jnp.array(claim), jnp.array(1.0))))
    after, metrics = jax.jit(algorithm.step)(absurd, broadcast, mixed_batch(1), jax.random.key(2))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((after, metrics)))


def test_the_memory_of_a_continual_run_keeps_its_own_unit():
    """Critics that say the same in another unit are no reason to pull."""
    algorithm = configure("fova", continual=3.0, **TINY)
    learner, broadcast = different_networks(algorithm, seed=0)
    last = learner.critic.net.last
    halved = replace(
        learner.critic,
        net=replace(learner.critic.net, last=replace(last, weight=last.weight / 2, bias=last.bias / 2)),
    )
    half_unit = Memory(halved, unit_of(3.4), jnp.ones(()))
    same = replace(learner, extra=replace(learner.extra, memory=half_unit))
    nothing = replace(learner, extra=replace(learner.extra, memory=replace(half_unit, valid=jnp.zeros(()))))
    batch, key = mixed_batch(1), jax.random.key(2)
    step = jax.jit(algorithm.step)
    pulled, free = (step(it, broadcast, batch, key)[1]["critic_loss"] for it in (same, nothing))
    assert float(pulled) == pytest.approx(float(free), rel=1e-5)
