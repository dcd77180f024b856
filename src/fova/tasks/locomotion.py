"""Four running robots: Gymnasium's Hopper, HalfCheetah, Walker2d and Ant, version 5.

This module is cheap to import: simulators are loaded when a task is first made. The available qualities of data
depend on the behaviour policies that come with the package (`weights/`); `random` needs none. `docs/tasks.md`
describes where these environments differ from those of D4RL, whose reference scores are used.
"""

import functools
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

from fova.policy import Policy
from fova.spaces import Space
from fova.tasks import behaviour_policy, registry
from fova.tasks.simulated import SimulatedTask

if TYPE_CHECKING:
    import gymnasium

    from fova.tasks.simulators import LocomotionSimulators


@dataclass(frozen=True)
class LocomotionTask(SimulatedTask):
    """The task of one robot."""

    time_limit: int = 1000
    description: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # of the environment

    source: ClassVar[str] = (
        "Environment: Gymnasium. Reference scores: D4RL. Data: behaviour policies trained by fova "
        "(`fova data train-behaviour`), with sampled actions."
    )
    places: ClassVar[int] = 64

    def make(self) -> "gymnasium.Env":
        import gymnasium

        with _without_note_on_the_model():
            return gymnasium.make(self.environment, **self.options)

    def simulators(self, places: int) -> "LocomotionSimulators":
        from fova.tasks.simulators import LocomotionSimulators

        return LocomotionSimulators(self.make, self.name, places)

    def task(self) -> registry.Task:
        return replace(super().task(), restartable=self.simulators)

    def mixtures(self) -> Mapping[str, tuple[str, ...]]:
        return _levels_of_qualities(self.name)

    def policy(self, level: str) -> Policy | None:
        return None if level == "random" else behaviour_policy.load_behaviour(self.name, level)

    def recipe(self, quality: str) -> dict[str, Any]:
        """Everything that determines the data, including a digest of every policy's weights."""
        recipe = super().recipe(quality) | {"options": dict(self.options)}
        if quality != "random":
            recipe["behaviour"] = [{"level": level, **self._record(level)} for level in self.mixtures()[quality]]
        return recipe

    def _record(self, level: str) -> dict[str, Any]:
        record = behaviour_policy.behaviour_record(self.name, level)
        weights = (_shelf(self.name) / f"{level}.safetensors").read_bytes()
        return {"return": record["mean"], "weights": hashlib.sha256(weights).hexdigest()[:16]}


LOCOMOTION_TASKS = {
    task.name: task
    for task in (
        LocomotionTask(
            "hopper", "Hopper-v5", Space.unit(11, 3), description="Hop forward on one leg without falling."
        ),
        LocomotionTask(
            "halfcheetah", "HalfCheetah-v5", Space.unit(17, 6), description="Run forward on two legs, in the plane."
        ),
        LocomotionTask(
            "walker2d", "Walker2d-v5", Space.unit(17, 6), description="Walk forward on two legs without falling."
        ),
        LocomotionTask(
            "ant",
            "Ant-v5",
            Space.unit(27, 8),
            description="Run forward on four legs without tipping over.",
            # D4RL's Ant observes 84 contact forces, which its MuJoCo left at zero. They are left out here.
            options={"include_cfrc_ext_in_observation": False},
        ),
    )
}


def tasks() -> Iterator[registry.Task]:
    """The four tasks as registry entries."""
    return (task.task() for task in LOCOMOTION_TASKS.values())


@functools.cache
def _levels_of_qualities(task_name: str) -> dict[str, tuple[str, ...]]:
    """Quality -> its behaviour policies, best first. Qualities without policies in the package are left out."""
    known = behaviour_policy.levels(task_name) if _shelf(task_name).joinpath("policies.json").is_file() else []
    ladder = tuple(level for level in known if level.startswith("ladder-"))
    wanted = {
        "expert": ("expert",),
        "medium-expert": ("medium", "expert"),
        "medium": ("medium",),
        "medium-replay": ladder,
        "random": ("random",),
    }
    available = {*known, "random"}
    return {quality: levels for quality, levels in wanted.items() if levels and available.issuperset(levels)}


@contextmanager
def _without_note_on_the_model() -> Iterator[None]:
    """Suppress MuJoCo's warning that Gymnasium's HalfCheetah has an old style. Other warnings pass.

    MuJoCo would print it at every start and write it to a file, and users cannot avoid it.
    """
    import mujoco

    def on_warning(message: str) -> None:
        if "settotalmass" not in message:
            warnings.warn(message, stacklevel=2)

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(on_warning)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _shelf(task_name: str) -> Any:
    return resources.files("fova.tasks") / "weights" / task_name
