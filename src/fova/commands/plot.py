"""`fova plot`: pictures of finished runs for print."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.settings import Within


@dataclass(frozen=True)
class PlotOptions:
    """Write pictures of runs for papers and slides: learning curves, server against clients, votes."""

    runs: tuple[Path, ...]
    """Directories of runs, or folders of them, for instance runs/demo-1."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("plots")
    """Folder of the pictures."""
    format: tuple[Literal["png", "svg", "pdf"], ...] = ("png", "svg", "pdf")
    """File formats."""
    metric: str = "return"
    """What is drawn over training: return, score, or a metric that clients log in every round, such as critic_loss
    or policy_distance. With a metric other than return, only this picture is drawn."""
    size: Annotated[tuple[float, float] | None, Within(0.5, 100)] = None
    """Width and height of a picture in inches (default: 5.5 3.4; paper 3.3 2.3; slides 10 5.6)."""
    style: Literal["plain", "paper", "slides"] = "plain"
    """plain; paper (one column, serif letters of 8 points, no title); or slides (large letters)."""


def command(arguments: list[str]) -> None:
    options = parse(PlotOptions, "fova plot", arguments, positional=True)
    from fova.reports.curves import write_plots
    from fova.reports.groups import read_groups

    if not options.format:
        raise FovaError("No file format was named. Leave --format out for png, svg and pdf.")
    terminal = Terminal()
    groups = read_groups(options.runs)
    for path in write_plots(groups, options.output, options.format, options.metric, options.size, options.style):
        terminal.write_line(f"picture  {path}")
