"""Four tasks for a robot hand: pen, door, hammer and relocate, from Gymnasium-Robotics.

Gymnasium-Robotics is optional: pip install 'fova[adroit]'. The tasks are listed without it; it is needed to make an
environment. fova generates random data for these tasks. For expert data, give your own files as clients.
`docs/tasks.md` describes how the rewards and time limits differ from those of D4RL.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fova.errors import FovaError
from fova.spaces import Space
from fova.tasks import registry
from fova.tasks.simulated import SimulatedTask

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class AdroitTask(SimulatedTask):
    """One task of the robot hand."""

    source: ClassVar[str] = "Environment: Gymnasium-Robotics. Time limits and reference scores: D4RL."

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


ADROIT_TASKS = {
    task.name: task
    for task in (
        AdroitTask(
            "pen", "AdroitHandPen-v1", Space.unit(45, 24), 100, "Turn a pen in the hand to a given direction."
        ),
        AdroitTask("door", "AdroitHandDoor-v1", Space.unit(39, 28), 200, "Undo the latch of a door and open it."),
        AdroitTask("hammer", "AdroitHandHammer-v1", Space.unit(46, 26), 200, "Drive a nail into a board."),
        AdroitTask("relocate", "AdroitHandRelocate-v1", Space.unit(39, 30), 200, "Carry a ball to a given place."),
    )
}


def tasks() -> Iterator[registry.Task]:
    """The four tasks as registry entries."""
    return (task.task() for task in ADROIT_TASKS.values())
