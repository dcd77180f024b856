"""Which snapshots of a run become a task's levels, and what is written about them."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from safetensors.numpy import save_file

from fova.errors import FovaError
from fova.policy import Policy
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.behaviour import Evaluation
from fova.tasks.behaviour_levels import choose_levels, keep_levels
from fova.tasks.behaviour_policy import read_policy, save_policy


def history_of(*means: float) -> list[Evaluation]:
    return [Evaluation(steps=100 * (i + 1), mean=mean, sd=0.0) for i, mean in enumerate(means)]


def test_levels_of_a_short_way_to_medium():
    # a third of 300 is 100: 90 and 110 are as near, and the earlier one counts
    levels = choose_levels(history_of(0, 10, 5, 90, 120, 110, 300, 280), expert_steps=700)
    assert levels == {
        "expert": 700,
        "medium": 400,
        "ladder-00": 100,
        "ladder-01": 200,
        "ladder-02": 300,
        "ladder-03": 400,
    }


def test_levels_of_a_long_way_to_medium():
    # eight heights 0, 10, ... 70; each rung is the first snapshot that reached its height
    levels = choose_levels(history_of(0, 1, 12, 3, 35, 30, 38, 41, 52, 70, 210), expert_steps=1100)
    rungs = [steps for level, steps in levels.items() if level.startswith("ladder")]
    assert levels["medium"] == 1000
    assert rungs == [100, 300, 500, 800, 900, 1000]


def test_medium_lies_on_the_way_to_the_expert():
    assert choose_levels(history_of(0, 60, 300, 100), expert_steps=300)["medium"] == 200


class Constant(gymnasium.Env):
    """Three steps, each rewarded with the action."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), float(action[0]), self.time == 3, False, {}


def nearly_constant_policy(action: float) -> Policy:
    """Acts as told in every state, with the smallest spread there is."""
    bias = np.array([np.arctanh(action), -9], np.float32)
    return Policy("squashed", {"last.weight": np.zeros((1, 2), np.float32), "last.bias": bias}, Space.unit(1, 1))


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> Path:
    """A run whose best evaluation (step 400) was luck: over more episodes step 300 is better."""
    monkeypatch.setattr(registry, "_register_builtin", lambda: None)
    monkeypatch.setattr(registry, "_TASKS", {})
    registry.register(registry.Task(name="constant", make=Constant, space=Space.unit(1, 1), time_limit=3))
    run = tmp_path / "run"
    run.mkdir()
    for steps, action in ((100, 0.0), (200, 0.3), (300, 0.9), (400, 0.8)):
        save_policy(nearly_constant_policy(action), run / f"actor-{steps:08d}.safetensors")
    record = {"task": "constant", "config": {"seed": 4}, "history": history_of(0.0, 0.9, 2.7, 2.9)}
    save_file({"0": np.zeros(1)}, run / "learner.safetensors", {"run": json.dumps(record)})
    return run


def test_kept_levels_are_measured_anew(run: Path, tmp_path: Path):
    told = {}
    result = keep_levels(run, tmp_path / "kept", told.__setitem__)
    assert json.loads((tmp_path / "kept" / "policies.json").read_text()) == result
    assert {level: entry["steps"] for level, entry in result["policies"].items()} == {
        "expert": 300,
        "medium": 200,
        "ladder-00": 100,
        "ladder-01": 200,
    }
    assert result["policies"]["expert"]["mean"] == told["expert"] == pytest.approx(2.7, abs=0.05)
    assert result["policies"]["medium"]["mean"] == pytest.approx(0.9, abs=0.05)
    assert result["policies"]["expert"]["episodes"] == 20
    assert result["trained_steps"] == 400
    assert result["config"] == {"seed": 4}
    assert read_policy(tmp_path / "kept" / "expert.safetensors")(np.zeros(1)) == pytest.approx(0.9, abs=0.01)


def test_a_directory_without_a_run_is_named(tmp_path: Path):
    with pytest.raises(FovaError, match=r"holds no training run: learner\.safetensors is missing"):
        keep_levels(tmp_path, tmp_path / "kept")
