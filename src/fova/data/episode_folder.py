"""Read a folder with one or more episodes per file, in the order of the file names.

The files may have any format that holds a table of steps. No episode continues from one file into the next.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from fova.data.fields import decoding, fault, shown
from fova.data.rows import Table, joined


def read_table(folder: Path, readers: Mapping[str, Callable[[Path], Table]]) -> Table:
    """The steps in all files of a folder. `readers` maps the file endings that hold data to readers."""
    with decoding(folder, "", "Check that it is a folder you may read."):
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    files = [entry for entry in entries if entry.suffix.lower() in readers]
    if not files:
        raise fault(
            folder, "", f"holds no data. Put files in it that end in {', '.join(readers)}, one per episode."
        )
    rows = joined([readers[file.suffix.lower()](file) for file in files], files)
    others = [shown(entry.name) for entry in entries if entry not in files]
    return rows.noting([f"Not read: {', '.join(others)}."] if others else [])
