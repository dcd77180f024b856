"""How long one waits before anything happens: imports, the command line, a first run and one whose program is kept.

Every figure is a fresh process. Called by `bench.py`.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from performance_page import HELP
from step_speed import made_up
from turns import spread

from fova.commands.main import COMMANDS
from fova.data.npz import save_npz

STARTS = 3
FOVA = [sys.executable, "-m", "fova"]


def start_up() -> dict[str, Any]:
    """Seconds from the command to its end (imports, help) or to the end of its first round (training)."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for seed, name in enumerate(("one", "two")):
            save_npz(made_up(2000, seed), home / f"{name}.npz", action_low=[-1.0] * 6, action_high=[1.0] * 6)
        train = [*FOVA, "train", "--clients", "one.npz", "two.npz", "--rounds", "1", "--local-steps", "10"]
        first = _seconds([*train, "--name", "first"], home)
        again = [_seconds([*train, "--name", f"again-{i}"], home) for i in range(STARTS)]
        return {
            "import fova": spread([_seconds([sys.executable, "-c", "import fova"], home) for _ in range(STARTS)]),
            "fova --help": spread([_seconds([*FOVA, "--help"], home) for _ in range(STARTS)]),
            HELP: spread([_processor_seconds([*FOVA, command, "--help"], home) for command in COMMANDS]),
            "first run, compiling": spread([first]),
            "same setting again": spread(again),
        }


def _seconds(command: list[str], home: Path) -> float:
    began = time.perf_counter()
    _run(command, home)
    return time.perf_counter() - began


def _processor_seconds(command: list[str], home: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(command, home)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(command: list[str], home: Path) -> None:
    environment = os.environ | {"FOVA_CACHE": str(home / "cache")}
    finished = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
    if finished.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {finished.returncode}:\n{finished.stderr[-2000:]}")
