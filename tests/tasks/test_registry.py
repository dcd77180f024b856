import builtins
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.registry import Task
from tiny import make_transitions, save_npz

LOCOMOTION = ("ant", "halfcheetah", "hopper", "walker2d")
ADROIT = ("door", "hammer", "pen", "relocate")
GLUCOSE = ("glucose", "glucose-adolescent", "glucose-adult", "glucose-child")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", {})


def test_every_built_in_task_is_known():
    mazes = [f"maze2d-{size}{reward}" for size in ("umaze", "medium", "large") for reward in ("", "-dense")]
    assert registry.names() == sorted([*LOCOMOTION, *ADROIT, *GLUCOSE, *mazes, "sepsis"])


@pytest.mark.parametrize("name", [*LOCOMOTION, *ADROIT, *GLUCOSE, "maze2d-umaze"])
def test_facts_agree_with_the_environment(name):
    task = registry.get(name)
    environment = task.make()
    assert environment.observation_space.shape == (task.space.observation,)
    assert environment.action_space.shape == (task.space.action.size,)
    np.testing.assert_array_equal(environment.action_space.low, task.space.action.low)
    np.testing.assert_array_equal(environment.action_space.high, task.space.action.high)
    if environment.spec is not None:
        assert environment.spec.max_episode_steps == task.time_limit


@pytest.mark.parametrize(
    ("name", "random", "expert"),
    [("hopper", -20.272305, 3234.3), ("ant", -325.6, 3879.7), ("pen", 96.262799, 3076.8331017826877)],
)
def test_the_reference_scores_are_0_and_100(name, random, expert):
    task = registry.get(name)
    assert task.normalised_score(random) == 0.0
    assert task.normalised_score(expert) == pytest.approx(100.0)
    assert task.normalised_score((random + expert) / 2) == pytest.approx(50.0)


def test_a_task_of_the_users_own_wins_over_a_built_in_one_whenever_it_is_registered():
    mine = Task("hopper", make=lambda: None, space=Space.unit(1, 1), time_limit=5)
    registry.register(mine)  # before anybody asked for a built-in task
    assert registry.get("hopper") is mine
    assert registry.get("ant").space == Space.unit(27, 8)
    assert registry.get("hopper") is mine


def test_a_task_of_the_users_own_trains_on_files_without_making_data(tmp_path):
    registry.register(Task("pendulum", make=lambda: None, space=Space.unit(3, 2), time_limit=5))
    save_npz(tmp_path / "log.npz", make_transitions(0))
    federation = Federation.build([ClientSpec(str(tmp_path / "log.npz"))], registry.get("pendulum"))
    assert federation.space == Space.unit(3, 2)
    assert registry.get("pendulum").normalised_score(1.0) is None


def test_a_misspelt_task_is_told_its_neighbours():
    with pytest.raises(FovaError, match="'hopper'"):
        registry.get("hoper")


def test_a_missing_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without_robotics(name, *rest):
        if name == "gymnasium_robotics":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_robotics)
    with pytest.raises(FovaError, match=r"fova\[adroit\]"):
        registry.get("pen").make()


def test_the_registry_is_light():
    script = "import sys; from fova.tasks import registry\n" + "".join(
        f"assert {module!r} not in sys.modules\n" for module in ("jax", "gymnasium", "mujoco", "minari")
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_task_in_the_documentation_works():
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    code = page.split("## A task of your own")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/tasks.md", "exec"), {})
    task = registry.get("pendulum")
    federation = Federation.build([ClientSpec("random", 300), ClientSpec("random", 100)], task)
    assert [len(data) for data in federation.clients.values()] == [300, 100]
    assert federation.space.action.high == (2.0,)
    assert list(federation.clients["random-1"].episode_lengths()) == [200, 100]
