"""The `fova data` commands: wiring only. Each is one function; heavy parts are imported when it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from rich.console import Console
from rich.markup import escape

from fova.commands.flags import parse
from fova.errors import FovaError, unknown

if TYPE_CHECKING:
    from fova.data.sources import Source
    from fova.data.transitions import Transitions
    from fova.tasks.behaviour import BehaviourConfig
    from fova.tasks.datasets import Kept
    from fova.tasks.registry import Task

T = TypeVar("T")

HELP = """fova data: make, inspect, check and convert data

usage: fova data COMMAND [options]   fova data COMMAND --help explains a command

  fova data list                     what has been made, and what can be made
  fova data make TASK/QUALITY        make a dataset ahead of time (training makes what it needs by itself)
  fova data inspect X                episodes, returns, lengths, coverage, bounds, problems
  fova data inspect X Y ...          how clients differ in what they see and do
  fova data validate FILE            for scripts: exit code 0 if training can use it, else 2 and the reason
  fova data import X --to ID         convert to a Minari dataset
  fova data train-behaviour TASK     train the policies that data is made with

X is a file (.npz, .hdf5, .parquet), a folder of files, a Minari dataset's id or TASK/QUALITY.

by example

  fova data make hopper/expert --size 100000
  fova data inspect hopper/medium-replay
  fova data inspect ward-1.npz --json
  fova data inspect ward-1.npz ward-2.npz ward-3.npz
  fova data import halfcheetah_medium-v2.hdf5 --to halfcheetah/medium-v0
"""


def main(arguments: list[str]) -> None:
    """Run one of the commands; errors go to whoever called."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown("data command", name, COMMANDS, "See: fova data --help")
    try:
        COMMANDS[name](rest)
    except KeyboardInterrupt:
        if name == "train-behaviour":  # the only one that leaves checkpoints
            raise
        raise KeyboardInterrupt("Stopped; nothing was written.") from None


def _parse(kind: type[T], name: str, arguments: list[str]) -> T:
    return parse(kind, f"fova data {name}", arguments, positional=True)


# --- make and list ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MakeOptions:
    """Make a dataset and keep it. The same task, quality, seed and size always give the same bytes."""

    name: str
    """TASK/QUALITY, for instance hopper/expert; see `fova tasks`."""
    size: int = 100_000
    """How many transitions. The last episode is played to its end, so there may be a few more."""
    seed: int = 0
    """Seed of starts and actions."""


def _make(arguments: list[str]) -> None:
    from fova.tasks import datasets

    options = _parse(MakeOptions, "make", arguments)
    task, quality = datasets.parse_name(options.name)
    console = Console()
    there = datasets.find(task, quality, options.seed)
    kept = _ensure(task, quality, options.size, options.seed, console)
    how = "already there" if there == kept else "made"
    console.print(
        f"{how}: {kept.rows:,} rows in {kept.episodes:,} episodes, mean return {kept.mean_return:.1f}",
        highlight=False,
    )
    console.print(f"dataset  {kept.folder}", highlight=False, soft_wrap=True)


def _ensure(task: "Task", quality: str, size: int, seed: int, console: Console) -> "Kept":
    """The dataset, with a bar on the screen while it is made."""
    from rich.progress import Progress

    from fova.tasks import datasets

    if size < 1:
        raise FovaError(f"The size is {size}, but must be at least 1.")
    with Progress(console=console, transient=True) as bar:
        line = bar.add_task(f"{task.name}/{quality}", total=size)
        return datasets.ensure(task, quality, size, seed, lambda rows: bar.update(line, completed=min(rows, size)))


@dataclass(frozen=True)
class ListOptions:
    """List the datasets that have been made, and those that can be."""


def _list(arguments: list[str]) -> None:
    from rich.table import Table

    from fova.tasks import datasets, registry

    _parse(ListOptions, "list", arguments)
    console = Console()
    made = Table(title=f"made, in {datasets.store()}")
    made.add_column("dataset")
    for column in ("seed", "rows", "episodes", "mean return"):
        made.add_column(column, justify="right")
    for kept in datasets.kept():
        numbers = (f"{kept.seed}", f"{kept.rows:,}", f"{kept.episodes:,}", f"{kept.mean_return:.1f}")
        made.add_row(f"{kept.task}/{kept.quality}", *numbers)
    console.print(made)
    for name in registry.names():
        qualities = registry.get(name).qualities
        if qualities:
            console.print(f"can be made: {name}/{{{','.join(qualities)}}}", highlight=False, soft_wrap=True)


# --- inspect, validate, import ----------------------------------------------------------------------------


@dataclass(frozen=True)
class InspectOptions:
    """Show what a dataset is like: episodes, returns, lengths, coverage, bounds, problems.

    Of several, show how these clients differ: what share of the visited states each covers, how different the
    states are that it visits and the actions that it takes in states it shares with others. All of it comes from
    counts that the clients could send; see docs/data.md.
    """

    data: tuple[str, ...]
    """Files, folders of files, Minari datasets' ids or TASK/QUALITY; one, or one for each client."""
    config: Path | None = None
    """A TOML file with task and [[client]] tables, as for `fova train`: show how these clients differ."""
    json: bool = False
    """Print JSON, for scripts."""
    download: bool = False
    """Fetch a Minari dataset that is not on this machine."""
    size: int = 10_000
    """Of TASK/QUALITY: how many transitions to make first, unless there are as many; all there are are read."""
    seed: int = 0
    """Of TASK/QUALITY: the seed."""


def _inspect(arguments: list[str]) -> None:
    from fova.data.inspect import inspect, inspect_federation, render, render_federation

    options = _parse(InspectOptions, "inspect", arguments)
    console = Console()
    if options.config is None and len(options.data) == 1:
        summary = inspect(_load(options.data[0], options.size, options.seed, options.download))
        print(summary.to_json()) if options.json else render(summary, console)
    else:
        clients = inspect_federation(_clients(options))
        print(clients.to_json()) if options.json else render_federation(clients, console)


def _clients(options: InspectOptions) -> "Mapping[str, Transitions]":
    """The data of each client, by name."""
    if bool(options.data) == (options.config is not None):
        raise FovaError("Name the data to inspect, or a federation's --config; one of the two.")
    if options.config is not None:
        from fova.run.config import load_config
        from fova.run.training import build_federation

        return build_federation(load_config(options.config)).clients
    for name in options.data:
        if options.data.count(name) > 1:
            raise FovaError(
                f"{name} was named twice. To share one source out among clients, write it down in a TOML file with "
                "one [[client]] table each, and give it with --config."
            )
    load = partial(_load, size=options.size, seed=options.seed, download=options.download)
    return {name: load(name).transitions for name in options.data}


@dataclass(frozen=True)
class ValidateOptions:
    """Check that training can use a file: exit code 0, or 2 and the reason."""

    data: str
    """A file, a folder of files or a Minari dataset's id."""
    action_low: tuple[float, ...] = ()
    """Lowest action, one number or one per column; by default what the file declares, or -1."""
    action_high: tuple[float, ...] = ()
    """Highest action, likewise."""


def _validate(arguments: list[str]) -> None:
    from fova.data import sources

    options = _parse(ValidateOptions, "validate", arguments)
    source = sources.load(options.data)
    _check(source, options.action_low, options.action_high)
    console = Console(soft_wrap=True, highlight=False)
    for note in source.notes:
        console.print(f"note: {escape(note)}")
    rows, episodes = len(source.transitions), len(source.transitions.episode_lengths())
    console.print(f"ok: {escape(options.data)} ({source.format}), {rows:,} rows in {episodes:,} episodes")


@dataclass(frozen=True)
class ImportOptions:
    """Convert data to a Minari dataset on this machine. Data that training could not use is refused."""

    data: str
    """A file, a folder of files, a Minari dataset's id or TASK/QUALITY."""
    to: str | None = None
    """Id of the new dataset, with a version: wards/ward-1-v0. Must be given."""
    action_low: tuple[float, ...] = ()
    """Lowest action, one number or one per column; by default what the file declares, or -1."""
    action_high: tuple[float, ...] = ()
    """Highest action, likewise."""
    download: bool = False
    """Fetch a Minari dataset that is not on this machine."""
    size: int = 10_000
    """Of TASK/QUALITY: how many transitions to make first, unless there are as many; all there are are read."""
    seed: int = 0
    """Of TASK/QUALITY: the seed."""


def _import(arguments: list[str]) -> None:
    from fova.data.minari_store import to_minari

    options = _parse(ImportOptions, "import", arguments)
    if options.to is None:
        raise FovaError(f"Name the new dataset: fova data import {options.data} --to wards/ward-1-v0")
    source = _load(options.data, options.size, options.seed, options.download)
    low, high = _check(source, options.action_low, options.action_high)
    metadata = {"description": f"Imported by fova from {Path(options.data).name} ({source.format})."}
    folder = to_minari(source.transitions, options.to, low, high, metadata)
    console = Console(soft_wrap=True, highlight=False)
    for note in source.notes:
        console.print(f"note: {escape(note)}")
    console.print(f"{len(source.transitions):,} rows as {options.to}\ndataset  {folder}")


def _load(name: str, size: int, seed: int, download: bool) -> "Source":
    """Whatever X stands for. A file wins over a task of the same name."""
    from fova.data import sources
    from fova.tasks import datasets

    if datasets.is_name(name) and not Path(name).exists():
        task, quality = datasets.parse_name(name)
        kept = _ensure(task, quality, size, seed, Console(stderr=True))
        return replace(sources.load(kept.folder), name=name)
    return sources.load(name, download)


def _check(source: "Source", low: tuple[float, ...], high: tuple[float, ...]) -> tuple[Any, Any]:
    """The bounds of the actions, once the data has been checked against them."""
    from fova.data.transitions import check
    from fova.spaces import Box

    if bool(low) != bool(high):
        raise FovaError("Give --action-low and --action-high together.")
    given = (low, high) if low else (source.action_low, source.action_high)
    bounds = (-1.0, 1.0) if given[0] is None or given[1] is None else (given[0], given[1])
    lowest, highest = Box.of(source.transitions.actions.shape[1], *bounds).bounds
    check(source.transitions, source.name, lowest, highest)
    return lowest, highest


# --- train-behaviour --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BehaviourOptions:
    """Train behaviour policies with soft actor-critic in a task's simulator; interrupted, it goes on where it was.

    Without --keep, snapshots and experience are left in the run's directory. With it, the levels of the task
    (expert, medium and a ladder up to medium) are chosen when training ends, measured and written there.
    """

    task: str
    """What the policies are to learn; see `fova tasks`."""
    directory: Path | None = None
    """Where the run is written (default: runs/behaviour-TASK)."""
    keep: Path | None = None
    """Write the chosen levels to this directory."""


def _train_behaviour(arguments: list[str]) -> None:
    import tyro

    from fova.machine import runtime
    from fova.tasks.behaviour import BehaviourConfig, Evaluation, train_behaviour
    from fova.tasks.behaviour_levels import keep_levels

    parsed: Any = tyro.cli(
        _behaviour_command(BehaviourConfig, tyro.conf.arg(name="")),
        prog="fova data train-behaviour",
        args=arguments,
        config=(tyro.conf.PositionalRequiredArgs,),
    )
    runtime.prepare()
    console = Console(highlight=False, soft_wrap=True)
    directory = parsed.directory or Path("runs") / f"behaviour-{parsed.task}"

    def tell(evaluation: Evaluation) -> None:
        console.print(f"{evaluation.steps:>9,} steps  return {evaluation.mean:8.1f}  spread {evaluation.sd:7.1f}")

    train_behaviour(parsed.task, parsed.settings, directory, tell)
    console.print(f"snapshots  {directory}")
    if parsed.keep is not None:
        keep_levels(
            directory, parsed.keep, lambda level, mean: console.print(f"{level:<12} mean return {mean:8.1f}")
        )
        console.print(f"levels     {parsed.keep}")


def _behaviour_command(config: "type[BehaviourConfig]", flat: Any) -> type:
    command = make_dataclass(
        "TrainBehaviour",
        [("settings", Annotated[config, flat], field(default_factory=config))],
        bases=(BehaviourOptions,),
        frozen=True,
    )
    command.__doc__ = BehaviourOptions.__doc__
    return command


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "make": _make,
    "list": _list,
    "inspect": _inspect,
    "validate": _validate,
    "import": _import,
    "train-behaviour": _train_behaviour,
}
