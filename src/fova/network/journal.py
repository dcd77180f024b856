"""Progress across processes: one process writes events into a file, another reads them as the file grows.

Flower runs the parts of a federation in processes of their own, whose output a person does not see. They write
here; `fova server` and `fova client` follow.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from fova.progress import Event, Progress, from_json, to_json


class Journal(Progress):
    """Writes each event as one line of JSON. A journal that cannot be written never stops the work itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def handle(self, event: Event) -> None:
        line = json.dumps({**to_json(event), "time": time.time()}) + "\n"
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

    def new(self) -> Iterator[Event]:
        """The events since the last call. A line that is still being written waits for the next call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                yield from_json(json.loads(line))
