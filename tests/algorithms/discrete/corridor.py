"""A tiny task with two actions: a corridor of five places, whose right end pays 1 and ends the episode."""

import jax
import numpy as np

from fova.algorithms.base import Data, pack
from fova.data.transitions import Episode, Transitions, from_episodes
from fova.spaces import Discrete, Space
from tiny import batch_of

PLACES, LIMIT = 5, 12
SPACE = Space(PLACES, Discrete(("left", "right")))
EVERY_PLACE = np.eye(PLACES, dtype=np.float32)[:-1]  # the right end is left at once


def walk(rng: np.random.Generator, right: float) -> Episode:
    """One episode of somebody who goes right with this probability."""
    place, seen, codes, rewards = int(rng.integers(PLACES - 1)), [], [], []
    while len(codes) < LIMIT and place < PLACES - 1:
        seen.append(place)
        codes.append(int(rng.random() < right))
        place = max(place + (1 if codes[-1] else -1), 0)
        rewards.append(float(place == PLACES - 1))
    observations = np.eye(PLACES, dtype=np.float32)[[*seen, place]]
    return Episode(observations, np.float32(codes)[:, None], np.float32(rewards), place == PLACES - 1)


def walks(seed: int, right: float, episodes: int = 60) -> Transitions:
    rng = np.random.default_rng(seed)
    return from_episodes(walk(rng, right) for _ in range(episodes))


def on_device(data: Transitions) -> Data:
    rows = pack(batch_of(data))
    return Data.of(rows, SPACE)


def trained(algorithm, data: Transitions, steps: int):
    """The actor after local steps alone, from one client's data."""
    learner = algorithm.init(jax.random.key(0), SPACE)
    broadcast, rows = algorithm.start(learner).broadcast, on_device(data)

    def step(learner, key):
        return algorithm.step(learner, broadcast, rows.sample(key, algorithm.batch_size), key)

    learner, metrics = jax.jit(lambda it, keys: jax.lax.scan(step, it, keys))(
        learner, jax.random.split(jax.random.key(1), steps)
    )
    return algorithm.local_policy(learner), metrics
