"""A client whose clock is 8 s fast, over loopback with TLS and keys."""

import os
import re

import pytest
from place import free_port
from test_processes import place  # noqa: F401  a fixture

from fova.network.certificates import make
from tiny import make_transitions, save_npz

pytestmark = pytest.mark.slow

# Python runs this file at the start of a process: the client and everything that it starts is 8 s ahead.
FAST = """
import datetime, time
true_time, true_datetime = time.time, datetime.datetime
class Fast(true_datetime):
    @classmethod
    def now(cls, tz=None):
        return true_datetime.now(tz) + datetime.timedelta(seconds=8)
datetime.datetime = Fast
time.time = lambda: true_time() + 8
"""


def test_a_client_whose_clock_is_fast_is_told_by_how_much(place, monkeypatch):  # noqa: F811
    save_npz(place.folder / "north.npz", make_transitions(0, episodes=2))
    make(place.folder / "certificates", ["127.0.0.1"], ["north"])
    port = free_port()
    place.start(
        *("server", "server", "--host", "127.0.0.1", "--port", port, "--name", "wards", "--plain"),
        *("--algorithm", "fed-bc", "--hidden", 8, "--observation", 3, "--action", 2, "--min-clients", 1),
    )
    place.wait("server", lambda: "waiting for clients: 0 of 1" in place.said("server"))
    fast = place.folder / "fast"
    fast.mkdir()
    (fast / "sitecustomize.py").write_text(FAST)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(fast), os.environ.get("PYTHONPATH", "")]))
    place.start(
        *("north", "client", "--server", f"127.0.0.1:{port}", "--data", "north.npz"),
        *("--certificates", "certificates/north"),
    )
    place.wait("word about the clock", lambda: "ahead of the server's" in " ".join(place.said("north").split()))
    told = re.search(r"clock is (\d+) s ahead", " ".join(place.said("north").split()))
    assert int(told[1]) >= 7  # a server that is slow to answer seems to be behind
