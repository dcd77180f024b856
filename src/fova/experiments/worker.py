"""One run in a process of its own: `python -m fova.experiments.worker RUN_DIRECTORY CONFIG_FILE`.

The worker reports progress events to the runner as lines of JSON on standard output. The runner keeps the worker's
standard input open for as long as it lives. When the runner ends, for whatever reason, so does the worker.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

from fova.errors import FovaError
from fova.progress import Event, Failed, Finished, Progress, to_json
from fova.run import training
from fova.run.config import load_config


class Pipe(Progress):
    """Writes events to standard output."""

    def handle(self, event: Event) -> None:
        print(json.dumps(to_json(event)), flush=True)


def main(directory: Path, config_file: Path) -> None:
    """Train the run, from its start or from where it stopped."""
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    progress = Pipe()
    try:
        if (directory / "config.toml").is_file():
            result = training.resume(directory, progress)
        else:
            result = training.start(load_config(config_file), directory, progress)
    except FovaError as error:
        progress(Failed(str(error)))
        sys.exit(1)
    progress(Finished(result.server.to_json() if result.server else None))


def _end_with_the_runner() -> NoReturn:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
