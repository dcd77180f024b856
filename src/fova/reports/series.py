"""The numbers behind the charts of the page and of the static plots. Runs in, plain lists out.

The horizontal axis of a curve is the number of gradient steps that every client has taken. Runs with rounds of
different lengths can therefore share a chart.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fova.evaluation.metrics import Evaluation, mean_client
from fova.evaluation.statistics import mean_over_runs
from fova.reports.groups import Group
from fova.reports.palette import VOTERS
from fova.run.records import Record

STEPS = "gradient steps of each client"
RETURN = "undiscounted return of an episode"
MOST_POINTS = 100  # of a vote chart; the rounds of longer runs are averaged piece by piece
LATE = 5  # the "last rounds" of a run are its last fifth


@dataclass(frozen=True)
class Curve:
    """A measure during training: its mean over seeds, with a band where there are several seeds.

    The band is the interval, or from the lowest to the highest seed where there are too few for one.
    """

    label: str
    steps: list[float]
    mean: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


@dataclass(frozen=True)
class Votes:
    """The vote at one client: each candidate's share of the votes. The shares add up to 1."""

    client: str
    steps: list[float]
    shares: dict[str, list[float]]
    weight: list[float]  # the mean imitation weight w; empty where it was not logged

    def late(self, voter: str) -> float:
        """The share over the last fifth of the run."""
        return _late_mean(self.shares[voter])

    def early(self, voter: str) -> float:
        """The share over the first fifth of the run."""
        return _late_mean(self.shares[voter][::-1])

    @property
    def late_weight(self) -> float | None:
        return _late_mean(self.weight) if self.weight else None


@dataclass(frozen=True)
class ClientReturns:
    """The return in a client's data and of its policy at the end, means over seeds.

    Over a network neither is known.
    """

    client: str
    data: float | None
    policy: float | None


# --- Returns ---


def mean_curve(label: str, per_seed: Sequence[Mapping[int, float]]) -> Curve | None:
    """The mean over seeds of values by gradient steps, at the steps that all seeds have; None if there are none."""
    steps = sorted(set.intersection(*(set(values) for values in per_seed)))
    if not steps:
        return None
    intervals = [mean_over_runs([values[step] for values in per_seed]) for step in steps]
    mean = [interval.value for interval in intervals]
    if len(per_seed) < 2:
        return Curve(label, list(map(float, steps)), mean)
    low, high = (list(ends) for ends in zip(*(interval.ends for interval in intervals)))
    return Curve(label, list(map(float, steps)), mean, low, high)


def learning_curve(group: Group) -> Curve | None:
    """The server's return at every evaluation that all seeds have; None where no policy was played."""
    return mean_curve(group.label, [{e.steps: e.server.mean_return for e in seed} for seed in _evaluations(group)])


def metric_curve(group: Group, metric: str) -> Curve | None:
    """The return or the score of the server's policy, or the clients' mean of a metric that they log each round."""
    if metric == "return":
        return learning_curve(group)
    if metric == "score":
        return mean_curve(
            group.label,
            [{e.steps: e.server.score for e in seed if e.server.score is not None} for seed in _evaluations(group)],
        )
    per_seed = []
    for record in group.records:
        values = {
            line.number * record.run.local_steps: [
                metrics[metric] for metrics in line.clients.values() if math.isfinite(metrics.get(metric, math.nan))
            ]
            for line in record.rounds
        }
        per_seed.append({step: float(np.mean(each)) for step, each in values.items() if each})
    return mean_curve(group.label, per_seed)


def logged_metrics(groups: Sequence[Group]) -> list[str]:
    """The names of all metrics that clients logged."""
    lines = (line for group in groups for record in group.records for line in record.rounds)
    return sorted({name for line in lines for metrics in line.clients.values() for name in metrics})


def client_curves(group: Group) -> list[Curve]:
    """The return of each client's policy during training, where it was played (`--evaluate-clients`)."""
    curves = []
    for client in group.client_names:
        per_seed = [
            {e.steps: e.clients[client].mean_return for e in seed if client in e.clients}
            for seed in _evaluations(group)
        ]
        curves.append(mean_curve(client, per_seed))
    return [curve for curve in curves if curve is not None]


def mean_client_curve(group: Group) -> Curve | None:
    """The mean return of the clients' policies during training, where they were played."""
    per_seed = [{e.steps: mean_client(e.clients) for e in seed if e.clients} for seed in _evaluations(group)]
    return mean_curve("mean of the clients' own policies", per_seed)


def client_returns(group: Group) -> list[ClientReturns]:
    """For every client the return in its data, and of its policy at the end."""
    data = group.client_means(lambda record: record.behaviour_returns)
    policies = group.client_means(final_client_returns)
    return [ClientReturns(client, data.get(client), policies.get(client)) for client in group.client_names]


def final_client_returns(record: Record) -> dict[str, float]:
    """By client, the return of its policy at the end; empty where none was played."""
    played = record.final.clients if record.final else {}
    return {client: policy.mean_return for client, policy in played.items()}


def data_returns(group: Group) -> list[float]:
    """The returns in the clients' data, where they are known."""
    return [returns.data for returns in client_returns(group) if returns.data is not None]


def _evaluations(group: Group) -> list[list[Evaluation]]:
    """The evaluations of every finished run, so that a curve ends at the figure that is told; else of every run."""
    finished = [record for record in group.records if record.final is not None]
    return [record.evaluations for record in finished or group.records]


# --- Votes ---


def votes(group: Group) -> list[Votes]:
    """Every client's vote shares, means over seeds; empty for algorithms without a vote."""
    logged = (name for record in group.records for line in record.rounds for name in line.clients)
    return [found for client in dict.fromkeys(logged) if (found := _votes_at(group, client)) is not None]


def _votes_at(group: Group, client: str) -> Votes | None:
    names = [*(f"vote_{voter}" for voter in VOTERS), "weight"]
    by_round: dict[int, list[list[float]]] = {}
    for record in group.records:
        for line in record.rounds:
            metrics = line.clients.get(client, {})
            if names[0] in metrics:
                by_round.setdefault(line.number, []).append([metrics.get(name, math.nan) for name in names])
    if not by_round:
        return None
    rounds = sorted(by_round)
    table = np.array([np.mean(by_round[number], axis=0) for number in rounds])  # [rounds, names]
    steps = np.array(rounds, float) * group.first.run.local_steps
    pieces = np.array_split(np.arange(len(rounds)), min(len(rounds), MOST_POINTS))
    columns = np.array([table[piece].mean(axis=0) for piece in pieces]).T
    return Votes(
        client,
        [float(steps[piece].mean()) for piece in pieces],
        {voter: columns[i].tolist() for i, voter in enumerate(VOTERS)},
        [] if np.isnan(columns[-1]).any() else columns[-1].tolist(),
    )


def _late_mean(values: Sequence[float]) -> float:
    return float(np.mean(values[-max(1, len(values) // LATE) :]))
