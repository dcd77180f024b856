"""`fova data inspect`: what a dataset is like, or how several clients differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fova.commands.columns import columns_of, load_tables, show_proposal
from fova.commands.data.loading import load
from fova.commands.flags import parse
from fova.commands.terminal import Terminal
from fova.errors import FovaError
from fova.progress import Event, Note, Progress
from fova.settings import ROWS, SEEDS

if TYPE_CHECKING:
    from fova.data.sources import Source
    from fova.data.transitions import Transitions


@dataclass(frozen=True)
class InspectOptions:
    """Show what a dataset is like: episodes, returns, lengths, coverage, bounds, problems.

    For a table without --columns, show its columns and propose a mapping. For several datasets, show how these
    clients differ: the share of the visited states that each covers, how much its states differ from those of the
    others, and how much its actions differ in states that it shares with them. All of this comes from counts that
    the clients could send; see docs/data.md.
    """

    data: tuple[str, ...]
    """Files, folders of files, Minari datasets' ids or TASK/QUALITY; one, or one for each client."""
    columns: tuple[str, ...] = ()
    """What the columns of tables mean, as for `fova train`. Without it, a mapping is proposed."""
    missing: tuple[str, ...] = ()
    """What to do with missing values of a column of tables, as for `fova train`."""
    config: Path | None = None
    """A TOML file with task and [[client]] tables, as for `fova train`: show how these clients differ."""
    json: bool = False
    """Print JSON, for scripts."""
    download: bool = False
    """Fetch a Minari dataset that is not on this machine."""
    size: Annotated[int, ROWS] = 10_000
    """For TASK/QUALITY: make more transitions first if there are fewer than this. All existing ones are read."""
    seed: Annotated[int, SEEDS] = 0
    """For TASK/QUALITY: the seed."""


def command(arguments: list[str]) -> None:
    options = parse(InspectOptions, "fova data inspect", arguments, positional=True)
    from fova.data.inspect import inspect, inspect_federation, render, render_federation

    terminal = Terminal(markup=True)  # `render` uses markup and escapes names
    if options.config is None and not options.columns and _are_tables(options.data):
        if options.missing or options.json:
            flag = "--json" if options.json else "--missing"
            raise FovaError(
                f"{flag} needs to know what the columns mean: add --columns. Without {flag}, a mapping is proposed."
            )
        show_proposal(options.data, terminal)
    elif options.config is None and len(options.data) == 1:
        (source,) = _sources(options).values()
        summary = inspect(source)
        print(summary.to_json()) if options.json else render(summary, terminal)
    else:
        clients = inspect_federation(*_clients(options))
        print(clients.to_json()) if options.json else render_federation(clients, terminal)


def _are_tables(data: tuple[str, ...]) -> bool:
    from fova.data.paths import as_path
    from fova.data.sources import needs_columns

    return bool(data) and all(needs_columns(as_path(name)) for name in data)


def _sources(options: InspectOptions) -> "Mapping[str, Source]":
    """The data that was named, by name."""
    columns = columns_of(options.columns, options.missing, {})
    if columns is None:
        return {name: load(name, options.size, options.seed, options.download) for name in options.data}
    return load_tables(options.data, columns)


def _clients(options: InspectOptions) -> "tuple[Mapping[str, Transitions], list[str]]":
    """The data of each client, by name, and what to tell about it."""
    if bool(options.data) == (options.config is not None):
        raise FovaError("Name the data to inspect, or a federation's --config; one of the two.")
    if options.config is not None:
        from fova.run.config import load_config
        from fova.run.training import build_federation

        told = _Notes()
        return build_federation(load_config(options.config), told).clients, told.notes
    for name in options.data:
        if options.data.count(name) > 1:
            raise FovaError(
                f"{name} was named twice. To divide one source among clients, describe them in a TOML file with "
                "one [[client]] table each, and give it with --config."
            )
    from fova.data.doubts import remarks

    found = _sources(options)
    return {name: source.transitions for name, source in found.items()}, remarks(found)


class _Notes(Progress):
    """Keeps the notes about the data, and shows nothing."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def handle(self, event: Event) -> None:
        if isinstance(event, Note):
            self.notes.append(event.text)
