"""Processes that carry one mark end together, whoever their parent is."""

import os
import signal
import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest

from fova.network import processes
from patience import PATIENCE

pytestmark = pytest.mark.skipif(not processes.PROCESSES.exists(), reason="needs /proc")


def start(mark, code="import time; time.sleep(600)", **options):
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {processes.MARK: mark},
        start_new_session=True,
        **options,
    )


def wait_until(condition):
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.05)


def test_a_folder_has_one_mark(tmp_path):
    assert processes.mark_of(tmp_path / "a") == processes.mark_of(tmp_path / "b" / ".." / "a")
    assert processes.mark_of(tmp_path / "a") != processes.mark_of(tmp_path / "b")


def test_all_processes_of_a_mark_end_and_no_others(tmp_path, monkeypatch):
    mark = processes.mark_of(tmp_path)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    )
    ours = [start(mark), start(mark, stubborn, stdout=subprocess.PIPE)]
    stranger = start("another mark")
    try:
        ours[1].stdout.readline()
        wait_until(lambda: len(processes.marked(mark)) == 2)
        assert any("SIG_IGN" in line for line in processes.commands(mark))
        passing = count()  # the clock stands until the first has ended, however busy the machine is
        clock = SimpleNamespace(monotonic=lambda: next(passing) if ours[0].poll() else 0, sleep=time.sleep)
        monkeypatch.setattr(processes, "time", clock)
        assert processes.end(mark, seconds=1.0) == 2
        monkeypatch.undo()
        assert [process.wait(PATIENCE) for process in ours] == [-signal.SIGTERM, -signal.SIGKILL]
        assert processes.marked(mark) == []
        assert stranger.poll() is None
        assert processes.end(mark) == 0
    finally:
        for process in (*ours, stranger):
            process.kill()
            process.wait()


def test_what_a_killed_parent_leaves_behind_ends_itself_and_the_others(tmp_path):
    """A parent starts a process that watches it, which starts another one in a session of its own."""
    mark = processes.mark_of(tmp_path)
    helper = "import time; time.sleep(601)"
    watcher = (
        "import subprocess, sys, time; from fova.network.processes import end_with_parent; end_with_parent();"
        f"subprocess.Popen([sys.executable, '-S', '-c', {helper!r}], start_new_session=True); time.sleep(600)"
    )
    parent = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", parent, watcher],
        env=os.environ | {processes.MARK: mark},
        start_new_session=True,
    )
    try:
        wait_until(lambda: any(line.rstrip().endswith(helper) for line in processes.commands(mark)))
        process.kill()
        process.wait()
        wait_until(lambda: processes.marked(mark) == [])
    finally:
        processes.end(mark)
