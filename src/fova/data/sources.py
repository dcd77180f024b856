"""Load a client's data: a name in, checked transitions out.

    load("logs/ward-3.npz")        a file, by its ending: .npz, .hdf5 or .h5 (D4RL's layout), .parquet
    load("logs/ward-3")            a folder of such files, one per episode, or a Minari dataset's folder
    load("hopper/expert-v0")       a Minari dataset by its id
A table (.csv, .tsv, either with .gz, .parquet with columns of any name) is read by `fova.data.tables`. It has to be
told what the columns mean.
Every format is read as a table of steps, cut into episodes and laid out as transitions. Actions are not rescaled.
Nothing is downloaded unless this is requested.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fova.data import d4rl_hdf5, episode_folder, minari_store, npz, parquet
from fova.data.action_kind import LoggedActions
from fova.data.cutting import cut
from fova.data.fields import decoding, fault
from fova.data.paths import as_path, refuse_special
from fova.data.rows import Table
from fova.data.tables.arrow import ending, is_table_file, known_endings, open_table
from fova.data.tables.guess import columns_wanted
from fova.data.transitions import Floats, Transitions
from fova.errors import FovaError

MADE = "made"  # the format of data that fova made itself
READERS: dict[str, tuple[str, Callable[[Path], Table]]] = {
    ".npz": ("NPZ", npz.read_table),
    ".hdf5": ("D4RL HDF5", d4rl_hdf5.read_table),
    ".h5": ("D4RL HDF5", d4rl_hdf5.read_table),
    ".parquet": ("Parquet", parquet.read_table),
}


@dataclass(frozen=True)
class Source:
    """A loaded dataset, with notes for the user."""

    name: str  # the file or dataset as it was given
    format: str
    transitions: Transitions
    notes: tuple[str, ...]  # rows that were left out and why, and other decisions of the reader
    action_low: Floats | None = None  # [action], as declared in the file, or None
    action_high: Floats | None = None
    action_names: tuple[str, ...] | None = None  # of discrete actions, as declared in the file, or None
    observation_columns: tuple[str, ...] | None = None  # the names of the columns, where they have some
    action_columns: tuple[str, ...] | None = None
    integer_actions: bool = False  # actions are stored as integers
    order_is_known: bool = True  # step numbers, times or next observations say in which order the rows come

    @property
    def logged_actions(self) -> LoggedActions:
        return LoggedActions(
            self.transitions.actions,
            self.integer_actions,
            self.action_names,
            bounded=self.action_low is not None,
            quantities=self.format == "Minari",
        )


def load(name: str | Path, download: bool = False) -> Source:
    """Load a dataset in any supported format. Every problem with it is raised as a FovaError.

    `download` allows fetching a Minari dataset that is not on this machine.
    """
    kind, read = _reader(str(name), download)
    try:
        rows = read()
        transitions, notes = cut(rows, name)
    except MemoryError as error:
        raise fault(name, "", "is too large for this machine's memory. Store fewer rows.") from error
    return Source(
        str(name),
        kind,
        transitions,
        notes,
        rows.action_low,
        rows.action_high,
        rows.action_names,
        integer_actions=rows.integer_actions,
        order_is_known=rows.numbered or rows.next_observations is not None,
    )


def _reader(name: str, download: bool) -> tuple[str, Callable[[], Table]]:
    """The format of the dataset that a name stands for, and a function that reads it."""
    path = as_path(name)
    with decoding(name, "", "Check the spelling of the path."):
        is_folder, is_there = path.is_dir(), path.exists()
        is_minari = is_folder and minari_store.is_dataset(path)
    if is_minari:
        return "Minari", partial(minari_store.read_table, path)
    if is_folder:
        readers = {ending: read for ending, (_, read) in READERS.items()}
        return "folder of episodes", partial(episode_folder.read_table, path, readers)
    if is_there:
        if needs_columns(path):
            raise columns_wanted([open_table(path)])
        if path.suffix.lower() not in READERS:
            ending = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
            raise fault(
                path,
                "",
                f"{ending}, so its format is not known. Arrays end in {', '.join(READERS)}. {known_endings(path)}",
            )
        refuse_special(path)
        kind, read = READERS[path.suffix.lower()]
        return kind, partial(read, path)
    if path.is_symlink():
        raise fault(path, "", "is a link that leads nowhere. Correct the link, or name the file itself.")
    if minari_store.looks_like_id(name):
        return "Minari", lambda: minari_store.read_table(minari_store.find(name, download))
    raise FovaError(f"There is no file or folder {name!r}. Check the spelling and the current directory.")


def needs_columns(path: Path) -> bool:
    """Whether a file is a table whose columns a user has to explain: any but Parquet in fova's own layout."""
    is_table = path.is_file() and is_table_file(path)
    return is_table and (ending(path) != ".parquet" or not parquet.has_layout(open_table(path).names))
