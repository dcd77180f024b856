import ast
from dataclasses import asdict, dataclass
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
    adam,
    adam_step,
    pack,
    unpack,
    weighted_mean,
)
from fova.errors import FovaError
from fova.spaces import Box, Space
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


def test_a_new_unit_of_reward_leaves_learners_alone_that_remember_nothing():
    algorithm = algorithms.configure("cql-fl", hidden=(6,))
    learner = algorithm.init(jax.random.key(0), SPACE)
    assert algorithm.data_changed(learner, jnp.array(2.0)) is learner


@dataclass(frozen=True)
class Discrete:
    """An action space that no algorithm of ours serves."""

    size: int


@pytest.mark.parametrize("name", sorted(algorithms.by_name()))
def test_an_action_space_that_is_not_served_is_refused(name):
    with pytest.raises(FovaError, match=f"Discrete, but {name} needs actions of kind Box"):
        algorithms.configure(name).init(jax.random.key(0), Space(3, Discrete(4)))


COMMON = {
    "shared_std": False,
    "discount": 0.99,
    "tau": 0.005,
    "batch_size": 256,
    "actor_lr": 3e-4,
    "critic_lr": 3e-4,
    "hidden": (256, 256),
    "actor": "clipped",
    "actor_layer_norm": False,
    "critic_layer_norm": False,
    "initialisation": "fan_in",
    "value_weight": 0.0,
}
WIDE = {"actor_lr": 1e-4, "hidden": (256, 256, 256)}  # the networks of the FOVA paper
FOVA = WIDE | {
    "critic_layer_norm": True,
    "actor": "squashed",
    "alpha": 5.0,
    "lam": 5.0,
    "beta": 5.0,
    "conservative": "vote",
    "soft_vote": "q",
    "soft_temperature": 1.0,
    "td_scale": 0.5,
    "entropy": "none",
    "temperature_lr": 1e-4,
    "density_offset": 0.0,
    "vote_order": "min_then_max",
    "advantage_from": "current",
    "weight_gradient": False,
    "weight_cap": 100.0,
    "update_order": "together",
    "fresh_samples": False,
    "terminal_action": "none",
    "weigh": "global",
    "imitate": "data",
    "relative_weights": False,
    "data_returns": False,
    "server_weights": "plain",
    "vote": True,
    "awr": True,
    "continual": 0.0,
}
CQL = WIDE | {
    "actor": "squashed",
    "alpha": 5.0,
    "samples": 10,
    "pool": "all",
    "soft_gradient": "exact",
    "update_order": "together",
    "gradient_clip": 0.0,
    "temperature": "auto",
    "temperature_lr": 1e-4,
    "temperature_loss": "log",
    "density_offset": 0.0,
    "saturation": 1e-6,
    "log_std_least": -5.0,
    "trained_log_std": False,
    "critic_initialisation": "same",
}
KIT = CQL | {"pool": "triples", "update_order": "actor_first", "density_offset": 1e-6}
LAYER_NORM = {"critic_layer_norm": True}
DRPO = CQL | {"alpha": 10.0, "gradient_clip": 1.0, "eta": 0.6, "regularisation": 1.0}
DRPO_PROGRAM = DRPO | {
    "critic_lr": 1e-4,
    "temperature_loss": "value",
    "saturation": 1e-7,
    "log_std_least": -20.0,
    "trained_log_std": True,
    "critic_initialisation": "orthogonal",
}
TD3BC = {"actor": "deterministic", "q_weight": 2.5, "target_noise": 0.2, "noise_clip": 0.5, "policy_delay": 2}
PUBLISHED = {
    ("fova", "equations"): FOVA,
    ("fova", "released"): FOVA
    | {
        "conservative": "logsumexp",
        "soft_vote": "q_minus_log_pi",
        "td_scale": 1.0,
        "entropy": "auto",
        "density_offset": 1e-6,
        "vote_order": "max_then_min",
        "advantage_from": "target",
        "weight_gradient": True,
        "weight_cap": 1.0,
        "update_order": "actor_first",
        "fresh_samples": True,
        "terminal_action": "negated",
        "lam": 3.0,
        "beta": 3.0,
        "actor_layer_norm": True,
    },
    ("fova", "recommended"): FOVA
    | {"actor": "clipped", "weigh": "data", "alpha": "auto", "lam": "auto", "beta": "auto"}
    | {"server_weights": "returns", "actor_lr": 3e-4, "data_returns": True, "relative_weights": True},
    ("cql-fl", "published"): KIT,
    ("cql-fl", "paper"): CQL,
    ("cql-fl", "fova-program"): KIT | LAYER_NORM | {"actor_layer_norm": True, "temperature": 0.2},
    ("cql-fl", "assisted"): KIT | LAYER_NORM | {"actor": "clipped", "samples": 1},
    ("drpo", "published"): DRPO_PROGRAM,
    ("drpo", "paper"): DRPO,
    ("drpo", "assisted"): DRPO_PROGRAM | LAYER_NORM | {"actor": "clipped", "soft_gradient": "estimated"},
    ("fed-td3bc", "published"): TD3BC,
    ("fedora", "published"): TD3BC
    | {"value_weight": 0.1, "decay": 0.995, "optimistic": True, "global_pull": 1.0, "previous_pull": 1.0},
    ("fed-iql", "published"): {"expectile": 0.7, "beta": 3.0, "shared_std": True},
    ("fed-iql", "layer-norm"): {"expectile": 0.7, "beta": 3.0} | LAYER_NORM,  # what scored more in our study
    ("fed-bc", "published"): {"critic_layer_norm": True},  # it has no critics
}


@pytest.mark.parametrize(("name", "preset"), PUBLISHED)
def test_published_settings(name, preset):
    assert asdict(algorithms.configure(name, preset)) == COMMON | PUBLISHED[name, preset]


def test_every_preset_is_in_the_table_or_adds_layer_norm():
    presets = {(name, preset) for name, kind in algorithms.by_name().items() for preset in kind.presets}
    assert {name for name, preset in presets - set(PUBLISHED)} == set(algorithms.by_name()) - {"fova", "fed-iql"}
    for name, preset in presets - set(PUBLISHED):
        with_layer_norm = asdict(algorithms.configure(name, "published")) | {"critic_layer_norm": True}
        assert (preset, asdict(algorithms.configure(name, preset))) == ("layer-norm", with_layer_norm)
        assert next(iter(algorithms.get(name).presets)) == "published"
    assert next(iter(algorithms.get("fova").presets)) == "recommended"


def test_functions_of_algorithms_are_short():
    lengths = {}
    for file in Path(algorithms.__file__).parent.glob("*.py"):
        functions = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))
        lengths |= {(file.name, node.name): node.end_lineno - node.lineno + 1 for node in functions}
    assert len(lengths) > 50
    assert {name: length for name, length in lengths.items() if length > 45} == {}


# --- Choosing an algorithm ---


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: algorithms.configure("fovv"), "'fova'"),
        (lambda: algorithms.configure("fova", "printed"), "equations"),
        (lambda: algorithms.configure("fova", alhpa=1.0), "'alpha'"),
        (lambda: algorithms.configure("fova", alpha="high"), "a number"),
        (lambda: algorithms.configure("fova", hidden=("a",)), "a whole number"),
        (lambda: algorithms.configure("fova", conservative="cql"), "'logsumexp'"),
        (lambda: algorithms.get("nowhere.py"), "nowhere.py"),
    ],
)
def test_wrong_settings_name_what_would_be_right(call, words):
    with pytest.raises(FovaError, match=words):
        call()


def test_an_algorithm_of_the_users_own_is_found_by_its_path(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom fova import algorithms\n"
        "@dataclass(frozen=True)\nclass Mine(algorithms.get('fed-bc')):\n    name = 'mine'\n"
    )
    assert algorithms.get(str(file)).__name__ == "Mine"
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(FovaError, match="exactly one"):
        algorithms.get(str(empty))


def test_the_example_algorithm_is_short_and_trains(tmp_path):
    import fova

    example = Path(__file__).parents[2] / "examples" / "fed_awac.py"
    assert len(example.read_text().splitlines()) < 150
    federation = fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ab")})
    settings = {"hidden": (8,), "batch_size": 8, "rounds": 2, "local_steps": 2, "temperature": 0.5}
    result = fova.train(clients=federation, algorithm=str(example), directory=tmp_path / "run", **settings)
    assert result.policy(np.zeros(3)).shape == (2,)
