"""Playing policies while training goes on, one evaluation at a time.

What is logged of a round waits here until its own evaluation and all before it are played: lines leave whole and in
the order in which they came. No file is written here, and nothing here knows what a line is.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from fova.machine.interrupts import StopSignal, in_thread

T = TypeVar("T")


class PendingLines(Generic[T]):
    """A queue of lines, some of which are still being made."""

    def __init__(self, stop: StopSignal, background: bool) -> None:
        """`background=False` makes every line while the caller waits."""
        self._stop = stop
        self._background = background
        self._waiting: deque[Future[T]] = deque()

    def add(self, make: Callable[[], T], plays: bool) -> None:
        """The next line is what `make` returns. If it plays policies, it may do so in the background."""
        if plays and self._background:
            for earlier in self._waiting:
                self._stop.wait_for(earlier)
            self._waiting.append(in_thread(make))
        else:
            made: Future[T] = Future()
            made.set_result(self._stop.compute(make))
            self._waiting.append(made)

    def ready(self, wait: bool = False) -> Iterator[T]:
        """Hand out the lines that nothing holds back, or with `wait` all of them; an error in making one is raised.

        One by one, so that the lines before one that fails can still be written.
        """
        while self._waiting and (wait or self._waiting[0].done()):
            yield self._stop.wait_for(self._waiting.popleft())
