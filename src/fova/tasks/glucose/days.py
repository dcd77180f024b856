"""A day of a patient with type 1 diabetes as an episode: meals, a glucose sensor, insulin every quarter of an hour.

An observation holds what a person who doses insulin sees (`COLUMNS`), an action is the insulin of the next quarter
of an hour in hundredths of the patient's daily insulin, and the reward is the clinical risk of the glucose at its
end, negative. Many days run side by side. A day depends only on its seed: seed modulo the number of patients is the
patient, so that consecutive seeds cover all patients evenly.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.tasks.glucose.model import MINUTES_PER_DAY, Floats, minute, patients
from fova.tasks.glucose.table import COLUMNS, LARGEST_DOSE, STEPS
from fova.tasks.simulators import Stepped

MINUTES = MINUTES_PER_DAY // STEPS  # between two decisions
EATING_RATE = 5.0  # grams per minute
# What a day's meals are like: hour, its spread, earliest and latest hour, probability, grams and their spread.
# Breakfast, lunch and dinner, and a snack after each.
MEALS = np.array(
    [
        (7.0, 1.0, 5.0, 9.0, 0.95, 45.0, 10.0),
        (9.5, 0.5, 9.0, 10.0, 0.3, 10.0, 5.0),
        (12.0, 1.0, 10.0, 14.0, 0.95, 70.0, 10.0),
        (15.0, 0.5, 14.0, 16.0, 0.3, 10.0, 5.0),
        (18.0, 1.0, 16.0, 20.0, 0.95, 80.0, 10.0),
        (21.5, 0.5, 20.0, 23.0, 0.3, 10.0, 5.0),
    ]
)
SENSOR_NOISE = 7.0  # standard deviation in mg/dL
SENSOR_MEMORY = 0.7  # correlation of the noise of two consecutive readings
INSULIN_HALF_LIFE = 60.0  # minutes; of the estimate of insulin on board
LOWEST, HIGHEST = 10.0, 600.0  # mg/dL; beyond these the episode ends
END_REWARD = -50.0


class Day(NamedTuple):
    """What is random in a day."""

    patient: int
    meals: Floats  # [STEPS] grams of the meal that starts with each quarter of an hour
    noise: Floats  # [STEPS + 1] of the sensor, mg/dL


def draw_day(patient: int, rng: np.random.Generator) -> Day:
    """A random day of a patient."""
    hour, spread, earliest, latest, probability, grams, grams_spread = MEALS.T
    happens = rng.random(len(MEALS)) < probability
    times = np.clip(rng.normal(hour, spread), earliest, latest - MINUTES / 60.0)
    sizes = np.round(np.maximum(rng.normal(grams, grams_spread), 0.0))
    meals = np.zeros(STEPS)
    meals[np.floor(times * 60.0 / MINUTES).astype(int)] = np.where(happens, sizes, 0.0)  # windows do not overlap
    innovations = rng.standard_normal(STEPS + 1)
    noise = np.empty(STEPS + 1)
    noise[0] = innovations[0]
    for step in range(STEPS):
        fresh = np.sqrt(1.0 - SENSOR_MEMORY**2) * innovations[step + 1]
        noise[step + 1] = SENSOR_MEMORY * noise[step] + fresh
    return Day(patient, meals, SENSOR_NOISE * noise)


def risk(glucose: Floats) -> Floats:
    """The clinical risk of a glucose in mg/dL: 0 near 112, about 25 at 50 and 38 at 350."""
    return 10.0 * (1.509 * (np.log(glucose) ** 1.084 - 5.381)) ** 2


class GlucoseSimulators:
    """Many patients, one per place; all are stepped at once."""

    def __init__(self, group: str | None, places: int) -> None:
        self.places = places
        self.observation = len(COLUMNS)
        self.everybody = patients(group)
        self.patients = self.everybody.chosen([0] * places)
        self.rows = np.zeros(places, np.int64)  # which patient of `everybody` is in each place
        self._state = self.patients.start.copy()
        self._meals = np.zeros((STEPS, places))
        self._noise = np.zeros((STEPS + 1, places))
        self._clock = np.zeros(places, np.int64)
        self._on_board = np.zeros(places)  # hundredths of the daily insulin
        self._readings = np.zeros((3, places))  # the last three, newest first
        self._to_eat = np.zeros(places)  # grams of the current meal
        self._eating = np.zeros(places, bool)
        self._meal_size = np.zeros(places)  # mg

    @property
    def glucose(self) -> Floats:
        """The true glucose of each place in mg/dL."""
        return self.patients.glucose(self._state)

    def start(self, place: int, seed: int) -> Floats:
        return self.begin(place, draw_day(seed % len(self.everybody), np.random.default_rng(seed)))

    def begin(self, place: int, day: Day) -> Floats:
        """Start a given day in one place and return its first observation."""
        here, chosen = slice(place, place + 1), self.everybody.chosen([day.patient])
        self.rows[place] = day.patient
        for name in ("carb_ratio", "correction_factor", "daily_insulin"):
            getattr(self.patients, name)[here] = getattr(chosen, name)
        for name, values in chosen.figures.items():
            self.patients.figures[name][here] = values
        self._state[:, here] = chosen.start
        self._meals[:, place], self._noise[:, place] = day.meals, day.noise
        self._clock[place], self._to_eat[place], self._meal_size[place] = 0, 0.0, 0.0
        self._eating[place] = False
        # As if basal insulin had run for a long time.
        basal = 100.0 * MINUTES * chosen.basal[0] / chosen.daily_insulin[0]
        self._on_board[place] = basal * _DECAY / (1.0 - _DECAY)
        self._readings[:, place] = chosen.glucose(chosen.start)[0] + day.noise[0]
        return self._observe()[place]

    def step(self, actions: NDArray[np.floating[Any]], playing: Sequence[int]) -> Stepped:
        here = np.zeros(self.places, bool)
        here[list(playing)] = True
        doses = np.where(here, np.clip(np.asarray(actions, np.float64)[:, 0], 0.0, LARGEST_DOSE), 0.0)
        if np.isnan(doses).any():
            raise FovaError("An action is NaN, but a dose of insulin is needed. Its policy may have diverged.")
        line = np.minimum(self._clock, STEPS - 1)  # an ended day may be stepped further, without any effect
        self._to_eat += np.where(here, self._meals[line, np.arange(self.places)], 0.0)
        insulin = doses / 100.0 * self.patients.daily_insulin / MINUTES
        for _ in range(MINUTES):
            self._minute(insulin)
        self._on_board = _DECAY * (self._on_board + doses)
        self._clock += here
        glucose = self.glucose
        after = np.minimum(self._clock, STEPS)
        reading = np.maximum(glucose + self._noise[after, np.arange(self.places)], 1.0)
        self._readings = np.stack([reading, self._readings[0], self._readings[1]])
        ended = (glucose < LOWEST) | (glucose > HIGHEST)
        rewards = -risk(np.clip(glucose, LOWEST, HIGHEST)) / 10.0 + np.where(ended, END_REWARD, 0.0)
        return Stepped(self._observe(), rewards, ended, self._clock >= STEPS)

    def close(self) -> None:
        """Nothing has to be released."""

    def _minute(self, insulin: Floats) -> None:
        meal = np.minimum(self._to_eat, EATING_RATE)
        begins = (meal > 0.0) & ~self._eating
        content = self._state[0] + self._state[1]
        self._meal_size = np.where(begins, content, self._meal_size) + 1000.0 * meal
        self._eating = meal > 0.0
        self._to_eat = self._to_eat - meal
        self._state = minute(self._state, meal, insulin, self._meal_size, self.patients.figures)

    def _observe(self) -> Floats:
        newest, before, oldest = self._readings
        line = np.minimum(self._clock, STEPS - 1)
        meal = np.where(self._clock < STEPS, self._meals[line, np.arange(self.places)], 0.0)
        turn = 2.0 * np.pi * self._clock / STEPS
        columns = (
            newest, newest - before, before - oldest, self._on_board, meal, np.sin(turn), np.cos(turn),
        )  # fmt: skip
        return np.stack(columns, axis=1)


_DECAY = 0.5 ** (MINUTES / INSULIN_HALF_LIFE)


class GlucoseEnvironment(gymnasium.Env[Floats, NDArray[np.float32]]):
    """One patient as a Gymnasium environment. Without a seed, reset draws one."""

    def __init__(self, group: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(COLUMNS),), np.float64)
        self.action_space = gymnasium.spaces.Box(0.0, LARGEST_DOSE, (1,), np.float32)
        self._simulators = GlucoseSimulators(group, 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        return self._simulators.start(0, drawn), self._facts()

    def step(self, action: NDArray[np.floating[Any]]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        stepped = self._simulators.step(np.reshape(action, (1, -1)), [0])
        observation, reward, terminated, truncated = (values[0] for values in stepped)
        return observation, float(reward), bool(terminated), bool(truncated), self._facts()

    def _facts(self) -> dict[str, Any]:
        who = self._simulators.everybody.names[self._simulators.rows[0]]
        return {"patient": who, "glucose": float(self._simulators.glucose[0])}
