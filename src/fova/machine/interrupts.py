"""Stop on the user's request: after the running round if there is one, else at once, and always with a message.

Only this module handles signals and runs a computation in its own thread. Python handles a signal between two of
its own instructions, and a compiled round is a single instruction. Without the thread, a signal would be handled
only after the round.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeVar

from fova.errors import FovaError

T = TypeVar("T")

COMPUTING = "fova is computing"  # name of the thread
SECONDS_BETWEEN_LOOKS = 0.1


class Interrupted(FovaError):
    """The user stopped the program. The message says what is saved and how to continue."""


class StopSignal:
    """The user's requests to stop."""

    def __init__(
        self, tell: Callable[[str], None], requested: Callable[[], bool] = lambda: False, threads: bool = True
    ) -> None:
        """`requested` tells whether a stop was requested in another way than by a signal, for instance with a file.

        Without `threads` the calling thread does the work, and a request to stop is noticed between two pieces of
        work.
        """
        self._wanted = False
        self._threads = threads
        self._requested = requested
        self._tell = tell
        self._acknowledged = False

    @property
    def wanted(self) -> bool:
        return self._wanted or self._requested()

    def ask(self) -> None:
        """Request a stop after the running round."""
        self._wanted = True

    def compute(self, work: Callable[[], T]) -> T:
        """The result of `work`. A request to stop is acknowledged while `work` runs."""
        return self.wait_for(in_thread(work)) if self._threads and _can_handle_signals() else work()

    def wait_for(self, result: "Future[T]") -> T:
        """The result of work that `in_thread` started. Requests to stop are acknowledged meanwhile."""
        while not wait([result], timeout=SECONDS_BETWEEN_LOOKS).done:
            self.acknowledge()
        return result.result()

    def acknowledge(self) -> None:
        """Tell the user, once, that the request was received."""
        if self.wanted and not self._acknowledged:
            self._acknowledged = True
            with suppress(OSError):  # the terminal may be closed; the round ends normally
                self._tell("Stopping after this round, with everything saved. Press Ctrl-C again to stop now.")


def in_thread(work: Callable[[], T]) -> "Future[T]":
    """Start `work` in a new thread. An error in it is raised where the result is read."""
    result: Future[T] = Future()
    threading.Thread(target=_deliver, args=(work, result), name=COMPUTING, daemon=True).start()
    return result


def _deliver(work: Callable[[], T], result: "Future[T]") -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001 (it is raised in the thread that waits)
        result.set_exception(error)


@contextmanager
def stop_signal(tell: Callable[[str], None]) -> Iterator[StopSignal]:
    """The first signal requests a stop after the running round; the second stops at once.

    The signals are Ctrl-C, SIGTERM and SIGHUP. A program gets SIGHUP when its terminal is closed.
    """
    stop = StopSignal(tell)

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.wanted:
            raise KeyboardInterrupt
        stop.ask()

    if not _can_handle_signals():
        yield stop
        return
    with _handled_by(ask):
        yield stop


@contextmanager
def explained(words: Callable[[], str]) -> Iterator[None]:
    """Raise `Interrupted` with the message `words()` if the user stops the block at once."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(words()) from None


@contextmanager
def heeding_signals() -> Iterator[None]:
    """Make Ctrl-C, SIGTERM and SIGHUP stop the block at once, if it runs in the main thread.

    This also works if a shell started the process in the background, where Ctrl-C is ignored.
    """
    if not _can_handle_signals():
        yield
        return
    with _handled_by(signal.default_int_handler):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` on the signals that ask a program to end, within the block."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Windows has no SIGHUP. A program started by `nohup` ignores SIGHUP and outlives its terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def leave(code: int) -> NoReturn:
    """Exit the program without waiting for a thread that still computes. Its round does not count."""
    if any(thread.name == COMPUTING for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _can_handle_signals() -> bool:
    return threading.current_thread() is threading.main_thread()
