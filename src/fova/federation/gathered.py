"""The results of a round so far: verdicts, weights and metrics of its clients, and the mean of their parameters."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import NDArray

from fova.algorithms.base import Submission
from fova.federation import rounds
from fova.federation.privacy import Privacy, publish


class Gathered:
    """The results of a round's cohorts so far."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self.verdicts: list[int] = []
        self.log_weights = np.zeros(0, np.float32)
        self.submissions: Submission | None = None
        self.log_total: Any = -np.inf
        self._metrics: list[dict[str, NDArray[np.floating[Any]]]] = []

    def add(
        self,
        members: list[int],
        verdicts: NDArray[np.integer[Any]],
        metrics: Mapping[str, Any],
        log_weights: NDArray[np.floating[Any]] | None,
    ) -> None:
        self.members += members
        self.verdicts += verdicts.tolist()
        # Copies: a view would keep the cohort's buffers alive on the device.
        self._metrics.append({name: np.array(values)[: len(members)] for name, values in metrics.items()})
        if log_weights is not None:
            self.log_weights = np.concatenate([self.log_weights, log_weights[: len(members)]])

    def merge(self, submissions: Submission, log_total: Any) -> None:
        if self.submissions is None:
            self.submissions, self.log_total = submissions, log_total
        else:
            self.submissions, self.log_total = rounds.merge_groups(
                self.submissions, self.log_total, submissions, log_total
            )

    def published(self, privacy: Privacy, broadcast: Any, key: PRNGKeyArray) -> Submission:
        """The round's mean with the noise of a private server; the noisy broadcast if nothing was accepted."""
        count = float(np.exp(self.log_total))
        accepted = self.submissions
        mean = broadcast if accepted is None else rounds.parameters_of(accepted)
        return rounds.alone(publish(privacy, broadcast, mean, count, key))

    def metrics(self) -> dict[str, NDArray[np.floating[Any]]]:
        """Each metric of all members, in their order."""
        names = (self._metrics or [{}])[0]
        return {name: np.concatenate([part[name] for part in self._metrics]) for name in names}
