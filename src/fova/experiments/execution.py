"""From an entry to its result file: train the runs that are missing, collect all, save."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from fova.errors import FovaError
from fova.experiments.display import choose
from fova.experiments.keeping import keep
from fova.experiments.parts import EVERYTHING, Part, Shard
from fova.experiments.results import Results, RunResult, candidates, collect
from fova.experiments.runner import Named, Outcome, run_all, run_states
from fova.experiments.specifications import Entry, PlannedRun, Scale
from fova.federation.client_specs import insist_on_sources, sources_of
from fova.machine.runtime import processors
from fova.run.directory import RunDirectory
from fova.run.training import insist_on_clients, insist_on_training
from fova.tasks import registry

RESULTS = "results.json"
FORMER = "results.former.json"


@dataclass(frozen=True)
class Execution:
    """Which runs of an entry are trained, and where."""

    jobs: int | None = None  # at the same time on this machine; by default one per core
    part: Part = EVERYTHING
    shard: Shard | None = None
    on: Literal["here", "ray"] = "here"
    address: str | None = None  # of the Ray cluster
    keep: tuple[Path, ...] = ()  # result files with runs that need no training
    dry_run: bool = False
    plain: bool = False


def run_entry(entry: Entry, scale: Scale, directory: Path, how: Execution, console: Console) -> Results | None:
    """Run an entry in `directory` and save RESULTS there; with `dry_run` only print what would be done.

    If runs fail, the error comes at the end, after the result file of the others is saved.
    """
    chosen = entry.runs(scale, how.part)
    _insist_on_runs(chosen)
    if entry.measured == "PER and BWT":
        _insist_on_stages(entry, chosen)
    earlier = [run for file in how.keep for run in Results.load(file).runs]
    every = candidates(entry, scale, directory, [*how.part.seeds, *(run.seed for run in earlier)])
    states: dict[str, str] = dict(run_states(directory, _named(every)))  # refuses runs of another configuration
    kept = _kept(earlier, every, directory, console) if how.keep else []
    states |= {run.name: "kept" for run in kept}
    mine = _mine([run for run in chosen if states[run.name] != "kept"], how.shard, console)
    if how.dry_run:
        _print(console, plan([run for run in chosen if states[run.name] == "kept"] + mine, states))
        return None
    outcome = _train(_named(mine), directory, how, console) if mine else Outcome()
    results = _collected(entry, scale, directory, kept, console)
    _print(console, _still_to_come(outcome, results))
    try:
        outcome.raise_failures()
    except FovaError as error:
        saved = f"\nFigures of the finished runs: {directory / RESULTS}" if results else ""
        raise FovaError(f"{error}{saved}") from error
    return results


def _train(runs: list[Named], directory: Path, how: Execution, console: Console) -> Outcome:
    display = choose(how.plain, console)
    if how.on == "ray":
        from fova.experiments.on_ray import run_all_on_ray

        return run_all_on_ray(runs, directory, how.address, display)
    return run_all(runs, directory, processors() if how.jobs is None else how.jobs, display)


def _insist_on_runs(planned: Sequence[PlannedRun]) -> None:
    """Refuse runs that would all fail: no clients, no such task or file, an algorithm that trains nothing."""
    for config in {run.config.algorithm_name: run.config for run in planned}.values():
        insist_on_training(config)
    for config in {(run.config.task, run.config.clients): run.config for run in planned}.values():
        insist_on_clients(config)
        task = registry.get(config.task) if config.task else None
        if not config.run.data_sequence:
            insist_on_sources(sources_of(config.clients), task)


def _insist_on_stages(entry: Entry, planned: Sequence[PlannedRun]) -> None:
    """Refuse runs that cannot be played from states of the data of every stage."""
    for run in planned:
        task, how = run.config.task, run.config.run
        if len(how.data_sequence) < 2 or not how.evaluate_every:
            raise FovaError(
                f"{entry.name} measures PER and BWT, but {run.name} has {len(how.data_sequence)} sources in its "
                f"data_sequence and evaluate_every is {how.evaluate_every}. Two sources and 1 are the least."
            )
        if task is None or registry.get(task).restartable is None:
            able = ", ".join(name for name in registry.names() if registry.get(name).restartable is not None)
            raise FovaError(
                f"{entry.name} measures PER and BWT in episodes that start from states of the data. Episodes of "
                f"{task or 'data files without a task'} cannot start there. Tasks whose episodes can: {able}"
            )


def _named(planned: Sequence[PlannedRun]) -> list[Named]:
    return [(run.name, run.config) for run in planned]


# --- Which runs ---


def _kept(
    earlier: Sequence[RunResult], planned: Sequence[PlannedRun], directory: Path, console: Console
) -> list[RunResult]:
    """The earlier results that stand for planned runs whose directory is gone."""
    runs, refused = keep(earlier, [run for run in planned if not (directory / run.name).exists()])
    reasons = [f"not kept: {name}: {reason}" for name, reason in refused.items()]
    _print(console, [*reasons, f"{len(runs)} of {len(earlier)} earlier runs are kept"])
    return runs


def _mine(runs: list[PlannedRun], shard: Shard | None, console: Console) -> list[PlannedRun]:
    if shard is None:
        return runs
    names = set(shard.of([run.name for run in runs]))
    _print(console, [f"{shard.words()}: {len(names)} of {len(runs)} runs"])
    return [run for run in runs if run.name in names]


def plan(planned: Sequence[PlannedRun], states: Mapping[str, str]) -> list[str]:
    """One line for each run, then the number of runs in each state."""
    width = max((len(run.name) for run in planned), default=0)
    lines = [
        f"{run.name:<{width}}  {states[run.name]:<9}  {run.config.task or 'own data'}, "
        f"{run.config.run.rounds} rounds of {run.config.run.local_steps} local steps"
        for run in planned
    ]
    counts = Counter(states[run.name] for run in planned)
    return [*lines, f"{len(planned)} runs: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())]


# --- What came out ---


def _collected(
    entry: Entry, scale: Scale, directory: Path, kept: Sequence[RunResult], console: Console
) -> Results | None:
    """Save the results of all finished runs; None if there is none.

    Other machines may do the same at this moment. Whoever writes last has looked for finished runs after writing.
    """
    saved: Results | None = None
    while True:
        finished = {
            run.name
            for run in candidates(entry, scale, directory, [run.seed for run in kept])
            if RunDirectory(directory / run.name).is_complete()
        }
        if not (finished or kept) or (saved and finished <= {run.name for run in saved.runs}):
            return saved
        saved = collect(entry, scale, directory, kept)
        _spare_former(directory, {run.name for run in saved.runs}, console)
        saved.save(directory / RESULTS)


def _spare_former(directory: Path, now: set[str], console: Console) -> None:
    """Put a result file aside that has runs which the next one will lack."""
    path = directory / RESULTS
    if not path.is_file():
        return
    try:
        lost = {run.name for run in Results.load(path).runs} - now
    except FovaError:
        return
    if any(not RunDirectory(directory / name).is_complete() for name in lost):
        path.replace(directory / FORMER)
        words = f"{len(lost)} runs of the former {RESULTS} have no directory any more; the file is now {FORMER}."
        _print(console, [f"{words} Keep them with: --keep {directory / FORMER}"])


def _still_to_come(outcome: Outcome, results: Results | None) -> list[str]:
    """What other machines are training."""
    if not outcome.elsewhere:
        return []
    by_machine: dict[str, list[str]] = {}
    for name, machine in outcome.elsewhere.items():
        by_machine.setdefault(machine, []).append(name)
    lines = [f"under way on {machine}: {', '.join(names)}" for machine, names in by_machine.items()]
    finished = len(results.runs) if results else 0
    return [*lines, f"{finished} runs are finished. Give the same command again when the others are."]


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
