"""`fova train`: train one policy across the data of many clients."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fova.commands.terminal import Terminal
from fova.errors import FovaError

if TYPE_CHECKING:
    from fova.run.config import Config
    from fova.run.directory import RunDirectory
    from fova.run.result import Result


@dataclass(frozen=True)
class TrainOptions:
    """Train one policy across the data of many clients.

    Describe the federation with --task and --clients, or in a TOML file given with --config. Everything is
    written to a new directory under runs/.
    """

    task: str | None = None
    """The task to learn; see `fova tasks`. Without a task, clients are data files and no policy is evaluated."""
    clients: tuple[str, ...] = ()
    """One entry per client: a quality of the task's data (expert, random, ...) or a data file; 2-expert-2-random
    stands for four."""
    size: int | None = None
    """Transitions of each client (default: 5000 of a quality, all of a file)."""
    columns: tuple[str, ...] = ()
    """What the columns of tables (CSV, TSV, Parquet) mean, the same at all clients: episode=patient_id time=hour
    observations=hr,map,lab_* action=dose reward=score terminal=died. `fova data inspect FILE` proposes it."""
    missing: tuple[str, ...] = ()
    """What to do with missing values of a column: refuse (the default), carry (forward within the episode), mean
    (of the federation, with an indicator), carry-mean, or unknown (of a category). As in hr=carry lab_*=mean."""
    config: Path | None = None
    """A TOML file with task, [[client]] tables and, if wanted, [columns], [run] and [algorithm]. Flags override
    it."""
    algorithm: str = "fova"
    """The algorithm: a name, or the path of a .py file that defines one."""
    preset: str | None = None
    """The preset of the algorithm to start from (fova: recommended, equations, released)."""
    name: str | None = None
    """Directory of the run under runs/ (default: algorithm, task and a number)."""
    resume: Path | None = None
    """Continue the interrupted run in this directory. Its settings are taken from the directory."""
    dry_run: bool = False
    """Print rows, parameters, memory and an estimate of the time, and train nothing."""
    quiet: bool = False
    """Print nothing but errors."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def command(arguments: list[str]) -> None:
    config, options = parse_train(arguments)
    terminal = Terminal()
    if options.dry_run and not options.resume:
        _show_plan(config, options, terminal)
        return
    result = _resumed(options, arguments, terminal) if options.resume else _started(config, options, terminal)
    if result is not None and not options.quiet:
        _show_result(result, terminal)


def _show_plan(config: "Config", options: TrainOptions, terminal: Terminal) -> None:
    """Say what the run would take, after the checks that come before training."""
    from fova.commands.dry_run import describe
    from fova.run.directory import RunDirectory, named
    from fova.run.training import insist_on_training, new_directory

    insist_on_training(config)
    directory = new_directory(config) if options.name is None else named(options.name)
    RunDirectory(directory).insist_on_new()
    for line in describe(config, directory):
        terminal.write_line(line)


def parse_train(arguments: list[str]) -> tuple["Config", TrainOptions]:
    """The configuration that the arguments of `fova train` describe."""
    from fova.commands.run_arguments import parse_run

    config, parsed = parse_run(arguments, TrainOptions, "fova train")
    from fova.federation.clients import ClientSpec

    clients = tuple(ClientSpec(data) for data in parsed.clients) or config.clients
    if parsed.size is not None:
        clients = tuple(replace(client, size=parsed.size) for client in clients)
    return replace(config, clients=clients), parsed


def _started(config: "Config", options: TrainOptions, terminal: Terminal) -> "Result":
    from fova.progress import choose
    from fova.run import training
    from fova.run.directory import named

    directory = None if options.name is None else named(options.name)
    progress = choose(options.quiet, options.plain, terminal)
    try:
        return training.start(config, directory, progress)
    finally:
        progress.finish()  # restores the terminal's cursor


def _resumed(options: TrainOptions, arguments: list[str], terminal: Terminal) -> "Result | None":
    """The result of the continued run, or None for a run that is already finished."""
    from fova.progress import choose
    from fova.run import training
    from fova.run.directory import RunDirectory

    assert options.resume is not None
    given = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    if others := given - {"--resume", "--quiet", "--plain"}:
        raise FovaError(f"--resume takes its settings from the run; leave out {', '.join(sorted(others))}.")
    run = RunDirectory.open(options.resume)
    if run.is_complete() and not run.stopped_early():
        if not options.quiet:
            _show_finished(run, terminal)
        return None
    progress = choose(options.quiet, options.plain, terminal)
    try:
        return training.resume(options.resume, progress)
    finally:
        progress.finish()


def _show_finished(run: "RunDirectory", terminal: Terminal) -> None:
    terminal.write_line(f"{run.path}: this run is already finished.")
    if run.policy.exists():
        terminal.write_line(f"policy   {run.policy}")
    terminal.write_line(f"result   {run.path / 'result.json'}")
    report = run.path / "report.html"
    terminal.write_line(f"report   {report}" if report.exists() else f"to read  fova report {run.path}")


def _show_result(result: "Result", terminal: Terminal) -> None:
    from fova.reports.tables import result_table, what_it_took

    if result.server is not None:
        terminal.print(result_table(result))
    for line in what_it_took(result.directory):
        terminal.write_line(line)
    if result.policy is not None:
        terminal.write_line(f"policy   {result.directory / 'policy.safetensors'}")
    terminal.write_line(f"metrics  {result.directory / 'metrics.jsonl'}")
    if result.server is not None:
        terminal.write_line(f"again    fova evaluate {result.directory}")
    terminal.write_line(f"to read  fova report {result.directory}")
