"""The command line. Each command is a module of this folder, which is imported when the command runs.

An error that the user can correct prints one message and ends with exit code 2. It never prints a traceback.
"""

import importlib
import os
import sys
from collections.abc import Callable

from fova.errors import FovaError, unknown
from fova.machine.interrupts import Interrupted, leave
from fova.machine.rounding import same_rounding
from fova.version import __version__

try:
    from fova.commands.terminal import Terminal, discard_output, output_is_closed, prepare_output
except ModuleNotFoundError as missing:  # an installation that only runs policies
    sys.exit(
        f"error: the command fova needs the package {missing.name}. Install it with: pip install {missing.name}"
    )

OUTPUT_CLOSED = 141  # the exit code that a shell reports for a program whose output was closed

COMMANDS = (
    "demo",
    "train",
    "evaluate",
    "judge",
    "compare",
    "report",
    "watch",
    "plot",
    "export",
    "serve",
    "tasks",
    "data",
    "paper",
    "theory",
    "server",
    "client",
    "certificates",
    "completion",
)

HELP = f"""fova {__version__}: offline federated reinforcement learning when clients' data differ in quality

usage: fova COMMAND [options]        fova COMMAND --help explains a command

  fova demo [insulin]                train on built-in data, draw what happened (a few minutes)
  fova train ...                     train one policy across many clients
  fova evaluate RUN                  play the policies of a run
  fova judge RUN ...                 how good a policy is, from logged episodes alone; no simulator needed
  fova compare ...                   several algorithms on the same data, in one table
  fova report RUN ... -o PAGE        one page about runs: words, curves, votes, tables; opens offline
  fova watch RUN|FOLDER              the report in a browser while training goes on
  fova plot RUN ... -o FOLDER        pictures of runs for papers: PNG, SVG, PDF
  fova export RUN                    the policy as an ONNX file for other programs
  fova serve RUN                     the policy behind a small HTTP service
  fova tasks                         the tasks that data can be made for
  fova data ...                      make, inspect, check and convert data
  fova paper [NAME]                  the paper's tables and figures, each by one command
  fova theory                        the paper's statements, checked on finite MDPs
  fova server, fova client           the same training over a network; fova certificates makes keys for it
  fova completion bash|zsh|fish      let your shell complete commands and flags

by example

  two clients with expert data, two with random data, 5,000 transitions each:
    fova train --task maze2d-umaze --clients expert expert random random --size 5000

  your own tables (CSV, TSV, Parquet), no simulator; the first command proposes the --columns of the second:
    fova data inspect ward-1.csv ward-2.csv
    fova train --clients ward-1.csv ward-2.csv --columns episode=patient_id time=hour observations=hr,map \\
        action=dose reward=score terminal=died --missing hr=carry-mean --action-low 0 --action-high 2 --name wards

  your own arrays (observations, actions, rewards, terminals, timeouts):
    fova train --clients ward-1.npz ward-2.npz --name wards

  the clients described in a file, with one [[client]] table each:
    fova train --config federation.toml --rounds 50

  the paper's equations to the letter, a smaller network, another seed:
    fova train --task maze2d-umaze --clients expert random --preset equations --hidden 128 128 --seed 1

  five algorithms, three seeds each, one table:
    fova compare --task hopper --clients expert expert random random --size 5000 --rounds 50

  continue after an interruption:
    fova train --resume runs/wards
"""


def main() -> None:
    """Run the command of `sys.argv`."""
    prepare_output()
    os.environ.update(same_rounding())
    code = exit_code(lambda: _dispatch(sys.argv[1:]))
    try:
        print(end="", flush=True)  # flush now, while an error can still be reported
    except OSError as error:
        discard_output()
        closed = isinstance(error, BrokenPipeError)
        if not (closed or code):
            Terminal(stderr=True).error(str(error))
        code = code or (OUTPUT_CLOSED if closed else 2)
    if code:
        leave(code)


def exit_code(work: Callable[[], None]) -> int:
    """The exit code of a command. Errors are printed here."""
    errors = Terminal(stderr=True)
    try:
        work()
    except SystemExit as stop:  # after --help, or after a wrong flag
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Interrupted as interrupted:
        errors.write_line(str(interrupted))
        return 130
    except KeyboardInterrupt as interrupt:
        errors.write_line(str(interrupt) or "Stopped. What was finished before is kept.")
        return 130
    except FovaError as error:
        errors.error(str(error))
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "fova":
            raise
        errors.error(
            f"This command needs the package {error.name}, which is not installed. Install fova with everything "
            "that it needs: pip install fova"
        )
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError) and output_is_closed():
            discard_output()
            return OUTPUT_CLOSED
        words = "The current folder was deleted. Change to another one: cd" if _folder_is_gone() else error
        errors.error(f"{words}\nWhat was saved before is untouched.")
        return 2
    return 0


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return
    if arguments[0] in ("-V", "--version"):
        print(f"fova {__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, "See: fova --help")
    _insist_on_values(rest)
    importlib.import_module(f"fova.commands.{name}").command(rest)


def _insist_on_values(arguments: list[str]) -> None:
    """Refuse an empty argument, which is often a variable that was not set. As a path it would be this folder."""
    for before, argument in zip(["", *arguments], arguments):
        if argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
            raise FovaError(f"{argument[:-1]} is empty. Leave it out, or give it a value.")
        if not argument.strip():
            what = before if before.startswith("-") and "=" not in before else "An argument"
            raise FovaError(f"{what} is empty. Leave it out, or give it a value.")
