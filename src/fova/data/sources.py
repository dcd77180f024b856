"""Where a client's data comes from: one name in, checked transitions out.

    load("logs/ward-3.npz")            a file, by its ending
Every reader yields episodes and says in notes what it had to leave out; from there on there is one path.
Actions are not rescaled here. Nothing is ever fetched from a network unless it is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fova.data import npz
from fova.data.cutting import cut
from fova.data.fields import fault
from fova.data.rows import Table
from fova.data.transitions import Floats, Transitions, from_episodes
from fova.errors import FovaError


@dataclass(frozen=True)
class Source:
    """What was read, and what a person should know about it."""

    name: str  # the file or dataset as it was given
    format: str
    transitions: Transitions
    notes: tuple[str, ...]
    action_low: Floats | None = None  # [action], as declared in the file, or None
    action_high: Floats | None = None


def load(name: str | Path) -> Source:
    """Read a dataset in any format we know. Whatever is wrong with it comes as one FovaError."""
    kind, read = _reader(str(name))
    rows = read()
    episodes, notes = cut(rows, name)
    return Source(str(name), kind, from_episodes(episodes), notes, rows.action_low, rows.action_high)


def _reader(name: str) -> tuple[str, Callable[[], Table]]:
    file = Path(name)
    if not file.exists():
        raise FovaError(f"There is no file or folder {name!r}. Check the spelling and the current directory.")
    if file.suffix.lower() == ".npz":
        return "NPZ", lambda: npz.read_table(file)
    raise fault(file, "", f"has the ending {file.suffix!r}, which is no format we know. Known: .npz.")
