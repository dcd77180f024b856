"""`fova report` and `fova plot`: finished runs as a page to read and as pictures to print. Wiring only."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from fova.commands.flags import parse


@dataclass(frozen=True)
class ReportOptions:
    """Write one page about some runs: what happened in words, curves, votes, tables, how to run it again.

    Runs that differ only in the seed are shown together with intervals. The page opens offline, in any browser.
    """

    runs: tuple[Path, ...]
    """Directories of runs, or folders of them, for instance runs/demo-1."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """Where the page goes."""
    pictures: bool = True
    """Play the policies for a picture: trajectories in a maze, a strip of film of a robot."""


@dataclass(frozen=True)
class PlotOptions:
    """Write pictures of some runs for papers and slides: learning curves, server against clients, votes."""

    runs: tuple[Path, ...]
    """Directories of runs, or folders of them, for instance runs/demo-1."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("plots")
    """Folder of the pictures."""
    format: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg", "pdf")
    """File formats."""


def report(arguments: list[str]) -> None:
    from fova.reports.page import write_report

    options = parse(ReportOptions, "fova report", arguments, positional=True)
    console = Console(highlight=False, soft_wrap=True)
    written = write_report(
        options.runs,
        options.output,
        pictures=None if options.pictures else {},
        tell=lambda words: console.print(f"... {words}"),
    )
    console.print(f"report   {written}")


def plot(arguments: list[str]) -> None:
    from fova.reports.curves import write_plots
    from fova.reports.records import read_groups

    options = parse(PlotOptions, "fova plot", arguments, positional=True)
    console = Console(highlight=False, soft_wrap=True)
    for path in write_plots(read_groups(options.runs), options.output, options.format):
        console.print(f"picture  {path}")
