"""`fova paper`: the paper's tables and figures, and our own studies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table
from rich.text import Text

from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.machine.runtime import processors

SCALES = ("quick", "small", "full")


@dataclass(frozen=True)
class PaperOptions:
    """Run one of the paper's experiments and print its table beside the paper's; without a name, list them.

    If the command is interrupted or repeated, finished runs are kept and only the others are trained.
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Name of the experiment; see --list."""
    list: bool = False
    """List the experiments with an estimate of the time that each takes."""
    scale: Literal["quick", "small", "full"] = "quick"
    """quick only shows in minutes that the experiment runs; small is a reduced setting (smaller networks, fewer
    steps, 3 seeds); full is the paper's own setting."""
    jobs: int | None = None
    """Runs that are trained at the same time, each with one thread (default: one per core)."""
    dry_run: bool = False
    """Print what would be run, and run nothing."""
    directory: Path = Path("runs/paper")
    """Folder of the runs and tables. Each experiment gets a subfolder NAME-SCALE."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def command(arguments: list[str]) -> None:
    options = parse(PaperOptions, "fova paper", arguments)
    if options.name is None:
        Terminal().print(list_table(processors()))
    elif options.list:
        raise FovaError(f"--list shows all experiments; leave out {options.name!r} or --list.")
    else:
        _run(options.name, options)


def _run(name: str, options: PaperOptions) -> None:
    """Run an experiment, save its tables as Markdown, CSV and LaTeX, and print them."""
    from fova.experiments.execution import run_entry
    from fova.paper import catalogue
    from fova.paper.tables import tables

    entry = catalogue.get(name)
    scale = entry.scale(options.scale)
    directory = options.directory / f"{entry.name}-{scale.name}"
    terminal = Terminal()
    results = run_entry(entry, scale, directory, options.jobs, options.plain, options.dry_run, terminal)
    if results is None:
        return
    for table, sheet in tables(results).items():
        paths = sheet.save(directory / table)
        terminal.print(sheet.terminal(), markup=True)  # its cells are our own labels
        terminal.write_line("table    " + "  ".join(str(path) for path in paths))
    terminal.write_line(f"figures  {directory / 'results.json'}")


# --- The list ---------------------------------------------------------------------------------------------


def list_table(workers: int) -> Table:
    """A table of all experiments: runs and estimated time at each scale, with `workers` runs at a time."""
    from fova.paper import catalogue, cost

    finished = catalogue.committed_results()
    table = Table(
        title="experiments",
        caption=(
            f"Times are estimates for {workers} runs at a time, from speeds that were measured on {cost.MACHINE}; "
            "making new data comes on top. fova paper NAME --scale SCALE runs one."
            + ("" if finished is None else " Results: the file results/NAME.json is in this repository.")
        ),
    )
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    for scale in SCALES:
        table.add_column(f"{scale}: runs, time", justify="right")
    if finished is not None:
        table.add_column("results")
    group = None
    for entry in catalogue.listing():
        if entry.group != group:
            group = entry.group
            table.add_section()
            table.add_row(Text(group, style="bold"))
        costs = (_shown(entry.costs.get(scale), workers) for scale in SCALES)
        mark = [] if finished is None else ["yes" if entry.name in finished else ""]
        table.add_row(entry.name, entry.title, *costs, *mark)
    return table


def _shown(cost: tuple[int, float] | None, workers: int) -> str:
    from fova.progress import spoken_seconds

    if cost is None:
        return ""
    runs, core_seconds = cost
    return f"{runs}, {spoken_seconds(core_seconds / min(workers, runs))}"
