"""`fova plot`: pictures of finished runs for print."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class PlotOptions:
    """Write pictures of runs for papers and slides: learning curves, server against clients, votes."""

    runs: tuple[Path, ...]
    """Directories of runs, or folders of them, for instance runs/demo-1."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("plots")
    """Folder of the pictures."""
    format: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg", "pdf")
    """File formats."""


def command(arguments: list[str]) -> None:
    options = parse(PlotOptions, "fova plot", arguments, positional=True)
    from fova.reports.curves import write_plots
    from fova.reports.groups import read_groups

    terminal = Terminal()
    for path in write_plots(read_groups(options.runs), options.output, options.format):
        terminal.write_line(f"picture  {path}")
