import os
import signal
import subprocess
import sys
import threading

import pytest

from fova.machine.interrupts import Interrupted, explained, heeding_signals, stop_signal
from patience import PATIENCE


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_second_ctrl_c_stops_at_once():
    with stop_signal(print) as stop:
        press()
        assert stop.wanted
        with pytest.raises(KeyboardInterrupt):
            press()


def test_a_computation_gives_its_result_or_its_error():
    with stop_signal(print) as stop:
        assert stop.compute(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            stop.compute(lambda: 1 // 0)


def test_the_user_is_answered_while_the_computation_goes_on():
    told, answered = [], threading.Event()

    def tell(words):
        told.append(words)
        answered.set()

    def work():
        press()
        return answered.wait(timeout=PATIENCE)

    with stop_signal(tell) as stop:
        assert stop.compute(work), "the answer must come before the work ends"
        stop.acknowledge()
    assert told == ["Stopping after this round, with everything saved. Press Ctrl-C again to stop now."]


def test_two_presses_do_not_wait_for_the_computation():
    answered, released = threading.Event(), threading.Event()

    def work():
        press()
        answered.wait(timeout=PATIENCE)
        press()
        released.wait(timeout=PATIENCE)

    with stop_signal(lambda words: answered.set()) as stop, pytest.raises(KeyboardInterrupt):
        stop.compute(work)
    assert answered.is_set()
    assert not released.is_set()
    released.set()


needs_hangups = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


@pytest.fixture
def attended():
    """A process that hears SIGHUP, also where the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@needs_hangups
@pytest.mark.usefixtures("attended")
def test_a_closed_terminal_stops_after_the_round():
    told = threading.Event()

    def tell(words):
        told.set()
        raise OSError("the terminal is closed")

    def work():
        os.kill(os.getpid(), signal.SIGHUP)
        assert told.wait(timeout=PATIENCE)
        return 7

    with stop_signal(tell) as stop:
        assert stop.compute(work) == 7, "the round ends first"
        assert stop.wanted
    with pytest.raises(KeyboardInterrupt), heeding_signals():
        signal.raise_signal(signal.SIGHUP)


@needs_hangups
def test_a_program_under_nohup_outlives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signal(print) as stop, heeding_signals():
            signal.raise_signal(signal.SIGHUP)
            assert not stop.wanted
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back():
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        numbers.append(signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with stop_signal(print):
        assert all(signal.getsignal(number) is not old for number, old in zip(numbers, before))
    assert [signal.getsignal(number) for number in numbers] == before


def test_outside_the_main_thread_nothing_is_handled():
    found = []

    def elsewhere():
        with stop_signal(print) as stop:
            found.append(stop.compute(threading.current_thread))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [thread]


def test_being_stopped_is_explained():
    with pytest.raises(Interrupted, match="as it was"), explained(lambda: "It is as it was."):
        raise KeyboardInterrupt


def test_the_program_ends_although_a_thread_computes():
    code = """
import os, signal, threading
from fova.machine.interrupts import leave, stop_signal
answered = threading.Event()
def work():
    os.kill(os.getpid(), signal.SIGINT)
    answered.wait()
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
with stop_signal(lambda words: answered.set()) as stop:
    try:
        stop.compute(work)
    except KeyboardInterrupt:
        print("stopped")
        leave(130)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "stopped\n", "")
