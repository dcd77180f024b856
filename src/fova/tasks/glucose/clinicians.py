"""Clinicians of five skills who dose insulin: the behaviour that generates data of the insulin task.

Every clinician but the random one gives basal insulin, insulin for meals and corrections of high glucose. They know
the patient's basal rate, carbohydrate ratio and correction factor, which a learned policy does not see. They differ
in what they do with them.
"""

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Episode
from fova.errors import FovaError, unknown
from fova.tasks.glucose.days import INSULIN_HALF_LIFE, MINUTES, GlucoseSimulators, draw_day
from fova.tasks.glucose.model import Floats, Patients
from fova.tasks.glucose.table import LARGEST_DOSE, SKILLS, STEPS

CORRECTED_ABOVE = 150.0  # mg/dL
DOSE_NOISE = 0.1  # standard deviation of the logarithm of meal doses and corrections
RANDOM_SHARE = 0.2  # a random clinician gives insulin in this share of the quarter hours
TOGETHER = 30  # days that are simulated side by side; fixed, because an episode's bytes must not depend on it


@dataclass(frozen=True)
class Clinician:
    """How a clinician uses the patient's figures."""

    carb_ratio: float = 1.0  # factor; below 1 means more insulin for a meal
    correction_factor: float = 1.0  # factor; below 1 means more insulin for high glucose
    basal: float = 1.0  # factor
    forgotten: float = 0.0  # share of the meals that get no insulin
    corrects: bool = True

    def units(self, observations: Floats, patients: Patients, draws: Floats) -> Floats:
        """Insulin of the next quarter of an hour in units, one number per patient.

        `draws` [patients, 2] holds a uniform number, which decides whether a meal is forgotten, and a normal one,
        the error of the dose.
        """
        reading, on_board, meal = observations[:, 0], observations[:, 3], observations[:, 4]
        basal = self.basal * MINUTES * patients.basal
        dose = np.where(draws[:, 0] >= self.forgotten, meal, 0.0) / (self.carb_ratio * patients.carb_ratio)
        if self.corrects:
            high = np.maximum(reading - CORRECTED_ABOVE, 0.0)
            wanted = high / (self.correction_factor * patients.correction_factor)
            # Insulin on board beyond what basal insulin leaves there is still at work.
            steady = basal / (2.0 ** (MINUTES / INSULIN_HALF_LIFE) - 1.0)
            working = np.maximum(on_board * patients.daily_insulin / 100.0 - steady, 0.0)
            dose = dose + np.maximum(wanted - working, 0.0)
        return basal + dose * np.exp(DOSE_NOISE * draws[:, 1])


CLINICIANS: dict[str, Clinician | None] = {
    "experienced": Clinician(),
    "forgetful": Clinician(forgotten=0.5),
    "heavy-handed": Clinician(carb_ratio=0.65, correction_factor=0.7, basal=1.2),
    "cautious": Clinician(carb_ratio=1.6, corrects=False),
    "random": None,
}
assert tuple(CLINICIANS) == SKILLS


def doses(
    clinician: Clinician | None, observations: Floats, patients: Patients, draws: Floats
) -> NDArray[np.float32]:
    """Actions [patients, 1] in hundredths of the daily insulin, within bounds. None is the random clinician."""
    if clinician is None:
        given = np.where(draws[:, 0] < RANDOM_SHARE, LARGEST_DOSE * draws[:, 0] / RANDOM_SHARE, 0.0)
    else:
        given = 100.0 * clinician.units(observations, patients, draws) / patients.daily_insulin
    return np.clip(given, 0.0, LARGEST_DOSE).astype(np.float32)[:, None]


def episodes(stream: str, skill: str, group: str | None, first_episode: int, seed: int) -> Iterator[Episode]:
    """Endless days of patients of an age group (None: of all) with a clinician of a skill.

    Day i depends only on the stream, i and the seed. The patients take turns.
    """
    if skill not in CLINICIANS:
        raise unknown("clinician", skill, CLINICIANS)
    if seed < 0:
        raise FovaError(f"The seed is {seed}, but must be a whole number of at least 0.")
    simulators = GlucoseSimulators(group, TOGETHER)
    block, skipped = divmod(first_episode, TOGETHER)
    days = (
        day
        for number in itertools.count(block)
        for day in _block(simulators, CLINICIANS[skill], stream, number * TOGETHER, seed)
    )
    return itertools.islice(days, skipped, None)


def _block(
    simulators: GlucoseSimulators, clinician: Clinician | None, stream: str, first: int, seed: int
) -> Iterator[Episode]:
    """The days from number `first` on, as many as are simulated together."""
    draws = np.empty((STEPS, TOGETHER, 2))
    seen = np.empty((TOGETHER, STEPS + 1, simulators.observation), np.float32)
    for place in range(TOGETHER):
        number = first + place
        rng = np.random.default_rng([seed, zlib.crc32(stream.encode()), number])
        day = draw_day(number % len(simulators.everybody), rng)
        draws[:, place, 0], draws[:, place, 1] = rng.random(STEPS), rng.standard_normal(STEPS)
        seen[place, 0] = simulators.begin(place, day)
    actions = np.empty((TOGETHER, STEPS, 1), np.float32)
    rewards = np.empty((TOGETHER, STEPS), np.float32)
    lengths, terminated = np.full(TOGETHER, STEPS), np.zeros(TOGETHER, bool)
    for step in range(STEPS):
        playing = np.flatnonzero(~terminated).tolist()
        actions[:, step] = doses(clinician, seen[:, step].astype(np.float64), simulators.patients, draws[step])
        observations, rewards[:, step], ended, _ = simulators.step(actions[:, step], playing)
        seen[:, step + 1] = observations
        fresh = ended & ~terminated
        lengths[fresh], terminated = step + 1, terminated | ended
    for place, length in enumerate(lengths):
        yield Episode(
            seen[place, : length + 1].copy(),
            actions[place, :length].copy(),
            rewards[place, :length].copy(),
            bool(terminated[place]),
        )
