"""Read a folder with one or more episodes per file, in the order of the file names.

The files may have any format that holds a table of steps. No episode continues from one file into the next.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fova.data.fields import decoding, fault, shown
from fova.data.rows import Table, joined

FEW_NOTES = 3


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
    return rows.noting([f"Not read: {', '.join(others)}."] if others else []).noting(_repeated(files))


def _repeated(files: Sequence[Path]) -> list[str]:
    """Notes on files with the same bytes as a file before them, such as copies and links."""
    notes = []
    first: dict[tuple[int, bytes], Path] = {}
    with decoding(files[0].parent, "", "Check that its files are there."):
        sizes = {file: file.stat().st_size for file in files}
        alike = Counter(sizes.values())
        for file in (file for file, size in sizes.items() if alike[size] > 1):
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "blake2b").digest()
            twin = first.setdefault((sizes[file], content), file)
            if twin is not file:
                notes.append(f"{shown(file.name)} has the same content as {shown(twin.name)}, and both count.")
    return notes[:FEW_NOTES] + [f"Further files like these: {len(notes) - FEW_NOTES}."] * (len(notes) > FEW_NOTES)
