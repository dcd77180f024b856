"""Every baseline against NumPy loops written from the specification, and what each is without its additions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from algorithms.numpy_fova import as_numpy, log_density, mlp
from algorithms.test_fova import SPACE, mixed_batch
from fova.algorithms import by_name, configure
from fova.algorithms.base import Data, Temperature, clip_gradient, pack, replace
from fova.algorithms.cql import estimated_soft_maximum, exact_soft_maximum, soft_maximum
from fova.algorithms.iql import awr_loss, expectile_loss
from fova.algorithms.td3bc import q_term, smoothed_action
from fova.networks import Point

TINY = {"hidden": (6, 5)}


def mid_training(algorithm, seed=0):
    """A learner and a broadcast whose networks all differ."""
    first, second, third = (algorithm.init(key, SPACE) for key in jax.random.split(jax.random.key(seed), 3))
    learner = first if first.critic is None else replace(first, target_critic=second.critic.network)
    if hasattr(first.extra, "target_actor"):
        learner = replace(learner, extra=replace(learner.extra, target_actor=second.actor.network))
    if hasattr(first.extra, "previous_actor"):
        previous = third.actor.network
        learner = replace(learner, extra=replace(learner.extra, previous_actor=previous, decay=jnp.array(0.8)))
    if getattr(first.extra, "temperature", None) is not None:
        warm = replace(first.extra.temperature, log=jnp.array(-0.7))
        learner = replace(learner, extra=replace(learner.extra, temperature=warm))
    return learner, algorithm.start(third).broadcast


def rows_of(batch):
    return {name: np.asarray(values, np.float64) for name, values in batch._asdict().items()}


def q(critic, s, a):
    critic = getattr(critic, "network", critic)
    return [mlp(as_numpy(critic.net, i), np.concatenate([s, a]))[0] for i in range(2)]


def step(algorithm, learner, broadcast, batch, key):
    return jax.jit(algorithm.step)(learner, broadcast, batch, key)


# --- Fed-TD3BC and FEDORA ---


@pytest.mark.parametrize("name", ["fed-td3bc", "fedora"])
def test_td3_losses_agree_with_numpy(name):
    algorithm = configure(name, policy_delay=1, **TINY)
    learner, broadcast = mid_training(algorithm)
    # Q is of both signs: the normalised Q of values of one sign is the same whatever they are
    critic = learner.critic.network
    last = replace(critic.net.last, bias=critic.net.last.bias + 0.1)
    critic = replace(critic, net=replace(critic.net, last=last))
    learner = replace(learner, critic=replace(learner.critic, network=critic))
    batch, key = mixed_batch(4), jax.random.key(8)
    new, metrics = step(algorithm, learner, broadcast, batch, key)
    target_actor = learner.extra.target_actor
    noisy = np.asarray(smoothed_action(target_actor, batch.next_observations, jax.random.fold_in(key, 0), 0.2, 0.5))
    b = rows_of(batch)
    q_data, targets, values, cloned, pulls = [], [], [], [], np.zeros(2)
    for n in range(len(b["rewards"])):
        s, a = b["observations"][n], b["actions"][n]
        value = min(q(learner.target_critic, b["next_observations"][n], noisy[n]))
        if name == "fedora":
            value = max(value, min(q(broadcast.critic, b["next_observations"][n], noisy[n])))
        y = b["rewards"][n] + 0.99 * (1 - b["terminals"][n]) * value
        q_data.append(q(learner.critic, s, a))
        targets.append(y)
        action = np.tanh(mlp(as_numpy(learner.actor.network.net), s))
        values.append(q(new.critic, s, action)[0])  # the actor is judged by the critics after their step
        cloned.append(np.square(action - a).mean())
        if name == "fedora":
            others = (broadcast.actor, learner.extra.previous_actor)
            pulls += [np.square(action - np.tanh(mlp(as_numpy(other.net), s))).mean() for other in others]
    rows = len(values)
    assert min(values) < 0 < max(values)
    actor = np.mean(cloned) - 2.5 * np.mean(values) / np.mean(np.abs(values))
    if name == "fedora":
        actor = 0.8 * actor + pulls.sum() / rows
    errors = np.array(q_data) - np.array(targets)[:, None]
    expected = {
        "critic_loss": np.square(errors).sum() / rows,
        "actor_loss": actor,
        "q_data": np.mean(q_data),
        "td_error": np.abs(errors).mean(),
    }
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=1e-4)


def test_smoothing_noise_is_clipped_and_can_be_switched_off():
    learner, _ = mid_training(configure("fed-td3bc", **TINY))
    states, key = mixed_batch(0).observations, jax.random.key(0)
    plain = learner.extra.target_actor(states).mode()
    np.testing.assert_array_equal(smoothed_action(learner.extra.target_actor, states, key, 0.0, 0.5), plain)
    loud = smoothed_action(learner.extra.target_actor, states, key, 100.0, 0.05)
    np.testing.assert_allclose(jnp.abs(loud - plain).max(), 0.05, rtol=1e-3)


def test_smoothed_actions_by_hand():
    """Noise that is clipped at almost every draw: an action moves by 0.5 and stays in [-1, 1]."""
    actions = jnp.array([[0.0, 0.8, -0.8]])

    def actor(states):
        return Point(actions)

    drawn = [smoothed_action(actor, None, key, 1e6, 0.5) for key in jax.random.split(jax.random.key(0), 20)]
    columns = np.round(np.concatenate(drawn), 3).T.tolist()
    assert [sorted(set(column)) for column in columns] == [
        pytest.approx([-0.5, 0.5]),
        pytest.approx([0.3, 1.0]),
        pytest.approx([-1.0, -0.3]),
    ]
    key = jax.random.key(1)
    quiet = actions + 0.01 * jax.random.normal(key, actions.shape)
    np.testing.assert_allclose(smoothed_action(actor, None, key, 0.01, 0.5), quiet, atol=1e-6)


def test_q_term_is_free_of_the_rewards_scale_and_by_hand():
    values = jnp.array([1.0, -3.0])
    assert float(q_term(values, 2.5)) == pytest.approx(2.5 * -1.0 / 2.0)
    assert float(q_term(1000 * values, 2.5)) == pytest.approx(float(q_term(values, 2.5)))
    np.testing.assert_allclose(jax.grad(lambda v: q_term(v, 2.5))(values), [2.5 / 4, 2.5 / 4])


def test_policy_delay_is_critic_steps_then_one_actor_step():
    """Two critic steps, the target networks and the actor once; with a delay of 1 the actor moves every time."""
    delayed, plain = configure("fed-td3bc", target_noise=0.0, **TINY), None
    learner, broadcast = mid_training(delayed)
    one, two = mixed_batch(1), mixed_batch(2)
    both = jax.tree.map(lambda *pair: jnp.concatenate(pair), one, two)
    assert delayed.stride == 2
    new, _ = step(delayed, learner, broadcast, both, jax.random.key(0))
    # by hand: a critic step alone is a step with a delay of 1 whose actor and target networks are put back
    plain = configure("fed-td3bc", target_noise=0.0, policy_delay=1, **TINY)
    after_one, _ = step(plain, learner, broadcast, one, jax.random.key(0))
    put_back = replace(learner, critic=after_one.critic)
    expected, _ = step(plain, put_back, broadcast, two, jax.random.key(0))
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, atol=1e-6), new, expected)


def packed(batch, padding=3):
    rows = pack(type(batch)(*map(np.asarray, batch)))
    rows = np.concatenate([rows, np.full((padding, rows.shape[1]), np.nan, np.float32)])
    length = len(rows) - padding
    return Data(jnp.asarray(rows), jnp.int32(0), jnp.int32(length), len(rows), SPACE)


def test_fedora_fades_where_the_federated_pair_is_better_and_weighs_by_value():
    algorithm = configure("fedora", **TINY)
    learner, broadcast = mid_training(algorithm)
    batch = mixed_batch(6)

    def j(actor, critic):
        states = rows_of(batch)["observations"]
        return np.mean([q(critic, s, np.tanh(mlp(as_numpy(actor.net), s)))[0] for s in states])

    local, federated = j(learner.actor.network, learner.critic), j(broadcast.actor, broadcast.critic)
    new, submission = algorithm.submit(learner, broadcast, packed(batch))
    assert float(submission.log_weight) == pytest.approx(0.1 * local, rel=1e-4)
    assert float(new.extra.decay) == pytest.approx(0.8 * (0.995 if federated > local else 1.0))
    jax.tree.map(np.testing.assert_array_equal, new.extra.previous_actor, learner.actor.network)
    swapped = algorithm.receive(learner, broadcast)
    other, _ = algorithm.submit(swapped, algorithm.start(learner).broadcast, packed(batch))
    assert float(other.extra.decay) != float(new.extra.decay), "one of the two pairs is the better one"
    unmoved, _ = algorithm.submit(swapped, broadcast, packed(batch))
    assert float(unmoved.extra.decay) == pytest.approx(0.8), "the federated pair is no better than itself"


def test_fedora_without_its_ideas_is_fed_td3bc():
    off = {"optimistic": False, "decay": 1.0, "global_pull": 0.0, "previous_pull": 0.0, "value_weight": 0.0}
    fedora, td3bc = (configure(n, policy_delay=1, **o, **TINY) for n, o in (("fedora", off), ("fed-td3bc", {})))
    batch, key = mixed_batch(3), jax.random.key(5)
    learner = td3bc.init(jax.random.key(0), SPACE)
    richer = replace(learner, extra=fedora.init(jax.random.key(0), SPACE).extra)
    broadcast = td3bc.start(td3bc.init(jax.random.key(1), SPACE)).broadcast
    plain, _ = step(td3bc, learner, broadcast, batch, key)
    ours, _ = step(fedora, richer, broadcast, batch, key)
    for part in ("actor", "critic", "target_critic"):
        # the same numbers; the compiler may round the last bit of a sum differently in a larger program
        jax.tree.map(
            lambda x, z: np.testing.assert_allclose(x, z, rtol=1e-6, atol=1e-8),
            getattr(ours, part),
            getattr(plain, part),
        )
    np.testing.assert_array_equal(fedora.submit(richer, broadcast, packed(batch))[1].log_weight, 0.0)


# --- CQL-FL and DRPO ---


CONSERVATIVE = [
    ("cql-fl", "paper"),
    ("cql-fl", "published"),
    ("cql-fl", "fova-program"),
    ("drpo", "paper"),
    ("drpo", "published"),
    ("drpo", "assisted"),
]


def numpy_actor(algorithm, actor):
    """The actor's network, and the form of its Gaussian."""
    form = {"least": algorithm.log_std_least, "saturation": algorithm.saturation}
    trained = {} if actor.log_std is None else {"log_std": np.asarray(actor.log_std, np.float64)}
    return as_numpy(actor.net) | form | trained


@pytest.mark.parametrize(("name", "preset"), CONSERVATIVE)
def test_cql_losses_agree_with_numpy(name, preset):
    algorithm = configure(name, preset, samples=3, **TINY)
    learner, broadcast = mid_training(algorithm)
    batch, key = mixed_batch(7), jax.random.key(2)
    # the first two actions lie at the bounds, where programs differ
    batch = batch._replace(actions=batch.actions.at[:2, 0].set(jnp.array([1.0, -1.0])))
    new, metrics = step(algorithm, learner, broadcast, batch, key)
    local, following, here, there, uniform, other = jax.random.split(key, 6)
    later = new.actor.network if algorithm.update_order == "actor_first" else learner.actor.network
    later_here, later_there = later(batch.observations), later(batch.next_observations)
    a_local = np.asarray(learner.actor(batch.observations).sample(local))
    a_next = np.asarray(later_there.sample(following))
    a_here = np.stack([later_here.sample(k) for k in jax.random.split(here, 3)])
    a_there = np.stack([later_there.sample(k) for k in jax.random.split(there, 3)])
    a_uniform = np.asarray(jax.random.uniform(uniform, a_here.shape, minval=-1.0, maxval=1.0))
    a_server = np.asarray(broadcast.actor(batch.observations).sample(other))
    nets = [numpy_actor(algorithm, actor) for actor in (learner.actor.network, later)]

    def density(net, s, a):
        return log_density(algorithm.actor, net, s, a, algorithm.density_offset)

    b, heat = rows_of(batch), 0.2 if preset == "fova-program" else np.exp(-0.7)
    critic, actor, q_data, gaps, errors, entropies = 0.0, 0.0, [], [], [], []
    for n in range(len(b["rewards"])):
        s, a, next_s = b["observations"][n], b["actions"][n], b["next_observations"][n]
        y = b["rewards"][n] + 0.99 * (1 - b["terminals"][n]) * min(q(learner.target_critic, next_s, a_next[n]))
        sources = [
            [(action, density(nets[1], s, action)) for action in a_here[:, n]],
            [(action, density(nets[1], next_s, action)) for action in a_there[:, n]],
            [(action, 2 * np.log(0.5)) for action in a_uniform[:, n]],
        ]
        for i in range(2):
            ratios = [[np.exp(q(learner.critic, s, c)[i] - d) for c, d in source] for source in sources]
            together, triples = np.log(np.sum(ratios)), np.log(np.sum(ratios, axis=0)).mean()
            soft = together if algorithm.pool == "all" else triples
            twin = q(learner.critic, s, a)[i]
            critic += (twin - y) ** 2 + algorithm.alpha * (soft - twin)
            q_data.append(twin)
            gaps.append(soft - twin)
            errors.append(abs(twin - y))
        entropies.append(-density(nets[0], s, a_local[n]))
        actor += heat * density(nets[0], s, a_local[n]) - min(q(learner.critic, s, a_local[n]))
        if name == "drpo":
            actor -= 0.6 * density(nets[0], s, a) + 0.4 * density(nets[0], s, a_server[n])
    rows = len(b["rewards"])
    expected = {
        "critic_loss": critic / rows,
        "actor_loss": actor / rows,
        "q_data": np.mean(q_data),
        "conservative_gap": np.mean(gaps),
        "td_error": np.mean(errors),
        "entropy": np.mean(entropies),
    }
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=1e-3)


def test_soft_maxima_by_hand():
    # one group of six, then two groups of three members; the ratios exp(Q) / density are 2, 3, 4 and 10, 1, 5
    q = jnp.log(jnp.array([[2.0, 10.0], [3.0, 1.0], [4.0, 5.0]]))
    none = jnp.zeros((3, 2, 1))
    assert float(soft_maximum(q.reshape(1, 6, 1, 1), none.reshape(6, 1, 1))[0, 0]) == pytest.approx(np.log(25))
    triples = soft_maximum(q.reshape(1, 3, 2, 1), none)
    assert float(triples[0, 0]) == pytest.approx((np.log(9) + np.log(16)) / 2)
    halved = jnp.full((6, 1, 1), np.log(0.5))
    assert float(soft_maximum(q.reshape(1, 6, 1, 1), halved)[0, 0]) == pytest.approx(np.log(50))


@pytest.mark.parametrize("pool", ["all", "triples"])
def test_the_estimated_gradient_of_the_soft_maximum_is_right_in_expectation(pool):
    algorithm = configure("cql-fl", "paper", samples=2, pool=pool, hidden=(4,))
    learner, _ = mid_training(algorithm)
    batch = jax.tree.map(lambda field: field[:1], mixed_batch(2))
    sampled = algorithm.sample(learner, batch, list(jax.random.split(jax.random.key(1), 3)))
    critic = learner.critic.network

    def exact(critic):
        q_data, soft = exact_soft_maximum(critic, batch, sampled)
        return (3.0 * soft - q_data).sum()

    def estimated(critic, key):
        q_data, soft = estimated_soft_maximum(critic, batch, sampled, key)
        return (3.0 * soft - q_data).sum()

    draws = 4000
    keys = jax.random.split(jax.random.key(0), draws)
    value, gradient = jax.value_and_grad(exact)(critic)
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(estimated), (None, 0)))(critic, keys)
    np.testing.assert_allclose(values, value, rtol=1e-5)

    def agree(all_of_them, expected):
        error = all_of_them.std(axis=0) / np.sqrt(draws)
        assert np.all(np.abs(all_of_them.mean(axis=0) - expected) < 5 * error + 1e-5)

    jax.tree.map(agree, gradients, gradient)
    assert any(float(leaf.std(axis=0).max()) > 0.01 for leaf in jax.tree.leaves(gradients)), "draws must matter"


def test_the_loss_in_the_value_of_a_temperature_has_its_gradient_times_the_temperature():
    start = replace(Temperature.start(0.1), log=jnp.log(3.0))
    log_prob, target = jnp.array([4.0, 6.0]), -2.0  # d/dlogT of -log T (5 - 2) is -3, of -T (5 - 2) it is -9
    followed = [start.follow(log_prob, target, loss) for loss in ("log", "value")]
    first, scaled = (jax.tree.leaves(it.opt_state)[1] for it in followed)  # Adam's first moment
    np.testing.assert_allclose([first, scaled], [[0.1 * -3.0], [0.1 * -9.0]], rtol=1e-6)


def test_a_fixed_temperature_has_no_state():
    algorithm = configure("cql-fl", "fova-program", samples=1, **TINY)
    learner, broadcast = mid_training(algorithm)
    new, _ = step(algorithm, learner, broadcast, mixed_batch(1), jax.random.key(0))
    assert new.extra.temperature is None


def test_drpos_critics_start_orthogonal_and_nearly_zero():
    drpo = configure("drpo", hidden=(4, 3)).init(jax.random.key(0), SPACE)
    net = drpo.critic.network.net
    for member in range(2):
        first, second, last = (np.asarray(x.weight[member]) for x in (*net.layers, net.last))
        np.testing.assert_allclose(first.T @ first, 2 * np.eye(4), atol=1e-5)
        np.testing.assert_allclose(second.T @ second, 2 * np.eye(3), atol=1e-5)
        assert np.linalg.norm(last) == pytest.approx(0.01, rel=1e-4)
    assert all(not np.any(layer.bias) for layer in (*net.layers, net.last))
    jax.tree.map(np.testing.assert_array_equal, drpo.target_critic, drpo.critic.network)
    plain = configure("drpo", "paper", hidden=(4, 3)).init(jax.random.key(0), SPACE)
    jax.tree.map(np.testing.assert_array_equal, drpo.actor.network.net, plain.actor.network.net)


def test_drpo_without_its_likelihoods_is_cql():
    drpo = configure("drpo", "paper", regularisation=0.0, alpha=5.0, gradient_clip=0.0, samples=2, **TINY)
    cql = configure("cql-fl", "paper", samples=2, **TINY)
    learner, broadcast = mid_training(cql)
    batch, key = mixed_batch(3), jax.random.key(5)
    jax.tree.map(
        np.testing.assert_array_equal,
        step(drpo, learner, broadcast, batch, key)[0],
        step(cql, learner, broadcast, batch, key)[0],
    )


def test_each_of_drpos_two_terms_can_stand_alone():
    batch, key = mixed_batch(3), jax.random.key(5)
    drpo = {eta: configure("drpo", eta=eta, samples=2, **TINY) for eta in (0.0, 1.0)}
    learner, broadcast = mid_training(drpo[1.0])
    policy = learner.actor(batch.observations)
    data_only = drpo[1.0].imitation(policy, broadcast, batch, key)
    server_only = drpo[0.0].imitation(policy, broadcast, batch, key)
    a_server = broadcast.actor(batch.observations).sample(key)
    assert float(data_only) == pytest.approx(-float(policy.log_prob(batch.actions).mean()), rel=1e-5)
    assert float(server_only) == pytest.approx(-float(policy.log_prob(a_server).mean()), rel=1e-5)


def test_gradient_clipping_by_hand():
    gradient = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}  # norm 5
    clipped = clip_gradient(gradient, 1.0)
    np.testing.assert_allclose([clipped["a"][0], clipped["b"][0]], [0.6, 0.8], rtol=1e-6)
    untouched = clip_gradient(gradient, 10.0)
    np.testing.assert_allclose([untouched["a"][0], untouched["b"][0]], [3.0, 4.0], rtol=1e-6)


# --- Fed-IQL and Fed-BC ---


def test_iql_losses_agree_with_numpy():
    algorithm = configure("fed-iql", shared_std=False, **TINY)
    learner, broadcast = mid_training(algorithm)
    batch = mixed_batch(7)
    after, metrics = step(algorithm, learner, broadcast, batch, jax.random.key(0))
    value_net, actor_net = as_numpy(learner.extra.value.network), as_numpy(learner.actor.network.net)
    new_value_net = as_numpy(after.extra.value.network)  # the actor is weighted with V after its step
    b = rows_of(batch)
    value, actor, critic, advantages, q_data, errors = 0.0, 0.0, 0.0, [], [], []
    for n in range(len(b["rewards"])):
        s, a = b["observations"][n], b["actions"][n]
        q_target = min(q(learner.target_critic, s, a))
        difference, advantage = q_target - mlp(value_net, s)[0], q_target - mlp(new_value_net, s)[0]
        value += (0.7 if difference > 0 else 0.3) * difference**2
        actor -= min(np.exp(3.0 * advantage), 100.0) * log_density("clipped", actor_net, s, a)
        y = b["rewards"][n] + 0.99 * (1 - b["terminals"][n]) * mlp(value_net, b["next_observations"][n])[0]
        critic += sum((twin - y) ** 2 for twin in q(learner.critic, s, a))
        advantages.append(advantage)
        q_data += q(learner.critic, s, a)
        errors += [abs(twin - y) for twin in q(learner.critic, s, a)]
    rows = len(b["rewards"])
    expected = {
        "value_loss": value / rows,
        "actor_loss": actor / rows,
        "critic_loss": critic / rows,
        "advantage": np.mean(advantages),
        "q_data": np.mean(q_data),
        "td_error": np.mean(errors),
    }
    assert {name: float(value) for name, value in metrics.items()} == pytest.approx(expected, rel=1e-4)


def test_iql_pieces_by_hand():
    assert float(expectile_loss(jnp.array([2.0, -1.0]), 0.9)) == pytest.approx((0.9 * 4 + 0.1 * 1) / 2)
    assert float(awr_loss(jnp.array([-1.0, -2.0]), jnp.array([0.0, 50.0]), 3.0)) == pytest.approx((1 + 200) / 2)


def test_iql_federates_its_value():
    algorithm = configure("fed-iql", **TINY)
    learner, broadcast = mid_training(algorithm)
    received = algorithm.receive(learner, broadcast)
    jax.tree.map(np.testing.assert_array_equal, received.extra.value.network, broadcast.extra)
    _, submission = algorithm.submit(learner, broadcast, packed(mixed_batch(0)))
    jax.tree.map(np.testing.assert_array_equal, submission.parameters.extra, learner.extra.value.network)


@pytest.mark.parametrize("kind", ["clipped", "squashed", "deterministic"])
def test_bc_is_the_likelihood_of_the_data_and_nothing_else(kind):
    algorithm = configure("fed-bc", actor=kind, **TINY)
    learner, broadcast = mid_training(algorithm)
    batch = mixed_batch(1)
    new, metrics = step(algorithm, learner, broadcast, batch, jax.random.key(0))
    net, b = as_numpy(learner.actor.network.net), rows_of(batch)
    pairs = list(zip(b["observations"], b["actions"]))
    if kind == "deterministic":
        expected = np.mean([np.square(np.tanh(mlp(net, s)) - a).mean() for s, a in pairs])
    else:
        expected = -np.mean([log_density(kind, net, s, a) for s, a in pairs])
    assert float(metrics["actor_loss"]) == pytest.approx(expected, rel=1e-4)
    assert new.critic is None


# --- All of them ---


def test_every_algorithm_of_the_paper_is_here():
    assert set(by_name()) == {"fova", "fed-td3bc", "cql-fl", "fedora", "drpo", "fed-iql", "fed-bc"}
