"""`fova train`: train one policy across the data of many clients."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fova.commands.helping import insist_on_resuming_only
from fova.commands.terminal import Terminal
from fova.errors import FovaError

if TYPE_CHECKING:
    from fova.machine.cluster import Cluster
    from fova.policy import Policy
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
    processes: str | None = None
    """Distribute the clients over several processes: a number starts that many on this machine; 0/4 is the first
    of four that you start yourself, and 3/4 is the last; auto asks Slurm or Open MPI. See
    docs/large-federations.md."""
    coordinator: str | None = None
    """With --processes I/N: host and free port of process 0, for instance node-1:5800."""
    dry_run: bool = False
    """Print rows, parameters, memory and an estimate of the time, and train nothing."""
    quiet: bool = False
    """Print nothing but errors."""
    plain: bool = False
    """Print plain lines instead of a live display."""


def command(arguments: list[str]) -> None:
    _announce_processes(arguments)
    config, options = parse_train(arguments)
    terminal = Terminal()
    if options.dry_run and not options.resume:
        _show_plan(config, options, terminal)
        return
    if options.resume and _is_finished(options, arguments, terminal):
        return
    if options.processes is not None:
        _train_together(config, options, arguments, terminal)
        return
    if options.coordinator is not None:
        raise FovaError("--coordinator goes with --processes I/N, for instance: --processes 0/2")
    _show(_resumed(options, terminal) if options.resume else _started(config, options, terminal), options, terminal)


def _announce_processes(arguments: list[str]) -> None:
    """Note how many processes the clients are dealt out among, before the configuration is checked."""
    from fova.commands.run_arguments import early_options

    early = early_options(arguments, ("processes", "coordinator"))
    if "processes" in early:
        from fova.commands.processes import announce, place_of

        announce(place_of(early["processes"], early.get("coordinator")))


def _train_together(config: "Config", options: TrainOptions, arguments: list[str], terminal: Terminal) -> None:
    """Train in this process as one of several."""
    from fova.commands.processes import place_of, run_together
    from fova.progress import choose
    from fova.run import processes
    from fova.run.config import load_config
    from fova.run.directory import named

    assert options.processes is not None
    count = place_of(options.processes, options.coordinator)
    if isinstance(count, int):
        whole = load_config(options.resume / "config.toml") if options.resume else config
        processes.insist_on_a_share_each(whole, count)
    directory = None if options.name is None else named(options.name)

    def work(cluster: "Cluster", resume_with: str, begun: Callable[[Path], None]) -> None:
        progress = choose(options.quiet or cluster.index > 0, options.plain, terminal)
        try:
            if options.resume:
                result = processes.resume(options.resume, progress, cluster, resume_with, begun)
            else:
                result = processes.start(config, directory, progress, cluster, resume_with, begun)
        finally:
            progress.finish()
        _show(result, options, terminal)

    run_together(arguments, options.processes, options.coordinator, work)


def _show(result: "Result | None", options: TrainOptions, terminal: Terminal) -> None:
    if result is not None and not options.quiet:
        _show_result(result, terminal)


def _show_plan(config: "Config", options: TrainOptions, terminal: Terminal) -> None:
    """Say what the run would take, after the checks that come before training."""
    from fova.commands.dry_run import describe
    from fova.run.directory import named
    from fova.run.training import insist_on_training, new_directory

    insist_on_training(config)
    directory = new_directory(config, None if options.name is None else named(options.name))
    for line in describe(config, directory):
        terminal.write_line(line)


def parse_train(arguments: list[str]) -> tuple["Config", TrainOptions]:
    """The configuration that the arguments of `fova train` describe."""
    from fova.commands.run_arguments import parse_run

    config, parsed = parse_run(arguments, TrainOptions, "fova train")
    from fova.federation.client_specs import ClientSpec

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


def _is_finished(options: TrainOptions, arguments: list[str], terminal: Terminal) -> bool:
    """Whether the run to resume has nothing left to do; says so. Refuses settings beside --resume."""
    from fova.run.directory import RunDirectory

    assert options.resume is not None
    insist_on_resuming_only(arguments, {"quiet", "plain", "processes", "coordinator"})
    run = RunDirectory.open(options.resume)
    if not run.is_complete() or run.stopped_early():
        return False
    if not options.quiet:
        _show_finished(run, terminal)
    return True


def _resumed(options: TrainOptions, terminal: Terminal) -> "Result":
    from fova.progress import choose
    from fova.run import training

    assert options.resume is not None
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


def _choice(policy: "Policy") -> str:
    """With `--select judge`: which round this is, and why."""
    judged = policy.facts.get("judged")
    if judged is None:
        return ""
    interval = f"{judged['value']:.2f} [{judged['low']:.2f}, {judged['high']:.2f}]"
    return f"  (round {policy.facts['rounds']}, the highest estimate of the judge: {interval})"


def _show_result(result: "Result", terminal: Terminal) -> None:
    from fova.reports.tables import result_table, what_it_took

    if result.server is not None:
        terminal.print(result_table(result))
    for line in what_it_took(result.directory):
        terminal.write_line(line)
    if result.policy is not None:
        terminal.write_line(f"policy   {result.directory / 'policy.safetensors'}{_choice(result.policy)}")
    terminal.write_line(f"metrics  {result.directory / 'metrics.jsonl'}")
    if result.server is not None:
        terminal.write_line(f"again    fova evaluate {result.directory}")
    else:
        terminal.write_line(f"judge    fova judge {result.directory}")
    terminal.write_line(f"to read  fova report {result.directory}")
