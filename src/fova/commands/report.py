"""`fova report`: one page about finished runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError

PAGE = "report.html"
ENDINGS = (".html", ".htm")  # any other file could be one of the run itself


@dataclass(frozen=True)
class ReportOptions:
    """Write one page about runs: a summary in words, curves, votes, tables, and the commands to repeat them.

    Runs that differ only in the seed are shown together, with intervals. The page opens offline in any browser.
    """

    runs: tuple[Path, ...]
    """Directories of runs, or folders of them, for instance runs/demo-1."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File of the page (default: report.html in the given directory; with several directories, in the current
    one)."""
    pictures: bool = True
    """Play the policies and add pictures: trajectories in a maze, a sequence of images of a robot."""


def command(arguments: list[str]) -> None:
    options = parse(ReportOptions, "fova report", arguments, positional=True)
    from fova.reports.page import write_report

    output = options.output or _place(options.runs)
    if output.suffix not in ENDINGS:
        raise FovaError(f"The output is {output}, but the name of a page must end in {' or '.join(ENDINGS)}.")
    terminal = Terminal()
    written = write_report(
        options.runs,
        output,
        pictures=None if options.pictures else {},
        tell=lambda words: terminal.write_line(f"... {words}"),
    )
    terminal.write_line(f"report   {written}")


def _place(runs: tuple[Path, ...]) -> Path:
    """Where the page goes: into the directory that it describes, as with `fova demo` and `fova compare`."""
    return runs[0] / PAGE if len(runs) == 1 else Path(PAGE)
