"""The terminal that commands print to. Only this module decides how text is shown and how closed output is handled.

Text is printed unchanged: square brackets in names and paths are not markup.
"""

import os
import select
import shutil
import sys

from rich.console import Console
from rich.text import Text

NARROWEST = 20  # columns


class Terminal(Console):
    """A console for text with names and paths that users chose.

    `markup=True` is for the few callers that use markup and escape names themselves.
    """

    def __init__(self, stderr: bool = False, markup: bool = False) -> None:
        super().__init__(stderr=stderr, markup=markup, highlight=False)

    def write_line(self, text: str) -> None:
        """Print one line without wrapping, so that users can copy it."""
        self.print(text, soft_wrap=True, markup=False)

    def error(self, text: str) -> None:
        self.print(Text.assemble(("error:", "red"), " ", text), soft_wrap=True)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `fova.commands.main` handles this; Rich would exit with code 1


def prepare_output() -> None:
    """Make output possible where it was closed (`fova tasks >&-`) or the terminal has hardly a column."""
    if sys.stdout is None:  # Python's value for a closed descriptor
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for as long as the program runs)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    columns = shutil.get_terminal_size().columns
    if "COLUMNS" in os.environ or columns < NARROWEST:  # help never ends in one column, and tables are lost in none
        os.environ["COLUMNS"] = str(max(columns, NARROWEST))


def output_is_closed() -> bool:
    """Whether the reader of standard output has closed it, as in `fova tasks | head -1`."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # errors are always reported
        return bool(poll.poll(0))
    except (OSError, ValueError, AttributeError):  # standard output is not a file, or `select` has no poll
        return False


def discard_output() -> None:
    """Discard all remaining output to standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
