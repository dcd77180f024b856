"""Every experiment that can be run by its name: the paper's, then our own."""

from fova.errors import unknown
from fova.experiments.specifications import Entry
from fova.paper import experiments as paper
from fova.paper import study

GROUPS: dict[str, tuple[Entry, ...]] = {"the paper's": paper.ENTRIES, "our own": study.ENTRIES}
ENTRIES = tuple(entry for group in GROUPS.values() for entry in group)


def get(name: str) -> Entry:
    """The entry of that name, or an error that lists the names there are."""
    by_name = {entry.name: entry for entry in ENTRIES}
    if name not in by_name:
        raise unknown("experiment", name, by_name, "See: fova paper --list")
    return by_name[name]
