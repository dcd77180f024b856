"""What all tests share: one compilation cache, made of tiny data and tiny networks."""

import os

# Before anything imports jax: tests are small, so one thread each and a cache that outlives the process.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import pytest

from fova import runtime
from fova.data.transitions import Episode, Transitions, from_episodes

runtime.prepare()


def make_episode(
    rng: np.random.Generator, steps: int, observation: int = 3, action: int = 2, terminated: bool = False
):
    return Episode(
        observations=rng.normal(size=(steps + 1, observation)).astype(np.float32),
        actions=rng.uniform(-1, 1, (steps, action)).astype(np.float32),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=terminated,
    )


def make_transitions(seed: int, episodes: int = 4, steps: int = 12) -> Transitions:
    """Random data with three observation and two action columns; every other episode ends by itself."""
    rng = np.random.default_rng(seed)
    return from_episodes(make_episode(rng, steps + i, terminated=i % 2 == 0) for i in range(episodes))


@pytest.fixture
def transitions() -> Transitions:
    return make_transitions(0)
