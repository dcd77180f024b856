"""`fova theory`: the paper's statements, checked on finite MDPs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fova.commands.flags import parse
from fova.settings import SEEDS, Within


@dataclass(frozen=True)
class TheoryOptions:
    """Check the paper's statements on random finite MDPs and print a verdict for each."""

    mdps: Annotated[int, Within(1, 100_000)] = 100
    """Number of random MDPs on which each statement is checked."""
    seed: Annotated[int, SEEDS] = 0
    """Seed of the MDPs."""
    directory: Path = Path("runs/theory")
    """Folder of the tables and pictures."""


def command(arguments: list[str]) -> None:
    options = parse(TheoryOptions, "fova theory", arguments)
    from fova.paper.theory.table import format_table, run

    rows = run(options.directory, options.mdps, options.seed, lambda words: print(f"... {words}", flush=True))
    print(format_table(rows))
    print(f"tables and pictures  {options.directory}")
