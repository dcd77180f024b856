"""Claims between real processes; a process that calls itself another machine shares no lock with the test."""

import json
import signal
import subprocess
import sys
import time

import pytest

from fova.machine import claims
from fova.machine.claims import Claim, Claims, Heart
from patience import PATIENCE

HOLD = """
import sys, time
from pathlib import Path
from fova.machine import claims
folder, name, machine = sys.argv[1:]
if machine:
    claims.machine_name = claims.kernel_id = lambda: machine
claims.BEAT = 0.05
claim = claims.Claims(Path(folder)).take(name)
print("none" if claim is None else "held", flush=True)
if claim is not None:
    lost = []
    heart = claims.Heart(claim, lambda: lost.append(True))
    heart.round = 7
    while not lost:
        time.sleep(0.02)
    print("lost", flush=True)
"""


@pytest.fixture
def hold(tmp_path):
    """Start a process that holds a claim, on this machine or on one of another name."""
    started = []

    def start(name, machine=""):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path), name, machine], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(claims, "BEAT", 0.05)
    monkeypatch.setattr(claims, "LEASE", 0.5)


def until(condition, shared):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE
        shared.look()
        time.sleep(0.05)


def test_one_of_many_processes_gets_a_claim_and_a_killed_one_loses_it(hold, tmp_path):
    holder, said = hold("hopper-0.5-seed-0")
    assert said == "held"
    assert hold("hopper-0.5-seed-0")[1] == "none"
    assert hold("hopper-0.5-seed-1")[1] == "held"
    shared = Claims(tmp_path)
    assert shared.take("hopper-0.5-seed-0") is None
    assert shared.holders["hopper-0.5-seed-0"].alive, "its lock says so at once"
    holder.kill()
    holder.wait()
    claim = shared.take("hopper-0.5-seed-0")
    assert claim is not None, "no need to wait for the lease where the lock shows that the holder died"
    assert not claim.from_elsewhere
    assert json.loads(claim.path.read_text())["process"] == claim.sign.process


def test_a_dead_machine_is_taken_over_after_its_lease_and_stops_if_it_wakes(hold, tmp_path, quick):
    holder, _ = hold("run", "node7")
    shared = Claims(tmp_path)
    until(lambda: "run" in shared.holders and shared.holders["run"].sign.round == 7, shared)
    until(lambda: shared.holders["run"].alive, shared)
    assert shared.holders["run"].sign.machine == "node7"
    assert shared.take("run") is None
    holder.send_signal(signal.SIGSTOP)  # no sign of life, and no lock that this machine would see
    until(lambda: shared.holders["run"].silent > 0, shared)
    assert shared.take("run") is None, "its lease has not ended"
    until(lambda: shared.holders["run"].dead, shared)
    claim = shared.take("run")
    assert claim is not None
    assert claim.from_elsewhere
    assert Claims(tmp_path).take("run") is None, "taken over once only"
    holder.send_signal(signal.SIGCONT)
    assert holder.stdout.readline() == "lost\n"
    assert claim.beat()


def test_a_folder_that_does_not_answer_makes_nobody_dead(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(claims.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(claims, "kernel_id", lambda: "node7")
    theirs = Claims(tmp_path).take("run")
    monkeypatch.setattr(claims, "kernel_id", lambda: "node8")
    shared = Claims(tmp_path)
    shared.look()
    now[0] = 10 * claims.LEASE  # one late look
    shared.look()
    assert shared.holders["run"].silent == claims.BEAT
    theirs.beat()
    shared.look()
    assert shared.holders["run"].silent == 0.0
    assert shared.holders["run"].alive


def test_released_and_finished_claims(tmp_path):
    shared = Claims(tmp_path)
    first = shared.take("run")
    first.release()
    shared.look()
    assert shared.holders == {}
    second = Claims(tmp_path).take("run")
    assert second is not None
    assert not first.beat()
    second.remove()
    assert list(tmp_path.iterdir()) == []
    assert not Claim(shared.take("other").path).path.name.startswith("run")


def test_two_machines_that_take_over_at_the_same_moment(tmp_path, monkeypatch):
    """Both have seen the same dead claim; the file of the next generation decides."""
    shared = []
    monkeypatch.setattr(claims, "LEASE", 0.0)
    for machine in ("dead", "node7", "node8"):
        monkeypatch.setattr(claims, "kernel_id", lambda machine=machine: machine)
        one = Claims(tmp_path)
        if machine == "dead":
            one.take("run")
        else:
            one.look()
            shared.append((machine, one, one._newest("run")))
    taken = []
    for machine, one, newest in shared:
        monkeypatch.setattr(claims, "kernel_id", lambda machine=machine: machine)
        monkeypatch.setattr(one, "_newest", lambda pattern, newest=newest: newest)  # both look before either writes
        taken.append(one.take("run"))
    assert [claim is not None for claim in taken] == [True, False]


def test_a_holder_that_cannot_write_stops_before_others_take_over(tmp_path, monkeypatch, quick):
    claim = Claims(tmp_path).take("run")

    def full(**_):
        raise OSError("no space left")

    monkeypatch.setattr(claim, "beat", lambda *_: full())
    lost = []
    began = time.monotonic()
    Heart(claim, lambda: lost.append(time.monotonic() - began))
    while not lost:
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.02)
    assert lost[0] > claims.LEASE / 2


def test_a_damaged_claim_is_that_of_an_unknown_machine(tmp_path):
    (tmp_path / "run.1.claim").write_text('{"machine": ')
    shared = Claims(tmp_path)
    assert shared.take("run") is None
    shared.look()
    assert shared.holders["run"].sign.machine == "another machine"
