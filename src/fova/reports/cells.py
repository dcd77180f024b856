"""The tables of the pages, which readers can sort: every run, and every client."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fova.evaluation.judging.verdict import Verdict
from fova.evaluation.statistics import how_sure
from fova.reports.groups import Group
from fova.reports.series import client_returns, final_client_returns, votes
from fova.reports.story import mean_with_interval, percent
from fova.run.records import Record
from fova.tasks import registry


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the value that the table is sorted by."""

    text: str
    value: str | float | None
    detail: str = ""  # in small letters below the text
    link: str = ""
    share: float | None = None  # drawn as a bar, from 0 to 1

    @property
    def sort_key(self) -> str:
        return "" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Table:
    """A table that readers can sort. The first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def filled_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table without the columns that are empty in every row."""
    filled = [i for i in range(len(columns)) if any(row[i].text for row in rows)]
    return Table(caption, [columns[i] for i in filled], [[row[i] for i in filled] for row in rows])


# --- Every run ---


RUN_COLUMNS = (
    "run", "setting", "seed", "return", "score", "best during training", "mean client", "server minus mean client",
    "worst client", "judge's estimate", "policy minus data", "clients better off", "rounds done",
)  # fmt: skip


def runs_table(groups: Sequence[Group]) -> Table:
    """One row per run; columns without any figure are left out."""
    rows = [_run_row(group, record) for group in groups for record in group.records]
    return filled_table("Every run", RUN_COLUMNS, rows)


def _run_row(group: Group, record: Record) -> list[Cell]:
    clients = list(final_client_returns(record).values())
    mean_client = float(np.mean(clients)) if clients else None
    final = record.final.server if record.final else None
    difference = final.mean_return - mean_client if final is not None and mean_client is not None else None
    return [
        Cell(record.directory.name, record.directory.name),
        Cell(group.label, group.label),
        Cell(str(record.seed), record.seed),
        number_cell(final.mean_return if final else None),
        number_cell(final.score if final else None),
        number_cell(max((played.server.mean_return for played in record.evaluations), default=None)),
        number_cell(mean_client),
        number_cell(difference),
        number_cell(min(clients, default=None)),
        *_judged_cells(record.verdict),
        Cell(f"{record.rounds_done} of {record.run.rounds}", record.rounds_done),
    ]


def _judged_cells(verdict: Verdict | None) -> list[Cell]:
    """The estimate for all clients together, its distance from the data, and how many clients are better off."""
    if verdict is None:
        return [Cell("", None)] * 3
    figures, findings = verdict.federation, [client.finding for client in verdict.clients.values()]
    better = findings.count("better")
    return [
        estimate_cell(verdict),
        Cell(
            f"{figures.difference:+,.2f}",
            figures.difference,
            f"[{figures.difference_low:+,.2f}, {figures.difference_high:+,.2f}]",
        )
        if math.isfinite(figures.difference)
        else Cell("", None),
        Cell(f"{better} of {len(findings)}", better),
    ]


# --- Every client ---


_CANDIDATES = ("behaviour", "local", "global")
_CLIENT_COLUMNS = (
    "client", "weight", "rows", "episodes", "return of its data", "score of its data", "return of its own policy",
    "votes for its data", "votes for its own policy", "votes for the global policy", "distance",
    "rounds counted", "rounds rejected", "rounds missed",
)  # fmt: skip


def clients_table(group: Group) -> Table | None:
    """Every client's data, what became of it, and its votes; columns without any figure are left out."""
    shares = group.first.server_weights or {}
    vote_shares = {client.client: client for client in votes(group)}
    policies = group.client_values(final_client_returns)
    rows = []
    for returns in client_returns(group):
        facts, client = group.first.clients[returns.client], vote_shares.get(returns.client)
        rows.append(
            [
                Cell(returns.client, returns.client),
                percent_cell(shares.get(returns.client)),
                *(number_cell(count, "{:,}") for count in (facts.rows, facts.episodes)),
                number_cell(returns.data),
                number_cell(_score(group, returns.data)),
                interval_cell(policies.get(returns.client, [])),
                *(percent_cell(client.late(voter) if client else None) for voter in _CANDIDATES),
                number_cell(_last_distance(group, returns.client), "{:.2f}"),
                *(number_cell(count, "{:,}") for count in (facts.counted, facts.rejected, facts.missing)),
            ]
        )
    if not rows:
        return None
    table = filled_table("", _CLIENT_COLUMNS, rows)
    return replace(table, caption=_caption(table.columns))


def _caption(columns: Sequence[str]) -> str:
    words = ["Every client: its data and its own policy at the end"]
    if "weight" in columns:
        words.append("weight is its share at the server in the last round")
    if any(column.startswith("return") for column in columns):
        words.append("returns are undiscounted")
    if "votes for its data" in columns:
        words.append("votes are those of the last fifth of the run")
    if "distance" in columns:
        words.append("distance is that of its policy from the one it received, from 0 to 1")
    return "; ".join(words)


def _score(group: Group, value: float | None) -> float | None:
    if value is None or group.task is None or group.task not in registry.names():
        return None
    return registry.get(group.task).normalised_score(value)


def _last_distance(group: Group, client: str) -> float | None:
    last = [record.last_round.clients.get(client, {}) for record in group.records if record.last_round]
    distances = [metrics["policy_distance"] for metrics in last if "policy_distance" in metrics]
    return float(np.mean(distances)) if distances else None


# --- Settings beside one another ---

SUMMARY_COLUMNS = (
    "setting", "seeds", "return", "score", "mean client", "server minus mean client", "worst client",
    "best during training",
)  # fmt: skip


def summary_table(groups: Sequence[Group]) -> Table | None:
    """One row per setting with means over seeds, the highest first; None where no policy was played."""
    played = sorted((group for group in groups if group.finals), key=lambda group: -float(np.mean(group.finals)))
    if not played:
        return None
    rows = [_summary_row(group) for group in played]
    words = how_sure([len(group.finals) for group in played])
    return filled_table(f"Every setting, the highest return first; {words}", SUMMARY_COLUMNS, rows)


def _summary_row(group: Group) -> list[Cell]:
    finished = [record for record in group.records if record.final is not None]
    finals = [record.final.server for record in finished if record.final is not None]
    scores = [final.score for final in finals if final.score is not None]
    clients = [list(final_client_returns(record).values()) for record in finished]
    means = [float(np.mean(each)) for each in clients if each]
    ahead = [final.mean_return - float(np.mean(each)) for final, each in zip(finals, clients) if each]
    looks = [[each.server.mean_return for each in record.evaluations] for record in finished]
    return [
        Cell(group.label, group.label),
        Cell(str(len(finals)), len(finals)),
        interval_cell(group.finals),
        interval_cell(scores if len(scores) == len(finals) else []),
        interval_cell(means),
        interval_cell(ahead if group.mode == "federated" else []),
        interval_cell([min(each) for each in clients if each]),
        interval_cell([max(each) for each in looks if each]),
    ]


def client_comparison(groups: Sequence[Group]) -> Table | None:
    """Every client's own policy at the end under every setting; None for fewer than two settings."""
    returns = {group.label: group.client_values(final_client_returns) for group in groups}
    returns = {label: clients for label, clients in returns.items() if clients}
    names = list(dict.fromkeys(name for clients in returns.values() for name in clients))
    if len(returns) < 2 or not names:
        return None
    rows = [
        [Cell(name, name), *(interval_cell(clients.get(name, [])) for clients in returns.values())]
        for name in names
    ]
    words = how_sure([len(group.finals) for group in groups if group.finals])
    return Table(f"Return of every client's own policy at the end; {words}", ["client", *returns], rows)


# --- Cells ---


def interval_cell(values: Sequence[float]) -> Cell:
    """The mean over seeds, and below it its interval, or the single seeds where they are few."""
    if not len(values):
        return Cell("", None)
    text, _, detail = mean_with_interval(values).partition(" ")
    return Cell(text, float(np.mean(values)), detail)


def number_cell(value: float | None, form: str = "{:,.1f}") -> Cell:
    shown = value is not None and not math.isnan(value)
    return Cell(form.format(value), value) if shown else Cell("", None)


def estimate_cell(verdict: Verdict) -> Cell:
    """The judge's estimate for all clients together, with its interval below it."""
    figures = verdict.federation
    if not math.isfinite(figures.value):
        return Cell("diverged", None)
    return Cell(f"{figures.value:,.2f}", figures.value, f"[{figures.low:,.2f}, {figures.high:,.2f}]")


def percent_cell(share: float | None) -> Cell:
    return Cell("", None) if share is None else Cell(percent(share), share)
