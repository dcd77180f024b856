import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova import algorithms
from fova.algorithms.base import (
    Data,
    Model,
    Server,
    Submission,
    Temperature,
    adam,
    adam_step,
    pack,
    unpack,
    weighted_mean,
)
from fova.errors import FovaError
from fova.networks import distance
from fova.spaces import Box, Discrete, Space
from tiny import batch_of, make_transitions

SPACE = Space.unit(3, 2)


def test_pack_and_unpack_are_inverse():
    batch = batch_of(make_transitions(0))
    again = unpack(jnp.asarray(pack(batch)), SPACE)
    for before, after in zip(batch, again):
        np.testing.assert_array_equal(before, after)


def test_data_never_hands_out_rows_of_other_clients():
    rows = jnp.concatenate([jnp.full((5, 14), jnp.nan), jnp.ones((7, 14)), jnp.full((93, 14), jnp.nan)])
    data = Data(rows, jnp.int32(5), jnp.int32(7), 50, SPACE)
    assert float(data.mean(lambda batch: batch.rewards, chunk=4)) == 1.0
    assert np.isfinite(data.sample(jax.random.key(0), 200).rewards).all()
    assert np.isfinite(data.spread(64).rewards).all()


def test_spread_covers_the_dataset_evenly():
    rows = jnp.tile(jnp.arange(8.0)[:, None], (1, 14))
    assert Data.of(rows, SPACE).spread(4).rewards.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_weighted_mean_by_hand():
    stacked = {"w": jnp.array([[1.0, 2.0], [3.0, 6.0], [100.0, 100.0]])}
    plain = weighted_mean(stacked, jnp.zeros(3))
    np.testing.assert_allclose(plain["w"], [104 / 3, 36.0], rtol=1e-6)
    weighted = weighted_mean(stacked, jnp.log(jnp.array([1.0, 3.0, 0.0])))  # weights 1/4, 3/4, 0
    np.testing.assert_allclose(weighted["w"], [2.5, 5.0], rtol=1e-6)


def test_a_client_left_out_does_not_count_even_with_nan():
    mean = weighted_mean(jnp.array([1.0, jnp.nan]), jnp.array([0.0, -jnp.inf]))
    assert float(mean) == 1.0


def test_mean_of_group_means_is_the_mean_of_all():
    values, log_weights = jax.random.normal(jax.random.key(0), (7, 4)), jnp.array([0.0, 5, -3, 200, 201, 1, 0])
    groups = [slice(0, 3), slice(3, 7)]
    means = jnp.stack([weighted_mean(values[g], log_weights[g]) for g in groups])
    totals = jnp.stack([jax.nn.logsumexp(log_weights[g]) for g in groups])
    np.testing.assert_allclose(weighted_mean(means, totals), weighted_mean(values, log_weights), rtol=1e-5)


def test_adam_against_its_definition():
    parameters, opt_state = jnp.array([1.0, -2.0]), adam(0.1).init(jnp.array([1.0, -2.0]))
    m, v, expected = np.zeros(2), np.zeros(2), np.array([1.0, -2.0])
    for step, gradient in enumerate([np.array([0.5, -1.0]), np.array([-0.2, 3.0])], start=1):
        parameters, opt_state = adam_step(0.1, parameters, jnp.array(gradient), opt_state)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        expected -= 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(parameters, expected, rtol=1e-5)


def test_a_model_descends_as_adam_does():
    model = Model.start(jnp.array([1.0, -2.0]), learning_rate=0.1)

    def loss(network):
        return jnp.sum(network**2), network + 1.0

    after, objective, aux = model.descend(loss, has_aux=True)
    assert float(objective) == 5.0  # before the step
    assert aux.tolist() == [2.0, -1.0]
    np.testing.assert_allclose(after.network, [0.9, -1.9], rtol=1e-5)  # Adam's first step is the learning rate
    expected, opt_state = adam_step(0.1, after.network, 2.0 * after.network, after.opt_state)
    again, _, nothing = after.descend(lambda network: loss(network)[0])
    assert nothing is None
    np.testing.assert_allclose(again.network, expected, rtol=1e-6)
    jax.tree.map(lambda x, z: np.testing.assert_allclose(x, z, rtol=1e-6), again.opt_state, opt_state)


def test_a_model_clips_its_gradient():
    """Adam hides the length of a first gradient, but not that of the second relative to it."""
    model = Model.start(jnp.array([0.0]), learning_rate=0.1)
    first, _, _ = model.descend(lambda network: network[0], clip=2.0)
    clipped, _, _ = first.descend(lambda network: 50.0 * network[0], clip=2.0)
    expected, _ = adam_step(0.1, first.network, jnp.array([2.0]), first.opt_state)
    free, _ = adam_step(0.1, first.network, jnp.array([50.0]), first.opt_state)
    np.testing.assert_allclose(clipped.network, expected, rtol=1e-6)
    assert abs(float(expected[0] - free[0])) > 1e-3


def test_learning_rates_are_settings_and_not_state():
    """What is checkpointed are arrays alone: parameters, and count and moments of Adam."""
    model, temperature = Model.start(jnp.array([1.0, -2.0]), learning_rate=0.1), Temperature.start(0.1)
    for state in (model, temperature):
        leaves = jax.tree.leaves(state)
        assert len(leaves) == 4
        assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert float(temperature.value) == 1.0


def test_the_target_by_hand():
    """r + gamma (1 - terminal) V(s')."""
    batch = batch_of(make_transitions(0))._replace(
        rewards=np.array([1.0, 2.0], "f"), terminals=np.array([0.0, 1.0], "f")
    )
    found = algorithms.configure("fova", discount=0.9).target(batch, jnp.array([10.0, 10.0]))
    np.testing.assert_allclose(found, [10.0, 2.0], rtol=1e-6)


# --- The contract ---


def made_data(seed):
    rows = pack(batch_of(make_transitions(seed)))
    return Data.of(rows, SPACE)


@pytest.mark.parametrize("name", sorted(algorithms.by_name()))
def test_a_round_through_the_functions_of_the_contract(name):
    algorithm = algorithms.configure(name, hidden=(6,), batch_size=8)
    assert algorithm.mergeable is True
    assert Box in algorithm.action_spaces
    assert (algorithm.reward_unit, algorithm.client_weights) == (
        ("federation", "returns") if name == "fova" else ("raw", "submitted")
    )
    assert algorithm.row_weights == "uniform"
    learner = algorithm.init(jax.random.key(0), SPACE)
    server = algorithm.start(learner)
    assert isinstance(server, Server)
    assert server.kept is None
    jax.tree.map(np.testing.assert_array_equal, algorithm.policy(server.broadcast), algorithm.local_policy(learner))
    jax.tree.map(np.testing.assert_array_equal, algorithm.receive(learner, server.broadcast), learner)

    @jax.jit
    def local_round(learner, data, key):
        batch = data.sample(key, algorithm.stride * algorithm.batch_size)
        learner, _ = algorithm.step(algorithm.receive(learner, server.broadcast), server.broadcast, batch, key)
        return algorithm.submit(learner, server.broadcast, data)

    rounds = [local_round(learner, made_data(seed), jax.random.key(seed)) for seed in range(2)]
    submissions = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(submission for _, submission in rounds))
    after = algorithm.aggregate(server, submissions)
    assert jax.tree.structure(after) == jax.tree.structure(server)
    mean = weighted_mean(submissions.parameters, submissions.log_weight)
    jax.tree.map(np.testing.assert_array_equal, after.broadcast, mean)
    # Mergeable: the mean of the round as one submission gives the same server.
    merged = Submission(jax.tree.map(lambda leaf: leaf[None], mean), jnp.zeros(1), {})
    jax.tree.map(np.testing.assert_array_equal, algorithm.aggregate(server, merged).broadcast, after.broadcast)
    # What is compared between clients is all that every client trains and sends.
    compared = jax.tree.leaves(algorithm.networks(mean))
    assert sum(leaf.size for leaf in compared) == sum(leaf.size for leaf in jax.tree.leaves(mean))
    # What is played is the mean of the clients' policies.
    actors = [algorithm.local_policy(learner) for learner, _ in rounds]
    jax.tree.map(np.testing.assert_array_equal, *([s.parameters.actor for _, s in rounds], actors))
    assert algorithm.policy(after.broadcast) is after.broadcast.actor


def test_receive_overwrites_networks_and_nothing_else():
    algorithm = algorithms.configure("fova", hidden=(6,))
    mine, theirs = (algorithm.init(jax.random.key(seed), SPACE) for seed in range(2))
    received = algorithm.receive(mine, algorithm.start(theirs).broadcast)
    for kept in (lambda it: it.actor.opt_state, lambda it: it.critic.opt_state, lambda it: it.target_critic):
        jax.tree.map(np.testing.assert_array_equal, kept(received), kept(mine))
    for sent in (lambda it: it.actor.network, lambda it: it.critic.network):
        jax.tree.map(np.testing.assert_array_equal, sent(received), sent(theirs))


def test_value_weight_is_the_submitted_weight():
    algorithm = algorithms.configure("cql-fl", hidden=(6,), value_weight=0.5)
    learner = algorithm.init(jax.random.key(0), SPACE)
    _, submission = algorithm.submit(learner, algorithm.start(learner).broadcast, made_data(0))
    assert float(submission.log_weight) == pytest.approx(0.5 * float(submission.metrics["value"]))
    assert float(submission.metrics["value"]) != 0.0
    assert float(submission.metrics["rows"]) == float(made_data(0).length)


def test_what_a_client_measures_of_its_policy():
    """On 512 rows, spread over 700: numbers 0, 1, 2, 4, 5, ... The value is that of the smaller twin."""
    algorithm = algorithms.configure("cql-fl", hidden=(6,), actor="clipped")
    learner, other = (algorithm.init(jax.random.key(seed), SPACE) for seed in range(2))
    rows = np.random.default_rng(0).normal(size=(700, 14)).astype(np.float32)
    _, sent = algorithm.submit(learner, algorithm.start(other).broadcast, Data.of(rows, SPACE))
    states = rows[(np.arange(512) * 700) // 512, :3]
    action = learner.actor(states).mode()
    twins = np.asarray(learner.critic(states, action), np.float64)
    assert float(sent.metrics["value"]) == pytest.approx(np.minimum(*twins).mean(), rel=1e-5)
    expected = distance(learner.actor(states), other.actor(states))
    assert float(sent.metrics["policy_distance"]) == pytest.approx(float(expected), rel=1e-5)
    assert float(sent.metrics["rows"]) == 700.0


def test_a_new_unit_of_reward_leaves_learners_alone_that_remember_nothing():
    algorithm = algorithms.configure("cql-fl", hidden=(6,))
    learner = algorithm.init(jax.random.key(0), SPACE)
    assert algorithm.data_changed(learner, jnp.array(2.0)) is learner


@pytest.mark.parametrize("name", ["cql-fl", "drpo", "fed-td3bc", "fedora", "fova"])
def test_an_action_space_that_is_not_served_is_refused(name):
    with pytest.raises(FovaError, match=f"Discrete, but {name} needs actions of kind Box"):
        algorithms.configure(name).init(jax.random.key(0), Space(3, Discrete(("left", "right"))))


@pytest.mark.parametrize("layers", [1, 8])
def test_one_to_eight_hidden_layers(layers):
    assert len(algorithms.configure("fova", hidden=(4,) * layers).hidden) == layers


@pytest.mark.parametrize("layers", [0, 9])
def test_other_numbers_of_hidden_layers_are_refused(layers):
    with pytest.raises(FovaError, match=f"hidden has {layers} layers, but must have 1 to 8"):
        algorithms.configure("fova", hidden=(4,) * layers)


def test_functions_of_algorithms_are_short():
    lengths = {}
    for file in Path(algorithms.__file__).parent.glob("*.py"):
        functions = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))
        lengths |= {(file.name, node.name): node.end_lineno - node.lineno + 1 for node in functions}
    assert len(lengths) > 50
    assert {name: length for name, length in lengths.items() if length > 45} == {}


def test_the_example_algorithm_is_short_and_trains(tmp_path):
    import fova

    example = Path(__file__).parents[2] / "examples" / "fed_awac.py"
    assert len(example.read_text().splitlines()) < 150
    federation = fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ab")})
    settings = {"hidden": (8,), "batch_size": 8, "rounds": 2, "local_steps": 2, "temperature": 0.5}
    result = fova.train(clients=federation, algorithm=str(example), directory=tmp_path / "run", **settings)
    assert result.policy(np.zeros(3)).shape == (2,)
