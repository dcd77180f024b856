"""Maze2D: push a ball through a maze to a fixed goal and keep it there. Layouts, scores and registration.

There are six tasks: three mazes, each with a sparse reward (1 within half a cell of the goal) and a dense one
(exp(-distance)). Layouts, physics and reference scores are those of D4RL's maze2d-*-v1. This module is cheap to
import: the simulator (`maze_environment.py`) and the data recipe (`maze_planner.py`) are loaded when a task is
first made.

There are two frames. A cell is (row, column) of the layout as printed, and the observed x and y run along rows and
columns in units of cells. The ball's frame is shifted against the walls: a ball that is observed at x = row, y =
column lies `BALL_OFFSET` past the middle of that cell along both axes. D4RL's data has this shift, so fova keeps
it.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fova.data.transitions import Episode
from fova.errors import unknown
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.reference_scores import REFERENCE_SCORES

if TYPE_CHECKING:
    from fova.tasks.maze_environment import MazeEnvironment

Cell = tuple[int, int]  # (row, column)

BALL_OFFSET = 0.2
BALL_RADIUS = 0.1
GOAL_RADIUS = 0.5
QUALITIES = ("expert", "noisy", "undirected", "near", "far", "random")
RECIPE = 1  # increase it when the data changes, so that stored data is generated again


@dataclass(frozen=True)
class Maze:
    """Walls (#), free cells (O) and one goal (G). Walls surround the maze."""

    name: str
    layout: tuple[str, ...]
    time_limit: int

    @functools.cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells where the ball can be: row by row, then the goal. D4RL draws starts from this order."""
        return (*self._cells_marked("O"), self.goal)

    @functools.cached_property
    def walls(self) -> tuple[Cell, ...]:
        return self._cells_marked("#")

    @functools.cached_property
    def goal(self) -> Cell:
        (goal,) = self._cells_marked("G")
        return goal

    def cell_at(self, x: float, y: float) -> Cell:
        """The cell that contains the middle of a ball observed at x, y."""
        return round(x + BALL_OFFSET), round(y + BALL_OFFSET)

    def _cells_marked(self, mark: str) -> tuple[Cell, ...]:
        return tuple(
            (row, column)
            for row, line in enumerate(self.layout)
            for column, found in enumerate(line)
            if found == mark
        )


UMAZE = Maze(
    name="umaze",
    time_limit=300,
    layout=(
        "#####",
        "#GOO#",
        "###O#",
        "#OOO#",
        "#####",
    ),
)
MEDIUM = Maze(
    name="medium",
    time_limit=600,
    layout=(
        "########",
        "#OO##OO#",
        "#OO#OOO#",
        "##OOO###",
        "#OO#OOO#",
        "#O#OO#O#",
        "#OOO#OG#",
        "########",
    ),
)
LARGE = Maze(
    name="large",
    time_limit=800,
    layout=(
        "############",
        "#OOOO#OOOOO#",
        "#O##O#O#O#O#",
        "#OOOOOO#OOO#",
        "#O####O###O#",
        "#OO#O#OOOOO#",
        "##O#O#O#O###",
        "#OO#OOO#OGO#",
        "############",
    ),
)


@dataclass(frozen=True)
class MazeTask:
    """A maze with one of the two rewards."""

    maze: Maze
    dense: bool

    @property
    def name(self) -> str:
        return f"maze2d-{self.maze.name}{'-dense' if self.dense else ''}"

    def make(self) -> "MazeEnvironment":
        from fova.tasks.maze_environment import MazeEnvironment

        return MazeEnvironment(self.maze, self.dense)

    def generate(self, quality: str, first_episode: int, seed: int) -> Iterator[Episode]:
        from fova.tasks import maze_planner

        return maze_planner.episodes(self, quality, first_episode, seed)


MAZE_TASKS = {
    task.name: task
    for task in (MazeTask(maze, dense) for maze in (UMAZE, MEDIUM, LARGE) for dense in (False, True))
}

SOURCE = (
    "Layouts, physics, time limits, data recipe and reference scores: D4RL maze2d-*-v1 (Farama-Foundation/D4RL). "
    "Its expert score is the return of a controller that plans in the first episode only and then drives straight "
    "at the goal, through walls; a planner that replans in each episode scores 130 to 210, so 100 is not a "
    "maximum. Its random score is a mean of 100 episodes with a standard error of several points of return."
)


def maze_task(name: str) -> MazeTask:
    """The maze task with this name. An unknown name raises an error that lists the six tasks."""
    if name not in MAZE_TASKS:
        raise unknown("maze task", name, MAZE_TASKS)
    return MAZE_TASKS[name]


def tasks() -> Iterator[registry.Task]:
    """The six tasks as registry entries."""
    for task in MAZE_TASKS.values():
        scores = REFERENCE_SCORES[task.name]
        yield registry.Task(
            name=task.name,
            make=task.make,
            space=Space.unit(4, 2),
            time_limit=task.maze.time_limit,
            qualities=QUALITIES,
            generate=task.generate,
            random_score=scores.random,
            expert_score=scores.expert,
            description=(
                f"Push a ball to the goal of the {task.maze.name} maze and keep it there; "
                + ("reward exp(-distance)." if task.dense else "reward 1 within half a cell of the goal.")
            ),
            source=SOURCE,
            recipe=lambda quality: {"behaviour": quality, "recipe": RECIPE},
        )
