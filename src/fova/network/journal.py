"""A progress display across processes: one process writes what happens into a file, another shows it.

Flower runs the parts of a federation in processes of their own, whose output a person does not see. They write
here; `fova server` and `fova client` follow.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fova.progress import Progress


class Journal:
    """A `Progress` that writes one JSON line for everything it is told. It never fails what it reports on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def status(self, message: str) -> None:
        self._write("status", message)

    def note(self, message: str) -> None:
        self._write("note", message)

    def start(self, first: int, rounds: int) -> None:
        self._write("start", [first, rounds])

    def round(self, entry: dict[str, Any]) -> None:
        self._write("round", entry)

    def finish(self) -> None:
        self._write("finish", None)

    def failed(self, reason: str) -> None:
        self._write("failed", reason)

    def _write(self, event: str, value: Any) -> None:
        line = json.dumps({"event": event, "value": value, "time": time.time()}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(line)
        except OSError as error:  # a full disk must not end a round that could go on without the note
            print(f"{self.path} cannot be written: {error}", flush=True)


class Reader:
    """Reads a journal as it grows, from where it ends at the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = path.stat().st_size if path.exists() else 0

    def new(self) -> Iterator[tuple[str, Any]]:
        """What was written since the last call. A line that is still being written waits for the next."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                entry = json.loads(line)
                yield entry["event"], entry["value"]


def show(event: str, value: Any, progress: Progress) -> None:
    """Tell a display on this side what the other side wrote."""
    if event == "status":
        progress.status(value)
    elif event == "note":
        progress.note(value)
    elif event == "start":
        progress.start(*value)
    elif event == "round":
        progress.round(value)
