"""Behaviour policies as files: the same actions as the network they came from, and plain words when broken."""

import contextlib
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from fova import networks
from fova.errors import FovaError
from fova.policy import from_actor
from fova.spaces import Space
from fova.tasks import behaviour_policy
from fova.tasks.behaviour_policy import (
    behaviour_record,
    levels,
    load_behaviour,
    parse_policy,
    read_policy,
    save_policy,
)

SPACE = Space.unit(5, 2)


def fresh_actor(seed: int = 0) -> networks.GaussianActor:
    actor = networks.make_actor(jax.random.key(seed), SPACE, "squashed", (16, 16), initialisation="fan_in")
    rng = np.random.default_rng(seed)
    # Larger weights than at the start of training, so that mean and spread clearly depend on the state.
    return jax.tree.map(lambda leaf: (leaf + 0.3 * rng.normal(size=leaf.shape)).astype(np.float32), actor)


def test_numpy_policy_equals_the_jax_actor():
    actor = fresh_actor()
    observations = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    policy, distribution = from_actor(actor, None, SPACE), actor(observations)
    np.testing.assert_allclose(policy(observations), distribution.mode(), atol=1e-5)
    noise = np.random.default_rng(1).standard_normal((64, 2), np.float32)
    expected = jnp.tanh(distribution.mean + jnp.exp(distribution.log_std) * noise)
    np.testing.assert_allclose(policy.sample(observations, np.random.default_rng(1)), expected, atol=1e-5)
    assert np.std(expected) > 0.1


def test_file_round_trip_in_half_precision(tmp_path: Path):
    policy = from_actor(fresh_actor(3), None, SPACE)
    save_policy(policy, tmp_path / "p.safetensors")
    again = read_policy(tmp_path / "p.safetensors")
    assert (again.kind, again.space) == ("squashed", SPACE)
    assert again.weights.keys() == policy.weights.keys()
    for name, before in policy.weights.items():
        assert again.weights[name].dtype == np.float32
        np.testing.assert_array_equal(again.weights[name], before.astype(np.float16).astype(np.float32))
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]


# --- Broken files -----------------------------------------------------------------------------------------


def tensors_of(*widths: int) -> dict[str, np.ndarray]:
    pairs = list(itertools.pairwise(widths))
    return {f"weight.{i}": np.ones(pair, np.float16) for i, pair in enumerate(pairs)} | {
        f"bias.{i}": np.zeros(pair[1], np.float16) for i, pair in enumerate(pairs)
    }


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a whole safetensors file"),
        (b"\x80\x04K\x01.", "not a whole safetensors file"),
        (save(tensors_of(5, 4, 2))[:-3], "not a whole safetensors file"),
        (save({"other": np.zeros(3)}), "weight.0, bias.0"),
        (save({}), "it has nothing"),
        (save(tensors_of(5, 4, 3)), "3 outputs are not pairs"),
        (
            save(tensors_of(5, 4, 2) | {"bias.0": np.zeros(3, np.float16)}),
            r"layers\.0\.weight has shape \(5, 4\), but \(5, 3\)",
        ),
        (save(tensors_of(5, 4, 2) | {"weight.1": np.ones((3, 2), np.float16)}), r"last\.weight has shape \(3, 2\)"),
        (save(tensors_of(5, 4, 2) | {"weight.0": np.ones(5, np.float16)}), r"layers\.0\.weight has shape \(5,\)"),
        (save(tensors_of(5, 4, 2) | {"bias.1": np.array([0, np.nan], np.float16)}), "NaN"),
    ],
)
def test_broken_content_is_named(tmp_path: Path, content: bytes, told: str):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(FovaError, match=told) as caught:
        read_policy(path)
    assert str(path) in str(caught.value)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_mangled_content_never_gives_another_error(noise: bytes, at: int):
    whole = save(tensors_of(3, 4, 2))
    with contextlib.suppress(FovaError):
        parse_policy(whole[:at] + noise + whole[at + len(noise) :], "mangled")


def test_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FovaError, match=r"none\.safetensors cannot be read: No such file"):
        read_policy(tmp_path / "none.safetensors")


# --- The policies of the package --------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch) -> Path:
    """A shelf of our own with one task and one level."""
    (tmp_path / "track").mkdir()
    save_policy(from_actor(fresh_actor(), None, SPACE), tmp_path / "track" / "expert.safetensors")
    record = {"policies": {"expert": {"steps": 5, "mean": 1.0}, "medium": {"steps": 3, "mean": 0.5}}}
    (tmp_path / "track" / "policies.json").write_text(json.dumps(record))
    monkeypatch.setattr(behaviour_policy, "_shelf", lambda: tmp_path)
    return tmp_path


def test_shelf(shelf: Path):
    assert levels("track") == ["expert", "medium"]
    assert behaviour_record("track", "medium") == {"steps": 3, "mean": 0.5}
    assert load_behaviour("track", "expert")(np.zeros((4, 5))).shape == (4, 2)


def test_unknown_names_list_the_known_ones(shelf: Path):
    with pytest.raises(FovaError, match=r"no task with behaviour policies called 'trakc'.*Did you mean 'track'"):
        levels("trakc")
    for ask in (load_behaviour, behaviour_record):
        with pytest.raises(FovaError, match=r"called 'exprt'.*Did you mean 'expert'"):
            ask("track", "exprt")


def test_missing_and_broken_files_on_the_shelf(shelf: Path):
    with pytest.raises(FovaError, match=r"medium\.safetensors cannot be read"):
        load_behaviour("track", "medium")
    (shelf / "track" / "policies.json").write_text("{")
    with pytest.raises(FovaError, match=r"policies\.json cannot be read"):
        levels("track")


WEIGHTS = Path(behaviour_policy.__file__).parent / "weights"
SIZES = {"hopper": (11, 3), "halfcheetah": (17, 6), "walker2d": (17, 6), "ant": (27, 8)}
PACKAGED = [(directory.name, level) for directory in sorted(WEIGHTS.iterdir()) for level in levels(directory.name)]


@pytest.mark.parametrize(("task_name", "level"), PACKAGED)
def test_packaged_policies(task_name: str, level: str):
    observation, action = SIZES[task_name]
    actions = load_behaviour(task_name, level).sample(np.zeros((7, observation)), np.random.default_rng(0))
    assert actions.shape == (7, action)
    assert np.abs(actions).max() <= 1
    assert len(np.unique(actions, axis=0)) == 7  # sampled, not the mode
    assert (WEIGHTS / task_name / f"{level}.safetensors").stat().st_size < 100_000


@pytest.mark.parametrize("task_name", sorted({task_name for task_name, _ in PACKAGED}))
def test_packaged_records(task_name: str):
    named = {f"{level}.safetensors" for level in levels(task_name)} | {"policies.json"}
    assert named == {path.name for path in (WEIGHTS / task_name).iterdir()}
    returns = {level: behaviour_record(task_name, level)["mean"] for level in levels(task_name)}
    assert returns["ladder-00"] < returns["medium"] < returns["expert"]
