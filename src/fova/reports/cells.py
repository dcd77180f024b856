"""The tables of the pages, which readers can sort: every run, and every client."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fova.reports.groups import Group
from fova.reports.series import client_returns, final_client_returns, votes
from fova.reports.story import percent
from fova.run.records import Record
from fova.tasks import registry


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the value that the table is sorted by."""

    text: str
    value: str | float | None
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


# --- Every run ---


RUN_COLUMNS = (
    "run", "setting", "seed", "return", "score", "best along training", "mean client", "server minus mean client",
    "worst client", "rounds done",
)  # fmt: skip


def run_row(group: Group, record: Record) -> list[Cell]:
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
        Cell(f"{record.rounds_done} of {record.run.rounds}", record.rounds_done),
    ]


# --- Every client ---


_CANDIDATES = ("behaviour", "local", "global")
_CLIENT_COLUMNS = (
    "client", "rows", "episodes", "rounds it counted in", "rounds rejected", "rounds missed",
    "return of its data", "score of its data", "return of its own policy",
    "votes for its data", "votes for its own policy", "votes for the global policy",
    "distance from the policy it received", "weight at the server",
)  # fmt: skip


def clients_table(group: Group) -> Table | None:
    """Every client's data, what became of it, and its votes; columns without any figure are left out."""
    shares = group.first.server_weights or {}
    vote_shares = {client.client: client for client in votes(group)}
    rows = []
    for returns in client_returns(group):
        facts, client = group.first.clients[returns.client], vote_shares.get(returns.client)
        counts = (facts.rows, facts.episodes, facts.counted, facts.rejected, facts.missing)
        rows.append(
            [
                Cell(returns.client, returns.client),
                *(number_cell(count, "{:,}") for count in counts),
                number_cell(returns.data),
                number_cell(_score(group, returns.data)),
                number_cell(returns.policy),
                *(
                    percent_cell(client.late(voter) if client else None)
                    for voter in ("behaviour", "local", "global")
                ),
                number_cell(_last_distance(group, returns.client), "{:.2f}"),
                percent_cell(shares.get(returns.client)),
            ]
        )
    filled = [i for i in range(len(_CLIENT_COLUMNS)) if any(row[i].value is not None for row in rows)]
    caption = "Every client: its data and its own policy at the end" + (
        "; votes are those of the last fifth of the run" if vote_shares else ""
    )
    columns = [_CLIENT_COLUMNS[i] for i in filled]
    return Table(caption, columns, [[row[i] for i in filled] for row in rows]) if rows else None


def _score(group: Group, value: float | None) -> float | None:
    if value is None or group.task is None or group.task not in registry.names():
        return None
    return registry.get(group.task).normalised_score(value)


def _last_distance(group: Group, client: str) -> float | None:
    last = [record.last_round.clients.get(client, {}) for record in group.records if record.last_round]
    distances = [metrics["policy_distance"] for metrics in last if "policy_distance" in metrics]
    return float(np.mean(distances)) if distances else None


def number_cell(value: float | None, form: str = "{:,.1f}") -> Cell:
    shown = value is not None and not math.isnan(value)
    return Cell(form.format(value), value) if shown else Cell("", None)


def percent_cell(share: float | None) -> Cell:
    return Cell("", None) if share is None else Cell(percent(share), share)
