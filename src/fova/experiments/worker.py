"""One run in a process of its own: `python -m fova.experiments.worker RUN_DIRECTORY CLAIM`.

The worker reports progress events to its parent as lines of JSON on standard output. The first line of its standard
input is the configuration, as a JSON text of TOML. The parent keeps the input open for as long as it lives. When
the parent ends, for whatever reason, so does the worker. The worker gives signs of life for the claim, and ends
when another machine has taken the claim over.
"""

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

from fova.errors import FovaError
from fova.experiments.training_process import TAKEN_OVER
from fova.machine.claims import Claim, Heart
from fova.progress import Event, Failed, Finished, Progress, Round, Started, Status, to_json
from fova.run import training
from fova.run.config import Config, load_config


class Pipe(Progress):
    """Writes events to standard output, and what they say about the state of the run to the signs of life."""

    def __init__(self, heart: Heart) -> None:
        self._heart = heart

    def handle(self, event: Event) -> None:
        match event:
            case Status(text):
                self._heart.doing = text
            case Started(first, _):
                self._heart.round = first
            case Round(entry):
                self._heart.round, self._heart.doing = entry["round"], ""
        print(json.dumps(to_json(event)), flush=True)


def main(directory: Path, claim: Path) -> None:
    """Train the run, from its start or from where it stopped."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)  # the parent ended before it could say what to train
    config = _configuration(line)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    progress = Pipe(Heart(Claim(claim), lambda: os._exit(TAKEN_OVER)))
    try:
        if (directory / "config.toml").is_file():
            result = training.resume(directory, progress)
        else:
            result = training.start(config, directory, progress)
    except FovaError as error:
        progress(Failed(str(error)))
        sys.exit(1)
    progress(Finished(result.server.to_json() if result.server else None))


def _configuration(line: str) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.toml"
        file.write_text(json.loads(line), encoding="utf-8")
        return load_config(file)


def _end_with_the_parent() -> NoReturn:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
