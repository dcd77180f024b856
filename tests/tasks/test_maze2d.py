"""The mazes as stated: layouts against D4RL's facts, and what the registry gets to know."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fova.errors import FovaError
from fova.spaces import Space
from fova.tasks import maze2d, registry
from fova.tasks.maze2d import LARGE, MEDIUM, UMAZE


@pytest.mark.parametrize(
    ("maze", "shape", "goal", "free", "time_limit"),
    [(UMAZE, (5, 5), (1, 1), 7, 300), (MEDIUM, (8, 8), (6, 6), 26, 600), (LARGE, (9, 12), (7, 9), 46, 800)],
)
def test_layouts(maze, shape, goal, free, time_limit):
    assert (len(maze.layout), *{len(line) for line in maze.layout}) == shape
    assert maze.goal == goal
    assert len(maze.cells) == free
    assert goal in maze.cells
    assert len(maze.walls) == shape[0] * shape[1] - free
    assert maze.time_limit == time_limit


def test_cells_of_the_umaze_with_the_goal_last():
    assert UMAZE.cells == ((1, 2), (1, 3), (2, 3), (3, 1), (3, 2), (3, 3), (1, 1))


def test_a_cell_reaches_from_seven_tenths_below_its_coordinates_to_three_tenths_above():
    # Wall boxes are centred on (row + 1, column + 1) of the world, the ball on (x + 1.2, y + 1.2).
    assert UMAZE.cell_at(0.31, 2.29) == (1, 2)
    assert UMAZE.cell_at(0.29, 2.31) == (0, 3)


def test_six_tasks_with_d4rls_scores():
    mazes = [name for name in registry.names() if name.startswith("maze2d")]
    kinds = ("umaze", "medium", "large")
    assert sorted(mazes) == sorted(f"maze2d-{kind}{suffix}" for kind in kinds for suffix in ("", "-dense"))
    task = registry.get("maze2d-large")
    assert task.qualities == ("expert", "noisy", "undirected", "near", "far", "random")
    assert task.space == Space.unit(4, 2)
    assert task.normalised_score(6.7) == 0.0
    assert task.normalised_score(273.99) == 100.0
    dense = registry.get("maze2d-umaze-dense")
    assert dense.normalised_score(68.537689) == 0.0
    assert dense.normalised_score(193.66285642381482) == pytest.approx(100.0)


def test_a_task_the_user_registers_under_one_of_the_names_stays():
    original = registry.get("maze2d-umaze")
    theirs = replace(original, description="mine")
    registry.register(theirs)
    try:
        assert registry.get("maze2d-umaze") is theirs
    finally:
        registry.register(original)


def test_an_unknown_maze_is_named_with_its_neighbours():
    with pytest.raises(FovaError, match="maze2d-umaze"):
        maze2d.maze_task("maze2d-umase")


def test_the_registry_needs_no_simulator_until_a_task_is_made():
    script = (
        "import sys; from fova.tasks import registry; registry.names()\n"
        "assert 'mujoco' not in sys.modules and 'gymnasium' not in sys.modules\n"
        "registry.get('maze2d-umaze').make()\n"
        "assert 'mujoco' in sys.modules and 'gymnasium' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_environment_holds_the_time_limit_of_the_task():
    task = registry.get("maze2d-umaze")
    environment = task.make()
    environment.reset(seed=0)
    ends = [environment.step(np.zeros(2, np.float32))[2:4] for _ in range(task.time_limit)]
    assert ends == [(False, False)] * 299 + [(False, True)]
