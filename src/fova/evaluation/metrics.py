"""Metrics of a run, each with one name. Plain numbers in, plain numbers out; no file is read here.

"final" is the policy at the end of training. "best of training" is the best evaluation during training. This choice
needs the environment, which is not available offline. Tables show the final policy unless they say otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

VOTES = ("vote_local", "vote_behaviour", "vote_global")


class Played(NamedTuple):
    """The evaluation of one policy."""

    mean_return: float
    spread: float  # standard deviation over the episodes
    score: float | None  # normalised, if the task has reference scores

    @property
    def figure(self) -> float:
        """The value used in comparisons: the normalised score, or the return if there is none."""
        return self.mean_return if self.score is None else self.score


@dataclass(frozen=True)
class Evaluation:
    """The evaluated policies at one moment of training."""

    round: int
    steps: int  # gradient steps that each client has taken
    server: Played
    clients: Mapping[str, Played]  # the clients' local policies; empty if they were not played


def with_final(along: Sequence[Evaluation], final: Evaluation | None) -> list[Evaluation]:
    """The evaluations during training, of which the final one is the last. A run that played none has none."""
    if not along or final is None:
        return list(along)
    if not any(evaluation.clients for evaluation in along):
        final = replace(final, clients={})  # one point is no curve
    return [*(evaluation for evaluation in along if evaluation.round < final.round), final]


# --- Returns ----------------------------------------------------------------------------------------------


def best_of_training(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the highest return of the global policy."""
    return max(evaluations, key=lambda evaluation: evaluation.server.mean_return)


def mean_client(clients: Mapping[str, Played]) -> float:
    """The mean return of the clients' local policies."""
    return float(np.mean([played.mean_return for played in clients.values()]))


def worst_client(clients: Mapping[str, Played]) -> tuple[str, Played]:
    """The client whose local policy has the lowest return."""
    return min(clients.items(), key=lambda client: client[1].mean_return)


def server_minus_mean_client(evaluation: Evaluation) -> float:
    """Return of the global policy minus the mean return of the clients: the paper's consistency.

    It is above 0 if aggregation gives a better policy than the clients have.
    """
    return evaluation.server.mean_return - mean_client(evaluation.clients)


# --- Continual learning -----------------------------------------------------------------------------------


def average_performance(a: ArrayLike) -> float:
    """PER = mean over k of a[K, k], where a[i, j] is the performance on stage j after stage i."""
    return float(np.asarray(a, np.float64)[-1].mean())


def backward_transfer(a: ArrayLike) -> float:
    """BWT = mean over k < K of a[K, k] - a[k, k]: below 0 where later data made the policy forget."""
    a = np.asarray(a, np.float64)
    return float(np.mean(a[-1, :-1] - np.diag(a)[:-1]))


# --- What clients report --------------------------------------------------------------------------------


def client_means(entries: Iterable[Mapping[str, Any]], name: str) -> dict[str, float]:
    """The mean of one metric for every client, over the rounds in which the client reported it."""
    values: dict[str, list[float]] = {}
    for entry in entries:
        for client, metrics in entry.get("clients", {}).items():
            if name in metrics:
                values.setdefault(client, []).append(metrics[name])
    return {client: float(np.mean(reported)) for client, reported in values.items()}


def vote_shares(entries: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, ...]]:
    """Share of votes won by each client's local, data and global actions. The three shares add up to 1."""
    shares = [client_means(entries, name) for name in VOTES]
    return {client: tuple(share[client] for share in shares) for client in shares[0]}


def policy_distances(entries: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Total variation between every client's policy and the global policy it received, in [0, 1]."""
    return client_means(entries, "policy_distance")
