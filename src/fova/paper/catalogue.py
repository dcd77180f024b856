"""The catalogue of experiments that can be run by name: the paper's and our own.

`listing.json` holds the text that `fova paper --list` shows. The list therefore needs neither JAX nor the entries.
Write the file again after an entry or an estimate has changed:

    python -m fova.paper.catalogue
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fova.errors import FovaError, unknown
from fova.machine.files import write_atomically
from fova.paper import cost

if TYPE_CHECKING:
    from fova.experiments.specifications import Entry

LISTING = Path(__file__).with_name("listing.json")


@dataclass(frozen=True)
class Listed:
    """One line of the list: an entry and its costs."""

    group: str
    name: str
    title: str
    costs: dict[str, cost.Cost]  # scale -> cost


@cache
def groups() -> "dict[str, tuple[Entry, ...]]":
    """The entries in two groups: the paper's and our own."""
    from fova.paper import experiments, study

    return {"the paper's": experiments.ENTRIES, "our own": study.ENTRIES}


def entries() -> "tuple[Entry, ...]":
    return tuple(entry for group in groups().values() for entry in group)


def get(name: str) -> "Entry":
    """The entry of that name. An unknown name raises an error that lists all names."""
    by_name = {entry.name: entry for entry in entries()}
    if name not in by_name:
        raise unknown("experiment", name, by_name, "See: fova paper --list")
    return by_name[name]


# --- The list ---------------------------------------------------------------------------------------------


def listing() -> list[Listed]:
    """The committed list. This is quick because no entry is imported."""
    content = json.loads(LISTING.read_text(encoding="utf-8"))
    return [
        Listed(**{**entry, "costs": {scale: cost.Cost(*each) for scale, each in entry["costs"].items()}})
        for entry in content
    ]


def made_listing() -> list[Listed]:
    """The list computed from the current entries and estimates."""
    return [
        Listed(group, entry.name, entry.title, {name: _cost(entry, name) for name in entry.scales})
        for group, members in groups().items()
        for entry in members
    ]


def _cost(entry: "Entry", scale: str) -> cost.Cost:
    runs, seconds = cost.of_entry(entry, entry.scale(scale))
    return cost.Cost(runs, round(seconds))


def committed_results() -> dict[str, str] | None:
    """The entries with a result file in results/ of the repository, and how many seeds their cells have.

    None outside a repository.
    """
    root = Path(__file__).resolve().parents[3]
    if not ((root / "pyproject.toml").is_file() and (root / "results").is_dir()):
        return None
    files = {entry.name: root / "results" / f"{entry.name}.json" for entry in listing()}
    return {name: _seeds(file) for name, file in files.items() if file.is_file()}


def _seeds(file: Path) -> str:
    """The number of runs of each case and variant in a result file: `1 seed`, or `1-5 seeds` if they differ."""
    try:
        runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
        counts = Counter((run["case"], run["variant"]) for run in runs).values()
    except (ValueError, KeyError, TypeError) as error:
        raise FovaError(f"{file} is not a result file. Restore it, or move it away.") from error
    least, most = min(counts, default=0), max(counts, default=0)
    return f"{most} seed{'s' * (most != 1)}" if least == most else f"{least}-{most} seeds"


def write_listing() -> None:
    """Write the list again."""
    lines = ",\n".join(json.dumps(asdict(listed), ensure_ascii=False) for listed in made_listing())
    write_atomically(LISTING, f"[\n{lines}\n]\n".encode())


if __name__ == "__main__":
    write_listing()
