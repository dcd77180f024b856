"""`fova tasks`: the tasks that data can be made for."""

from dataclasses import dataclass

from rich.table import Table

from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks, the data that can be made for each, and the reference scores."""


def command(arguments: list[str]) -> None:
    parse(TasksOptions, "fova tasks", arguments)
    Terminal().print(tasks_table())


def tasks_table() -> Table:
    """A table of all tasks: the data that can be made for each, and its reference scores."""
    from fova.tasks import registry

    table = Table(title="tasks")
    for column in ("task", "obs", "act", "steps", "data that can be made", "random", "expert"):
        numeric = column not in ("task", "data that can be made")
        # Users copy the names from this table, so they are never truncated.
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column == "task", overflow="fold")
    for task in map(registry.get, registry.names()):
        scores = ("" if score is None else f"{score:.1f}" for score in (task.random_score, task.expert_score))
        sizes = (str(task.space.observation), str(task.space.action.size), str(task.time_limit))
        table.add_row(task.name, *sizes, ", ".join(task.qualities), *scores)
    return table
