"""`fova demo`: a small federation on built-in data, with a picture and a report."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from fova.commands.flags import parse
from fova.commands.terminal import Terminal

if TYPE_CHECKING:
    from fova.progress import Progress

MAZE = (
    "Four clients in a maze: two log an expert that drives to the goal, two log random driving. No client "
    "shares its data.\nfova trains one policy across them; the star in the pictures is the goal."
)
INSULIN = (
    "Four clinics dose insulin for patients of different age, with different skill. No clinic shares its records.\n"
    "fova trains one dosing policy across them, by cloning and by FOVA, and both treat every clinic's patients.\n"
    "All patients are simulated. This is not medical advice."
)


@dataclass(frozen=True)
class DemoOptions:
    """Train a small federation on built-in data and draw the result."""

    which: Positional[Literal["maze", "insulin"]] = "maze"
    """maze: four clients drive a ball to a goal. insulin: four clinics dose insulin for simulated patients."""
    rounds: int = 30
    """Rounds to train."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def command(arguments: list[str]) -> None:
    options = parse(DemoOptions, "fova demo", arguments)
    terminal = Terminal()
    terminal.print(MAZE if options.which == "maze" else INSULIN)
    from fova.progress import choose

    progress = choose(False, options.plain, terminal)
    picture, report = (_maze if options.which == "maze" else _insulin)(progress, options.rounds, terminal)
    terminal.write_line(f"picture  {picture}\nreport   {report}")


def _maze(progress: "Progress", rounds: int, terminal: Terminal) -> tuple[Path, Path]:
    from fova.commands.maze_demo import run
    from fova.reports.tables import result_table

    result, picture, report = run(progress, Path("runs"), rounds)
    terminal.print(result_table(result))
    return picture, report


def _insulin(progress: "Progress", rounds: int, terminal: Terminal) -> tuple[Path, Path]:
    from fova.commands.insulin_demo import outcomes_table, run

    demo = run(progress, Path("runs"), rounds)
    terminal.print(outcomes_table(demo.outcomes))
    return demo.picture, demo.report
