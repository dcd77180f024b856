"""The charts of the report: each with its legend, its caption and a table of its numbers.

`series.py` computes the numbers and `svg.py` draws the marks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fova.evaluation.statistics import bands
from fova.reports import palette, svg
from fova.reports.groups import Group
from fova.reports.markup import Markup
from fova.reports.palette import CLIENT, DATA, SERVER, VOTER_WORDS, VOTERS
from fova.reports.series import (
    RETURN,
    STEPS,
    ClientReturns,
    Curve,
    Votes,
    client_curves,
    client_returns,
    data_returns,
    learning_curve,
    mean_client_curve,
)
from fova.reports.story import number, vote_in_words

MOST_DOTS = 24  # clients in the chart of dots; the table of clients has all
MOST_VOTES = 12  # clients with a chart of votes each


@dataclass(frozen=True)
class Numbers:
    """The numbers of a chart, for whoever cannot read it from the picture. The first column is the steps."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A chart and everything around it."""

    title: str
    svg: Markup
    legend: Markup
    caption: str
    numbers: Numbers | None = None
    note: str = ""


@dataclass(frozen=True)
class ClientVotes:
    """The small chart of one client's votes."""

    client: str
    svg: Markup
    caption: str


@dataclass(frozen=True)
class VoteCharts:
    """The small charts of all clients' votes under one legend."""

    legend: Markup
    clients: Sequence[ClientVotes]
    note: str


# --- Learning curves ---


def learning_curves(groups: Sequence[Group]) -> Chart | None:
    """The server's return over training, one line per setting, with what the data earned as levels."""
    curves = [(group, curve) for group in groups if (curve := learning_curve(group)) is not None]
    if not curves:
        return None
    styles = palette.styles([group.algorithm for group, _ in curves]) if len(groups) > 1 else [(SERVER, ())]
    lines = [
        svg.Line(_label(group, groups), c.steps, c.mean, colour, c.low, c.high, dashes)
        for (group, c), (colour, dashes) in zip(curves, styles)
    ]
    levels = _data_levels([group for group, _ in curves])
    ends = "; ".join(f"{line.label} from {number(line.y[0])} to {number(line.y[-1])}" for line in lines)
    title = "Return over training"
    return Chart(
        title,
        svg.line_chart(title, f"{ends}.", lines, levels, STEPS, "return"),
        svg.legend(
            [svg.Key(line.label, line.colour, dashes=line.dashes) for line in lines]
            + [
                svg.Key(f"{level.label}: {number(level.value)}", level.colour, "line", level.dashes, level.label)
                for level in levels
            ]
        ),
        "Mean return of the evaluation episodes during training. "
        + f"{bands([len(group.records) for group, _ in curves])}.",
        _numbers([(line.label, curve) for line, (_, curve) in zip(lines, curves)]),
    )


def _label(group: Group, groups: Sequence[Group]) -> str:
    if len(groups) > 1:
        return group.label
    return "the clients' own policies" if group.mode == "local" else "the server's policy"


def _data_levels(groups: Sequence[Group]) -> list[svg.Level]:
    """What the clients' data earned, where all groups were given the same."""
    found = [data_returns(group) for group in groups]
    if not found[0] or any(data != found[0] for data in found):
        return []
    levels = [svg.Level("average of the clients' data", float(np.mean(found[0])), DATA)]
    if len(found[0]) > 1:
        levels.append(svg.Level("best client's data", max(found[0]), DATA, (1, 4)))
    return levels


# --- Server against clients ---


def server_against_clients(group: Group) -> Chart | None:
    """The return in every client's data and of its policy, and the server's policy between them."""
    known = [row for row in client_returns(group) if row.data is not None or row.policy is not None]
    rows = known[:MOST_DOTS]
    if not rows:
        return None
    server = float(np.mean(group.finals)) if group.finals and group.mode != "local" else None
    keys = []
    if any(row.data is not None for row in rows):
        keys.append(svg.Key("return of a client's data", DATA, "diamond", series="data"))
    if any(row.policy is not None for row in rows):
        keys.append(svg.Key("its own policy at the end", CLIENT, "circle", series="policy"))
    if server is not None:
        keys.append(svg.Key("the server's policy", SERVER, series="server"))
    left_out = len(known) - len(rows)
    alone = server is None and all(row.policy is None for row in rows)
    title = "What each client's data earned" if alone else "Server against clients, at the end"
    return Chart(
        title,
        svg.dot_chart(
            title,
            _in_words(rows, server),
            [svg.Dots(row.client, row.data, row.policy) for row in rows],
            server,
            RETURN,
        ),
        svg.legend(keys),
        _which_returns(group),
        note=f"{left_out} more clients are in the table of clients." if left_out else "",
    )


def _which_returns(group: Group) -> str:
    """What the marks of the chart are means of, and how the judge's figures differ."""
    seeds = f"Mean over {len(group.records)} seeds." if len(group.records) > 1 else "One seed."
    episodes = "the episodes that the clients train on" if group.first.run.hold_out else "all episodes"
    words = f"{seeds} Undiscounted returns, for the data those of {episodes}"
    if group.verdict is not None:
        held_out = " of held-out episodes" if group.verdict.held_out else ""
        words += f"; the judge's figures are discounted returns{held_out}"
    return f"{words}."


def _in_words(rows: Sequence[ClientReturns], server: float | None) -> str:
    words = [f"The server's policy earns {number(server)}."] if server is not None else []
    for row in rows:
        returns = {"its data": row.data, "its own policy": row.policy}
        known = ", ".join(f"{what} {number(value)}" for what, value in returns.items() if value is not None)
        words.append(f"{row.client}: {known}.")
    return " ".join(words)


def clients_over_training(group: Group) -> Chart | None:
    """The server's policy and every client's own during training, where the clients were played."""
    server, mean, clients = learning_curve(group), mean_client_curve(group), client_curves(group)
    if server is None or mean is None or group.mode != "federated":
        return None
    lines = [
        *(
            svg.Line(curve.label, curve.steps, curve.mean, CLIENT, faint=True, key="each")
            for curve in clients[:MOST_DOTS]
        ),
        svg.Line(mean.label, mean.steps, mean.mean, CLIENT, mean.low, mean.high, (7, 3)),
        svg.Line("the server's policy", server.steps, server.mean, SERVER, server.low, server.high),
    ]
    title = "Server against clients, over training"
    words = (
        f"At the last evaluation the server's policy earns {number(server.mean[-1])}, the clients' own "
        f"{number(mean.mean[-1])} on average."
    )
    return Chart(
        title,
        svg.line_chart(title, words, lines, [], STEPS, "return"),
        svg.legend(
            [
                svg.Key("the server's policy", SERVER),
                svg.Key(mean.label, CLIENT, dashes=(7, 3)),
                svg.Key("each client's own policy (thin)", CLIENT, series="each"),
            ]
        ),
        words,
        _numbers([("the server's policy", server), *((curve.label, curve) for curve in (mean, *clients))]),
    )


# --- Votes ---


def vote_charts(votes: Sequence[Votes]) -> VoteCharts:
    """One small chart per client: the shares of the votes that each candidate won, over training."""
    charts = [
        ClientVotes(
            client.client,
            svg.share_chart(
                f"Votes at {client.client}",
                vote_in_words(client),
                client.steps,
                {VOTER_WORDS[voter]: (colour, client.shares[voter]) for voter, colour in VOTERS.items()},
            ),
            _sentence(vote_in_words(client)),
        )
        for client in votes[:MOST_VOTES]
    ]
    left_out = len(votes) - len(charts)
    keys = [svg.Key(VOTER_WORDS[voter], colour, "area") for voter, colour in VOTERS.items()]
    note = f"{left_out} more clients are in the table of clients." if left_out else ""
    return VoteCharts(svg.legend(keys), charts, note)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


# --- Numbers ---


def _numbers(curves: Sequence[tuple[str, Curve]]) -> Numbers:
    """The numbers of a chart of curves."""
    all_steps = sorted({step for _, curve in curves for step in curve.steps})
    cells = [{step: _point(curve, i) for i, step in enumerate(curve.steps)} for _, curve in curves]
    rows = [(f"{step:,.0f}", *(cell.get(step, "") for cell in cells)) for step in all_steps]
    return Numbers((STEPS, *(label for label, _ in curves)), rows)


def _point(curve: Curve, i: int) -> str:
    if curve.low is None or curve.high is None:
        return number(curve.mean[i])
    return f"{number(curve.mean[i])} [{number(curve.low[i])}, {number(curve.high[i])}]"
