"""Sepsis treatment in intensive care: the ICU-Sepsis benchmark as a task with discrete actions.

The tables of the benchmark come from the package icu-sepsis (`pip install 'fova[sepsis]'`) and are read when they
are needed. Its authors emphasise that it serves to compare learning algorithms and must not be used to draw
conclusions for medical practice. This module is cheap to import.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fova.data.transitions import Episode
from fova.spaces import Discrete, Space
from fova.tasks import registry

if TYPE_CHECKING:
    from fova.tasks.sepsis.admissions import SepsisEnvironment, SepsisSimulators

NAME = "sepsis"
FEATURES = 47
LEVELS = 5  # of each of the two treatments
# The two digits are the levels of the two treatments, fluids and vasopressors, in the order of the package's codes.
ACTIONS = tuple(f"level {first}{second}" for first in range(LEVELS) for second in range(LEVELS))
TIME_LIMIT = 500  # the package's; an episode has about ten steps
HOSPITALS = ("expert", "skilled", "fair", "clinician", "random", "poor")  # best first
RECIPE = 1  # increase it when the data changes, so that stored data is generated again
SOURCE = (
    "Tables: icu-sepsis 2.0 (MIT licence), built from MIMIC-III; Choudhary, Gupta and Thomas, 2024. Inadmissible "
    "actions follow its default rule. A benchmark of algorithms: not for conclusions about medical practice."
)


def make() -> "SepsisEnvironment":
    from fova.tasks.sepsis.admissions import SepsisEnvironment

    return SepsisEnvironment()


def simulators(places: int) -> "SepsisSimulators":
    from fova.tasks.sepsis.admissions import SepsisSimulators

    return SepsisSimulators(places)


def generate(quality: str, first_episode: int, seed: int) -> Iterator[Episode]:
    """Endless admissions to a hospital. Admission i depends only on the hospital, i and the seed."""
    from fova.tasks.sepsis import hospitals

    return hospitals.episodes(quality, first_episode, seed)


def _recipe(quality: str) -> dict[str, Any]:
    from fova.tasks.sepsis.tables import installed_version

    return {"behaviour": quality, "recipe": RECIPE, "icu-sepsis": installed_version()}


def tasks() -> Iterator[registry.Task]:
    """The task as a registry entry."""
    yield registry.Task(
        name=NAME,
        make=make,
        space=Space(FEATURES, Discrete(ACTIONS)),
        time_limit=TIME_LIMIT,
        qualities=HOSPITALS,
        generate=generate,
        simulators=simulators,
        description="Treat a patient with sepsis (25 treatments, ICU-Sepsis benchmark); reward 1 for survival.",
        source=SOURCE,
        recipe=_recipe,
    )
