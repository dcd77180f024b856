"""`fova data validate`: check that training can use a file."""

from dataclasses import dataclass
from typing import Literal

from fova.commands.columns import columns_of, load_tables
from fova.commands.data.loading import check_actions
from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class ValidateOptions:
    """Check that training can use a file: exit code 0, or 2 and the reason."""

    data: str
    """A file, a folder of files or a Minari dataset's id."""
    columns: tuple[str, ...] = ()
    """What the columns of tables mean, as for `fova train`."""
    missing: tuple[str, ...] = ()
    """What to do with missing values of a column of tables, as for `fova train`."""
    action_low: tuple[float, ...] = ()
    """Lowest action, one number or one per column; by default what the file declares, or -1."""
    action_high: tuple[float, ...] = ()
    """Highest action, in the same form."""
    actions: Literal["auto", "discrete", "continuous"] = "auto"
    """Kind of the actions: discrete (codes 0, 1, 2, ...), continuous (quantities), or as the data shows."""


def command(arguments: list[str]) -> None:
    options = parse(ValidateOptions, "fova data validate", arguments, positional=True)
    from fova.data import sources
    from fova.data.doubts import doubts

    columns = columns_of(options.columns, options.missing, {})
    source = load_tables([options.data], columns)[options.data] if columns else sources.load(options.data)
    check_actions(source, options.action_low, options.action_high, options.actions)
    terminal = Terminal()
    for note in (*source.notes, *doubts(source)):
        terminal.write_line(f"note: {note}")
    rows, episodes = len(source.transitions), len(source.transitions.episode_lengths())
    terminal.write_line(f"ok: {options.data} ({source.format}), {rows:,} rows in {episodes:,} episodes")
