"""The report: one HTML page that opens offline, on any screen, and asks the network for nothing.

It says in words how the runs ended and who won the vote, then shows it. This module computes what is shown; the
template `page.html.jinja` lays it out. Charts are SVG (`svg.py` says why). A content security policy in the page
itself forbids the browser every request.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.reports import charts, palette, story
from fova.reports.charts import Chart, VoteCharts
from fova.reports.diagnostics import diagnostics
from fova.reports.groups import Group, comparable, read_groups
from fova.reports.judged import JudgedSection, judged_section, participation_sentences
from fova.reports.markup import Markup, escaped
from fova.reports.reproduce import config_command, train_command
from fova.reports.scenes import Scene, scene
from fova.reports.series import client_returns, final_client_returns, votes
from fova.run.config import load_config
from fova.run.records import Record
from fova.tasks import registry
from fova.version import __version__

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

Pictures = Mapping[str, Scene | str | None]  # by the label of a group


def write_report(
    runs: Sequence[Path],
    output: Path,
    pictures: Pictures | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write the report of some runs to `output`. Without `pictures` they are drawn, which plays the policies."""
    groups = read_groups(runs)
    if pictures is None:
        pictures = _draw(groups, tell)
    write_atomically(output, page(groups, pictures).encode())
    return output


def _draw(groups: Sequence[Group], tell: Callable[[str], None]) -> Pictures:
    pictures = {}
    for group in groups:
        tell(f"playing {group.label} for its picture")
        pictures[group.label] = scene(group)
    return pictures


def page(groups: Sequence[Group], pictures: Pictures) -> str:
    """The whole page."""
    return _template().render(
        title=_title(groups),
        subtitle=_subtitle(groups),
        policy=POLICY,
        css=Markup(_resource("page.css") + palette.css()),
        script=Markup(_resource("page.js")),
        overview=_overview(groups) if len(groups) > 1 else None,
        groups=[_group_section(group, groups, pictures.get(group.label)) for group in groups],
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        finalize=escaped,  # as in the charts, so that the page has one spelling of every character
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.jinja")


def _resource(name: str) -> str:
    return resources.files("fova.reports").joinpath(name).read_text(encoding="utf-8")


# --- Parts of the page ---


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the value that the table is sorted by."""

    text: str
    value: str | float | None

    @property
    def sort_key(self) -> str:
        return "" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Table:
    """A table that readers can sort. The first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class ComparisonPart:
    """Settings with the same data beside one another."""

    heading: str
    sentences: Sequence[str]
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Overview:
    """Several settings: in words, as curves, in a table."""

    parts: Sequence[ComparisonPart]
    runs: Table


@dataclass(frozen=True)
class VoteSection:
    """The vote of a group."""

    sentences: Sequence[str]
    charts: VoteCharts


@dataclass(frozen=True)
class RunAgain:
    """How to run a group's first run again. Without a command, `no_command` says why."""

    command: str | None
    no_command: str
    config_command: str
    seeds: str
    config: str


@dataclass(frozen=True)
class GroupSection:
    """Everything about one setting."""

    label: str
    anchor: str
    heading: str
    sentences: Sequence[str]
    picture: Scene | str | None
    charts: Sequence[Chart]
    judged: JudgedSection | None
    diagnostics: Sequence[Chart]
    votes: VoteSection | None
    clients: Table | None
    run_again: RunAgain


def _title(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        return groups[0].first.directory.name if len(groups[0].records) == 1 else groups[0].label
    return f"{len(groups)} settings on {_tasks(groups)}"


def _subtitle(groups: Sequence[Group]) -> str:
    runs = sum(len(group.records) for group in groups)
    return f"{_tasks(groups)} · {runs} {'run' if runs == 1 else 'runs'} · written by fova {__version__}"


def _tasks(groups: Sequence[Group]) -> str:
    return ", ".join(dict.fromkeys(group.task or "own data" for group in groups))


def _overview(groups: Sequence[Group]) -> Overview:
    by_data = comparable(groups)
    parts = [
        ComparisonPart(
            name if len(by_data) > 1 else "",
            [*story.comparison(members), *participation_sentences(members)],
            _drawn(charts.learning_curves(members)),
        )
        for name, members in by_data.items()
    ]
    rows = [_run_row(group, record) for group in groups for record in group.records]
    return Overview(parts, Table("Every run", _RUN_COLUMNS, rows))


def _group_section(group: Group, groups: Sequence[Group], picture: Scene | str | None) -> GroupSection:
    alone = len(groups) == 1
    found = votes(group)
    return GroupSection(
        label=group.label,
        anchor=f"setting-{groups.index(group) + 1}",
        heading="In short" if alone else group.label,
        sentences=story.summary(group),
        picture=picture,
        charts=_drawn(
            charts.learning_curves([group]) if alone else None,
            charts.clients_over_training(group),
            charts.server_against_clients(group),
        ),
        judged=judged_section(group),
        diagnostics=diagnostics(group),
        votes=VoteSection(story.vote_summary(group, found), charts.vote_charts(found)) if found else None,
        clients=_clients(group),
        run_again=_run_again(group),
    )


def _drawn(*found: Chart | None) -> list[Chart]:
    return [chart for chart in found if chart is not None]


# --- Tables ---


_RUN_COLUMNS = (
    "run", "setting", "seed", "return", "score", "best along training", "mean client", "server minus mean client",
    "worst client", "rounds done",
)  # fmt: skip


def _run_row(group: Group, record: Record) -> list[Cell]:
    clients = list(final_client_returns(record).values())
    mean_client = float(np.mean(clients)) if clients else None
    final = record.final.server if record.final else None
    difference = final.mean_return - mean_client if final is not None and mean_client is not None else None
    return [
        Cell(record.directory.name, record.directory.name),
        Cell(group.label, group.label),
        Cell(str(record.seed), record.seed),
        _number(final.mean_return if final else None),
        _number(final.score if final else None),
        _number(max((played.server.mean_return for played in record.evaluations), default=None)),
        _number(mean_client),
        _number(difference),
        _number(min(clients, default=None)),
        Cell(f"{record.rounds_done} of {record.run.rounds}", record.rounds_done),
    ]


_CLIENT_COLUMNS = (
    "client", "rows", "episodes", "rounds it counted in", "rounds rejected", "rounds missed",
    "return of its data", "score of its data", "return of its own policy",
    "votes for its data", "votes for its own policy", "votes for the global policy",
    "distance from the policy it received", "weight at the server",
)  # fmt: skip


def _clients(group: Group) -> Table | None:
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
                *(_number(count, "{:,}") for count in counts),
                _number(returns.data),
                _number(_score(group, returns.data)),
                _number(returns.policy),
                *(_percent(client.late(voter) if client else None) for voter in ("behaviour", "local", "global")),
                _number(_last_distance(group, returns.client), "{:.2f}"),
                _percent(shares.get(returns.client)),
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


def _number(value: float | None, form: str = "{:,.1f}") -> Cell:
    shown = value is not None and not math.isnan(value)
    return Cell(form.format(value), value) if shown else Cell("", None)


def _percent(share: float | None) -> Cell:
    return Cell("", None) if share is None else Cell(story.percent(share), share)


# --- Running it again ---


def _run_again(group: Group) -> RunAgain:
    record = group.first
    others = ", ".join(f"--seed {seed}" for seed in group.seeds[1:])
    seeds = f"That is seed {record.seed}. The other runs of this setting add {others}." if others else ""
    command, reason = _command(record)
    return RunAgain(command, reason, config_command(record), seeds, record.config_text)


def _command(record: Record) -> tuple[str | None, str]:
    """The command with flags; without one, the reason."""
    try:
        command = train_command(load_config(record.directory / "config.toml"))
    except FovaError as error:  # an algorithm's file that has moved, a setting of another version
        return None, f"This version cannot write the run as one command. {error}"
    return command, "" if command else "Flags alone cannot describe who took part; the configuration can."
