"""What commands share about the columns of tables: reading --columns and --missing, and showing a proposal."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fova.commands.terminal import Terminal
from fova.errors import FovaError

if TYPE_CHECKING:
    from fova.data.sources import Source
    from fova.data.tables.columns import Columns


def columns_of(columns: Sequence[str], missing: Sequence[str], table: Mapping[str, Any]) -> "Columns | None":
    """The mapping of --columns and --missing, which override the [columns] table of a configuration file."""
    from fova.data.tables.columns import Columns

    if not columns and not table:
        if missing:
            raise FovaError("--missing says what to do with columns of tables. Name the columns too: --columns ...")
        return None
    return Columns.of(columns or table, missing)


def load_tables(names: Sequence[str], columns: "Columns") -> "dict[str, Source]":
    """The data of files that are tables, encoded alike."""
    from fova.data.paths import as_path
    from fova.data.tables.arrow import insist_on_table
    from fova.data.tables.loading import TableReader

    _, sources = TableReader(columns).load({name: insist_on_table(as_path(name)) for name in names})
    return sources


def show_proposal(names: Sequence[str], terminal: Terminal) -> None:
    """Print the columns of tables and a mapping that can be pasted."""
    from rich.markup import escape
    from rich.table import Table

    from fova.data.fields import counted
    from fova.data.paths import as_path
    from fova.data.tables.arrow import open_table
    from fova.data.tables.guess import propose

    tables = [open_table(as_path(name)) for name in names]
    proposal = propose(tables)
    terminal.print(f"[bold]{escape(names[0])}[/bold]  ({tables[0].format}), {counted(tables[0].rows, 'row')}")
    grid = Table(box=None, pad_edge=False)
    for heading in ("column", "type", "missing", "values", "guessed role"):
        grid.add_column(heading, justify="right" if heading == "missing" else "left")
    for about in proposal.columns:
        cells = (about.name, about.kind, f"{about.missing:,}" if about.missing else "", about.values, about.role)
        grid.add_row(*map(escape, cells))
    terminal.print(grid)
    terminal.write_line("\nA proposal, guessed from names and types. Check every part, then paste:")
    files = shlex.join(names)
    terminal.write_line(f"  fova train --clients {files} {proposal.flags()}")
    terminal.write_line(f"  fova data inspect {files} {_without_bounds(proposal.flags())}")
    for question in proposal.open:
        terminal.write_line(f"check  {question}")


def _without_bounds(flags: str) -> str:
    return flags.partition(" --action-low")[0]
