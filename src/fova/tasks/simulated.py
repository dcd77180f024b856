"""Base class of tasks in an external simulator, Gymnasium or Gymnasium-Robotics.

A quality of data is a mixture of behaviour policies, each with an equal share of the rows. This module is cheap to
import: simulators are loaded when a task is first made.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fova.data.transitions import Episode
from fova.errors import unknown
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.reference_scores import REFERENCE_SCORES

if TYPE_CHECKING:
    import gymnasium

    from fova.policy import Policy
    from fova.tasks.simulators import Simulators

SPARE_PLACES = 8  # for episodes that end early
RECIPE = 1  # increase it when the data changes, so that stored data is generated again


@dataclass(frozen=True)
class SimulatedTask:
    """A task in an external simulator. By default, its data comes from uniformly random actions."""

    name: str
    environment: str  # its id in the simulator
    space: Space
    time_limit: int
    description: str

    source: ClassVar[str]  # where environment, scores and data come from
    places: ClassVar[int] = 2  # maximum number of episodes side by side in data generation

    def make(self) -> "gymnasium.Env":
        raise NotImplementedError

    def simulators(self, places: int) -> "Simulators":
        """Many environments of this task."""
        from fova.tasks.simulators import GymnasiumSimulators

        return GymnasiumSimulators(self.make, places)

    def mixtures(self) -> Mapping[str, tuple[str, ...]]:
        """The qualities of data, best first, and the behaviour levels of each."""
        return {"random": ("random",)}

    def policy(self, level: str) -> "Policy | None":
        """The policy of a level; None means uniformly random actions."""
        return None

    def generate(self, quality: str, first_episode: int, seed: int, rows: int | None = None) -> Iterator[Episode]:
        """Endless episodes of a quality; see `fova.tasks.generation.episodes`."""
        from fova.tasks import generation

        known = self.mixtures()
        if quality not in known:
            raise unknown(f"quality of {self.name} data", quality, known)
        levels = {level: self.policy(level) for level in known[quality]}
        # More places make a step cheaper, but idle places also cost a little.
        places = self.places if rows is None else min(self.places, rows // self.time_limit + SPARE_PLACES)
        stream = f"{self.name}/{quality}"
        return generation.episodes(
            levels, self.simulators(places), self.space, self.time_limit, stream, first_episode, seed, rows
        )

    def generate_rows(self, quality: str, rows: int, seed: int) -> Iterator[Episode]:
        """The same episodes from the first on. Few are simulated beyond `rows` rows."""
        return self.generate(quality, 0, seed, rows)

    def recipe(self, quality: str) -> dict[str, Any]:
        """Everything that determines the data."""
        return {"environment": self.environment, "behaviour": "uniformly random actions", "recipe": RECIPE}

    def task(self) -> registry.Task:
        """The task as a registry entry."""
        scores = REFERENCE_SCORES[self.name]
        return registry.Task(
            name=self.name,
            make=self.make,
            space=self.space,
            time_limit=self.time_limit,
            qualities=tuple(self.mixtures()),
            generate=self.generate,
            generate_rows=self.generate_rows,
            simulators=self.simulators,
            random_score=scores.random,
            expert_score=scores.expert,
            description=self.description,
            source=self.source,
            recipe=self.recipe,
        )
