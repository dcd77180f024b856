"""Stopping when the user asks to: after the running round if there is one, else at once, and always with a word.

This is the only place where signals are handled and where a computation gets a thread of its own. Python answers a
signal between two of its own instructions, and a compiled round is a single one: without the thread nobody would be
answered before it ends.
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
    """The user stopped the program; the message says what is saved and how to go on."""


class StopSignal:
    """What the user asked for so far."""

    def __init__(
        self, tell: Callable[[str], None], requested: Callable[[], bool] = lambda: False, threads: bool = True
    ) -> None:
        """`requested` says whether somebody asked by another way than a signal, for instance with a file.

        Without `threads` work is done by the calling thread, and a wish to stop is seen between two pieces of work.
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
        """Stop after the running round."""
        self._wanted = True

    def compute(self, work: Callable[[], T]) -> T:
        """The result of `work`, with the user answered at once in the meantime."""
        return self.wait_for(in_thread(work)) if self._threads and _can_handle_signals() else work()

    def wait_for(self, result: "Future[T]") -> T:
        """The same for work that `in_thread` began."""
        while not wait([result], timeout=SECONDS_BETWEEN_LOOKS).done:
            self.acknowledge()
        return result.result()

    def acknowledge(self) -> None:
        """Tell the user, once, that the wish was heard."""
        if self.wanted and not self._acknowledged:
            self._acknowledged = True
            with suppress(OSError):  # the terminal is closed, and the round shall end all the same
                self._tell("Stopping after this round, with everything saved. Press Ctrl-C again to stop now.")


def in_thread(work: Callable[[], T]) -> "Future[T]":
    """Begin `work` in a thread of its own; an error in it is raised where the result is asked for."""
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
    """The first signal asks to stop after the running round; the second stops at once.

    The signals are Ctrl-C, SIGTERM and SIGHUP, which a program gets when its terminal is closed.
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
    """Being stopped at once in here ends in `words`: what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(words()) from None


@contextmanager
def heeding_signals() -> Iterator[None]:
    """In here every signal stops at once, even where a shell started us in the background to ignore Ctrl-C."""
    with _handled_by(signal.default_int_handler):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """In here the signals that ask a program to end call `handler`."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Windows has no SIGHUP. `nohup` starts a program that ignores it and is to outlive its terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def leave(code: int) -> NoReturn:
    """End the program. A thread that still computes is not waited for: its round does not count."""
    if any(thread.name == COMPUTING for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _can_handle_signals() -> bool:
    return threading.current_thread() is threading.main_thread()
