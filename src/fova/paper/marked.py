"""Tables and pictures in documents that are made from result files. `make results-tables` updates them.

A document holds a table between two comments. The first comment names the result file and its table:

    <!-- results/mixed-curves.json: summary -->
    <!-- end of results -->

Two names stand for pictures in docs/images: `curves` for the learning curves, `dots` for the scores of all runs.
"""

import os
import re
import sys
from pathlib import Path

from fova.errors import FovaError
from fova.experiments.results import Results
from fova.machine.files import write_atomically
from fova.paper import calibration
from fova.paper.curves import curves
from fova.paper.dots import dots
from fova.paper.tables import table

MARKED = re.compile(
    r"(?P<begin><!-- (?P<file>results/[\w.-]+\.json): (?P<table>[\w-]+) -->\n).*?(?P<end><!-- end of results -->)",
    re.S,
)
PICTURES = {"curves": (curves, "learning curves"), "dots": (dots, "scores of all runs")}


def documents(root: Path) -> list[Path]:
    """The documents that may hold tables."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def renewed(text: str, root: Path, folder: Path) -> str:
    """The text of a document in `folder`, with all marked tables and links to pictures updated."""

    def made(found: re.Match[str]) -> str:
        if found["file"] == calibration.FILE:
            content = calibration.table(root / found["file"], found["table"]).markdown()
            return f"{found['begin']}{content}{found['end']}"
        results = Results.load(root / found["file"])
        if found["table"] in PICTURES:
            link = os.path.relpath(_picture(found["file"], found["table"], root), folder).replace(os.sep, "/")
            content = f"![{results.title}: {PICTURES[found['table']][1]}]({link})\n"
        else:
            content = table(results, found["table"]).markdown()
        return f"{found['begin']}{content}{found['end']}"

    return MARKED.sub(made, text)


def pictures(text: str, root: Path) -> dict[Path, str]:
    """The pictures that a document marks: path -> content."""
    marked = [(found["file"], found["table"]) for found in MARKED.finditer(text) if found["table"] in PICTURES]
    return {
        _picture(file, kind, root): PICTURES[kind][0](Results.load(root / file)) + "\n"
        for file, kind in dict.fromkeys(marked)
    }


def _picture(result_file: str, kind: str, root: Path) -> Path:
    return root / "docs" / "images" / f"{Path(result_file).stem}-{kind}.svg"


def main(root: Path) -> None:
    for path in documents(root):
        text = path.read_text(encoding="utf-8")
        made = {path: renewed(text, root, path.parent), **pictures(text, root)}
        for file, content in made.items():
            if not file.is_file() or file.read_text(encoding="utf-8") != content:
                write_atomically(file, content.encode())
                print(f"{file}: made anew")


if __name__ == "__main__":
    try:
        main(Path())
    except FovaError as error:
        sys.exit(f"error: {error}")
