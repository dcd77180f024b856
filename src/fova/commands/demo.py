"""`fova demo`: a small federation on built-in data, with a picture and a report."""

from dataclasses import dataclass
from pathlib import Path

from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class DemoOptions:
    """Train a small federation on built-in data and draw the result."""

    rounds: int = 30
    """Rounds to train."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def command(arguments: list[str]) -> None:
    options = parse(DemoOptions, "fova demo", arguments)
    terminal = Terminal()
    terminal.print(
        "Four clients in a maze: two log an expert that drives to the goal, two log random driving. No client "
        "shares its data.\nfova trains one policy across them; the star in the pictures is the goal."
    )
    from fova.commands.maze_demo import run
    from fova.progress import choose
    from fova.reports.tables import result_table

    result, picture, report = run(choose(False, options.plain, terminal), Path("runs"), options.rounds)
    terminal.print(result_table(result))
    terminal.write_line(f"picture  {picture}\nreport   {report}")
