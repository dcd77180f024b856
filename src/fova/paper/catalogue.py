"""Every experiment that can be run by its name: the paper's, then our own.

`listing.json` holds what `fova paper --list` shows of each, so that the list needs neither JAX nor the entries
themselves. After an entry or an estimate has changed, write it anew:

    python -m fova.paper.catalogue
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fova.errors import unknown
from fova.machine.files import write_atomically
from fova.paper import cost

if TYPE_CHECKING:
    from fova.experiments.specifications import Entry

LISTING = Path(__file__).with_name("listing.json")


@dataclass(frozen=True)
class Listed:
    """What the list shows of an entry."""

    group: str
    name: str
    title: str
    costs: dict[str, cost.Cost]  # of each scale


@cache
def groups() -> "dict[str, tuple[Entry, ...]]":
    """The entries, the paper's and our own."""
    from fova.paper import experiments, study

    return {"the paper's": experiments.ENTRIES, "our own": study.ENTRIES}


def entries() -> "tuple[Entry, ...]":
    return tuple(entry for group in groups().values() for entry in group)


def get(name: str) -> "Entry":
    """The entry of that name, or an error that lists the names there are."""
    by_name = {entry.name: entry for entry in entries()}
    if name not in by_name:
        raise unknown("experiment", name, by_name, "See: fova paper --list")
    return by_name[name]


# --- The list ---------------------------------------------------------------------------------------------


def listing() -> list[Listed]:
    """The committed list. Quick: no entry is imported."""
    content = json.loads(LISTING.read_text(encoding="utf-8"))
    return [
        Listed(**{**entry, "costs": {scale: cost.Cost(*each) for scale, each in entry["costs"].items()}})
        for entry in content
    ]


def made_listing() -> list[Listed]:
    """The list as the entries and the estimates are now."""
    return [
        Listed(group, entry.name, entry.title, {name: _cost(entry, name) for name in entry.scales})
        for group, members in groups().items()
        for entry in members
    ]


def _cost(entry: "Entry", scale: str) -> cost.Cost:
    runs, seconds = cost.of_entry(entry, entry.scale(scale))
    return cost.Cost(runs, round(seconds))


def committed_results() -> set[str] | None:
    """Names of the entries with a result file in results/ of the repository; None outside a repository."""
    root = Path(__file__).resolve().parents[3]
    if not ((root / "pyproject.toml").is_file() and (root / "results").is_dir()):
        return None
    return {path.stem for path in (root / "results").glob("*.json")}


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(asdict(listed), ensure_ascii=False) for listed in made_listing())
    write_atomically(LISTING, f"[\n{lines}\n]\n".encode())
