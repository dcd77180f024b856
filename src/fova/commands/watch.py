"""`fova watch`: the report of a run while it trains, in a browser."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.settings import PORTS


@dataclass(frozen=True)
class WatchOptions:
    """Show a run, or a folder of runs, in a browser while training goes on. Ctrl-C stops it.

    The page renews itself. A folder of runs has a table with the progress of each. Only this machine can reach the
    page, and nothing is written.
    """

    path: Path
    """The directory of a run, or a folder of runs, for instance runs."""
    port: Annotated[int, PORTS] = 8008
    """Port to listen on; 0 takes any free one."""


def command(arguments: list[str]) -> None:
    options = parse(WatchOptions, "fova watch", arguments, positional=True)
    terminal = Terminal()
    try:
        from fova.reports.live import watch

        watch(
            options.path,
            options.port,
            lambda address: terminal.write_line(f"watching {options.path} on {address}/ (Ctrl-C stops)"),
        )
    except KeyboardInterrupt:  # also while modules are imported
        pass
