"""Training diagnostics for runs without a task: what clients logged in every round, drawn."""

from collections.abc import Sequence

import numpy as np

from fova.reports import svg
from fova.reports.charts import Chart
from fova.reports.groups import Group
from fova.reports.palette import CLIENT
from fova.reports.series import STEPS

SHOWN = {
    "critic_loss": "Loss of the critics",
    "actor_loss": "Loss of the actor",
    "q_data": "Q of the logged actions",
    "td_error": "TD error",
    "policy_distance": "Distance from the global policy",
}
WORDS = {
    "critic_loss": "A loss that keeps growing says that the critics diverge.",
    "actor_loss": "Its level says little; it should settle.",
    "q_data": "In the unit of reward that training uses. It should level off, not run away.",
    "td_error": "The mean absolute error of the critics against their own target.",
    "policy_distance": "Between the policy that a client received and its own after local training: from 0 to 1.",
}
MOST_POINTS = 100  # of a line
MOST_LINES = 12  # of single clients in a chart


def diagnostics(group: Group) -> list[Chart]:
    """A chart for every metric that the first run logged; none for runs with a task, which show returns instead."""
    if group.task is not None:
        return []
    return [chart for name in SHOWN if (chart := _chart(group, name)) is not None]


def _chart(group: Group, metric: str) -> Chart | None:
    curves = {client: _curve(group, client, metric) for client in group.client_names}
    curves = {client: curve for client, curve in curves.items() if len(curve[0]) > 1}
    if not curves:
        return None
    lines = [
        svg.Line(client, x, y, CLIENT, faint=True, key="each")
        for client, (x, y) in list(curves.items())[:MOST_LINES]
    ]
    mean = _mean(list(curves.values()))
    if mean is not None:
        lines.append(svg.Line("mean of the clients", *mean, CLIENT))
    last = lines[-1]
    words = f"{last.label}: from {last.y[0]:.3g} to {last.y[-1]:.3g}. {WORDS[metric]}"
    left_out = len(curves) - MOST_LINES
    more = "1 more client is" if left_out == 1 else f"{left_out} more clients are"
    keys = [svg.Key("mean of the clients", CLIENT), svg.Key("each client (thin)", CLIENT, series="each")]
    return Chart(
        SHOWN[metric],
        svg.line_chart(SHOWN[metric], words, lines, [], STEPS, metric.replace("_", " ")),
        svg.legend(keys),
        words,
        note=f"{more} in the mean." if left_out > 0 else "",
    )


def _curve(group: Group, client: str, metric: str) -> tuple[list[float], list[float]]:
    """The metric of a client by its gradient steps; rounds in which it is not a finite number are left out."""
    record = group.first
    rounds = record.rounds[:: max(1, -(-len(record.rounds) // MOST_POINTS))]
    points = [
        (float(line.number * record.run.local_steps), line.clients[client][metric])
        for line in rounds
        if metric in line.clients.get(client, {}) and np.isfinite(line.clients[client][metric])
    ]
    return [x for x, _ in points], [y for _, y in points]


def _mean(curves: Sequence[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]] | None:
    """The mean over clients at the steps that all of them have."""
    steps = sorted(set.intersection(*(set(x) for x, _ in curves)))
    if len(steps) < 2:
        return None
    values = [dict(zip(x, y)) for x, y in curves]
    return steps, [float(np.mean([value[step] for value in values])) for step in steps]
