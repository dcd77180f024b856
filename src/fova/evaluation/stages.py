"""The performance matrix of runs whose data is replaced on the way, one stage after the other.

a[i, j] is the return after stage i in episodes that start from states of the data of stage j. All data of a task
comes from one environment, so where an episode starts is what tells the stages apart. PER and BWT
(`fova.evaluation.metrics`) are made from the whole matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.data.transitions import Transitions
from fova.evaluation.rollouts import EVALUATION_SEED, play_from
from fova.policy import Policy
from fova.tasks.registry import Task

STEPS = 200  # of an episode, at most: from most states of the data it shows whether a robot goes on or falls


@dataclass(frozen=True)
class Stages:
    """A task, the start states of every source of its data, and the source of every stage."""

    task: Task
    starts: Mapping[str, NDArray[np.float32]]  # source -> [episodes, observation]
    sources: Sequence[str]  # one per stage; a source may come again

    @staticmethod
    def drawn(
        task: Task, sources: Sequence[str], data: Sequence[Mapping[str, Transitions]], episodes: int, seed: int
    ) -> "Stages":
        """Draw start states from the data of all clients in every stage.

        They are drawn uniformly from all rows of a source. The task has ended in none of these states: a row is a
        state in which the data still acts. A source that comes again has the same start states in all its stages.
        """
        starts = {}
        for number, source in enumerate(dict.fromkeys(sources)):
            clients = [stage for named, stage in zip(sources, data, strict=True) if named == source]
            rows = np.concatenate([piece.observations for stage in clients for piece in stage.values()])
            rng = np.random.default_rng([EVALUATION_SEED, seed, number])
            starts[source] = rows[rng.integers(len(rows), size=episodes)]
        return Stages(task, starts, sources)

    def returns(self, policies: Mapping[str, Policy]) -> list[float]:
        """One row of the matrix: the mean return from the states of each stage, over all `policies`."""
        played = play_from(policies, self.task, np.concatenate(list(self.starts.values())), STEPS).values()
        each = np.mean([rollouts.returns for rollouts in played], axis=0).reshape(len(self.starts), -1)
        by_source = dict(zip(self.starts, each.mean(axis=1).tolist(), strict=True))
        return [by_source[source] for source in self.sources]
