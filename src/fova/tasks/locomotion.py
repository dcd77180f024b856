"""Four robots that learn to run: Gymnasium's Hopper, HalfCheetah, Walker2d and Ant, version 5.

This module only states facts, so it is cheap to import; simulators are loaded when a task is first made. Which
qualities of data a task has depends on the behaviour policies that come with the package (`weights/`): `random`
needs none. `docs/tasks.md` says where these environments differ from those of D4RL, whose scores they carry.
"""

import functools
import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from fova.data.transitions import Episode
from fova.errors import unknown
from fova.networks import Shapes
from fova.tasks import behaviour_policy, registry
from fova.tasks.reference_scores import REFERENCE_SCORES

if TYPE_CHECKING:
    import gymnasium

TIME_LIMIT = 1000
RECIPE = 1  # raise it when the data changes, so that data kept from before is made anew
SOURCE = (
    "Environment: Gymnasium. Reference scores: D4RL. Data: behaviour policies trained by fova "
    "(`fova data train-behaviour`), with sampled actions."
)


@dataclass(frozen=True)
class LocomotionTask:
    """One robot."""

    name: str
    environment: str  # Gymnasium's name
    shapes: Shapes
    description: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of the environment

    def make(self) -> "gymnasium.Env":
        import gymnasium

        with _without_note_on_the_model():
            return gymnasium.make(self.environment, **self.options)

    def levels(self, quality: str) -> tuple[str, ...]:
        """The behaviour policies that make a quality of data, each an equal share of the rows."""
        return _levels_of_qualities(self.name)[quality]

    def generate(self, quality: str, first_episode: int, seed: int) -> Iterator[Episode]:
        """Episodes of a quality, for ever; see `fova.tasks.generation.episodes`."""
        from fova.tasks import generation
        from fova.tasks.simulators import LocomotionSimulators

        known = _levels_of_qualities(self.name)
        if quality not in known:
            raise unknown(f"quality of {self.name} data", quality, known)
        levels = {level: self._policy(level) for level in known[quality]}
        simulators = LocomotionSimulators(self.make, self.name)
        stream = f"{self.name}/{quality}"
        return generation.episodes(levels, simulators, self.shapes, TIME_LIMIT, stream, first_episode, seed)

    def recipe(self, quality: str) -> dict[str, Any]:
        """What the data is made by, down to a digest of every policy's weights."""
        behaviour = [
            {"level": level, **self._record(level)} for level in self.levels(quality) if level != "random"
        ] or "uniformly random actions"
        return {
            "environment": self.environment,
            "options": dict(self.options),
            "behaviour": behaviour,
            "recipe": RECIPE,
        }

    def _policy(self, level: str) -> behaviour_policy.BehaviourPolicy | None:
        return None if level == "random" else behaviour_policy.load_behaviour(self.name, level)

    def _record(self, level: str) -> dict[str, Any]:
        record = behaviour_policy.behaviour_record(self.name, level)
        weights = (_shelf(self.name) / f"{level}.safetensors").read_bytes()
        return {"return": record["mean"], "weights": hashlib.sha256(weights).hexdigest()[:16]}


LOCOMOTION_TASKS = {
    task.name: task
    for task in (
        LocomotionTask("hopper", "Hopper-v5", Shapes(11, 3), "Hop forward on one leg without falling."),
        LocomotionTask("halfcheetah", "HalfCheetah-v5", Shapes(17, 6), "Run forward on two legs, in the plane."),
        LocomotionTask("walker2d", "Walker2d-v5", Shapes(17, 6), "Walk forward on two legs without falling."),
        LocomotionTask(
            "ant",
            "Ant-v5",
            Shapes(27, 8),
            "Run forward on four legs without tipping over.",
            # D4RL's Ant shows 84 contact forces that its MuJoCo left at zero; here they are left out.
            options={"include_cfrc_ext_in_observation": False},
        ),
    )
}


def tasks() -> Iterator[registry.Task]:
    """The four tasks as the registry knows them."""
    for task in LOCOMOTION_TASKS.values():
        scores = REFERENCE_SCORES[task.name]
        yield registry.Task(
            name=task.name,
            make=task.make,
            shapes=task.shapes,
            time_limit=TIME_LIMIT,
            qualities=tuple(_levels_of_qualities(task.name)),
            generate=task.generate,
            random_score=scores.random,
            expert_score=scores.expert,
            description=task.description,
            source=SOURCE,
            recipe=task.recipe,
        )


@functools.cache
def _levels_of_qualities(task_name: str) -> dict[str, tuple[str, ...]]:
    """Quality -> its behaviour policies, best first, as far as the package has them."""
    known = behaviour_policy.levels(task_name) if _shelf(task_name).joinpath("policies.json").is_file() else []
    ladder = tuple(level for level in known if level.startswith("ladder-"))
    wanted = {
        "expert": ("expert",),
        "medium-expert": ("medium", "expert"),
        "medium": ("medium",),
        "medium-replay": ladder,
        "random": ("random",),
    }
    there = {*known, "random"}
    return {quality: levels for quality, levels in wanted.items() if levels and there.issuperset(levels)}


@contextmanager
def _without_note_on_the_model() -> Iterator[None]:
    """Keep quiet that Gymnasium's HalfCheetah is written in an old style: MuJoCo would print it at every start and
    write it to a file, and no user can help it. Other warnings pass."""
    import mujoco

    def hear(message: str) -> None:
        if "settotalmass" not in message:
            warnings.warn(message, stacklevel=2)

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(hear)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _shelf(task_name: str) -> Any:
    return resources.files("fova.tasks") / "weights" / task_name
