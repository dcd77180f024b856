"""A run's directory: its files, and the rules that keep them from being lost or overwritten.

config.toml          the whole configuration; `fova train --config` runs it again, from any directory
clients.json         each client's data: rows, episodes, behaviour return, a fingerprint that identifies it
notes.json           remarks about the data: what was left out, and likely mistakes; only if there are any
statistics.json      constants of the federation: the observation normaliser, the unit of reward, each client's
                     log-weight by the returns in its data
metrics.jsonl        one line per round, without clock times: equal seeds give equal files
timing.jsonl         seconds per round and evaluation (in the background they overlap), and the peak memory of the
                     process so far
tracking.json        with --track: the identifier of the run at the service
tensorboard/         the same metrics as TensorBoard events
checkpoints/         the newest two; with several processes, a share-* file of each one's clients belongs to them
policy.safetensors, policy.json     the server's policy
clients/             every client's own policy at the end, where the run has them
best/                with --select judge: the policies of the three best rounds
judge.json           the verdict of `fova judge`
judging.json         the privacy that judging over a network spent, in a private run
result.json          the final evaluation; its presence says that the run is complete
stopped_early.json   the last round of a complete run that ended before its number of rounds; it can be resumed
"""

import json
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fova.errors import FovaError
from fova.machine.files import insist_on_regular, is_scratch, remove_scratch, write_atomically
from fova.machine.locks import exclusive
from fova.settings import shown

if TYPE_CHECKING:
    from fova.run.config import Config

STOPPED_EARLY = "stopped_early.json"
VERDICT = "judge.json"


class RunDirectory:
    """The files of one run. Make a new one with `create`, continue one with `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.policy = path / "policy.safetensors"
        self.client_policies = path / "clients"

    def insist_on_new(self) -> None:
        """Refuse a path that is taken, so that no run overwrites another.

        A folder is not taken if it is empty, or holds only what a crash left of writing the first file.
        """
        if self.path.exists() and not (self.path.is_dir() and all(is_scratch(p) for p in self.path.iterdir())):
            raise FovaError(
                f"{self.path} already exists. Continue that run with: fova train --resume {self.path}\n"
                "or choose another name with --name."
            )

    def create(self, config: "Config") -> None:
        """Make the directory of a new run."""
        self.insist_on_new()
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / "config.toml", config.to_toml(self.path).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training the same run at the same time. Clean up after processes that died."""
        busy = f"Another process is training {self.path}. Wait for it or stop it first."
        with exclusive(self.path / ".lock", busy):
            remove_scratch(self.path)
            yield

    def break_lock(self) -> None:
        """Remove the lock of a machine that died: a network file system may keep it for ever."""
        (self.path / ".lock").unlink(missing_ok=True)

    @staticmethod
    def open(path: Path) -> "RunDirectory":
        if not (path / "config.toml").is_file():
            raise FovaError(f"{path} is not a run directory: it has no config.toml. Runs are kept under runs/.")
        return RunDirectory(path)

    # --- Small JSON files ---

    def write_json(self, name: str, content: Any) -> None:
        write_atomically(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(insist_on_regular(self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise FovaError(f"{self.path / name} cannot be read: {error}") from error

    def is_complete(self) -> bool:
        return (self.path / "result.json").is_file()

    def stopped_early(self) -> bool:
        """Whether the run is complete but did not take all of its rounds."""
        return self.is_complete() and (self.path / STOPPED_EARLY).is_file()

    def go_on(self) -> None:
        """Mark a run that was stopped early as not complete, so that it can continue."""
        if self.stopped_early():
            (self.path / "result.json").unlink()
        (self.path / STOPPED_EARLY).unlink(missing_ok=True)

    # --- Metrics ---

    def metrics(self) -> list[dict[str, Any]]:
        """One entry per finished round. A last line that a crash cut short is ignored."""
        return _read_lines(self.path / "metrics.jsonl")

    def timing(self) -> list[dict[str, Any]]:
        """The seconds and the memory of each finished round."""
        return _read_lines(self.path / "timing.jsonl")

    def append(self, name: str, entry: dict[str, Any]) -> None:
        with (self.path / name).open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def rewind(self, rounds: int) -> None:
        """Remove what was logged after the checkpoint that the run continues from.

        The metrics of every round before it must be there: the log is on disk before the checkpoint is.
        """
        for name in ("metrics.jsonl", "timing.jsonl"):
            kept = [line for line in _read_lines(self.path / name) if _round(line, self.path / name) <= rounds]
            logged = [line["round"] for line in kept]
            if any(later <= earlier for earlier, later in pairwise(logged)):
                raise FovaError(f"{self.path / name} has rounds out of order. Restore the file from a copy.")
            lost = set(range(1, rounds + 1)) - set(logged)
            if lost and name == "metrics.jsonl":
                raise FovaError(
                    f"{self.path / name} lacks round {min(lost)}, though the run has finished {rounds}. Restore "
                    "the file from a copy, or start a new run."
                )
            write_atomically(self.path / name, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def flush(self) -> None:
        """Make sure that what was logged is on the disk before a checkpoint refers to it."""
        for name in ("metrics.jsonl", "timing.jsonl"):
            if (self.path / name).exists():
                with (self.path / name).open("a") as file:
                    os.fsync(file.fileno())


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        lines = insist_on_regular(path).read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise FovaError(f"{path} cannot be read: {error}") from error
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # cut short while it was being written
                break
            raise FovaError(f"Line {number} of {path} is damaged: {error}") from error
    return entries


def _round(line: Any, path: Path) -> int:
    number = line.get("round") if isinstance(line, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise FovaError(f"{path} has a line without the number of a round. Restore the file from a copy.")
    return number


def named(name: str) -> Path:
    """The directory under runs/ of a run with this name. Refuses a name that no directory can have."""
    if name.strip() in ("", "."):
        raise FovaError("--name is empty. Name the run's directory under runs/, or leave --name out.")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise FovaError(f"--name is {shown(name)}, but must be UTF-8 text without control characters.")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        where = "names a directory under runs/. Leave out '..' and a '/' at the start."
        raise FovaError(f"--name is {shown(name)}, but {where}")
    return Path("runs") / name


def free_name(stem: str, root: Path) -> Path:
    """runs/stem-1, or the next number that is not taken."""
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return root / f"{stem}-{number}"
