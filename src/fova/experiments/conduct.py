"""From an entry to its result file: run what is missing, collect, save. What a command does with it is its own."""

from collections import Counter
from pathlib import Path

from rich.console import Console

from fova.errors import FovaError
from fova.experiments.display import choose
from fova.experiments.results import Results, collect
from fova.experiments.runner import Standing, run_all, standing
from fova.experiments.specifications import Entry, PlannedRun, Scale
from fova.machine.runtime import processors

RESULTS = "results.json"


def conduct(
    entry: Entry, scale: Scale, directory: Path, jobs: int | None, plain: bool, dry_run: bool, console: Console
) -> Results | None:
    """Run an entry into `directory` and save RESULTS there; with `dry_run` only say what would be done.

    Runs that fail are told of at the end, after the result file of the others is saved.
    """
    planned = entry.runs(scale)
    runs = [(run.name, run.config) for run in planned]
    if dry_run:
        for line in plan(planned, standing(directory, runs)):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return None
    outcome = run_all(runs, directory, processors() if jobs is None else jobs, choose(plain, console))
    results = None
    if outcome.finished:
        results = collect(entry, scale, directory)
        results.save(directory / RESULTS)
    try:
        outcome.raise_failures()
    except FovaError as error:
        saved = f"\nFigures of the finished runs: {directory / RESULTS}" if results else ""
        raise FovaError(f"{error}{saved}") from error
    return results


def plan(planned: list[PlannedRun], there: dict[str, Standing]) -> list[str]:
    """One line for each run, then how many there are of each standing."""
    width = max(len(run.name) for run in planned)
    lines = [
        f"{run.name:<{width}}  {there[run.name]:<9}  {run.config.task}, {run.config.run.rounds} rounds of "
        f"{run.config.run.local_steps} local steps"
        for run in planned
    ]
    counts = Counter(there.values())
    return [*lines, f"{len(planned)} runs: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())]
