"""`fova data validate`: check that training can use a file."""

from dataclasses import dataclass

from fova.commands.data.loading import check_actions
from fova.commands.flags import parse
from fova.commands.terminal import Terminal


@dataclass(frozen=True)
class ValidateOptions:
    """Check that training can use a file: exit code 0, or 2 and the reason."""

    data: str
    """A file, a folder of files or a Minari dataset's id."""
    action_low: tuple[float, ...] = ()
    """Lowest action, one number or one per column; by default what the file declares, or -1."""
    action_high: tuple[float, ...] = ()
    """Highest action, likewise."""


def command(arguments: list[str]) -> None:
    options = parse(ValidateOptions, "fova data validate", arguments, positional=True)
    from fova.data import sources

    source = sources.load(options.data)
    check_actions(source, options.action_low, options.action_high)
    terminal = Terminal()
    for note in source.notes:
        terminal.write_line(f"note: {note}")
    rows, episodes = len(source.transitions), len(source.transitions.episode_lengths())
    terminal.write_line(f"ok: {options.data} ({source.format}), {rows:,} rows in {episodes:,} episodes")
