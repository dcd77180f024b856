"""`fova compare`: several algorithms on the same data, in one table."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from fova.commands.columns import columns_of
from fova.commands.flags import parse
from fova.commands.grid import GridOptions
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.settings import Within

MOST_SEEDS = 10_000
RUN_FIELDS = ("rounds", "local_steps", "evaluate_every", "final_episodes")
HOLD_OUT = 0.1  # without a task
ALGORITHM_FIELDS = ("hidden", "batch_size", "actor_lr", "critic_lr", "critic_layer_norm")


@dataclass(frozen=True)
class CompareOptions:
    """Train several algorithms on the same data with the same seeds and budget, and print one table.

    If the command is interrupted or repeated, finished runs are kept and only the others are trained.
    """

    clients: tuple[str, ...]
    """One entry per client: a quality of the task's data or a data file."""
    task: str | None = None
    """The task to learn; see `fova tasks`. Without a task the clients are data files, and the policies are judged
    on held-out episodes instead of played (see `fova judge`)."""
    columns: tuple[str, ...] = ()
    """What the columns of tables (CSV, TSV, Parquet) mean, as in `fova train`. `fova data inspect FILE` proposes
    it."""
    missing: tuple[str, ...] = ()
    """What to do with missing values of a column, as in hr=carry lab_*=mean."""
    action_low: tuple[float, ...] = ()
    """Smallest value of every action, if the clients are data files."""
    action_high: tuple[float, ...] = ()
    """Largest value of every action."""
    actions: Literal["auto", "discrete", "continuous"] = "auto"
    """Kind of the actions in data files, as in `fova train`."""
    algorithms: tuple[str, ...] = ("fova", "fedora", "drpo", "cql-fl", "fed-td3bc")
    """The algorithms to compare. fed-iql, fed-bc and the path of a .py file are also possible."""
    modes: tuple[Literal["federated", "local", "centralised"], ...] = ("federated",)
    """federated, and as references local (each client alone) and centralised (all data pooled)."""
    size: int | None = None
    """Transitions of each client (default: 5000 of a quality, all of a file)."""
    seeds: Annotated[int, Within(1, MOST_SEEDS)] = 3
    """Runs of each algorithm, with seeds 0, 1, 2, ..."""
    rounds: int = 50
    """Rounds of every run."""
    local_steps: int = 100
    """Gradient steps of every client in a round."""
    hidden: tuple[int, ...] = ()
    """Widths of the hidden layers for all algorithms (default: each algorithm's own)."""
    batch_size: int | None = None
    """Transitions in a minibatch for all algorithms (default: each algorithm's own)."""
    actor_lr: float | None = None
    """The actor's learning rate for all algorithms (default: each algorithm's own)."""
    critic_lr: float | None = None
    """The critics' learning rate for all algorithms (default: each algorithm's own)."""
    critic_layer_norm: bool | None = None
    """LayerNorm in the critics of all algorithms (default: each algorithm's own)."""
    evaluate_every: int = 10
    """Rounds between evaluations of the server's policy."""
    final_episodes: int = 20
    """Episodes of the final evaluation, which the table shows."""
    hold_out: float | None = None
    """Share of every client's episodes kept aside for the judge (default: 0.1 without a task, 0 with one)."""
    name: str | None = None
    """Folder of the runs under runs/ (default: compare, the task and the clients)."""
    grid: GridOptions = field(default_factory=GridOptions)


def command(arguments: list[str]) -> None:
    options = parse(CompareOptions, "fova compare", arguments)
    hold_out = options.hold_out if options.hold_out is not None else (0.0 if options.task else HOLD_OUT)
    if not (options.task or hold_out):
        raise FovaError(
            "Without a task, policies are judged on held-out episodes, so --hold-out cannot be 0. Leave it out for "
            "the default."
        )
    from fova.experiments.comparison import comparison
    from fova.experiments.execution import run_entry
    from fova.run.directory import named

    entry, scale = comparison(
        options.task,
        options.clients,
        options.size,
        options.algorithms,
        options.modes,
        options.seeds,
        run={name: getattr(options, name) for name in RUN_FIELDS} | {"hold_out": hold_out} | _actions(options),
        settings=_settings(options),
        columns=columns_of(options.columns, options.missing, {}),
    )
    default = "-".join(("compare", options.task or "data", *(Path(data).stem for data in options.clients)))
    directory = named(default if options.name is None else options.name)
    terminal = Terminal()
    results = run_entry(entry, scale, directory, options.grid.execution(), terminal)
    if results is None:
        return
    if hold_out:
        _judge([directory / run.name for run in results.runs], options.grid.plain, terminal)
    from fova.reports.page import write_report
    from fova.reports.tables import comparison_table

    if options.task:
        terminal.print(comparison_table(results))
    report = write_report([directory], directory / "report.html", pictures={})
    terminal.write_line(f"figures  {directory / 'results.json'}\nreport   {report}")


def _judge(runs: list[Path], plain: bool, terminal: Terminal) -> None:
    """Judge the runs that have not been judged yet, and print what follows.

    Other machines may do the same, so each run is claimed first.
    """
    from fova.experiments.training_process import CLAIMS
    from fova.machine.claims import Claims, Heart
    from fova.progress import choose
    from fova.reports.groups import read_groups
    from fova.reports.judged import participations
    from fova.reports.verdicts import participation_table, settings_table
    from fova.run.directory import RunDirectory
    from fova.run.judged import judge_run
    from fova.run.records import read_verdict

    progress = choose(False, plain, terminal)
    claims = Claims(runs[0].parent / CLAIMS)
    try:
        for run in runs:
            claim = claims.take(run.name) if read_verdict(RunDirectory(run)) is None else None
            if claim is not None:
                Heart(claim, lambda: None)
                progress.note(f"judging {run.name}")
                judge_run(run, progress=progress)
                claim.remove()
    finally:
        progress.finish()
    groups = read_groups([run for run in runs if read_verdict(RunDirectory(run)) is not None])
    terminal.print(settings_table(groups))
    for algorithm, clients in participations(groups).items():
        terminal.print(participation_table(algorithm, clients))


def _actions(options: CompareOptions) -> dict[str, Any]:
    """What is said about the actions of data files. What is not said stays out of the runs' settings."""
    given = {"action_low": options.action_low, "action_high": options.action_high}
    kind = {} if options.actions == "auto" else {"actions": options.actions}
    return {name: value for name, value in given.items() if value} | kind


def _settings(options: CompareOptions) -> dict[str, Any]:
    """The given settings for all algorithms."""
    given = {name: getattr(options, name) for name in ALGORITHM_FIELDS}
    return {name: value for name, value in given.items() if value not in (None, ())}
