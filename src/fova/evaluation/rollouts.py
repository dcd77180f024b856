"""Rollouts of policies in their task's environment.

All policies and episodes are played side by side: one batched policy call per time step for all running episodes,
and the task's fast simulators if it has some. Finished environments are not stepped further (a Gymnasium vector
environment would step them until the last one ends). Episode i starts from the same seed for every policy of a run,
so a run's policies are compared on the same starts. Runs with different seeds have different starts: the spread
over runs then includes the luck of the starts. `play_from` starts the episodes from given observations instead.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fova.errors import FovaError
from fova.policy import Policy, stack
from fova.tasks.registry import Task

if TYPE_CHECKING:
    from fova.tasks.simulators import Simulators

# Also the distance between the first episodes of two runs. No evaluation has so many episodes.
EVALUATION_SEED = 1_000_003
# Maximum number of environments at the same time; each takes about a megabyte.
MOST_ENVIRONMENTS = 512


@dataclass(frozen=True)
class Rollouts:
    """The results of one policy, episode by episode."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    score: float | None  # normalised score of the mean return, if the task has reference scores
    trajectories: list[NDArray[np.float32]]  # observations of the first episodes, if requested
    measures: Mapping[str, float] = field(default_factory=dict)  # the task's own figures over all episodes

    @property
    def mean_return(self) -> float:
        return float(self.returns.mean())

    def to_json(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "return": self.mean_return,
            "return_std": float(self.returns.std()),
            "length": float(self.lengths.mean()),
            "score": self.score,
        }
        return figures | ({"measures": dict(self.measures)} if self.measures else {})


def first_seed(run_seed: int) -> int:
    """The seed of a run's first evaluation episode; those of its later episodes count up from it."""
    return EVALUATION_SEED * (1 + run_seed)


def play(
    policies: Mapping[str, Policy],
    task: Task,
    episodes: int,
    seed: int = EVALUATION_SEED,
    keep_trajectories: int = 0,
    discount: float = 1.0,
) -> dict[str, Rollouts]:
    """Play each policy for `episodes` episodes with its best (not sampled) actions.

    A `discount` below 1 makes the returns discounted ones.
    """

    def begin(numbers: range, copies: int) -> "Begun":
        simulators = _simulators(task, copies * len(numbers))
        return simulators, [simulators.start(p, seed + e) for p, e in enumerate([*numbers] * copies)]

    return _play(policies, task, episodes, begin, keep_trajectories=keep_trajectories, discount=discount)


def play_from(
    policies: Mapping[str, Policy], task: Task, starts: NDArray[np.floating], steps: int
) -> dict[str, Rollouts]:
    """Play each policy for one episode from every observation of `starts` [episodes, observation].

    An episode has at most `steps` steps, and fewer if the environment ends it. Reference scores are returns of
    whole episodes, so there is no normalised score.
    """

    def begin(numbers: range, copies: int) -> "Begun":
        if task.restartable is None:
            raise FovaError(f"An episode of the task {task.name} cannot start from an observation.")
        simulators = task.restartable(copies * len(numbers))
        return simulators, [simulators.start_at(p, starts[e]) for p, e in enumerate([*numbers] * copies)]

    played = _play(policies, task, len(starts), begin, steps)
    return {name: replace(rollouts, score=None) for name, rollouts in played.items()}


# Simulators in which every one of some policies plays the same episodes, one policy after the other, and the first
# observation of each place.
Begun = tuple["Simulators", list[NDArray[np.float64]]]
Begin = Callable[[range, int], Begun]  # the numbers of the episodes, and how many policies play them


class _Episodes(NamedTuple):
    """Some episodes of one policy."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    trails: list[NDArray[np.float32]]  # the observations of those that are kept


def _play(
    policies: Mapping[str, Policy],
    task: Task,
    episodes: int,
    begin: Begin,
    steps: float = np.inf,
    keep_trajectories: int = 0,
    discount: float = 1.0,
) -> dict[str, Rollouts]:
    """Play each policy for `episodes` episodes of at most `steps` steps, as many side by side as fit."""
    names, at_once = list(policies), max(1, MOST_ENVIRONMENTS // episodes)
    kept = episodes if task.measures is not None else keep_trajectories
    played = {}
    for first in range(0, len(names), at_once):
        group = {name: policies[name] for name in names[first : first + at_once]}
        parts = [
            _side_by_side(
                group, task, range(start, min(start + MOST_ENVIRONMENTS, episodes)), begin, steps, kept, discount
            )
            for start in range(0, episodes, MOST_ENVIRONMENTS)
        ]
        for name, *its in zip(group, *parts, strict=True):
            returns, lengths = (
                np.concatenate([getattr(part, what) for part in its]) for what in ("returns", "lengths")
            )
            trails = [trail for part in its for trail in part.trails]
            measures = task.measures(trails) if task.measures is not None else {}
            score = task.normalised_score(float(returns.mean()))
            played[name] = Rollouts(returns, lengths, score, trails[:keep_trajectories], measures)
    return played


def _side_by_side(
    policies: Mapping[str, Policy],
    task: Task,
    numbers: range,
    begin: Begin,
    steps: float,
    kept: int,
    discount: float,
) -> list[_Episodes]:
    """Play the episodes of these numbers with each policy, all at once. Those below number `kept` leave trails."""
    _insist_on_a_fit(policies, task)
    players = stack(list(policies.values()))
    shape = (len(policies), len(numbers))
    places = len(policies) * len(numbers)
    returns, lengths = np.zeros(places), np.zeros(places, np.int64)
    simulators, first = begin(numbers, len(policies))
    with closing(simulators):
        observations = np.stack(first)
        trails = {
            place: [observations[place].astype(np.float32)]
            for place in range(places)
            if numbers[place % len(numbers)] < kept
        }
        playing, ended = list(range(places)), np.zeros(places, bool)
        while playing:
            actions = players(observations.reshape(*shape, -1)).reshape(places, -1)
            observations, rewards, terminated, truncated = simulators.step(actions, playing)
            returns[playing] += discount ** lengths[playing] * rewards[playing]
            lengths[playing] += 1
            for place in playing:
                if place in trails:
                    trails[place].append(observations[place].astype(np.float32))
            ended |= terminated | truncated | (lengths >= steps)
            playing = [place for place in playing if not ended[place]]
            # The last observation of an episode may hold any value, even NaN, and no action follows it.
            observations = np.where(ended[:, None], 0.0, observations)
    own = np.arange(places).reshape(shape)
    return [_Episodes(returns[i], lengths[i], [np.stack(trails[p]) for p in i if p in trails]) for i in own]


def _insist_on_a_fit(policies: Mapping[str, Policy], task: Task) -> None:
    """Refuse policies whose space differs from the task's space."""
    for name, policy in policies.items():
        given, expected = policy.space, task.space
        if given.words() != expected.words():  # bounds and names of actions may differ
            raise FovaError(
                f"The policy {name!r} has {given.words()}, but the task {task.name} has {expected.words()}. "
                "Name the task it was trained for with --task."
            )


def _simulators(task: Task, places: int) -> "Simulators":
    if task.simulators is not None:
        return task.simulators(places)
    from fova.tasks.simulators import GymnasiumSimulators  # here, because the import loads the simulators

    return GymnasiumSimulators(task.make, places)


def merge(played: Mapping[str, Rollouts], task: Task) -> Rollouts:
    """The episodes of several policies as one result. Its mean is the mean over the policies."""
    returns = np.concatenate([rollouts.returns for rollouts in played.values()])
    lengths = np.concatenate([rollouts.lengths for rollouts in played.values()])
    # All policies play the same number of episodes, so the mean over policies is that over episodes.
    names = next(iter(played.values())).measures
    measures = {name: float(np.mean([rollouts.measures[name] for rollouts in played.values()])) for name in names}
    return Rollouts(returns, lengths, task.normalised_score(float(returns.mean())), [], measures)
