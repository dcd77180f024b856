"""Generation of Maze2D data: a planner, a waypoint controller, and the qualities of data.

The recipe is D4RL's: shortest path over the cells, proportional-derivative control from waypoint to waypoint.
D4RL's scripts have these known faults, which this module avoids:
- The state is not advanced where the target changes, so the next row repeats the previous observation.
- The plan outlives its episode: after the first reset the controller drives straight at the goal through walls.
- Rewards are computed for the observation before the action, while the environment uses the one after it.
- Rows where the target changes are stored as terminals, though the task never ends.
- The ball's cell is computed without the offset between ball and walls, so a plan can start inside a wall.
`undirected_trajectory(..., d4rl_compatible=True)` reproduces the first and the third fault.

Every random number comes from the generator passed in.
"""

import functools
import itertools
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Episode, Floats
from fova.errors import FovaError, unknown
from fova.tasks.maze2d import QUALITIES, Cell, Maze, MazeTask
from fova.tasks.maze_environment import MazeEnvironment, Observation, clip

Action = NDArray[np.float32]

POSITION_GAIN = 10.0
VELOCITY_GAIN = 1.0
REACHED = 0.1  # a waypoint counts as reached within this distance
WAYPOINT_SPREAD = 0.2  # a waypoint lies anywhere between its cell's coordinates and its middle
ACTION_NOISE = 0.5  # standard deviation in the quality `noisy`


# --- Planner ----------------------------------------------------------------------------------------------


def shortest_path(maze: Maze, start: Cell, target: Cell) -> list[Cell]:
    """The cells after `start` on a shortest path to `target`, `target` included. Empty if both are equal."""
    toward_target = _next_cells(maze, target)
    path, cell = [], start
    while cell != target:
        cell = toward_target[cell]
        path.append(cell)
    return path


@functools.cache
def _next_cells(maze: Maze, target: Cell) -> dict[Cell, Cell]:
    """For every cell, its neighbour nearer to the target, by breadth-first search from the target."""
    free = set(maze.cells)
    toward_target = {target: target}
    queue = deque([target])
    while queue:
        row, column = cell = queue.popleft()
        for neighbour in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if neighbour in free and neighbour not in toward_target:
                toward_target[neighbour] = cell
                queue.append(neighbour)
    return toward_target


# --- Controller -------------------------------------------------------------------------------------------


class WaypointController:
    """Drives the ball along a plan. The plan is made once, at creation, from the ball's position."""

    def __init__(self, maze: Maze, observation: Observation, target: Cell, rng: np.random.Generator) -> None:
        path = shortest_path(maze, maze.cell_at(observation[0], observation[1]), target) or [target]
        waypoints = np.array(path, dtype=np.float64)
        waypoints[:-1] -= WAYPOINT_SPREAD * rng.random((len(path) - 1, 2))  # the last one is the target exactly
        self._waypoints = waypoints.tolist()

    def act(self, observation: Observation) -> tuple[Action, bool]:
        """The push towards the current waypoint, and whether the ball has reached the last one."""
        x, y, velocity_x, velocity_y = observation.tolist()
        waypoint_x, waypoint_y = self._waypoints[0]
        way_x, way_y = waypoint_x - x, waypoint_y - y
        push = np.array(
            [
                clip(POSITION_GAIN * way_x - VELOCITY_GAIN * velocity_x, 1.0),
                clip(POSITION_GAIN * way_y - VELOCITY_GAIN * velocity_y, 1.0),
            ],
            np.float32,
        )
        # D4RL also requires that the ball moved less than 0.1 in this step; at top speed it moves less than 0.08.
        reached = math.hypot(way_x, way_y) < REACHED
        arrived = reached and len(self._waypoints) == 1
        if reached and not arrived:
            self._waypoints.pop(0)
        return push, arrived


# --- Data -------------------------------------------------------------------------------------------------


def episodes(task: MazeTask, quality: str, first_episode: int, seed: int) -> Iterator[Episode]:
    """Endless episodes, starting at number `first_episode`. All end by truncation; near and far ones end early.

    - expert: the planner to the goal, with a new plan in every episode.
    - noisy: the same with Gaussian noise on the actions.
    - undirected: as in D4RL, one random target after another, with rewards for the fixed goal. D4RL's data is one
      endless trajectory. Here every episode starts with a reset, so that each can be generated without the others.
    - near, far: the parts of expert episodes in the half of the maze nearer to the goal, and in the other half.
      Each covers a part of the way, so clients with such data need one another.
    - random: uniform actions.

    Episode i depends only on task, quality, seed and i.
    """
    if quality not in QUALITIES:
        raise unknown(f"quality of {task.name} data", quality, QUALITIES)
    if seed < 0:
        raise FovaError(f"The seed is {seed}, but must be a whole number of at least 0.")
    return _episodes(task, quality, first_episode, seed)


def _episodes(task: MazeTask, quality: str, number: int, seed: int) -> Iterator[Episode]:
    environment = task.make()
    stream = zlib.crc32(f"{task.name}/{quality}".encode())
    while True:
        rng = np.random.default_rng([seed, stream, number])
        yield _EPISODE_OF[quality](environment, rng)
        number += 1


def _expert_episode(environment: MazeEnvironment, rng: np.random.Generator) -> Episode:
    observation = _start(environment, rng)
    controller = WaypointController(environment.maze, observation, environment.maze.goal, rng)
    return _record(environment, observation, lambda seen: controller.act(seen)[0])


def _noisy_episode(environment: MazeEnvironment, rng: np.random.Generator) -> Episode:
    observation = _start(environment, rng)
    controller = WaypointController(environment.maze, observation, environment.maze.goal, rng)
    noise = iter(ACTION_NOISE * rng.standard_normal((environment.maze.time_limit, 2), np.float32))
    return _record(environment, observation, lambda seen: np.clip(controller.act(seen)[0] + next(noise), -1.0, 1.0))


def _undirected_episode(environment: MazeEnvironment, rng: np.random.Generator) -> Episode:
    return undirected_trajectory(environment, environment.maze.time_limit, rng)


def _near_episode(environment: MazeEnvironment, rng: np.random.Generator) -> Episode:
    return _longest_stretch(environment, rng, nearer_half(environment.maze))


def _far_episode(environment: MazeEnvironment, rng: np.random.Generator) -> Episode:
    return _longest_stretch(environment, rng, set(environment.maze.cells) - nearer_half(environment.maze))


def nearer_half(maze: Maze) -> set[Cell]:
    """The half of the cells with the shortest paths to the goal (the middle cell included)."""
    by_distance = sorted(maze.cells, key=lambda cell: len(shortest_path(maze, cell, maze.goal)))
    return set(by_distance[: (len(by_distance) + 1) // 2])


def _longest_stretch(environment: MazeEnvironment, rng: np.random.Generator, part: set[Cell]) -> Episode:
    """The longest unbroken stretch of an expert episode in a part of the maze. Its last step may lead out."""
    whole = _expert_episode(environment, rng)
    inside = [environment.maze.cell_at(x, y) in part for x, y in whole.observations[:-1, :2]]
    stretches = [
        [t for t, _ in steps] for within, steps in itertools.groupby(enumerate(inside), lambda s: s[1]) if within
    ]
    if not stretches:  # the ball was never in this part
        return _longest_stretch(environment, rng, part)
    longest = max(stretches, key=len)
    first, last = longest[0], longest[-1]
    return Episode(
        whole.observations[first : last + 2],
        whole.actions[first : last + 1],
        whole.rewards[first : last + 1],
        terminated=False,
    )


def _random_episode(environment: MazeEnvironment, rng: np.random.Generator) -> Episode:
    observation = _start(environment, rng)
    pushes = iter(rng.uniform(-1.0, 1.0, (environment.maze.time_limit, 2)).astype(np.float32))
    return _record(environment, observation, lambda _: next(pushes))


_EPISODE_OF: dict[str, Callable[[MazeEnvironment, np.random.Generator], Episode]] = {
    "expert": _expert_episode,
    "noisy": _noisy_episode,
    "undirected": _undirected_episode,
    "near": _near_episode,
    "far": _far_episode,
    "random": _random_episode,
}


def undirected_trajectory(
    environment: MazeEnvironment, steps: int, rng: np.random.Generator, d4rl_compatible: bool = False
) -> Episode:
    """One unbroken trajectory to random targets, each pursued until reached or for the task's time limit.

    With `d4rl_compatible` the trajectory is logged as in D4RL's script: the row after a change of target repeats
    the previous observation (and the next action is computed from it), and row t has the reward of observation t.
    The released files hold a million such steps in one trajectory, and mark the changes of target as time-outs.
    """
    maze = environment.maze
    observations, actions, rewards = _empty_rows(steps)
    observations[0] = seen = _start(environment, rng)
    controller = None
    for t in range(steps):
        if controller is None:
            target = maze.cells[rng.integers(len(maze.cells))]
            controller, pursued = WaypointController(maze, seen, target, rng), 0
        actions[t], arrived = controller.act(seen)
        reached, reward, *_ = environment.step(actions[t])
        rewards[t] = environment.reward(seen[0], seen[1]) if d4rl_compatible else reward
        target_changes = arrived or pursued >= maze.time_limit
        pursued += 1
        if target_changes:
            controller = None
        if not (target_changes and d4rl_compatible):
            seen = reached
        observations[t + 1] = seen
    return Episode(observations, actions, rewards, terminated=False)


def _record(
    environment: MazeEnvironment, observation: Observation, act: Callable[[Observation], Action]
) -> Episode:
    """A whole episode from the start `observation`. `act` returns actions as stored: float32, within bounds."""
    steps = environment.maze.time_limit
    observations, actions, rewards = _empty_rows(steps)
    observations[0] = observation
    for t in range(steps):
        actions[t] = act(observation)
        observation, rewards[t], *_ = environment.step(actions[t])
        observations[t + 1] = observation
    return Episode(observations, actions, rewards, terminated=False)


def _empty_rows(steps: int) -> tuple[Floats, Floats, Floats]:
    return np.empty((steps + 1, 4), np.float32), np.empty((steps, 2), np.float32), np.empty(steps, np.float32)


def _start(environment: MazeEnvironment, rng: np.random.Generator) -> Observation:
    """Reset with the episode's own random generator, so that earlier episodes have no influence."""
    environment.np_random = rng
    return environment.reset()[0]
