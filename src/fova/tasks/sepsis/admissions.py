"""Admissions to intensive care, simulated from the tables of ICU-Sepsis. Many patients are stepped at once.

The distribution is that of the package's environment. The random numbers are not: an admission depends only on its
seed, whoever else is simulated.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.tasks.sepsis import ACTIONS, FEATURES, TIME_LIMIT
from fova.tasks.sepsis.tables import PATIENT_STATES, STATES, SURVIVED, Floats, Tables, tables
from fova.tasks.simulators import Stepped

Codes = NDArray[np.int64]


class Sampler(NamedTuple):
    """Draws from many distributions at once: row r lies in (r, r + 1] of one ascending array."""

    cumulative: Floats
    outcomes: NDArray[np.int32]

    @staticmethod
    def of(probabilities: Floats) -> "Sampler":
        """`probabilities` [rows, outcomes]. Outcomes of probability 0 take no space."""
        rows, outcomes = np.nonzero(probabilities)
        sums = np.cumsum(probabilities, axis=1)
        # The last outcome of a row ends at the next row exactly, so that rounding never leads into it.
        cumulative: Floats = np.minimum(sums[rows, outcomes], 1.0) + rows
        last = np.append(rows[1:] != rows[:-1], True)
        cumulative[last] = rows[last] + 1.0
        return Sampler(cumulative, outcomes.astype(np.int32))

    def draw(self, rows: Codes, uniform: Floats) -> Codes:
        """An outcome of each of these rows; `uniform` are numbers in [0, 1)."""
        # The tiny step down from the upper end matters only where rows + uniform is rounded to the next row.
        at = np.minimum(rows + uniform, np.nextafter(rows + 1.0, 0.0))
        return self.outcomes[np.searchsorted(self.cumulative, at, side="right")].astype(np.int64)


@functools.cache
def next_states() -> Sampler:
    """Draws the next state from row state * 25 + action."""
    return Sampler.of(tables().transitions.reshape(PATIENT_STATES * len(ACTIONS), STATES))


@functools.cache
def first_states() -> Sampler:
    return Sampler.of(tables().starts[None])


class SepsisSimulators:
    """Many patients, one per place."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.states: Codes = np.zeros(places, np.int64)
        self._tables: Tables = tables()
        self._steps = np.zeros(places, np.int64)
        self._generators = [np.random.default_rng(0)] * places

    def start(self, place: int, seed: int) -> Floats:
        return self.begin(place, np.random.default_rng(seed))

    def begin(self, place: int, rng: np.random.Generator) -> Floats:
        """Start an admission whose random numbers come from this generator, and return its first observation."""
        self._generators[place] = rng
        self.states[place] = first_states().draw(np.zeros(1, np.int64), rng.random(1))[0]
        self._steps[place] = 0
        return self._tables.features[self.states[place]].copy()

    def step(self, actions: NDArray[Any], playing: Sequence[int]) -> Stepped:
        here = np.asarray(playing, np.int64)
        codes = np.asarray(actions).reshape(self.places, -1)[here, 0]
        whole = codes.astype(np.int64)
        if not ((whole == codes) & (whole >= 0) & (whole < len(ACTIONS))).all():
            raise FovaError(f"An action of the sepsis task is a whole number from 0 to {len(ACTIONS) - 1}.")
        uniform = np.array([self._generators[place].random() for place in here])
        self.states[here] = next_states().draw(self.states[here] * len(ACTIONS) + whole, uniform)
        self._steps[here] += 1
        ended = self.states >= PATIENT_STATES
        rewards = (self.states == SURVIVED).astype(np.float64)
        return Stepped(self._tables.features[self.states], rewards, ended, self._steps >= TIME_LIMIT)

    def close(self) -> None:
        """Nothing has to be released."""


class SepsisEnvironment(gymnasium.Env[Floats, np.int64]):
    """One patient as a Gymnasium environment. Without a seed, reset draws one."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (FEATURES,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self._simulators = SepsisSimulators(1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        return self._simulators.start(0, drawn), {"state": int(self._simulators.states[0])}

    def step(self, action: int | np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        stepped = self._simulators.step(np.array([[action]]), [0])
        observation, reward, terminated, truncated = (values[0] for values in stepped)
        state = {"state": int(self._simulators.states[0])}
        return observation, float(reward), bool(terminated), bool(truncated), state
