"""Insulin dosing for simulated patients with type 1 diabetes: four tasks, one per age group and one for all.

This is a simulation for research on learning algorithms. It is not medical advice. This module is cheap to import:
the simulator (`days.py`, `model.py`) and the clinicians (`clinicians.py`) are loaded when they are needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fova.data.transitions import Episode
from fova.errors import unknown
from fova.spaces import Box, Space
from fova.tasks import registry
from fova.tasks.glucose.table import COLUMNS, LARGEST_DOSE, SKILLS, STEPS, clinical_figures

if TYPE_CHECKING:
    from fova.tasks.glucose.days import GlucoseEnvironment, GlucoseSimulators

GROUPS = ("adult", "adolescent", "child")
RECIPE = 1  # increase it when the data changes, so that stored data is generated again
SOURCE = (
    "Model: UVA/Padova 2008, 13 states, one-minute Runge-Kutta steps. Patients: the thirty of simglucose 0.2.11 "
    "(MIT licence). Meals, sensor, reward and clinicians: fova's own; see docs/tasks.md. Not medical advice."
)


@dataclass(frozen=True)
class GlucoseTask:
    """Days of the patients of one age group, or of all."""

    group: str | None

    @property
    def name(self) -> str:
        return "glucose" if self.group is None else f"glucose-{self.group}"

    def qualities(self) -> dict[str, tuple[str, str | None]]:
        """The qualities of data: the clinician's skill and the age group of the patients."""
        own = {skill: (skill, self.group) for skill in SKILLS}
        if self.group is not None:
            return own
        return own | {f"{skill}-{group}": (skill, group) for group in GROUPS for skill in SKILLS}

    def make(self) -> "GlucoseEnvironment":
        from fova.tasks.glucose.days import GlucoseEnvironment

        return GlucoseEnvironment(self.group)

    def simulators(self, places: int) -> "GlucoseSimulators":
        from fova.tasks.glucose.days import GlucoseSimulators

        return GlucoseSimulators(self.group, places)

    def generate(self, quality: str, first_episode: int, seed: int) -> Iterator[Episode]:
        """Endless days of a quality. Day i depends only on the quality, i and the seed."""
        from fova.tasks.glucose import clinicians

        known = self.qualities()
        if quality not in known:
            raise unknown(f"quality of {self.name} data", quality, known)
        skill, group = known[quality]
        return clinicians.episodes(f"{self.name}/{quality}", skill, group, first_episode, seed)

    def recipe(self, quality: str) -> dict[str, Any]:
        return {"behaviour": quality, "recipe": RECIPE}

    def task(self) -> registry.Task:
        """The task as a registry entry."""
        who = "patients of all ages" if self.group is None else f"{self.group} patients"
        return registry.Task(
            name=self.name,
            make=self.make,
            space=Space(len(COLUMNS), Box.of(1, 0.0, LARGEST_DOSE)),
            time_limit=STEPS,
            qualities=tuple(self.qualities()),
            generate=self.generate,
            simulators=self.simulators,
            measures=clinical_figures,
            description=f"Dose insulin every quarter of an hour for a day; {who} with type 1 diabetes, simulated.",
            source=SOURCE,
            recipe=self.recipe,
        )


GLUCOSE_TASKS = {task.name: task for task in (GlucoseTask(group) for group in (None, *GROUPS))}


def tasks() -> Iterator[registry.Task]:
    """The four tasks as registry entries."""
    return (task.task() for task in GLUCOSE_TASKS.values())
