"""The report: one HTML page that opens offline, on any screen, and asks the network for nothing.

It says in words how the runs ended and who won the vote, then shows it. This module computes what is shown; the
template `page.html.jinja` lays it out, `rendering.py` puts it together. Charts are SVG (`svg.py` says why).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fova.errors import FovaError
from fova.machine.files import write_atomically
from fova.reports import charts, story
from fova.reports.cells import Table, client_comparison, clients_table, runs_table, summary_table
from fova.reports.charts import Chart, VoteCharts
from fova.reports.diagnostics import diagnostics
from fova.reports.groups import Group, comparable, read_groups
from fova.reports.judged import (
    JudgedSection,
    judged_section,
    judged_table,
    participation_sentences,
    participation_tables,
)
from fova.reports.ranking import ranking_in_words
from fova.reports.rendering import Live, render
from fova.reports.reproduce import config_command, train_command
from fova.reports.scenes import Scene, scene
from fova.reports.series import votes
from fova.run.config import load_config
from fova.run.records import Record
from fova.version import __version__

T = TypeVar("T")

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
        if group.task is not None:
            tell(f"playing {group.label} for its picture")
        pictures[group.label] = scene(group)
    return pictures


def page(groups: Sequence[Group], pictures: Pictures, live: Live | None = None) -> str:
    """The whole page."""
    return render(
        "page.html.jinja",
        live,
        title=_title(groups),
        subtitle=_subtitle(groups),
        overview=_overview(groups) if len(groups) > 1 else None,
        groups=[_group_section(group, groups, pictures.get(group.label)) for group in groups],
    )


# --- Parts of the page ---


@dataclass(frozen=True)
class ComparisonPart:
    """Settings with the same data beside one another."""

    heading: str
    sentences: Sequence[str]
    charts: Sequence[Chart]
    tables: Sequence[Table]


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
    """How to run a group's first run again. Without a command, `no_command` says why, or what else has to start."""

    command: str | None
    no_command: str
    config_command: str | None
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
            [*story.comparison(members), *ranking_in_words(members), *participation_sentences(members)],
            _present(charts.learning_curves(members)),
            [
                *_present(summary_table(members), judged_table(members), client_comparison(members)),
                *participation_tables(members),
            ],
        )
        for name, members in by_data.items()
    ]
    return Overview(parts, runs_table(groups))


def _group_section(group: Group, groups: Sequence[Group], picture: Scene | str | None) -> GroupSection:
    alone = len(groups) == 1
    found = votes(group)
    return GroupSection(
        label=group.label,
        anchor=f"setting-{groups.index(group) + 1}",
        heading="In short" if alone else group.label,
        sentences=story.summary(group),
        picture=picture,
        charts=_present(
            charts.learning_curves([group]) if alone else None,
            charts.clients_over_training(group),
            charts.server_against_clients(group),
        ),
        judged=judged_section(group),
        diagnostics=diagnostics(group),
        votes=VoteSection(story.vote_summary(group, found), charts.vote_charts(found)) if found else None,
        clients=clients_table(group),
        run_again=_run_again(group),
    )


def _present(*found: T | None) -> list[T]:
    return [each for each in found if each is not None]


# --- Running it again ---


def _run_again(group: Group) -> RunAgain:
    record = group.first
    others = ", ".join(f"--seed {seed}" for seed in group.seeds[1:])
    seeds = f"That is seed {record.seed}. The other runs of this setting add {others}." if others else ""
    command, reason = _command(record)
    return RunAgain(command, reason, config_command(record), seeds, record.config_text)


OVER_NETWORK = (
    "The command starts the server only. Start every client with fova client, as before: clients keep their data "
    "and their own settings. The run does not record whether connections were encrypted: if they were not, add "
    "--insecure at the server and at every client."
)


IN_MEMORY = (
    "The clients' data was in memory, so no command repeats the run. In Python, give fova.train the same data and "
    "the settings below."
)


def _command(record: Record) -> tuple[str | None, str]:
    """The command with flags; without one, the reason."""
    if record.over_network:
        return None, OVER_NETWORK
    if not record.config.clients:
        return None, IN_MEMORY
    try:
        command = train_command(load_config(record.directory / "config.toml"))
    except FovaError as error:  # an algorithm's file that has moved, a setting of another version
        return None, f"This version cannot write the run as one command. {error}"
    return command, "" if command else "Flags cannot describe this run; the configuration file can."
