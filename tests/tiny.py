"""Small made-up data for tests of everything that needs some."""

from pathlib import Path

import numpy as np

from fova.algorithms.base import FIELDS, Batch
from fova.data.returns import next_returns
from fova.data.transitions import Episode, Transitions, from_episodes


def make_episode(
    rng: np.random.Generator, steps: int, observation: int = 3, action: int = 2, terminated: bool = False
) -> Episode:
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


def batch_of(data: Transitions, discount: float = 0.99) -> Batch:
    """All rows of prepared data as one minibatch."""
    fields = {name: getattr(data, name) for name in FIELDS if name != "next_returns"}
    return Batch(**fields, next_returns=next_returns(data, discount))


def npz_arrays(data: Transitions) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file as a user would have it."""
    return {
        "observations": data.observations,
        "actions": data.actions,
        "rewards": data.rewards,
        "next_observations": data.next_observations,
        "terminals": data.terminals > 0,
        "timeouts": data.episode_ends & (data.terminals == 0),
    }


def save_npz(path: Path, data: Transitions) -> None:
    np.savez(path, **npz_arrays(data))
