"""The numbers behind the pictures, for the page and the static plots alike. Runs in, plain lists out.

Along training, the horizontal axis is the gradient steps that every client has taken, so that runs with rounds of
different lengths can share a chart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fova.evaluation.statistics import bootstrap_mean
from fova.reports.palette import VOTERS
from fova.reports.records import Group, Record

STEPS = "gradient steps of each client"
MOST_POINTS = 100  # of a curve; longer ones are averaged piece by piece
VALUE_RATE = 0.1  # of `--aggregation value`
LATE = 5  # the "last rounds" of a run are its last fifth


@dataclass(frozen=True)
class Curve:
    """Something measured along training: mean over seeds, with the interval's ends where there are several."""

    label: str
    steps: list[float]
    mean: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


@dataclass(frozen=True)
class Votes:
    """Who won the vote at one client: for each candidate its share of the votes, which add up to 1."""

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
class Standing:
    """How a client stands: what its data earned and what its own policy earns at the end, means over seeds.

    Over a network, a client tells neither.
    """

    client: str
    data: float | None
    own: float | None


# --- Returns ---


def learning_curve(group: Group) -> Curve | None:
    """The server's return at every evaluation that all seeds have had; None where nothing was played."""
    return _curve(group.label, group.records, [record.evaluations for record in group.records])


def client_curves(group: Group) -> list[Curve]:
    """Each client's own policy along training, where it was played (`--evaluate-clients`)."""

    def returns(record: Record, client: str) -> dict[int, float]:
        played = ((entry["round"], entry.get("client_play", {})) for entry in record.metrics)
        return {number: clients[client]["return"] for number, clients in played if client in clients}

    curves = (
        _curve(client, group.records, [returns(record, client) for record in group.records])
        for client in group.client_names
    )
    return [curve for curve in curves if curve is not None]


def mean_client_curve(group: Group) -> Curve | None:
    """The mean over clients of their own policies' returns along training, where they were played."""

    def means(record: Record) -> dict[int, float]:
        played = ((entry["round"], entry.get("client_play")) for entry in record.metrics)
        return {n: float(np.mean([c["return"] for c in clients.values()])) for n, clients in played if clients}

    return _curve("mean of the clients' own policies", group.records, [means(record) for record in group.records])


def standings(group: Group) -> list[Standing]:
    """Every client's data and own policy at the end."""
    found = []
    for client in group.client_names:
        data = [record.behaviour[client] for record in group.records if client in record.behaviour]
        own = [record.client_returns[client] for record in group.records if client in record.client_returns]
        found.append(Standing(client, _mean(data), _mean(own)))
    return found


def data_returns(group: Group) -> list[float]:
    """What the clients' data earned, of those that told it."""
    return [standing.data for standing in standings(group) if standing.data is not None]


def _curve(label: str, records: Sequence[Record], per_seed: Sequence[dict[int, float]]) -> Curve | None:
    rounds = sorted(set.intersection(*(set(values) for values in per_seed)))
    if not rounds:
        return None
    intervals = [bootstrap_mean([values[number] for values in per_seed]) for number in rounds]
    steps = [float(number * records[0].run.local_steps) for number in rounds]
    mean = [interval.value for interval in intervals]
    if len(per_seed) < 2:
        return Curve(label, steps, mean)
    return Curve(label, steps, mean, [i.low for i in intervals], [i.high for i in intervals])


# --- Votes ---


def votes(group: Group) -> list[Votes]:
    """Every client's vote shares, means over seeds; empty for algorithms without a vote."""
    logged = (name for record in group.records for entry in record.metrics for name in entry.get("clients", {}))
    return [found for client in dict.fromkeys(logged) if (found := _votes_at(group, client)) is not None]


def _votes_at(group: Group, client: str) -> Votes | None:
    names = [*(f"vote_{voter}" for voter in VOTERS), "weight"]
    by_round: dict[int, list[list[float]]] = {}
    for record in group.records:
        for entry in record.metrics:
            values = entry.get("clients", {}).get(client, {})
            if f"vote_{next(iter(VOTERS))}" in values:
                by_round.setdefault(entry["round"], []).append([values.get(name, math.nan) for name in names])
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


# --- What the server made of the clients ---


def server_shares(record: Record) -> dict[str, float] | None:
    """How much each client counted at the server in the last round; None where the log does not tell."""
    clients = record.metrics[-1].get("clients", {}) if record.metrics else {}
    if record.run.mode != "federated" or not clients:
        return None

    def logged(name: str) -> NDArray[np.float64]:
        return np.array([client.get(name, math.nan) for client in clients.values()], np.float64)

    by_the_algorithm = logged("log_weight")
    if np.isnan(by_the_algorithm).any():  # not logged by most: then only a rate on the value says more than "alike"
        by_the_algorithm = (record.config.settings.get("value_weight") or math.nan) * logged("value")
    rules = {"algorithm": by_the_algorithm, "value": VALUE_RATE * logged("value"), "size": np.log(logged("rows"))}
    log_weights = rules.get(record.run.aggregation)
    if log_weights is None or np.isnan(log_weights).any():
        return None
    weights = np.exp(log_weights - log_weights.max())
    return dict(zip(clients, (weights / weights.sum()).tolist()))


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _late_mean(values: Sequence[float]) -> float:
    return float(np.mean(values[-max(1, len(values) // LATE) :]))
