"""Experience for training behaviour policies: the environments that produce it, and the transitions it holds.

NumPy on the host. No learning and no file access here.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from gymnasium import Env
from numpy.typing import NDArray

from fova.algorithms.base import Batch
from fova.policy import Policy
from fova.spaces import Space

Rows = dict[str, NDArray]  # field of a transition -> one row for each transition


class Experience:
    """The transitions of a run in the order of collection."""

    def __init__(self, space: Space, capacity: int) -> None:
        self.size = 0
        self.rows: Rows = {
            "observations": np.zeros((capacity, space.observation), np.float32),
            "actions": np.zeros((capacity, space.action.size), np.float32),
            "rewards": np.zeros(capacity, np.float32),
            "next_observations": np.zeros((capacity, space.observation), np.float32),
            "terminals": np.zeros(capacity, np.float32),
        }

    def add(self, rows: Rows) -> None:
        end = self.size + len(rows["rewards"])
        for name, values in rows.items():
            self.rows[name][self.size : end] = values
        self.size = end

    def last(self, count: int) -> Rows:
        return {name: values[self.size - count : self.size] for name, values in self.rows.items()}

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Batch:
        """Transitions drawn uniformly with replacement, [*shape, ...]. What follows them is unknown."""
        chosen = rng.integers(self.size, size=shape)
        drawn = {name: jnp.asarray(values[chosen]) for name, values in self.rows.items()}
        unknown = jnp.zeros(shape)
        follows = {"next_actions": drawn["actions"], "has_next_action": unknown, "next_returns": unknown}
        return Batch(**drawn, **follows, uniform=None)


class Environments:
    """Environments stepped side by side. When an episode ends, the next one starts at once."""

    def __init__(self, environments: Sequence[Env], rng: np.random.Generator) -> None:
        self.environments = environments
        seeds = rng.integers(2**31, size=len(environments))
        self.observations = np.stack(
            [env.reset(seed=int(seed))[0] for env, seed in zip(environments, seeds)]
        ).astype(np.float32)

    def step(self, actions: NDArray) -> Rows:
        """Step every environment once and return the transitions."""
        before, rewards, terminals = self.observations.copy(), [], []
        after = np.empty_like(before)
        for i, env in enumerate(self.environments):
            after[i], reward, terminated, truncated, _ = env.step(actions[i])
            rewards.append(reward)
            terminals.append(terminated)
            self.observations[i] = env.reset()[0] if terminated or truncated else after[i]
        return {
            "observations": before,
            "actions": actions,
            "rewards": np.asarray(rewards, np.float32),
            "next_observations": after,
            "terminals": np.asarray(terminals, np.float32),
        }


def sampled_actions(policy: Policy, observations: NDArray, rng: np.random.Generator) -> NDArray:
    """A random action in [-1, 1] for each row: [n, observation] -> [n, action]."""
    noise = rng.standard_normal((len(observations), policy.space.action.size), np.float32)
    return policy.unit_actions(observations, noise)


def measure_returns(policy: Policy, environments: Sequence[Env], seed: Sequence[int]) -> NDArray:
    """The return of one episode with sampled actions in each environment, played side by side."""
    rng = np.random.default_rng(seed)
    playing = list(range(len(environments)))
    returns = np.zeros(len(environments))
    observations = Environments(environments, rng).observations
    while playing:
        actions = sampled_actions(policy, observations[playing], rng)
        for i, action in zip(list(playing), actions):
            observations[i], reward, terminated, truncated, _ = environments[i].step(action)
            returns[i] += reward
            if terminated or truncated:
                playing.remove(i)
    return returns
