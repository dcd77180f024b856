"""`fova data list`: the datasets that have been made, and those that can be."""

from dataclasses import dataclass

from rich.table import Table

from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class ListOptions:
    """List the datasets that have been made, and those that can be."""


def command(arguments: list[str]) -> None:
    parse(ListOptions, "fova data list", arguments)
    from fova.tasks import datasets, registry

    terminal = Terminal()
    made = Table(title=f"made, in {datasets.store()}")
    made.add_column("dataset")
    for column in ("seed", "rows", "episodes", "mean return"):
        made.add_column(column, justify="right")
    for kept in datasets.kept():
        numbers = (f"{kept.seed}", f"{kept.rows:,}", f"{kept.episodes:,}", f"{kept.mean_return:.1f}")
        made.add_row(f"{kept.task}/{kept.quality}", *numbers)
    terminal.print(made)
    for name in registry.names():
        qualities = registry.get(name).qualities
        if qualities:
            terminal.write_line(f"can be made: {name}/{{{','.join(qualities)}}}")
