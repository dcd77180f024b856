"""Help and lists are quick because they import nothing heavy. Closed output ends a command without a word."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fova
from fova.commands.main import COMMANDS
from patience import PATIENCE

SOURCE = Path(fova.__file__).parents[1]
HEAVY = (
    "jax",
    "equinox",
    "optax",
    "h5py",
    "matplotlib",
    "mujoco",
    "gymnasium",
    "flwr",
    "minari",
    "pandas",
    "scipy",
)
DATA = ("make", "list", "inspect", "validate", "import", "train-behaviour")
HELP = {*COMMANDS, "", *(f"data {name}" for name in DATA)}
QUICK = [
    *sorted(f"{name} --help".strip() for name in HELP),
    "train --algorithm drpo --preset layer-norm -h",
    "train --tyro-print-completion bash",
    "train --help-all",
    "completion bash",
    "tasks",
    "paper",
    "paper --list",
]

PROGRAM = """
import contextlib, io, sys
from fova.commands.main import main

for command in sys.argv[1:]:
    sys.argv = ["fova", *command.split()]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main()
    assert said.getvalue(), command
    print(f"{command}:", *(name for name in HEAVY if name in sys.modules))
"""


def environment():
    return {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "120"}


def test_help_and_lists_import_nothing_heavy(tmp_path):
    program = f"HEAVY = {HEAVY!r}\n{PROGRAM}"
    environ = {**environment(), "FOVA_CACHE": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program, *QUICK], env=environ, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [f"{command}:" for command in QUICK]


def test_the_environment_of_numpy_is_set_before_numpy_is_imported():
    program = "import sys, fova.commands.main; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=environment(), check=False).returncode == 0


@pytest.mark.parametrize("command", ["--help", "tasks", "paper --list", "evaluate --help", "data --help"])
def test_a_closed_pipe_ends_a_command_silently(command):
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "fova", *command.split()],
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_end_a_command_cleanly(redirect):
    program = f'exec "$0" -m fova evaluate --help {redirect}'
    ended = subprocess.run(
        ["sh", "-c", program, sys.executable], env=environment(), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("--episodes" in ended.stdout) == (redirect == "2>&-")


@pytest.mark.parametrize(
    "changes",
    [
        {"COLUMNS": "1"},  # the layout of the help would never end
        {"COLUMNS": "20"},
        {"COLUMNS": "0", "TERM": "dumb"},
        {"COLUMNS": "many", "LC_ALL": "C", "PYTHONUTF8": "0"},
        {"HOME": None, "XDG_CACHE_HOME": None, "TERM": None},
        {"FOVA_CACHE": "/dev/null/cache", "HOME": "/dev/null"},
        {"PYTHONIOENCODING": "ascii", "NPROC": "many", "TZ": "Nowhere/City"},
    ],
)
def test_help_in_odd_surroundings(changes):
    environ = {name: value for name, value in (environment() | changes).items() if value is not None}
    for command in ("compare --help", "tasks"):
        ended = subprocess.run(
            [sys.executable, "-m", "fova", *command.split()],
            env=environ,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert len(ended.stdout.splitlines()) > 10


def test_a_broken_pipe_that_is_not_the_output_is_an_error(fova_command, monkeypatch):
    def broken(*_):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("fova.commands.tasks.command", broken)
    code, _, err = fova_command("tasks")
    assert code == 2
    assert "Broken pipe" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["--help", "tasks"])
def test_a_full_disk_is_one_message(command):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fova", command],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: [Errno 28] No space left on device")
    assert "Traceback" not in ended.stderr
