import contextlib
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save, save_file

from fova import networks
from fova.data.normalise import Normaliser, client_sums, combine
from fova.errors import FovaError
from fova.networks import GaussianForm, make_actor
from fova.policy import LOG_STD_RANGE, Policy, from_actor, load_policy, parse_weights, stack, to_actor
from fova.recipe import Input, Recipe
from fova.spaces import Box, Discrete, Space

MEAN, STD = np.array([1.0, -2.0, 0.0], np.float32), np.array([2.0, 0.5, 1.0], np.float32)
LOW, HIGH = np.array([-1.0, 0.0], np.float32), np.array([3.0, 10.0], np.float32)
SPACE = Space(3, Box.of(2, LOW, HIGH))
OBSERVATIONS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def make(kind="clipped", layer_norm=True, seed=0):
    actor = make_actor(jax.random.key(seed), Space.unit(3, 2), kind, (8, 7), layer_norm, "fan_in")
    return actor, from_actor(actor, Normaliser(MEAN, STD), SPACE, task="somewhere")


@pytest.mark.parametrize("kind", ["clipped", "squashed", "deterministic"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_numpy_policy_equals_the_actor_in_its_frame(kind, layer_norm):
    actor, policy = make(kind, layer_norm)
    inner = np.asarray(actor(jnp.asarray((OBSERVATIONS - MEAN) / STD)).mode())
    np.testing.assert_allclose(policy(OBSERVATIONS), LOW + (inner + 1) / 2 * (HIGH - LOW), rtol=1e-4, atol=1e-5)


def test_a_saved_policy_sees_a_column_of_tiny_scale_as_the_actor_did(tmp_path):
    raw = OBSERVATIONS * np.float32([1.0, 1e-6, 0.0]) + np.float32([0.0, 3e-6, 5.0])
    normaliser = combine([client_sums(raw)])
    actor, _ = make()
    from_actor(actor, normaliser, SPACE).save(tmp_path / "policy.safetensors")
    seen = normaliser(raw)
    np.testing.assert_allclose(seen.std(axis=0), [1, 1, 0], atol=1e-5)
    inner = np.asarray(actor(jnp.asarray(seen)).mode())
    np.testing.assert_allclose(
        load_policy(tmp_path)(raw), LOW + (inner + 1) / 2 * (HIGH - LOW), rtol=1e-4, atol=1e-5
    )


def test_single_observations_and_any_leading_axes():
    _, policy = make()
    many = policy(OBSERVATIONS)
    np.testing.assert_allclose(policy(OBSERVATIONS[0]), many[0], rtol=1e-5)
    np.testing.assert_allclose(policy(OBSERVATIONS.reshape(2, 3, 3)).reshape(6, 2), many, rtol=1e-5)
    with pytest.raises(FovaError, match="3 numbers"):
        policy(np.zeros((4, 5)))


def test_a_stack_of_policies_plays_each_on_its_own_observations():
    policies = [make(seed=seed)[1] for seed in range(3)]
    together = stack(policies)(np.stack([OBSERVATIONS, OBSERVATIONS + 1, OBSERVATIONS - 1]))
    for i, shift in enumerate((0, 1, -1)):
        np.testing.assert_allclose(together[i], policies[i](OBSERVATIONS + shift), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["clipped", "squashed"])
def test_samples_have_the_actors_distribution(kind):
    actor, policy = make(kind)
    rows = np.repeat(OBSERVATIONS[:1], 4000, axis=0)
    ours = policy.sample(rows, np.random.default_rng(0))
    theirs = np.asarray(actor(jnp.asarray((rows - MEAN) / STD)).sample(jax.random.key(1)))
    theirs = LOW + (theirs + 1) / 2 * (HIGH - LOW)
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.1)
    assert (ours >= LOW).all()
    assert (ours <= HIGH).all()


class Always:
    """A generator that draws the same number always."""

    def __init__(self, number):
        self.number = number

    def standard_normal(self, shape, dtype):
        return np.full(shape, self.number, dtype)


@pytest.mark.parametrize(
    ("kind", "noise", "expected"),
    [
        ("squashed", 0.25, 5 * (np.tanh(1.0) + 1)),  # u = 0.5 + 2 * 0.25
        ("squashed", -0.25, 5.0),  # u = 0.5 - 2 * 0.25
        ("clipped", 0.25, 5 * (np.tanh(0.5) + 1.5)),
        ("clipped", -0.25, 5 * (np.tanh(0.5) + 0.5)),
        ("clipped", 3.0, 10.0),  # beyond the bounds
        ("clipped", -3.0, 0.0),
    ],
)
def test_a_sample_by_hand(kind, noise, expected):
    """Mean 0.5 before the tanh, standard deviation 2, actions between 0 and 10."""
    weights = {"last.weight": np.zeros((1, 2), np.float32), "last.bias": np.float32([0.5, np.log(2)])}
    policy = Policy(kind, weights, Space(1, Box.of(1, 0.0, 10.0)))
    for observation, shape in ((np.zeros(1), (1,)), (np.zeros((3, 1)), (3, 1))):
        sampled = policy.sample(observation, Always(noise))
        assert sampled.shape == shape
        np.testing.assert_allclose(sampled, np.full(shape, expected), rtol=1e-6, atol=1e-6)
    assert policy([0.0]) == pytest.approx(5 * (np.tanh(0.5) + 1), rel=1e-6)


def test_a_deterministic_policy_draws_nothing():
    _, policy = make("deterministic")
    np.testing.assert_array_equal(policy.sample(OBSERVATIONS, None), policy(OBSERVATIONS))


# --- Discrete actions ---

DOSES = Space(1, Discrete(("none", "low", "high")))


def linear(*biases, slopes=(0.0, 0.0, 0.0)):
    """A categorical policy of one observation without hidden layers."""
    return Policy("categorical", {"last.weight": np.float32([slopes]), "last.bias": np.float32(biases)}, DOSES)


def test_a_categorical_policy_gives_codes_and_their_probabilities():
    policy = linear(0.0, np.log(2.0), np.log(5.0), slopes=(2.0, 0.0, 0.0))
    assert policy([0.0]) == 2
    assert policy([0.0]).shape == ()
    codes = policy([[0.0], [1.0]])
    np.testing.assert_array_equal(codes, [2, 0])  # at 1: logits 2, 0.69, 1.61
    assert codes.dtype.kind == "i"
    np.testing.assert_allclose(policy.probabilities([0.0]), [1 / 8, 2 / 8, 5 / 8], rtol=1e-6)
    np.testing.assert_allclose(policy.probabilities([[0.0], [0.0]])[1], [1 / 8, 2 / 8, 5 / 8], rtol=1e-6)
    assert policy.space.action.names[policy([0.0])] == "high"


def test_samples_of_a_categorical_policy_have_its_probabilities():
    policy = linear(0.0, np.log(2.0), np.log(5.0))
    drawn = policy.sample(np.zeros((8000, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 8000, [1 / 8, 2 / 8, 5 / 8], atol=0.02)
    assert policy.sample([0.0], np.random.default_rng(0)).shape == ()


def test_large_logits_do_not_overflow():
    np.testing.assert_allclose(linear(1000.0, 0.0, -1000.0).probabilities([0.0]), [1, 0, 0])


def test_a_categorical_actor_is_saved_and_stacked_like_any_other(tmp_path):
    space = Space(3, DOSES.action)
    actor = make_actor(jax.random.key(0), space, "clipped", (8,), True, "fan_in")
    policy = from_actor(actor, Normaliser(MEAN, STD), space, origin="a test")
    expected = actor(jnp.asarray((OBSERVATIONS - MEAN) / STD)).probabilities()
    np.testing.assert_allclose(policy.probabilities(OBSERVATIONS), expected, rtol=1e-4)
    np.testing.assert_array_equal(policy(OBSERVATIONS), np.argmax(expected, axis=-1))
    policy.save(tmp_path / "policy.safetensors")
    again = load_policy(tmp_path / "policy.safetensors")
    assert again.kind == "categorical"
    assert again.space == space
    np.testing.assert_array_equal(again.probabilities(OBSERVATIONS), policy.probabilities(OBSERVATIONS))
    together = stack([policy, again])
    np.testing.assert_array_equal(together(np.stack([OBSERVATIONS] * 2))[1], policy(OBSERVATIONS))


def test_a_policy_and_its_space_are_of_one_kind():
    with pytest.raises(FovaError, match="categorical policy acts in a Discrete"):
        Policy("categorical", {}, SPACE)
    with pytest.raises(FovaError, match="squashed policy acts in a Box"):
        Policy("squashed", {}, DOSES)
    with pytest.raises(FovaError, match="have no probabilities"):
        make()[1].probabilities(OBSERVATIONS)
    with pytest.raises(FovaError, match=r"not numbers in \[-1, 1\]"):
        linear(0.0, 0.0, 0.0).unit_actions([0.0])


def test_a_categorical_policy_with_too_few_outputs_is_refused(tmp_path):
    policy = linear(0.0, 0.0, 0.0)
    words = r"last.weight has shape \(1, 3\), but \(1, 4\) is needed"
    with pytest.raises(FovaError, match=words):
        Policy("categorical", policy.weights, Space(1, Discrete.numbered(4)))
    policy.save(tmp_path / "policy.safetensors")
    about = json.loads((tmp_path / "policy.json").read_text())
    about |= {"kind": "categorical", "space": Space(1, Discrete.numbered(4)).to_json()}
    (tmp_path / "policy.json").write_text(json.dumps(about))
    with pytest.raises(FovaError, match=words):
        load_policy(tmp_path)


def test_a_policy_is_shown_in_one_line():
    weights = {"last.weight": np.ones((2, 2), np.float32), "last.bias": np.zeros(2, np.float32)}
    bare = Policy("clipped", weights, Space.unit(2, 1))
    assert repr(bare) == "<clipped policy: 2 observation columns and 1 action column, no hidden layer>"
    inputs = Recipe((Input("hr"), Input("map")))
    hidden = {"layers.0.weight": np.ones((2, 2), np.float32), "layers.0.bias": np.zeros(2, np.float32)}
    policy = Policy("clipped", hidden | weights, bare.space, {"algorithm": "fova", "task": None}, inputs)
    words = "2 observation columns and 1 action column, records of hr, map, hidden layers 2"
    assert str(policy) == f"<clipped policy of fova: {words}>"


def test_spread_is_clipped_like_the_network():
    assert LOG_STD_RANGE == networks.LOG_STD_RANGE


def test_a_range_of_the_log_std_of_its_own_is_kept(tmp_path):
    form = GaussianForm(log_std_range=(-20.0, 1.0))
    actor = make_actor(jax.random.key(0), SPACE, "squashed", (8,), form=form)
    size = SPACE.action.size
    actor = eqx.tree_at(lambda it: it.net.last.bias, actor, jnp.array([0.0] * size + [-12.0] * size))
    policy = from_actor(actor, None, SPACE)
    policy.save(tmp_path / "policy.safetensors")
    again = load_policy(tmp_path)
    assert again.log_std_range == to_actor(again).form.log_std_range == (-20.0, 1.0)
    noise = np.random.default_rng(1).normal(size=(6, size)).astype(np.float32)
    there = actor(jnp.asarray(OBSERVATIONS))
    expected = np.tanh(there.mean + np.exp(there.log_std) * noise)
    np.testing.assert_allclose(again.unit_actions(OBSERVATIONS, noise), expected, atol=1e-6)
    plain = Policy(policy.kind, policy.weights, policy.space)
    assert np.abs(plain.unit_actions(OBSERVATIONS, noise) - expected).max() > 1e-3
    with pytest.raises(FovaError, match="different kinds"):
        stack([plain, again])
    for wrong in ((1.0, -1.0), (-1e3, 1.0), (1.0,), (1.0, 2.0, 3.0)):
        with pytest.raises(FovaError, match="log_std_range"):
            Policy(policy.kind, policy.weights, policy.space, log_std_range=wrong)


@pytest.mark.parametrize("form", [GaussianForm(trained_log_std=True), GaussianForm(shared_std=True)])
def test_trained_numbers_of_the_log_std_are_part_of_the_saved_network(form):
    actor = make_actor(jax.random.key(0), SPACE, "squashed", (8,), initialisation="fan_in", form=form)
    actor = eqx.tree_at(lambda it: it.log_std, actor, jnp.array([1.7, -0.6]))
    noise = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)
    there = actor(jnp.asarray(OBSERVATIONS))
    expected = np.tanh(there.mean + np.exp(there.log_std) * noise)
    np.testing.assert_allclose(
        from_actor(actor, None, SPACE).unit_actions(OBSERVATIONS, noise), expected, rtol=1e-4
    )
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), actor)
    both = from_actor(stacked, None, SPACE).unit_actions(np.stack([OBSERVATIONS] * 2), np.stack([noise] * 2))
    np.testing.assert_allclose(both[1], expected, rtol=1e-4)


def test_without_a_normaliser_the_network_takes_raw_observations():
    actor, _ = make()
    identity = from_actor(actor, Normaliser.identity(3), SPACE)
    np.testing.assert_array_equal(from_actor(actor, None, SPACE)(OBSERVATIONS), identity(OBSERVATIONS))


def test_policies_that_differ_are_not_stacked():
    _, policy = make()
    for other in (
        make("squashed")[1],
        make(layer_norm=False)[1],
        Policy("clipped", policy.weights, Space.unit(3, 2)),
    ):
        with pytest.raises(FovaError, match="cannot be run as one"):
            stack([policy, other])


# --- What is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_observations_that_are_not_finite_are_refused_with_their_place(bad):
    _, policy = make()
    rows = OBSERVATIONS.copy()
    rows[4, 1] = bad
    for ask in (policy, policy.unit_actions, lambda x: policy.sample(x, np.random.default_rng(0))):
        with pytest.raises(FovaError, match=f"finite numbers, but column 1 of observation 4 is {bad}"):
            ask(rows)
        with pytest.raises(FovaError, match="column 1 of observation 0"):
            ask(rows[4])
    with pytest.raises(FovaError, match="column 1 of observation 10 is"):
        stack([policy, policy])(np.stack([OBSERVATIONS, rows]))


def test_observations_that_would_overflow_are_refused():
    _, policy = make(layer_norm=False)
    with pytest.raises(FovaError, match=r"Column 2 of observation 0 is 1e\+30, too large"):
        policy([0.0, 0.0, 1e30])
    assert np.isfinite(policy([0.0, 0.0, 1e14])).all()


def test_observations_that_are_no_numbers_are_refused():
    _, policy = make()
    for wrong in (["a", "b", "c"], [[1.0, 2.0, 3.0], [1.0]], None):
        with pytest.raises(FovaError, match=r"Observations must be|takes observations"):
            policy(wrong)


def test_no_observations_give_no_actions():
    _, policy = make()
    assert policy(np.zeros((0, 3))).shape == (0, 2)


def test_an_unknown_kind_or_action_space_is_refused():
    _, policy = make()
    with pytest.raises(FovaError, match="'tree', but must be one of clipped, squashed, deterministic"):
        Policy("tree", policy.weights, SPACE)
    with pytest.raises(FovaError, match="acts in a Box"):
        Policy("clipped", policy.weights, Space(3, Discrete.numbered(2)))


def test_saved_and_loaded_gives_the_same_actions(tmp_path):
    _, policy = make()
    policy.save(tmp_path / "policy.safetensors")
    for path in (tmp_path, tmp_path / "policy.safetensors"):
        again = load_policy(path)
        np.testing.assert_array_equal(again(OBSERVATIONS), policy(OBSERVATIONS))
        assert again.facts == {"task": "somewhere"}
        assert again.space == SPACE
    assert sorted(p.name for p in tmp_path.iterdir()) == ["policy.json", "policy.safetensors"]


def test_broken_policies_are_refused_with_their_name(tmp_path):
    with pytest.raises(FovaError, match="no policy at"):
        load_policy(tmp_path)
    path = tmp_path / "policy.safetensors"
    make()[1].save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FovaError, match="cannot be read"):
        load_policy(path)
    path.write_bytes(whole)
    (tmp_path / "policy.json").write_text("[]")
    with pytest.raises(FovaError, match="does not describe"):
        load_policy(path)
    (tmp_path / "policy.json").unlink()
    with pytest.raises(FovaError, match="cannot be read"):
        load_policy(path)


def save_as_version_1(policy, path):
    """As fova wrote policies before their space was part of the description."""
    low, high = policy.space.action.bounds
    save_file(policy.weights | {"action_low": low, "action_high": high}, path)
    path.with_suffix(".json").write_text(
        json.dumps({"format": "fova-policy-1", "kind": policy.kind} | policy.facts)
    )


def test_policies_of_the_first_format_are_still_read(tmp_path):
    _, policy = make()
    save_as_version_1(policy, tmp_path / "policy.safetensors")
    again = load_policy(tmp_path)
    np.testing.assert_array_equal(again(OBSERVATIONS), policy(OBSERVATIONS))
    assert (again.space, again.facts) == (SPACE, {"task": "somewhere"})
    again.save(tmp_path / "new.safetensors")
    assert json.loads((tmp_path / "new.json").read_text())["format"] == "fova-policy-2"


def test_a_policy_of_the_first_format_without_bounds_is_refused(tmp_path):
    _, policy = make()
    path = tmp_path / "policy.safetensors"
    save_as_version_1(policy, path)
    save_file(policy.weights, path)
    with pytest.raises(FovaError, match="action_high, action_low is missing"):
        load_policy(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "fova-policy-3"}, "does not describe a fova-policy-2"),
        ({"kind": "tree"}, "'tree', but must be one of"),
        ({"kind": None}, "None, but must be one of"),
        ({"kind": "deterministic"}, r"last\.weight has shape \(7, 4\), but \(7, 2\) is needed"),
        ({"space": None}, "None does not describe a space"),
        ({"space": {"observation": 3, "action": {"kind": "tree", "size": 4}}}, "of kind 'tree'"),
        ({"space": Space.unit(4, 2).to_json()}, "needed for 4 observation columns and 2 action columns"),
        ({"space": Space.unit(3, 5).to_json()}, "needed for 3 observation columns and 5 action columns"),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(tmp_path, change, words):
    path = tmp_path / "policy.safetensors"
    make()[1].save(path)
    description = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(description | change))
    with pytest.raises(FovaError, match=words) as caught:
        load_policy(path)
    assert str(caught.value).startswith(f"The policy {path} cannot be read: ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"last.bias": None}, r"last\.bias are missing"),
        ({"norms.1.scale": None}, r"norms\.1\.scale are missing"),
        ({"observation_std": None}, "observation_std are missing"),
        ({"layers.7.bias": np.zeros(3)}, r"layers\.7\.bias are missing or unknown"),
        ({"layers.1.weight": np.zeros((8, 6))}, r"layers\.1\.weight has shape \(8, 6\), but \(8, 7\)"),
        ({"last.bias": np.float32([0, np.nan, 0, 0])}, "last.bias holds numbers that are NaN"),
        ({"observation_std": np.float32([1, 0, 1])}, "observation_std holds numbers"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, change, words):
    path = tmp_path / "policy.safetensors"
    make()[1].save(path)
    weights = load_file(path) | change
    save_file({name: values for name, values in weights.items() if values is not None}, path)
    with pytest.raises(FovaError, match=words):
        load_policy(path)


@given(st.binary(max_size=60), st.integers(0, 900))
def test_mangled_weights_never_give_another_error(noise, at):
    content = MANGLED[:at] + noise + MANGLED[at + len(noise) :]
    with contextlib.suppress(FovaError):
        parse_weights(content)


MANGLED = save({"last.weight": np.zeros((3, 4), np.float32), "last.bias": np.zeros(4, np.float16)})


@pytest.mark.parametrize("kind", ["clipped", "squashed", "deterministic", "categorical"])
def test_a_policy_becomes_an_actor_again(kind):
    space = Space(3, Discrete.numbered(4)) if kind == "categorical" else Space.unit(3, 2)
    actor = make_actor(jax.random.key(1), space, "clipped" if kind == "categorical" else kind, (5, 6), True)
    policy = from_actor(actor, None, space)
    assert policy.hidden == (5, 6)
    again = to_actor(policy)
    assert type(again) is type(actor)
    jax.tree.map(np.testing.assert_array_equal, again, actor)
