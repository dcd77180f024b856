"""A clear message on standard error, even where a library ends this process without asking Python.

JAX aborts a process when another one of its cluster is gone, with a C++ stack trace. Nothing in the process can
prevent or follow that. So a small helper process reads this one's standard error and passes it on. If this process
ends without a `farewell`, the helper leaves out the library's last lines and prints the prepared words instead.
"""

import os
import re
import subprocess
import sys
from contextlib import suppress

CONTROL = "\0"
OURS = "error:"  # how a message of fova begins
# The log lines of the runtime's C++ libraries about a lost process.
NOISE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*(coordination_service|client\.h|preemption_sync)")


class LastWords:
    """Standard error of this process by way of a helper, which has the last word."""

    def __init__(self) -> None:
        sys.stderr.flush()
        self._helper = subprocess.Popen(
            [sys.executable, "-m", "fova.machine.last_words"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the signals of a terminal are not for it
        )
        assert self._helper.stdin is not None
        self._original = os.dup(2)
        os.dup2(self._helper.stdin.fileno(), 2)
        self._helper.stdin.close()

    def prepare(self, words: str) -> None:
        """What to print if this process ends without a farewell."""
        self._control("words " + words.replace("\n", "\v"))

    def farewell(self) -> None:
        """The process is about to end in order: standard error is its own again."""
        self._control("farewell")
        os.dup2(self._original, 2)
        os.close(self._original)
        with suppress(subprocess.TimeoutExpired):
            self._helper.wait(10)

    def _control(self, words: str) -> None:
        sys.stderr.flush()
        with suppress(OSError):
            os.write(2, f"{CONTROL}{words}\n".encode())


def relay() -> None:
    """The helper: pass on what comes, up to the end. The library's lines are kept back until a line of ours."""
    words, kept_back, explained = "", list[str](), False
    for line in iter(sys.stdin.buffer.readline, b""):
        text = line.decode(errors="replace")
        if text.startswith(CONTROL):
            kind, _, content = text[1:].rstrip("\n").partition(" ")
            words = content.replace("\v", "\n") + "\n" if kind == "words" else ""
        elif text.startswith(OURS):
            kept_back, explained = [], True
            _write(text)
        elif kept_back or NOISE.match(text):
            kept_back.append(text)
        else:
            _write(text)
    _write(words or ("" if explained else "".join(kept_back)))


def _write(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


if __name__ == "__main__":
    relay()
