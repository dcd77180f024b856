"""`fova data train-behaviour`: train the policies that data is made with."""

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fova.commands.declared import declared
from fova.commands.flags import asks_for_help, read_flags
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class BehaviourOptions:
    """Train behaviour policies with soft actor-critic in a task's simulator. An interrupted run is continued.

    Without --keep, snapshots and experience are left in the run's directory. With it, the levels of the task
    (expert, medium and a ladder up to medium) are chosen when training ends, measured and written there.
    """

    task: str
    """The task that the policies learn; see `fova tasks`."""
    directory: Path | None = None
    """Where the run is written (default: runs/behaviour-TASK)."""
    keep: Path | None = None
    """Write the chosen levels to this directory."""


def command(arguments: list[str]) -> None:
    if asks_for_help(arguments):
        _parsed(arguments, declared("fova.tasks.behaviour", "BehaviourConfig"))
    from fova.machine import runtime
    from fova.tasks.behaviour import BehaviourConfig, Evaluation, train_behaviour
    from fova.tasks.behaviour_levels import keep_levels

    options = _parsed(arguments, BehaviourConfig)
    runtime.prepare()
    terminal = Terminal()
    directory = options.directory or Path("runs") / f"behaviour-{options.task}"

    def show(evaluation: Evaluation) -> None:
        terminal.write_line(
            f"{evaluation.steps:>9,} steps  return {evaluation.mean:8.1f}  spread {evaluation.sd:7.1f}"
        )

    train_behaviour(options.task, options.settings, directory, show)
    terminal.write_line(f"snapshots  {directory}")
    if options.keep is not None:
        keep_levels(
            directory, options.keep, lambda level, mean: terminal.write_line(f"{level:<12} mean return {mean:8.1f}")
        )
        terminal.write_line(f"levels     {options.keep}")


def _parsed(arguments: list[str], config: type) -> Any:
    positional = (tyro.conf.PositionalRequiredArgs,)
    return read_flags(_with_settings(config), "fova data train-behaviour", arguments, positional)


def _with_settings(config: type) -> type:
    """The options with every field of `config` as a flag."""
    command = make_dataclass(
        "TrainBehaviour",
        [("settings", Annotated[config, tyro.conf.arg(name="")], config())],
        bases=(BehaviourOptions,),
        frozen=True,
    )
    command.__doc__ = BehaviourOptions.__doc__
    return command
