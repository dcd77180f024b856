"""The Maze2D simulator: D4RL's ball and walls as a Gymnasium environment directly on MuJoCo.

This module contains only the simulation, no data generation and no learning. Steps avoid unnecessary Python work,
because data generation and evaluation spend their time here.
"""

import math
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fova.errors import FovaError
from fova.tasks.maze2d import BALL_OFFSET, BALL_RADIUS, GOAL_RADIUS, Maze

Observation = NDArray[np.float64]  # [x, y, x velocity, y velocity]

SPEED_LIMIT = 5.0  # along each axis
START_SPREAD = 0.1
START_SPEED = 0.1


class MazeEnvironment(gymnasium.Env[Observation, NDArray[np.float32]]):
    """A ball pushed by two motors. The goal is fixed. Only the time limit ends an episode, by truncation.

    Reset puts the ball within 0.1 of the coordinates of a random free cell (the goal's cell included), with a small
    random velocity. `reset(options={"state": [x, y, vx, vy]})` sets exactly this state instead.
    """

    def __init__(self, maze: Maze, dense: bool) -> None:
        self.maze = maze
        self.dense = dense
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._model = mujoco.MjModel.from_xml_string(mjcf(maze))
        self._data = mujoco.MjData(self._model)
        self._goal = (float(maze.goal[0]), float(maze.goal[1]))
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self._model, self._data)  # resets the solver, too: equal starts give equal episodes
        state = self._chosen_state(options["state"]) if options and "state" in options else self._random_state()
        self._data.qpos[:], self._data.qvel[:] = state[:2], state[2:]
        self._steps = 0
        return self._observe(), {}

    def step(self, action: NDArray[np.floating]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        push_x, push_y = np.asarray(action).tolist()
        if math.isnan(push_x) or math.isnan(push_y):
            raise FovaError(
                f"The action is {[push_x, push_y]}, but two numbers in [-1, 1] are needed. "
                "NaN from a policy means that its training diverged: try an earlier checkpoint."
            )
        push, velocity = self._data.ctrl, self._data.qvel
        push[0], push[1] = clip(push_x, 1.0), clip(push_y, 1.0)
        # D4RL limits the speed before the step, so the observed speed can exceed the limit by one step's push.
        velocity_x, velocity_y = velocity.tolist()
        velocity[0], velocity[1] = clip(velocity_x, SPEED_LIMIT), clip(velocity_y, SPEED_LIMIT)
        mujoco.mj_step(self._model, self._data)
        self._steps += 1
        reward = self.reward(*self._data.qpos.tolist())
        return self._observe(), reward, False, self._steps >= self.maze.time_limit, {}

    def reward(self, x: float, y: float) -> float:
        """The reward at x, y. `step` uses the position after the step."""
        distance = math.hypot(x - self._goal[0], y - self._goal[1])
        if self.dense:
            return math.exp(-distance)
        return 1.0 if distance <= GOAL_RADIUS else 0.0

    def _random_state(self) -> Observation:
        cell = self.maze.cells[self.np_random.integers(len(self.maze.cells))]
        position = cell + self.np_random.uniform(-START_SPREAD, START_SPREAD, size=2)
        return np.concatenate([position, START_SPEED * self.np_random.standard_normal(2)])

    def _chosen_state(self, given: ArrayLike) -> Observation:
        state = np.asarray(given, np.float64)
        if state.shape != (4,) or not np.isfinite(state).all():
            raise FovaError(f"The start is {given!r}, but four numbers are needed: x, y and the two velocities.")
        if self.maze.cell_at(state[0], state[1]) not in self.maze.cells:
            raise FovaError(f"The start {state[:2].tolist()} lies in a wall. Free cells: {list(self.maze.cells)}.")
        return state

    def _observe(self) -> Observation:
        return np.concatenate((self._data.qpos, self._data.qvel))


def clip(value: float, bound: float) -> float:
    """The value clipped to [-bound, bound]. This is much faster than NumPy on single numbers."""
    return min(bound, max(-bound, value))


def mjcf(maze: Maze) -> str:
    """The maze as a MuJoCo model: one box per wall cell, and a ball on two sliding joints.

    D4RL also has a floor. It touches the ball but has no friction and never moves it, so it is left out.
    """
    walls = "\n".join(
        f'    <geom type="box" pos="{row + 1} {column + 1} 0" size="0.5 0.5 0.2"/>' for row, column in maze.walls
    )
    ball_origin = 1 + BALL_OFFSET
    return f"""
<mujoco model="maze2d-{maze.name}">
  <option timestep="0.01" integrator="Euler" iterations="20" gravity="0 0 0"/>
  <default>
    <geom condim="1" margin="0.002" friction="0.5 0.1 0.1" density="1000"/>
    <joint type="slide" damping="1"/>
    <motor gear="100" ctrllimited="true" ctrlrange="-1 1"/>
  </default>
  <worldbody>
{walls}
    <body name="ball" pos="{ball_origin} {ball_origin} 0">
      <geom type="sphere" size="{BALL_RADIUS}"/>
      <joint name="x" axis="1 0 0"/>
      <joint name="y" axis="0 1 0"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="x"/>
    <motor joint="y"/>
  </actuator>
</mujoco>
"""
