"""Four chores for a robot hand: pen, door, hammer and relocate, from Gymnasium-Robotics.

An optional part: pip install 'fova[adroit]'. The tasks are listed without it; it is asked for when one is made.
fova makes random data for them. For expert data give the files you have, as clients. `docs/tasks.md` says how the
rewards and time limits differ from those of D4RL.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fova.data.transitions import Episode
from fova.errors import FovaError, unknown
from fova.networks import Shapes
from fova.tasks import registry
from fova.tasks.reference_scores import REFERENCE_SCORES

if TYPE_CHECKING:
    import gymnasium

QUALITIES = ("random",)
RECIPE = 1  # raise it when the data changes, so that data kept from before is made anew
SOURCE = "Environment: Gymnasium-Robotics. Time limits and reference scores: D4RL."


@dataclass(frozen=True)
class AdroitTask:
    """One chore."""

    name: str
    environment: str  # Gymnasium-Robotics' name
    shapes: Shapes
    time_limit: int
    description: str

    def make(self) -> "gymnasium.Env":
        try:
            import gymnasium_robotics
        except ImportError as error:
            raise FovaError(
                f"The task {self.name!r} needs gymnasium-robotics. Install it: pip install 'fova[adroit]'"
            ) from error
        import gymnasium

        gymnasium.register_envs(gymnasium_robotics)
        return gymnasium.make(self.environment, max_episode_steps=self.time_limit)

    def generate(self, quality: str, first_episode: int, seed: int) -> Iterator[Episode]:
        """Episodes of uniformly random actions, for ever."""
        from fova.tasks import generation
        from fova.tasks.simulators import GymnasiumSimulators

        if quality not in QUALITIES:
            raise unknown(f"quality of {self.name} data", quality, QUALITIES)
        simulators = GymnasiumSimulators(self.make, places=2)
        stream = f"{self.name}/{quality}"
        return generation.episodes(
            {"random": None}, simulators, self.shapes, self.time_limit, stream, first_episode, seed
        )

    def recipe(self, quality: str) -> dict[str, Any]:
        return {"environment": self.environment, "behaviour": "uniformly random actions", "recipe": RECIPE}


ADROIT_TASKS = {
    task.name: task
    for task in (
        AdroitTask("pen", "AdroitHandPen-v1", Shapes(45, 24), 100, "Turn a pen in the hand to a given direction."),
        AdroitTask("door", "AdroitHandDoor-v1", Shapes(39, 28), 200, "Undo the latch of a door and open it."),
        AdroitTask("hammer", "AdroitHandHammer-v1", Shapes(46, 26), 200, "Drive a nail into a board."),
        AdroitTask("relocate", "AdroitHandRelocate-v1", Shapes(39, 30), 200, "Carry a ball to a given place."),
    )
}


def tasks() -> Iterator[registry.Task]:
    """The four tasks as the registry knows them."""
    for task in ADROIT_TASKS.values():
        scores = REFERENCE_SCORES[task.name]
        yield registry.Task(
            name=task.name,
            make=task.make,
            shapes=task.shapes,
            time_limit=task.time_limit,
            qualities=QUALITIES,
            generate=task.generate,
            random_score=scores.random,
            expert_score=scores.expert,
            description=task.description,
            source=SOURCE,
            recipe=task.recipe,
        )
