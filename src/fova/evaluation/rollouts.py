"""Rollouts of policies in their task's environment.

All policies and episodes are played side by side: one batched policy call per time step for all running episodes,
and the task's fast simulators if it has some. Finished environments are not stepped further (a Gymnasium vector
environment would step them until the last one ends). Episode i starts from the same seed for every policy of a run,
so a run's policies are compared on the same starts. Runs with different seeds have different starts: the spread
over runs then includes the luck of the starts. `play_from` starts the episodes from given observations instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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

    def begin(places: int) -> "Begun":
        simulators = _simulators(task, places)
        return simulators, np.stack([simulators.start(place, seed + place % episodes) for place in range(places)])

    return _play(policies, task, episodes, begin, keep_trajectories=keep_trajectories, discount=discount)


def play_from(
    policies: Mapping[str, Policy], task: Task, starts: NDArray[np.floating], steps: int
) -> dict[str, Rollouts]:
    """Play each policy for one episode from every observation of `starts` [episodes, observation].

    An episode has at most `steps` steps, and fewer if the environment ends it. Reference scores are returns of
    whole episodes, so there is no normalised score.
    """

    def begin(places: int) -> "Begun":
        if task.restartable is None:
            raise FovaError(f"An episode of the task {task.name} cannot start from an observation.")
        simulators = task.restartable(places)
        return simulators, np.stack([simulators.start_at(p, starts[p % len(starts)]) for p in range(places)])

    played = _play(policies, task, len(starts), begin, steps)
    return {name: replace(rollouts, score=None) for name, rollouts in played.items()}


Begun = tuple["Simulators", NDArray[np.float64]]  # simulators of some places and their first observations


def _play(
    policies: Mapping[str, Policy],
    task: Task,
    episodes: int,
    begin: Callable[[int], Begun],  # place p * episodes + e: episode e of policy p
    steps: float = np.inf,
    keep_trajectories: int = 0,
    discount: float = 1.0,
) -> dict[str, Rollouts]:
    """Play each policy for `episodes` episodes of at most `steps` steps."""
    at_once = max(1, MOST_ENVIRONMENTS // episodes)
    if len(policies) > at_once:  # large federations are played in groups of policies
        names = list(policies)
        groups = [names[start : start + at_once] for start in range(0, len(names), at_once)]
        rest = (task, episodes, begin, steps, keep_trajectories, discount)
        parts = [_play({n: policies[n] for n in group}, *rest) for group in groups]
        return {name: rollouts for part in parts for name, rollouts in part.items()}
    _insist_on_a_fit(policies, task)
    players = stack(list(policies.values()))
    shape = (len(policies), episodes)
    places = len(policies) * episodes
    returns, lengths = np.zeros(places), np.zeros(places, np.int64)
    simulators, observations = begin(places)
    trails = {place: [observations[place].astype(np.float32)] for place in range(places)}
    kept = episodes if task.measures is not None else keep_trajectories
    playing, ended = list(range(places)), np.zeros(places, bool)
    while playing:
        actions = players(observations.reshape(*shape, -1)).reshape(places, -1)
        observations, rewards, terminated, truncated = simulators.step(actions, playing)
        returns[playing] += discount ** lengths[playing] * rewards[playing]
        lengths[playing] += 1
        for place in playing:
            if place % episodes < kept:
                trails[place].append(observations[place].astype(np.float32))
        ended |= terminated | truncated | (lengths >= steps)
        playing = [place for place in playing if not ended[place]]
        # The last observation of an episode may hold any value, even NaN, and no action follows it.
        observations = np.where(ended[:, None], 0.0, observations)
    simulators.close()
    return {
        name: Rollouts(
            returns.reshape(shape)[p],
            lengths.reshape(shape)[p],
            task.normalised_score(float(returns.reshape(shape)[p].mean())),
            [np.stack(trails[p * episodes + e]) for e in range(min(episodes, keep_trajectories))],
            task.measures([np.stack(trails[p * episodes + e]) for e in range(episodes)]) if task.measures else {},
        )
        for p, name in enumerate(policies)
    }


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
