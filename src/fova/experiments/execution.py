"""From an entry to its result file: train the runs that are missing, collect all, save."""

from collections import Counter
from pathlib import Path

from rich.console import Console

from fova.errors import FovaError
from fova.experiments.display import choose
from fova.experiments.results import Results, collect
from fova.experiments.runner import RunState, run_all, run_states
from fova.experiments.specifications import Entry, PlannedRun, Scale
from fova.machine.runtime import processors

RESULTS = "results.json"


def run_entry(
    entry: Entry, scale: Scale, directory: Path, jobs: int | None, plain: bool, dry_run: bool, console: Console
) -> Results | None:
    """Run an entry in `directory` and save RESULTS there; with `dry_run` only print what would be done.

    If runs fail, the error comes at the end, after the result file of the others is saved.
    """
    planned = entry.runs(scale)
    runs = [(run.name, run.config) for run in planned]
    if dry_run:
        for line in plan(planned, run_states(directory, runs)):
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


def plan(planned: list[PlannedRun], states: dict[str, RunState]) -> list[str]:
    """One line for each run, then the number of runs in each state."""
    width = max(len(run.name) for run in planned)
    lines = [
        f"{run.name:<{width}}  {states[run.name]:<9}  {run.config.task or 'own data'}, "
        f"{run.config.run.rounds} rounds of {run.config.run.local_steps} local steps"
        for run in planned
    ]
    counts = Counter(states.values())
    return [*lines, f"{len(planned)} runs: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())]
