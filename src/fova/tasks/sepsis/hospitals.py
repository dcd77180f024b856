"""Hospitals of different skill: the behaviour that generates data of the sepsis task.

Under the benchmark's default rule for rare actions, patients survive random treatment as often as that of the
estimated clinicians. So hospitals of different skill are made: the optimal policy mixed with random treatment, and
the worst policy mixed with it.
"""

import functools
import itertools
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Episode
from fova.errors import FovaError, unknown
from fova.tasks.sepsis import HOSPITALS, TIME_LIMIT
from fova.tasks.sepsis.admissions import Sampler, SepsisSimulators
from fova.tasks.sepsis.tables import PATIENT_STATES, SURVIVED, Floats, tables
from fova.tasks.sepsis.values import optimal_policy, worst_policy

SKILL = {"expert": 0.9, "skilled": 0.6, "fair": 0.3}  # share of optimal treatment; the rest is random
TOGETHER = 256  # admissions that are simulated side by side


@functools.cache
def hospital(name: str) -> Floats:
    """The policy of a hospital as a table of probabilities [713, 25]."""
    if name not in HOSPITALS:
        raise unknown("hospital", name, HOSPITALS)
    if name == "clinician":
        return tables().clinicians
    random = np.full_like(tables().clinicians, 1.0 / tables().clinicians.shape[1])
    if name in SKILL:
        return SKILL[name] * optimal_policy() + (1.0 - SKILL[name]) * random
    return 0.5 * (worst_policy() + random) if name == "poor" else random


def episodes(name: str, first_episode: int, seed: int) -> Iterator[Episode]:
    """Endless admissions to a hospital, each with random numbers of its own."""
    if seed < 0:
        raise FovaError(f"The seed is {seed}, but must be a whole number of at least 0.")
    sampler = Sampler.of(hospital(name))
    simulators = SepsisSimulators(TOGETHER)
    stream = zlib.crc32(f"sepsis/{name}".encode())
    blocks = itertools.count(first_episode, TOGETHER)
    return itertools.chain.from_iterable(_block(simulators, sampler, [seed, stream], first) for first in blocks)


def _block(simulators: SepsisSimulators, sampler: Sampler, seed: list[int], first: int) -> Iterator[Episode]:
    """The admissions from number `first` on, as many as are simulated together."""
    treatments = [np.random.default_rng([*seed, first + place, 1]) for place in range(TOGETHER)]
    for place in range(TOGETHER):
        simulators.begin(place, np.random.default_rng([*seed, first + place, 0]))
    states, codes = [simulators.states.copy()], list[NDArray[np.int64]]()
    lengths = np.full(TOGETHER, TIME_LIMIT)
    playing = np.arange(TOGETHER)
    while len(playing) and len(codes) < TIME_LIMIT:
        actions = np.zeros((TOGETHER, 1), np.int64)
        uniform = np.array([treatments[place].random() for place in playing])
        actions[playing, 0] = sampler.draw(simulators.states[playing], uniform)
        stepped = simulators.step(actions, playing.tolist())
        codes.append(actions)
        states.append(simulators.states.copy())
        lengths[playing[stepped.terminated[playing]]] = len(codes)
        playing = playing[~stepped.terminated[playing]]
    visited, given = np.stack(states), np.stack(codes)
    features = tables().features.astype(np.float32)
    for place, length in enumerate(lengths):
        rewards = (visited[1 : length + 1, place] == SURVIVED).astype(np.float32)
        yield Episode(
            features[visited[: length + 1, place]],
            given[:length, place].astype(np.float32),
            rewards,
            bool(visited[length, place] >= PATIENT_STATES),
        )
