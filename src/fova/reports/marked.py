"""Tables in documents that are made from result files: `make results-tables` writes them anew.

A document holds a table between two comments, of which the first names the result file and the table in it:

    <!-- results/mixed-curves.json: summary -->
    <!-- end of results -->
"""

import re
import sys
from pathlib import Path

from fova.errors import FovaError
from fova.experiments.results import Results
from fova.files import write_atomically
from fova.reports.paper_tables import table

MARKED = re.compile(
    r"(?P<begin><!-- (?P<file>results/[\w.-]+\.json): (?P<table>[\w-]+) -->\n).*?(?P<end><!-- end of results -->)",
    re.S,
)


def documents(root: Path) -> list[Path]:
    """The documents that may hold tables."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def renewed(text: str, root: Path) -> str:
    """The document with every marked table made from its result file."""

    def made(found: re.Match[str]) -> str:
        sheet = table(Results.load(root / found["file"]), found["table"])
        return f"{found['begin']}{sheet.markdown()}{found['end']}"

    return MARKED.sub(made, text)


def main(root: Path) -> None:
    for path in documents(root):
        text = path.read_text(encoding="utf-8")
        new = renewed(text, root)
        if new != text:
            write_atomically(path, new.encode())
            print(f"{path}: tables made anew")


if __name__ == "__main__":
    try:
        main(Path())
    except FovaError as error:
        sys.exit(f"error: {error}")
