"""Strangers at the door of a server that trains (benchmarks/door.py): it goes on training, in bounded memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import door  # noqa: E402

# 512 connections with and 512 without a finished handshake take a quarter of a megabyte each, and bodies from one
# address 134 MB. The rest is what the server's processes need anyway, from round to round.
MOST_MEGABYTES_MORE = 500


def insist_on_limits(found):
    assert list(found["attacks"]) == list(door.ATTACKS)
    assert found["rounds"] >= 3 * len(door.ATTACKS)
    assert found["rounds_with_all_clients"] > 0.9 * found["rounds"]
    assert found["exit_code_after_ctrl_c"] == 130
    for name, figures in found["attacks"].items():
        assert figures["rounds_meanwhile"] >= door.ROUNDS_OF_AN_ATTACK, name
        assert figures["megabytes_most"] - figures["megabytes_before"] < MOST_MEGABYTES_MORE, name
        assert set(figures["strangers"]) <= {"cut off", "answered 413", "answered 503", "answered 408"}, name
        assert figures["megabytes_sent"] < 300, name


def test_the_page_shows_the_trial_and_the_trial_held():
    found = json.loads(door.RESULTS.read_text())
    insist_on_limits(found)
    page = door.PAGE.read_text()
    assert door.with_table(page, found) == page, "run benchmarks/door.py"


@pytest.mark.slow
def test_strangers_do_not_stop_the_training(tmp_path):
    command = [sys.executable, door.__file__, "--results", str(tmp_path / "door.json")]
    subprocess.run(command, cwd=ROOT / "benchmarks", check=True)
    insist_on_limits(json.loads((tmp_path / "door.json").read_text()))
