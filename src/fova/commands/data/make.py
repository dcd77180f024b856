"""`fova data make`: make a dataset ahead of time."""

from dataclasses import dataclass
from typing import Annotated

from fova.commands.data.loading import ensure
from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.settings import ROWS, SEEDS


@dataclass(frozen=True)
class MakeOptions:
    """Make a dataset and keep it. The same task, quality, seed and size always give the same bytes."""

    name: str
    """TASK/QUALITY, for instance hopper/expert; see `fova tasks`."""
    size: Annotated[int, ROWS] = 100_000
    """Number of transitions. The last episode is played to its end, so there may be a few more."""
    seed: Annotated[int, SEEDS] = 0
    """Seed of starts and actions."""


def command(arguments: list[str]) -> None:
    options = parse(MakeOptions, "fova data make", arguments, positional=True)
    from fova.tasks import datasets

    task, quality = datasets.parse_name(options.name)
    terminal = Terminal()
    before = datasets.find(task, quality, options.seed)
    kept = ensure(task, quality, options.size, options.seed, terminal)
    how = "already there" if before == kept else "made"
    terminal.write_line(
        f"{how}: {kept.rows:,} rows in {kept.episodes:,} episodes, mean return {kept.mean_return:.1f}\n"
        f"dataset  {kept.folder}"
    )
