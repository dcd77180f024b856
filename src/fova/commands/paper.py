"""`fova paper`: the paper's tables and figures, and our own studies."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from fova.commands.flags import parse
from fova.commands.grid import GridOptions
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
    directory: Path = Path("runs/paper")
    """Folder of the runs and tables. Each experiment gets a subfolder NAME-SCALE."""
    cases: tuple[str, ...] = ()
    """Train only these cases, by their exact labels (default: all of the scale)."""
    variants: tuple[str, ...] = ()
    """Train only these variants, by their exact labels (default: all)."""
    seeds: tuple[int, ...] = ()
    """Train only these seeds; more than the scale has are possible (default: the scale's)."""
    keep: tuple[Path, ...] = ()
    """Result files. Their runs with the same settings and data are kept where no run directory is left."""
    grid: GridOptions = field(default_factory=GridOptions)


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
    from fova.experiments.parts import Part
    from fova.paper import catalogue
    from fova.paper.tables import tables

    entry = catalogue.get(name)
    scale = entry.scale(options.scale)
    directory = options.directory / f"{entry.name}-{scale.name}"
    terminal = Terminal()
    part = Part(options.cases, options.variants, options.seeds)
    results = run_entry(entry, scale, directory, options.grid.execution(part, options.keep), terminal)
    if results is None:
        return
    for table, sheet in tables(results).items():
        paths = sheet.save(directory / table)
        terminal.print(sheet.terminal(), markup=True)  # its cells are our own labels
        terminal.write_line("table    " + "  ".join(str(path) for path in paths))
    terminal.write_line(f"figures  {directory / 'results.json'}")


# --- The list ---------------------------------------------------------------------------------------------

WIDTHS = (26, 12, 13, 16)  # of the name and of each scale, so that a line fits into 80 columns


def list_table(workers: int) -> Group:
    """All experiments: runs and estimated time at each scale, with `workers` runs at a time; below it the title."""
    from fova.paper import catalogue, cost

    finished = catalogue.committed_results()
    head = [f"{scale}:" for scale in SCALES]
    lines: list[RenderableType] = [
        _line("", head, ""),
        _line("experiment", ["runs, time"] * len(SCALES), "" if finished is None else "results"),
    ]
    group = None
    for entry in catalogue.listing():
        if entry.group != group:
            group = entry.group
            lines += [Rule(), Text(group, style="bold")]
        costs = [_shown(entry.costs.get(scale), workers) for scale in SCALES]
        lines.append(_line(entry.name, costs, (finished or {}).get(entry.name, "")))
        lines.append(Padding(Text(entry.title, style="dim"), (0, 0, 0, 2)))
    caption = (
        f"Times are estimates for {workers} runs at a time, from speeds that were measured on "
        f"{cost.speeds().machine}; making new data comes on top. fova paper NAME --scale SCALE runs one."
        + ("" if finished is None else " Results: the seeds of each figure in results/NAME.json.")
    )
    return Group(*lines, Rule(), Text(caption))


def _line(name: str, costs: list[str], mark: str) -> Text:
    first, *others = WIDTHS
    cells = "".join(f"{cost:>{width}}" for cost, width in zip(costs, others))
    return Text(f"{name:<{first}}{cells}  {mark}")


def _shown(cost: tuple[int, float] | None, workers: int) -> str:
    from fova.progress import spoken_seconds

    if cost is None:
        return ""
    runs, core_seconds = cost
    return f"{runs}, {spoken_seconds(core_seconds / min(workers, runs))}"
