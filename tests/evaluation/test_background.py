import signal
import threading

import pytest

from fova.evaluation.background import PendingLines
from fova.machine.interrupts import StopSignal, stop_signal
from patience import PATIENCE


@pytest.fixture
def lines():
    return PendingLines(StopSignal(print), background=True)


def test_lines_wait_for_the_evaluation_before_them_and_stay_in_order(lines):
    played = threading.Event()
    lines.add(lambda: 0, plays=False)
    lines.add(lambda: played.wait(timeout=PATIENCE) and 1, plays=True)
    lines.add(lambda: 2, plays=False)
    assert list(lines.ready()) == [0]
    assert list(lines.ready()) == []
    played.set()
    assert list(lines.ready(wait=True)) == [1, 2]
    assert list(lines.ready(wait=True)) == []


def test_one_evaluation_is_played_at_a_time(lines):
    playing, alone = threading.Lock(), []

    def play():
        alone.append(playing.acquire(blocking=False))
        threading.Event().wait(0.05)
        playing.release()
        return len(alone)

    for _ in range(3):
        lines.add(play, plays=True)
    assert list(lines.ready(wait=True)) == [1, 2, 3]
    assert alone == [True] * 3


def test_an_error_is_raised_after_the_lines_before_it(lines):
    lines.add(lambda: 0, plays=True)
    lines.add(lambda: 1 // 0, plays=True)
    ready = lines.ready(wait=True)
    assert next(ready) == 0
    with pytest.raises(ZeroDivisionError):
        next(ready)


def test_an_error_is_raised_when_the_next_evaluation_is_due(lines):
    lines.add(lambda: 1 // 0, plays=True)
    with pytest.raises(ZeroDivisionError):
        lines.add(lambda: 1, plays=True)


def test_without_the_background_a_line_is_made_at_once():
    lines, made = PendingLines(StopSignal(print), background=False), []
    lines.add(lambda: made.append(1), plays=True)
    assert made == [1]
    with pytest.raises(ZeroDivisionError):
        lines.add(lambda: 1 // 0, plays=True)


def test_ctrl_c_twice_does_not_wait_for_the_evaluation():
    released = threading.Event()
    with stop_signal(lambda words: signal.raise_signal(signal.SIGINT)) as stop:
        lines = PendingLines(stop, background=True)
        lines.add(lambda: released.wait(timeout=PATIENCE), plays=True)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            list(lines.ready(wait=True))
    assert not released.is_set()
    released.set()
