"""The pages of the documentation and the fenced blocks in them.

A shell block says in a comment before it whether a test runs it:

    <!-- run -->                       in a folder with made-up data; `<!-- run: NAME -->` in the folder called NAME
    <!-- not run: needs a GPU -->      and why not

The same comments serve Python blocks. Without one, a Python block is only compiled. `<!-- save: NAME -->` before a
block of any language makes it a file for the blocks that follow on the page.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = ("sh", "python", "toml", "json", "yaml", "text")
BLOCK = re.compile(
    r"(?P<comment>^<!-- [^\n]* -->\n)?^(?P<fence>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[^\S\n]*$",
    re.M | re.S,
)
DECISION = re.compile(r"<!-- (?P<decision>run|not run|save)(?:: (?P<detail>.+?))? -->")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    decision: str | None  # "run", "not run", "save" or None
    detail: str | None  # the folder to run in, why a block is not run, or the name of the file

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every Markdown page of the repository."""
    folders = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(folders)]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in BLOCK.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start("fence")) + 1
    said = DECISION.fullmatch((found["comment"] or "").strip())
    decision, detail = (said["decision"], said["detail"]) if said else (None, None)
    return Block(page, line, found["language"].strip(), found["text"], decision, detail)
