"""A client whose clock is wrong is told so, and by how much."""

import time
from email.utils import formatdate

import httpx
import pytest

from fova.network import clock, deployment

SERVER = "fl.example.org:8443"


@pytest.fixture
def authority(tmp_path):
    from fova.network.certificates import make

    make(tmp_path / "certificates", ["localhost"], ["north"])
    return tmp_path / "certificates" / "north" / "ca.crt"


def answering(monkeypatch, headers, now=1_000_000.25):
    """A server that answers with these headers, at a time of this machine."""
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(httpx, "get", lambda *_, **__: httpx.Response(403, headers=headers))


@pytest.mark.parametrize("offset", [8, -400, 0])
def test_the_difference_of_two_clocks(authority, monkeypatch, offset):
    answering(monkeypatch, {"date": formatdate(1_000_000 - offset, usegmt=True)})
    assert clock.seconds_ahead(SERVER, authority) == pytest.approx(offset, abs=0.5)


def test_the_server_told_its_time_between_question_and_answer(authority, monkeypatch):
    asked = {}

    def get(url, **options):
        asked.update(options, url=url)
        return httpx.Response(403, headers={"date": formatdate(1_000_000, usegmt=True)})

    times = iter([1_000_006.0, 1_000_009.0])
    monkeypatch.setattr(time, "time", lambda: next(times))
    monkeypatch.setattr(httpx, "get", get)
    # Half way at 7.5 s; the server told whole seconds, so half a second later in the mean.
    assert clock.seconds_ahead(SERVER, authority) == 7.0
    assert asked["url"] == f"https://{SERVER}/v1/fleet/"
    assert asked["timeout"] == 10.0


@pytest.mark.parametrize("headers", [{}, {"date": "yesterday"}])
def test_a_server_that_does_not_tell_its_time(authority, monkeypatch, headers):
    answering(monkeypatch, headers)
    assert clock.seconds_ahead(SERVER, authority) is None


def test_a_server_that_does_not_answer(authority, monkeypatch):
    def fail(*_, **__):
        raise httpx.ConnectError("nobody")

    monkeypatch.setattr(httpx, "get", fail)
    assert clock.seconds_ahead(SERVER, authority) is None


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (8.2, "8 s ahead of the server's"),
        (4.0, "4 s ahead of the server's"),
        (3.99, None),
        (0.0, None),
        (-303.99, None),
        (-304.0, "304 s behind the server's"),
        (-400.0, "400 s behind the server's"),
    ],
)
def test_what_is_wrong_with_a_clock(ahead, words):
    found = clock.in_words(ahead)
    assert found is None if words is None else words in found
    assert clock.in_words(None) is None


@pytest.mark.parametrize(
    ("log", "ahead", "words"),
    [
        ("Client error '401 Unauthorized' for url", 8.0, "clock is 8 s ahead"),
        ("Client error '401 Unauthorized' for url", 0.0, "refuses this client's signature"),
        ("something new", 8.0, "clock is 8 s ahead"),
        ("something new", 0.0, "ended the connection"),
        ("[Errno 111] Connection refused", 8.0, "does not answer"),
    ],
)
def test_why_a_supernode_ended(tmp_path, monkeypatch, log, ahead, words):
    monkeypatch.setattr(clock, "seconds_ahead", lambda server, authority: ahead)
    assert words in deployment._why(log, SERVER, tmp_path)
    assert "clock is" not in deployment._why(log, SERVER, None), "plain text has no signatures"
