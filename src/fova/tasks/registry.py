"""The tasks that fova knows, and how a user adds one.

A task is an environment constructor with the facts that training and scoring need, and the qualities of data that
can be generated for it on this machine. Only data generation and evaluation use the environment; training does not.

    register(Task("cartpole", make=make_cartpole, space=Space.unit(4, 1), time_limit=500))

Importing this module imports no simulator and no JAX. The built-in tasks are loaded when a task is first requested.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Episode
from fova.errors import unknown

if TYPE_CHECKING:
    import gymnasium

    from fova.spaces import Space
    from fova.tasks.simulators import RestartableSimulators, Simulators

# (quality, first episode number, seed) -> endless episodes. Episode i depends only on (quality, seed, i), so any
# slice of a dataset can be generated without the rest, and a longer dataset starts with the shorter one.
Generator = Callable[[str, int, int], Iterator[Episode]]
# (quality, rows, seed) -> the same episodes from number 0 on. A generator that simulates many episodes at once
# wastes fewer of them if it knows how many rows are needed.
RowsGenerator = Callable[[str, int, int], Iterator[Episode]]
# observations of episodes, [steps + 1, observation] each -> figures beside the return, by name
Measures = Callable[[Sequence[NDArray[np.floating]]], Mapping[str, float]]


@dataclass(frozen=True)
class Task:
    """An environment and the facts about it."""

    name: str
    make: Callable[[], "gymnasium.Env"]  # a fresh environment, time limit included
    space: "Space"
    time_limit: int
    qualities: tuple[str, ...] = ()  # names of the data that `generate` can generate, best first
    generate: Generator | None = None
    random_score: float | None = None  # reference return of a random policy
    expert_score: float | None = None  # reference return of an expert
    description: str = ""
    source: str = ""  # where the reference scores and the data recipe come from
    # quality -> everything that determines its data, as plain values. Generated data is stored only if the task has
    # a recipe, and generated again when the recipe changes.
    recipe: Callable[[str], Mapping[str, Any]] | None = None
    measures: Measures | None = None  # what else is reported of a policy that is played
    # number of environments -> simulators in which an episode can start from an observation; None: it cannot
    restartable: "Callable[[int], RestartableSimulators] | None" = None
    # The fields below only improve the speed.
    generate_rows: RowsGenerator | None = None
    simulators: "Callable[[int], Simulators] | None" = None  # number of environments -> simulators

    def episodes(self, quality: str, rows: int, seed: int) -> Iterator[Episode]:
        """Endless episodes of a quality, from the first on. `rows` is about the number that will be used."""
        if self.generate is None or quality not in self.qualities:
            raise unknown(f"data of {self.name}", quality, self.qualities, "A file is given by its path.")
        if self.generate_rows is not None:
            return self.generate_rows(quality, rows, seed)
        return self.generate(quality, 0, seed)

    def normalised_score(self, score: float) -> float | None:
        """100 (score - random) / (expert - random): 0 is a random policy, 100 the reference expert.

        None if the task has no reference scores.
        """
        if self.random_score is None or self.expert_score is None:
            return None
        return 100.0 * (score - self.random_score) / (self.expert_score - self.random_score)


_TASKS: dict[str, Task] = {}


def register(task: Task) -> Task:
    """Register a task by its name. It replaces any task of that name, built in or not."""
    _TASKS[task.name] = task
    return task


def get(name: str) -> Task:
    """The task with this name. An unknown name raises an error that lists the known names."""
    _register_builtin()
    if name not in _TASKS:
        raise unknown("task", name, _TASKS, "Register your own with fova.tasks.registry.register(Task(...)).")
    return _TASKS[name]


def names() -> list[str]:
    """The names of all tasks, built in or registered."""
    _register_builtin()
    return sorted(_TASKS)


def _register_builtin() -> None:
    for task in _builtin():
        _TASKS.setdefault(task.name, task)  # a user's task with the same name has precedence


@functools.cache
def _builtin() -> tuple[Task, ...]:
    from fova.tasks import adroit, glucose, locomotion, maze2d, sepsis  # here, because they import this module

    return (*locomotion.tasks(), *maze2d.tasks(), *adroit.tasks(), *glucose.tasks(), *sepsis.tasks())
