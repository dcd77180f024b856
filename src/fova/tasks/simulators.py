"""Environments side by side: one call steps them all. The results equal those of Gymnasium bit for bit.

`GymnasiumSimulators` steps any environments one after the other. `LocomotionSimulators` is faster: the physics runs
in as many threads as there are processors (MuJoCo releases Python's lock), and the observations, rewards and
endings of all places are computed at once, with the formulas of Gymnasium's environments.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, cast

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from fova.machine.runtime import processors

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Stepped(NamedTuple):
    """The results of one step, one row per place. Rows of places that did not play have no meaning."""

    observations: Floats  # [places, observation]
    rewards: Floats  # [places]
    terminated: Flags  # [places] the task itself ended
    truncated: Flags  # [places] the environment's own limit was reached


class Simulators(Protocol):
    """Several environments, one per place. Places are independent of each other."""

    places: int

    def start(self, place: int, seed: int) -> Floats:
        """Start a new episode in one place and return its first observation."""

    def step(self, actions: NDArray[Any], playing: Sequence[int]) -> Stepped:
        """Step the places in `playing`: [places, action] -> one row per place. Discrete actions are integers."""

    def close(self) -> None:
        """Release the environments' resources."""


class RestartableSimulators(Simulators, Protocol):
    """Simulators whose episodes can also start in the state that an observation shows."""

    def start_at(self, place: int, observation: NDArray[np.floating]) -> Floats:
        """Start a new episode in one place from this observation and return its first observation."""


class GymnasiumSimulators:
    """Any environments, stepped one after the other."""

    def __init__(self, make: Callable[[], gymnasium.Env], places: int) -> None:
        self.places = places
        self._environments = [make() for _ in range(places)]
        self._seen: list[Any] = [0.0] * places  # the last observation of each

    def start(self, place: int, seed: int) -> Floats:
        self._seen[place] = self._environments[place].reset(seed=seed)[0]
        return np.asarray(self._seen[place], np.float64)

    def step(self, actions: NDArray[Any], playing: Sequence[int]) -> Stepped:
        rewards = np.zeros(self.places)
        terminated, truncated = np.zeros(self.places, bool), np.zeros(self.places, bool)
        for place in playing:
            action = int(actions[place, 0]) if actions.dtype.kind == "i" else actions[place]
            stepped = self._environments[place].step(action)
            self._seen[place], rewards[place], terminated[place], truncated[place], _ = stepped
        return Stepped(np.stack(self._seen), rewards, terminated, truncated)

    def close(self) -> None:
        for environment in self._environments:
            environment.close()


class Robot(NamedTuple):
    """The differences between the four robots of Gymnasium v5. All earn their speed minus an action cost."""

    hidden_positions: int  # how many of the first joint positions are not observed
    action_cost: float
    fastest_seen: float = np.inf  # observed velocities are clipped to this bound
    # The robot is upright strictly within these bounds. Otherwise the episode ends.
    heights: tuple[float, float] = (-np.inf, np.inf)
    angles: tuple[float, float] = (-np.inf, np.inf)
    states: tuple[float, float] = (-np.inf, np.inf)  # of every joint position from the angle on, and every velocity
    upright_reward: float = 0.0
    contact_cost: float = 0.0
    height: int = 1  # index of the joint position that is the height; the angle is the next one
    torso: int | None = None  # body whose position is used; None: the first joint position is used


ROBOTS = {
    "hopper": Robot(1, 1e-3, 10.0, (0.7, np.inf), (-0.2, 0.2), (-100.0, 100.0), upright_reward=1.0),
    "halfcheetah": Robot(1, 0.1),
    "walker2d": Robot(1, 1e-3, 10.0, (0.8, 2.0), (-1.0, 1.0), upright_reward=1.0),
    "ant": Robot(
        hidden_positions=2,
        action_cost=0.5,
        heights=(float(np.nextafter(0.2, 0.0)), float(np.nextafter(1.0, 2.0))),  # 0.2 and 1 count as upright
        upright_reward=1.0,
        contact_cost=5e-4,
        height=2,
        torso=1,
    ),
}


class LocomotionSimulators:
    """Many copies of one of Gymnasium's robots."""

    def __init__(self, make: Callable[[], gymnasium.Env], robot: str, places: int) -> None:
        self.places = places
        self._robot = ROBOTS[robot]
        environment = make()
        self._time_limit = cast(Any, environment.spec).max_episode_steps
        # Gymnasium's environment starts the episodes and holds the model; its `step` is not used.
        self._starter = cast(Any, environment.unwrapped)
        self._model: mujoco.MjModel = self._starter.model
        # A single robot is a single island of constraints. A search for more costs time and changes nothing.
        self._model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
        self._data = [mujoco.MjData(self._model) for _ in range(places)]
        # Views into MuJoCo's memory, created once because looking them up costs more than reading them.
        self._controls = [data.ctrl for data in self._data]
        self._positions = [data.qpos for data in self._data]
        self._velocities = [data.qvel for data in self._data]
        self._torsos = (
            [data.xpos[self._robot.torso] for data in self._data] if self._robot.torso is not None else []
        )
        self._contacts = [data.cfrc_ext for data in self._data]
        self._upright_above, self._upright_below = _upright_bounds(self._robot, self._model.nq, self._model.nv)
        self._steps = np.zeros(places, np.int64)
        self._forward = np.zeros(places)  # forward position of each robot after its last step
        self._helpers = min(processors(), places) - 1
        self._threads = ThreadPoolExecutor(max_workers=max(1, self._helpers))

    def start(self, place: int, seed: int) -> Floats:
        observation, _ = self._starter.reset(seed=seed)
        self._set_state(place, self._starter.data.qpos, self._starter.data.qvel)
        return np.asarray(observation, np.float64)

    def start_at(self, place: int, observation: NDArray[np.floating]) -> Floats:
        """Positions that are not observed (how far the robot has come) are 0. No reward depends on them.

        Hopper and Walker2d observe clipped velocities: where one is at its bound, the robot may have been faster.
        """
        hidden = self._robot.hidden_positions
        state = np.concatenate([np.zeros(hidden), np.asarray(observation, np.float64)])
        self._set_state(place, state[: self._model.nq], state[self._model.nq :])
        return self._observed(self._positions[place][None], self._velocities[place][None])[0]

    def _set_state(self, place: int, positions: Floats, velocities: Floats) -> None:
        """Begin an episode of one place with these joint positions and velocities."""
        mujoco.mj_resetData(self._model, self._data[place])
        self._positions[place][:] = positions
        self._velocities[place][:] = velocities
        mujoco.mj_forward(self._model, self._data[place])
        self._steps[place] = 0
        self._forward[place] = (self._torsos or self._positions)[place][0]

    def step(self, actions: NDArray[np.float32], playing: Sequence[int]) -> Stepped:
        pending = iter(playing)  # shared by the threads: each takes the next place when it has finished one
        helpers = [self._threads.submit(self._simulate, pending, actions) for _ in range(self._helpers)]
        self._simulate(pending, actions)
        for helper in helpers:
            helper.result()
        self._steps[playing] += 1
        positions, velocities = self._rows(self._positions), self._rows(self._velocities)
        states = np.concatenate([positions, velocities], axis=1)
        upright = ((self._upright_above < states) & (states < self._upright_below)).all(axis=1)
        forward = self._rows(self._torsos)[:, 0] if self._torsos else positions[:, 0]
        speeds = (forward - self._forward) / self._starter.dt
        self._forward = forward.copy()
        rewards = speeds + upright * self._robot.upright_reward - self._costs(actions)
        observations = self._observed(positions, velocities)
        return Stepped(observations, rewards, np.logical_not(upright), self._steps >= self._time_limit)

    def close(self) -> None:
        self._threads.shutdown()
        self._starter.close()

    def _simulate(self, pending: Iterator[int], actions: NDArray[np.float32]) -> None:
        model, frames, contacts_count = self._model, self._starter.frame_skip, self._robot.contact_cost > 0
        for place in pending:
            self._controls[place][:] = actions[place]
            mujoco.mj_step(model, self._data[place], nstep=frames)
            if contacts_count:  # MuJoCo computes contact forces only on request
                mujoco.mj_rnePostConstraint(model, self._data[place])

    def _observed(self, positions: Floats, velocities: Floats) -> Floats:
        """The observations of these joint positions and velocities, one row per robot."""
        if self._robot.fastest_seen < np.inf:
            velocities = np.minimum(np.maximum(velocities, -self._robot.fastest_seen), self._robot.fastest_seen)
        return np.concatenate([positions[:, self._robot.hidden_positions :], velocities], axis=1)

    def _costs(self, actions: NDArray[np.float32]) -> NDArray[np.floating]:
        # The cost of actions is computed in the precision of the actions, as in Gymnasium.
        costs = np.float32(self._robot.action_cost) * np.square(actions).sum(axis=1)
        if not self._robot.contact_cost:
            return costs
        forces = np.clip(self._rows(self._contacts), -1.0, 1.0)
        return costs + self._robot.contact_cost * np.square(forces).sum(axis=1)

    def _rows(self, views: list[Any]) -> Floats:
        """The values of all places as one array, one row per place."""
        return np.concatenate(views).reshape(self.places, -1)


def _upright_bounds(robot: Robot, positions: int, velocities: int) -> tuple[Floats, Floats]:
    """Lower and upper bounds on every joint position and velocity of an upright robot."""
    angle = robot.height + 1
    bounds = np.full((positions + velocities, 2), robot.states)
    bounds[:angle] = -np.inf, np.inf
    bounds[robot.height] = robot.heights
    bounds[angle] = max(robot.angles[0], robot.states[0]), min(robot.angles[1], robot.states[1])
    return bounds[:, 0].copy(), bounds[:, 1].copy()
