"""The trainer of behaviour policies on a task that takes seconds."""

import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fova.errors import FovaError
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.behaviour import BehaviourConfig, Evaluation, train_behaviour
from fova.tasks.behaviour_policy import read_policy
from tasks.track import Track

TRACK = BehaviourConfig(
    steps=2400,
    segment=240,
    warmup=240,
    chunk=80,
    batch=32,
    actor_hidden=(16,),
    critic_hidden=(16,),
    actor_rate=3e-3,
    critic_rate=3e-3,
    evaluation_episodes=8,
)


@pytest.fixture(scope="module", autouse=True)
def track():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_register_builtin", lambda: None)
        patch.setattr(registry, "_TASKS", {})
        registry.register(registry.Task(name="track", make=Track, space=Space.unit(1, 1), time_limit=20))
        yield


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory) -> tuple[Path, list[Evaluation]]:
    """A run without interruption."""
    directory = tmp_path_factory.mktemp("whole")
    told: list[Evaluation] = []
    assert train_behaviour("track", TRACK, directory, told.append) == told
    return directory, told


def test_training_improves_the_policy(whole_run):
    directory, history = whole_run
    assert history[-1].mean > 15 > history[0].mean  # 20 is the most there is; a policy that idles gets about 5
    last = read_policy(directory / "actor-00002400.safetensors")
    assert last(np.array([[1.2]]))[0, 0] < -0.3
    assert last(np.array([[-1.2]]))[0, 0] > 0.3


class Interrupted(Exception):
    pass


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path: Path, whole_run):
    whole, expected = whole_run

    def interrupt(evaluation: Evaluation) -> None:
        if evaluation.steps == 720:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_behaviour("track", TRACK, tmp_path, interrupt)
    # A file of the segment that was under way when the machine went down must do no harm.
    (tmp_path / "experience-0003.safetensors").write_bytes(b"half a file")
    assert train_behaviour("track", TRACK, tmp_path) == expected
    names = sorted(path.name for path in whole.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 10 + 10 + 1
    for name in names:
        assert (whole / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_a_finished_run_can_be_lengthened(tmp_path: Path, whole_run):
    train_behaviour("track", replace(TRACK, steps=480), tmp_path)
    assert train_behaviour("track", TRACK, tmp_path) == whole_run[1]
    once, twice = (load_file(directory / "learner.safetensors") for directory in (whole_run[0], tmp_path))
    assert once.keys() == twice.keys()
    assert all(np.array_equal(once[name], twice[name]) for name in once)


def test_step_sizes_settle():
    config = replace(TRACK, settle_at=480, settled=0.5)
    assert config.at(479) == config
    assert (config.at(480).actor_rate, config.at(480).critic_rate) == (1.5e-3, 1.5e-3)
    assert TRACK.at(10**9) == TRACK


def test_settling_changes_what_follows_and_nothing_before(tmp_path: Path, whole_run):
    # The decision may be taken during the run, as long as it concerns what is still to come.
    train_behaviour("track", replace(TRACK, steps=480), tmp_path)
    train_behaviour("track", replace(TRACK, steps=720, settle_at=480, settled=0.0), tmp_path)
    actors = [(tmp_path / f"actor-{steps:08d}.safetensors").read_bytes() for steps in (480, 720)]
    assert actors[0] == (whole_run[0] / "actor-00000480.safetensors").read_bytes()
    assert actors[1] == actors[0]  # with step sizes of 0 nothing moves any more
    with pytest.raises(FovaError, match="settle_at was 480, now 240"):
        train_behaviour("track", replace(TRACK, steps=720, settle_at=240, settled=0.0), tmp_path)


def test_another_config_in_the_same_directory_is_refused(tmp_path: Path):
    config = replace(TRACK, steps=240)
    train_behaviour("track", config, tmp_path)
    with pytest.raises(FovaError, match=r"holds another run: seed was 0, now 1; batch was 32, now 16"):
        train_behaviour("track", replace(config, seed=1, batch=16), tmp_path)


def test_experience_keeps_terminals_apart_from_time_limits(tmp_path: Path):
    train_behaviour("track", replace(TRACK, steps=240), tmp_path)
    rows = load_file(tmp_path / "experience-0000.safetensors")
    off_track = np.abs(rows["next_observations"][:, 0]) > 2
    np.testing.assert_array_equal(rows["terminals"], off_track.astype(np.float32))
    assert 0 < off_track.sum() < 240
    np.testing.assert_allclose(rows["next_observations"], rows["observations"] + 0.3 * rows["actions"], atol=1e-5)
    np.testing.assert_allclose(rows["rewards"], 1 - rows["next_observations"][:, 0] ** 2, atol=1e-5)


# --- What is refused --------------------------------------------------------------------------------------


def test_a_learner_of_another_version_is_refused(tmp_path: Path):
    train_behaviour("track", replace(TRACK, steps=240), tmp_path)
    path = tmp_path / "learner.safetensors"
    with safe_open(path, "numpy") as file:
        record = file.metadata()
    save_file({"0": np.zeros(3)}, path, record)
    with pytest.raises(FovaError, match="written by another version of fova"):
        train_behaviour("track", TRACK, tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FovaError, match=r"learner\.safetensors is damaged"):
        train_behaviour("track", TRACK, tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"steps": 250}, {"segment": 100, "steps": 100, "warmup": 100}, {"environments": 3}, {"critic_updates": 3}],
)
def test_sizes_that_do_not_fit_are_refused(change):
    with pytest.raises(FovaError, match="multiple of"):
        replace(TRACK, **change)


def test_unscaled_actions_are_refused(tmp_path: Path):
    def make():
        env = Track()
        env.action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))
        return env

    registry.register(registry.Task(name="wide", make=make, space=Space.unit(1, 1), time_limit=20))
    with pytest.raises(FovaError, match=r"\[-2, 2\].*RescaleAction"):
        train_behaviour("wide", TRACK, tmp_path)


def test_the_record_of_a_run_is_readable(tmp_path: Path):
    train_behaviour("track", replace(TRACK, steps=240), tmp_path)
    with safe_open(tmp_path / "learner.safetensors", "numpy") as file:
        record = json.loads(file.metadata()["run"])
    assert record["task"] == "track"
    assert BehaviourConfig(**{**record["config"], "actor_hidden": (16,), "critic_hidden": (16,)}).steps == 240
