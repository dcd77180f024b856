"""`fova data import`: convert data to a Minari dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fova.commands.data.loading import check_actions, load
from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.settings import ROWS, SEEDS


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
    """Highest action, in the same form."""
    actions: Literal["auto", "discrete", "continuous"] = "auto"
    """Kind of the actions: discrete (codes 0, 1, 2, ...), continuous (quantities), or as the data shows."""
    download: bool = False
    """Fetch a Minari dataset that is not on this machine."""
    size: Annotated[int, ROWS] = 10_000
    """For TASK/QUALITY: make more transitions first if there are fewer than this. All existing ones are read."""
    seed: Annotated[int, SEEDS] = 0
    """For TASK/QUALITY: the seed."""


def command(arguments: list[str]) -> None:
    options = parse(ImportOptions, "fova data import", arguments, positional=True)
    if options.to is None:
        raise FovaError(f"Name the new dataset: fova data import {options.data} --to wards/ward-1-v0")
    from fova.data.minari_store import to_minari

    source = load(options.data, options.size, options.seed, options.download)
    action = check_actions(source, options.action_low, options.action_high, options.actions)
    metadata = {"description": f"Imported by fova from {Path(options.data).name} ({source.format})."}
    folder = to_minari(source.transitions, options.to, action, metadata)
    terminal = Terminal()
    for note in source.notes:
        terminal.write_line(f"note: {note}")
    terminal.write_line(f"{len(source.transitions):,} rows as {options.to}\ndataset  {folder}")
