"""Evaluation of policies in the background of training, one evaluation at a time.

The log line of a round waits here until its own evaluation and all earlier ones are finished. Lines come out
complete and in order. No file is written here, and this module does not know what a line contains.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from fova.machine.interrupts import StopSignal, in_thread

T = TypeVar("T")


class PendingLines(Generic[T]):
    """A queue of lines, some of which are still being computed."""

    def __init__(self, stop: StopSignal, background: bool) -> None:
        """`background=False` computes every line while the caller waits."""
        self._stop = stop
        self._background = background
        self._waiting: deque[Future[T]] = deque()

    def add(self, make: Callable[[], T], plays: bool) -> None:
        """Add the line that `make` returns. If `make` plays policies (`plays`), it may run in the background."""
        if plays and self._background:
            for earlier in self._waiting:
                self._stop.wait_for(earlier)
            self._waiting.append(in_thread(make))
        else:
            made: Future[T] = Future()
            made.set_result(self._stop.compute(make))
            self._waiting.append(made)

    def ready(self, wait: bool = False) -> Iterator[T]:
        """Yield the lines that are ready, or all lines with `wait`. An error in computing a line is raised.

        Lines come one by one, so that the lines before a failed one can still be written.
        """
        while self._waiting and (wait or self._waiting[0].done()):
            yield self._stop.wait_for(self._waiting.popleft())
