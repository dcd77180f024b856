"""A task that takes seconds to learn."""

import gymnasium
import numpy as np


class Track(gymnasium.Env):
    """A cart on a line: pushed by the action, rewarded for being near 0, off the track beyond 2."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1.5, 1.5), 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += 0.3 * float(action[0])
        self.time += 1
        terminated = abs(self.place) > 2
        return np.array([self.place], np.float32), 1 - self.place**2, terminated, self.time >= 20, {}
