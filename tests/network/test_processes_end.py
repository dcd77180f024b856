"""Processes that carry one mark end together, whoever their parent is."""

import os
import re
import shutil
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
    assert re.fullmatch("[0-9a-f]{32}", processes.mark_of(tmp_path))


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A /proc of our own: two processes with the mark, one of which does not heed, and others."""
    monkeypatch.setattr(processes, "PROCESSES", tmp_path)

    def add(pid, mark, state="S"):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "environ").write_bytes(f"A=1\x00{processes.MARK}={mark}\x00B=2".encode())
        (folder / "stat").write_text(f"{pid} (a (strange) name) {state} 1 {pid} 0")
        (folder / "cmdline").write_bytes(f"python\x00-m\x00number {pid}".encode())

    for pid, mark, state in ((11, "ours", "S"), (12, "ours", "R"), (13, "ours", "Z"), (14, "theirs", "S")):
        add(pid, mark, state)
    add(os.getpid(), "ours")
    (tmp_path / "15").mkdir()  # it has ended while we look
    return tmp_path


def test_processes_are_found_by_their_mark(made_up):
    assert sorted(processes.marked("ours")) == [11, 12], "neither this one nor one that has ended"
    assert processes.marked("theirs") == [14]
    assert processes.marked("our") == []
    assert sorted(processes.commands("ours")) == ["python -m number 11", "python -m number 12"]


def test_who_does_not_heed_in_time_is_killed(made_up, monkeypatch):
    sent, clock = [], SimpleNamespace(now=0.0, pauses=0)

    def sleep(seconds):
        clock.now += 5 * seconds
        clock.pauses += 1

    def kill(pid, number):
        sent.append((pid, number))
        if pid == 11 or number == signal.SIGKILL:
            shutil.rmtree(made_up / str(pid))

    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    monkeypatch.setattr(processes.os, "kill", kill)
    assert processes.end("ours") == 2
    assert sorted(sent) == [(11, signal.SIGTERM), (12, signal.SIGKILL), (12, signal.SIGTERM)]
    assert clock.pauses == 10, "it waits for five seconds, in steps of half a second of this clock"


@pytest.mark.parametrize("mark", ["ours", ""])
def test_a_process_ends_when_its_parent_is_gone(monkeypatch, mark):
    done, parents = [], iter([41, 41, 41, 1])

    class AtOnce:
        def __init__(self, target, daemon):
            assert daemon, "it must not keep the process alive"
            self.start = target

    monkeypatch.setattr(processes, "threading", SimpleNamespace(Thread=AtOnce))
    monkeypatch.setattr(processes, "time", SimpleNamespace(sleep=lambda seconds: done.append(seconds)))
    monkeypatch.setattr(processes, "end", lambda mark: done.append(mark))
    monkeypatch.setattr(processes.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(processes.os, "_exit", lambda code: done.append(f"exit {code}"))
    monkeypatch.setenv(processes.PARENT, "41")
    monkeypatch.setenv(processes.MARK, mark)
    processes.end_with_parent()
    assert done == [0.5, 0.5, *([mark] if mark else []), "exit 1"]


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
