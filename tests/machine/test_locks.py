"""Locks between processes, a killed one included."""

import subprocess
import sys
from pathlib import Path

import pytest

from fova.errors import FovaError
from fova.machine.locks import exclusive

HOLD = """
import sys
from pathlib import Path
from fova.machine.locks import exclusive
with exclusive(Path(sys.argv[1]), "taken"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path):
    path = tmp_path / ".lock"
    refused = pytest.raises(FovaError, match=r"^Somebody is here\.$")
    with exclusive(path, "Nobody is here."), refused, exclusive(path, "Somebody is here."):
        pass
    with exclusive(path, "It is free again."):
        pass


def test_an_error_inside_releases_the_lock(tmp_path: Path):
    path = tmp_path / ".lock"
    with pytest.raises(ZeroDivisionError), exclusive(path, "taken"):
        _ = 1 // 0
    with exclusive(path, "taken"):
        pass


def test_a_killed_process_holds_no_lock(tmp_path: Path):
    path = tmp_path / ".lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FovaError, match="taken"), exclusive(path, "taken"):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    with exclusive(path, "taken"):
        pass


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FovaError, match=r"The lock .*\.lock cannot be taken"),
        exclusive(tmp_path / "file" / ".lock", "taken"),
    ):
        pass
