import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fova.data.normalise import Normaliser, client_sums, combine
from fova.errors import FovaError
from fova.networks import make_actor
from fova.policy import from_actor, load_policy, stack
from fova.spaces import Box, Space

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


def test_saved_and_loaded_gives_the_same_actions(tmp_path):
    _, policy = make()
    policy.save(tmp_path / "policy.safetensors")
    for path in (tmp_path, tmp_path / "policy.safetensors"):
        again = load_policy(path)
        np.testing.assert_array_equal(again(OBSERVATIONS), policy(OBSERVATIONS))
        assert again.facts == {"task": "somewhere"}
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
