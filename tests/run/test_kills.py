"""Runs that are killed with -9 at random moments, and resumed until they are finished, end with the same bytes."""

import os
import random
import signal
import subprocess
import sys

import pytest

from run.test_training import contents
from tiny import make_transitions, save_npz

pytestmark = pytest.mark.slow

KILLS = 8
SETTINGS = (
    *("--rounds", "60", "--local-steps", "20", "--hidden", "16", "--batch-size", "16"),
    *("--checkpoint-seconds", "0", "--plain"),
)


def fova(folder, *arguments):
    command = [sys.executable, "-m", "fova", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lines_until(process, count):
    """Read so many lines of output; fewer if the process ends before."""
    return [line for _, line in zip(range(count), process.stdout)]


def test_a_run_survives_kills_at_random_moments(tmp_path):
    for i in range(3):
        save_npz(tmp_path / f"ward-{i}.npz", make_transitions(i))
    start = ("train", "--clients", *(f"ward-{i}.npz" for i in range(3)), *SETTINGS, "--name")
    whole = fova(tmp_path, *start, "whole")
    said = whole.communicate()[0]
    assert whole.returncode == 0, said

    rng = random.Random(0)
    run = tmp_path / "runs" / "killed"
    process = fova(tmp_path, *start, "killed")
    for _ in range(KILLS):
        # A moment that depends on the run's own output, not on the machine's speed, and then a short random one.
        lines_until(process, rng.randint(1, 6))
        try:
            process.wait(rng.uniform(0.0, 2.0))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        if (run / "result.json").exists():
            break
        resumed = (
            ("train", "--resume", str(run), "--plain") if (run / "config.toml").exists() else (*start, "killed")
        )
        process = fova(tmp_path, *resumed)
    said = process.communicate()[0]
    assert process.returncode in (0, -signal.SIGKILL), said
    if not (run / "result.json").exists():
        process = fova(tmp_path, "train", "--resume", str(run), "--plain")
        said = process.communicate()[0]
        assert process.returncode == 0, said
    assert contents(run) == contents(tmp_path / "runs" / "whole")
    assert not list(run.rglob("*.part")), "what was half-written when a kill came is cleaned up"
