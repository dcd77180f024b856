"""`fova paper`: the paper's tables and figures, and our own studies, as commands. Wiring only."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from fova.commands.flags import parse
from fova.errors import FovaError
from fova.experiments.conduct import conduct
from fova.experiments.specifications import Entry
from fova.machine.runtime import processors
from fova.paper import catalogue, cost
from fova.paper import experiments as paper
from fova.paper.tables import tables
from fova.progress import spoken_seconds


@dataclass(frozen=True)
class PaperOptions:
    """Run one of the paper's experiments and print its table beside the paper's; without a name, list them.

    Interrupted or repeated, it keeps what is finished and goes on with the rest.
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Which experiment; see --list."""
    list: bool = False
    """List the experiments with what each would take on this machine (an estimate)."""
    scale: Literal["quick", "small", "full"] = "quick"
    """quick shows in minutes that it works and nothing more; small is reduced but honest (smaller networks, fewer
    steps, 3 seeds); full is the paper's own setting."""
    jobs: int | None = None
    """Runs that are trained at the same time, each with one thread (default: one per core)."""
    dry_run: bool = False
    """Say what would be run, and run nothing."""
    directory: Path = Path("runs/paper")
    """Where the runs and tables go, in a folder NAME-SCALE."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def main(arguments: list[str]) -> None:
    options = parse(PaperOptions, "fova paper", arguments)
    console = Console()
    if options.list or options.name is None:
        if options.name is not None:
            raise FovaError(f"--list shows all experiments; leave out {options.name!r} or --list.")
        show_list(console)
    else:
        run(catalogue.get(options.name), options, console)


def run(entry: Entry, options: PaperOptions, console: Console) -> None:
    """Run an entry, save its tables as Markdown, CSV and LaTeX, and print them."""
    scale = entry.scale(options.scale)
    directory = options.directory / f"{entry.name}-{scale.name}"
    results = conduct(entry, scale, directory, options.jobs, options.plain, options.dry_run, console)
    if results is None:
        return
    for name, sheet in tables(results).items():
        paths = sheet.save(directory / name)
        console.print(sheet.terminal())
        console.print("table    " + "  ".join(str(path) for path in paths), highlight=False, soft_wrap=True)
    console.print(f"figures  {directory / 'results.json'}", highlight=False, soft_wrap=True)


def show_list(console: Console) -> None:
    """Every entry with its runs and an estimate of its time at each scale, on all cores."""
    for scale in (scale for entry in catalogue.ENTRIES for scale in entry.scales.values()):
        if cost.speed_of(scale) is None:
            console.print(f"... measuring this machine with the networks of scale {scale.name}, once")
            cost.measure(scale)
    workers = processors()
    table = Table(
        title="experiments",
        caption=(
            f"Time: an estimate from a short measured run of FOVA, for {workers} runs at a time; making new data "
            "comes on top. fova paper NAME --scale SCALE runs one."
        ),
    )
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    for name in paper.SCALES:
        table.add_column(f"{name}: runs, time", justify="right")
    for group, entries in catalogue.GROUPS.items():
        table.add_row(f"[bold]{group}")
        for entry in entries:
            table.add_row(entry.name, entry.title, *(_spoken(entry, name, workers) for name in paper.SCALES))
        table.add_section()
    console.print(table)


def _spoken(entry: Entry, scale_name: str, workers: int) -> str:
    if scale_name not in entry.scales:
        return ""
    scale = entry.scales[scale_name]
    speed = cost.speed_of(scale)
    assert speed is not None
    runs = entry.runs(scale)
    seconds = cost.estimate(entry, scale, speed) / min(workers, len(runs))
    return f"{len(runs)}, {spoken_seconds(seconds)}"
