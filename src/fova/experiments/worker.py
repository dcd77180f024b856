"""One run in a process of its own: `python -m fova.experiments.worker RUN_DIRECTORY CONFIG_FILE`.

The runner starts it and is told what happens as lines of JSON on standard output. The runner keeps standard input
open for as long as it lives: when the runner ends, however it ends, so does the worker.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from fova.errors import FovaError
from fova.run import training
from fova.run.config import load_config
from fova.run.directory import RunDirectory


class Told:
    """Progress, told to the runner."""

    def status(self, message: str) -> None:
        tell("status", message)

    def note(self, message: str) -> None:
        tell("note", message)

    def start(self, first: int, rounds: int) -> None:
        tell("round", first)

    def round(self, entry: dict[str, Any]) -> None:
        tell("round", entry["round"])

    def finish(self) -> None:
        pass


def tell(event: str, content: Any) -> None:
    print(json.dumps([event, content]), flush=True)


def main(directory: Path, config_file: Path) -> None:
    """Train the run, from its start or from where it stopped."""
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    try:
        if (directory / "config.toml").is_file():
            training.resume(directory, Told())
        else:
            training.start(load_config(config_file), directory, Told())
    except FovaError as error:
        tell("failed", str(error))
        sys.exit(1)
    tell("finished", RunDirectory(directory).read_json("result.json").get("server"))


def _end_with_the_runner() -> NoReturn:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
