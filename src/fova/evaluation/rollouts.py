"""Playing policies in their task's environment.

All policies and episodes are played side by side: one batched policy call per time step for everything that is
still running. Environments that are done are not stepped on (a Gymnasium vector environment would step them
until the last one ends). Episode i starts from the same seed for every policy, so policies are compared on the
same starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.policy import Policy, stack
from fova.tasks.registry import Task

# Evaluation episodes never share a seed with generated data, which counts up from 0.
EVALUATION_SEED = 1_000_003
# Environments alive at the same time; each takes about a megabyte.
MOST_ENVIRONMENTS = 512


@dataclass(frozen=True)
class Rollouts:
    """What one policy did, episode by episode."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    score: float | None  # normalised score of the mean return, where the task has reference scores
    trajectories: list[NDArray[np.float32]]  # observations of the first episodes, if they were asked for

    @property
    def mean_return(self) -> float:
        return float(self.returns.mean())

    def to_json(self) -> dict[str, float | None]:
        return {
            "return": self.mean_return,
            "return_std": float(self.returns.std()),
            "length": float(self.lengths.mean()),
            "score": self.score,
        }


def play(
    policies: Mapping[str, Policy],
    task: Task,
    episodes: int,
    seed: int = EVALUATION_SEED,
    keep_trajectories: int = 0,
) -> dict[str, Rollouts]:
    """Play each policy for some episodes with its best (not sampled) actions."""
    at_once = max(1, MOST_ENVIRONMENTS // episodes)
    if len(policies) > at_once:  # large federations, a group of policies at a time
        names = list(policies)
        groups = [names[start : start + at_once] for start in range(0, len(names), at_once)]
        parts = [play({n: policies[n] for n in group}, task, episodes, seed, keep_trajectories) for group in groups]
        return {name: rollouts for part in parts for name, rollouts in part.items()}
    players = stack(list(policies.values()))
    environments = [[task.make() for _ in range(episodes)] for _ in policies]
    returns = np.zeros((len(policies), episodes))
    lengths = np.zeros((len(policies), episodes), np.int64)
    observations = np.stack(
        [[env.reset(seed=seed + i)[0] for i, env in enumerate(row)] for row in environments]
    ).astype(np.float32)
    trails = [
        [[observations[p, e].copy()] for e in range(min(episodes, keep_trajectories))] for p in range(len(policies))
    ]
    running = [(p, e) for p in range(len(policies)) for e in range(episodes)]
    while running:
        actions = players(observations)
        still_running = []
        for p, e in running:
            observation, reward, terminated, truncated, _ = environments[p][e].step(actions[p, e])
            observations[p, e] = observation
            returns[p, e] += float(reward)
            lengths[p, e] += 1
            if e < keep_trajectories:
                trails[p][e].append(observations[p, e].copy())
            if not (terminated or truncated):
                still_running.append((p, e))
        running = still_running
    for row in environments:
        for env in row:
            env.close()
    return {
        name: Rollouts(
            returns[p],
            lengths[p],
            task.normalised_score(float(returns[p].mean())),
            [np.stack(trail) for trail in trails[p]],
        )
        for p, name in enumerate(policies)
    }


def merge(played: Mapping[str, Rollouts], task: Task) -> Rollouts:
    """All episodes of several policies as if one had played them: the mean is the mean over the policies."""
    returns = np.concatenate([rollouts.returns for rollouts in played.values()])
    lengths = np.concatenate([rollouts.lengths for rollouts in played.values()])
    return Rollouts(returns, lengths, task.normalised_score(float(returns.mean())), [])
