"""Turn a name given by a user into a path that is safe to open.

Names that cannot be printed or recorded are refused. So are paths that are not regular files: opening a named pipe
would wait for a writer that never comes. Nothing is opened here.
"""

import os
import stat
import unicodedata
from pathlib import Path

from fova.data.fields import decoding, fault

RENAME = "Rename it (mv OLD NEW), for instance in plain letters."
LONGEST, LONGEST_PART = 4096, 255  # of a path and of one part of it, on common systems
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def as_path(name: str | Path) -> Path:
    """The path for a name, with `~` replaced by the home folder."""
    text = str(name)
    if not text:
        raise fault("''", "", "is an empty name. Name a file, a folder or a Minari dataset.")
    if (
        any(len(part.encode(errors="surrogatepass")) > LONGEST_PART for part in text.split("/"))
        or len(text) > LONGEST
    ):
        raise fault(f"{text[:60]}...", "", "is longer than the name of a file can be. Check the spelling.")
    refuse_unprintable(text)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        user = Path(text).parts[0]
        raise fault(text, "", f"there is no home folder for {user}. Write the whole path instead.") from error


def refuse_unprintable(name: str | Path) -> None:
    """Refuse a name that cannot be printed or written into a run's records."""
    kinds = {unicodedata.category(character) for character in str(name)}
    if "Cs" in kinds:  # Python's code for a byte that is not UTF-8
        raise fault(name, "", f"the name is not valid UTF-8. {RENAME}")
    if "Cc" in kinds:
        raise fault(name, "", f"there are control characters in the name. {RENAME}")


def refuse_special(file: Path) -> None:
    """Refuse a path that is not a regular file, before it is opened."""
    refuse_unprintable(file)
    with decoding(file, "", "Check that the file, or the file that it links to, is there."):
        mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "a special file")
        raise fault(file, "", f"is {kind}, but a regular file is needed. Copy the data into a file.")
    with decoding(file, "", "Make it readable for this user."), file.open("rb"):
        pass  # a reader of one format may take a file that it cannot open for a damaged one


def refuse_special_members(folder: Path) -> None:
    """Refuse a folder that holds anything but regular files and folders, at any depth."""
    with decoding(folder, "", "Check that it is a folder you may read."):
        entries = list(os.walk(folder))
    for parent, folders, files in entries:
        for name in files:
            refuse_special(Path(parent, name))
        for name in folders:
            if Path(parent, name).is_symlink():
                raise fault(Path(parent, name), "", "is a link to another folder. Copy that folder here.")


def stamp(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Name, time of change, size and number of a file, or of every file in a folder; empty if there is none.

    It changes whenever a file is written, so what was read from it need not be read again before.
    """
    found = [path, *path.rglob("*")] if path.is_dir() else [path] if path.exists() else []
    stats = ((str(file), file.stat()) for file in sorted(found))
    return tuple((name, about.st_mtime_ns, about.st_size, about.st_ino) for name, about in stats)
