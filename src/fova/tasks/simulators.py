"""Environments side by side: one call steps them all. What is simulated is Gymnasium's, to the last bit.

`GymnasiumSimulators` steps any environments one after the other. `LocomotionSimulators` is the quick one: the
physics runs in as many threads as there are processors (MuJoCo lets go of Python's lock), and observations,
rewards and endings of all places are reckoned at once, by the formulas of Gymnasium's environments.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, cast

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Stepped(NamedTuple):
    """What one step led to, one row per place."""

    observations: Floats  # [places, observation]
    rewards: Floats  # [places]
    terminated: Flags  # [places] the task itself ended
    truncated: Flags  # [places] the environment's own limit was reached


class Simulators(Protocol):
    """A row of environments. Places are independent: what happens in one never depends on the others."""

    places: int

    def start(self, place: int, seed: int) -> Floats:
        """A fresh episode in one place; its first observation."""

    def step(self, actions: NDArray[np.float32]) -> Stepped:
        """One step in every place: [places, action] -> one row each."""


class GymnasiumSimulators:
    """Any environments, stepped one after the other."""

    def __init__(self, make: Callable[[], gymnasium.Env], places: int) -> None:
        self.places = places
        self._environments = [make() for _ in range(places)]

    def start(self, place: int, seed: int) -> Floats:
        return np.asarray(self._environments[place].reset(seed=seed)[0], np.float64)

    def step(self, actions: NDArray[np.float32]) -> Stepped:
        rows = [environment.step(action)[:4] for environment, action in zip(self._environments, actions)]
        observations, rewards, terminated, truncated = zip(*rows)
        return Stepped(
            np.stack(observations),
            np.asarray(rewards, np.float64),
            np.asarray(terminated, bool),
            np.asarray(truncated, bool),
        )


class Robot(NamedTuple):
    """What tells the four robots of Gymnasium v5 apart. All earn their speed minus the cost of their actions."""

    hidden_positions: int  # the first joint positions, which are not observed
    action_cost: float
    fastest_seen: float = np.inf  # velocities are observed within this bound
    heights: tuple[float, float] = (-np.inf, np.inf)  # where it counts as upright; outside, the episode ends
    angles: tuple[float, float] = (-np.inf, np.inf)
    states: tuple[float, float] = (-np.inf, np.inf)  # of every joint position from the angle on, and every velocity
    upright_reward: float = 0.0
    contact_cost: float = 0.0


ROBOTS = {
    "hopper": Robot(1, 1e-3, 10.0, (0.7, np.inf), (-0.2, 0.2), (-100.0, 100.0), upright_reward=1.0),
    "halfcheetah": Robot(1, 0.1),
    "walker2d": Robot(1, 1e-3, 10.0, (0.8, 2.0), (-1.0, 1.0), upright_reward=1.0),
    "ant": Robot(2, 0.5, upright_reward=1.0, contact_cost=5e-4),
}
ANT_HEIGHTS = (0.2, 1.0)  # these bounds count as upright themselves
TORSO = 1  # the body whose place is the ant's


class LocomotionSimulators:
    """One of Gymnasium's robots, many times."""

    def __init__(self, make: Callable[[], gymnasium.Env], robot: str, places: int = 16) -> None:
        self.places = places
        self._robot = ROBOTS[robot]
        self._is_ant = robot == "ant"
        # Gymnasium's environment starts the episodes and holds the model; its `step` is not used.
        self._starter = cast(Any, make().unwrapped)
        self._model: mujoco.MjModel = self._starter.model
        self._data = [mujoco.MjData(self._model) for _ in range(places)]
        # Views into MuJoCo's own memory, taken once because looking them up costs more than reading them.
        self._controls = [data.ctrl for data in self._data]
        self._positions = [data.qpos for data in self._data]
        self._velocities = [data.qvel for data in self._data]
        self._bodies = [data.xpos for data in self._data]
        self._contacts = [data.cfrc_ext for data in self._data]
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = min(processors, places)
        self._shares = [range(first, places, threads) for first in range(threads)]
        self._threads = ThreadPoolExecutor(max_workers=max(1, threads - 1))

    def start(self, place: int, seed: int) -> Floats:
        observation, _ = self._starter.reset(seed=seed)
        mujoco.mj_resetData(self._model, self._data[place])
        self._positions[place][:] = self._starter.data.qpos
        self._velocities[place][:] = self._starter.data.qvel
        mujoco.mj_forward(self._model, self._data[place])
        return np.asarray(observation, np.float64)

    def step(self, actions: NDArray[np.float32]) -> Stepped:
        before = self._forward_places()
        others = [self._threads.submit(self._simulate, share, actions) for share in self._shares[1:]]
        self._simulate(self._shares[0], actions)
        for other in others:
            other.result()
        positions, velocities = np.stack(self._positions), np.stack(self._velocities)
        upright = self._upright(positions, velocities)
        speeds = (self._forward_places() - before) / self._starter.dt
        rewards = speeds + upright * self._robot.upright_reward - self._costs(actions)
        seen = np.clip(velocities, -self._robot.fastest_seen, self._robot.fastest_seen)
        observations = np.concatenate([positions[:, self._robot.hidden_positions :], seen], axis=1)
        return Stepped(observations, rewards, ~upright, np.zeros(self.places, bool))

    def _costs(self, actions: NDArray[np.float32]) -> NDArray[np.floating]:
        # The cost of actions is reckoned in their own precision, as Gymnasium does it.
        costs = np.float32(self._robot.action_cost) * np.square(actions).sum(axis=1)
        if not self._robot.contact_cost:
            return costs
        forces = np.clip(np.stack(self._contacts).reshape(self.places, -1), -1.0, 1.0)
        return costs + self._robot.contact_cost * np.square(forces).sum(axis=1)

    def _simulate(self, share: range, actions: NDArray[np.float32]) -> None:
        for place in share:
            self._controls[place][:] = actions[place]
            mujoco.mj_step(self._model, self._data[place], nstep=self._starter.frame_skip)
            if self._robot.contact_cost:  # MuJoCo works out contact forces only when told to
                mujoco.mj_rnePostConstraint(self._model, self._data[place])

    def _forward_places(self) -> Floats:
        if self._is_ant:
            return np.array([bodies[TORSO, 0] for bodies in self._bodies])
        return np.array([positions[0] for positions in self._positions])

    def _upright(self, positions: Floats, velocities: Floats) -> Flags:
        if self._is_ant:
            low, high = ANT_HEIGHTS
            finite = np.isfinite(positions).all(axis=1) & np.isfinite(velocities).all(axis=1)
            return finite & (low <= positions[:, 2]) & (positions[:, 2] <= high)
        states = np.concatenate([positions[:, 2:], velocities], axis=1)
        return (
            _between(positions[:, 1], self._robot.heights)
            & _between(positions[:, 2], self._robot.angles)
            & _between(states, self._robot.states).all(axis=1)
        )


def _between(values: Floats, bounds: tuple[float, float]) -> Flags:
    return (bounds[0] < values) & (values < bounds[1])
