"""The terminal that commands print to. This is the one place that decides how text is shown and when output ends.

Text is printed as it is: square brackets in names and paths are not markup.
"""

import os
import select
import sys

from rich.console import Console
from rich.text import Text


class Terminal(Console):
    """A console for text that users wrote.

    `markup=True` is for the few printers that use markup and escape names themselves.
    """

    def __init__(self, stderr: bool = False, markup: bool = False) -> None:
        super().__init__(stderr=stderr, markup=markup, highlight=False)

    def write_line(self, text: str) -> None:
        """Print one line that may be copied: it is never wrapped."""
        self.print(text, soft_wrap=True, markup=False)

    def error(self, text: str) -> None:
        self.print(Text.assemble(("error:", "red"), " ", text), soft_wrap=True)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `fova.commands.main` ends the program; Rich would end it with exit code 1


def output_is_closed() -> bool:
    """Whether the reader of standard output is gone, as in `fova tasks | head -1`."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # errors are always reported
        return bool(poll.poll(0))
    except (OSError, ValueError, AttributeError):  # standard output is no file, or `select` has no poll
        return False


def discard_output() -> None:
    """Send what is still to be written to standard output nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
