"""A client runs fova and nothing else that a server sends."""

import importlib
import io
import os
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from flwr.supercore.fab import Fab
from flwr.supercore.run import RunNotRunningException

from fova.errors import FovaError
from fova.network import processes, supernode
from fova.network.supernode import app_description, bundle, guarded, insist_on_fova


def repacked(**files):
    with zipfile.ZipFile(io.BytesIO(bundle())) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {name.replace("__", "."): content for name, content in files.items()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_our_own_bundle_is_accepted():
    insist_on_fova(bundle())
    insist_on_fova(repacked())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (repacked(evil__py=b"import os"), "evil.py"),
        (repacked(**{"fova/federation/flower_client.py": b""}), "flower_client.py"),
        (
            repacked(pyproject__toml=app_description().replace("fova.network.client", "os").encode()),
            "not fova",
        ),
        (repacked(pyproject__toml=b"[project]"), "cannot be read"),
        (b"not a zip", "cannot be read"),
    ],
)
def test_anything_else_is_refused(content, words):
    with pytest.raises(FovaError, match=words):
        insist_on_fova(content)
    with pytest.raises(RunNotRunningException):
        guarded(lambda: Fab("hash", content, {}))()


def test_a_bundle_with_too_little_is_refused():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pyproject.toml", app_description())
    with pytest.raises(FovaError, match=r"files of its own \(nothing to read\)"):
        insist_on_fova(packed.getvalue())


def test_a_good_bundle_passes_the_guard():
    fab = Fab("hash", bundle(), {})
    assert guarded(lambda: fab)() is fab


def test_the_example_for_flwr_run_is_the_same_app():
    example = Path(__file__).parents[2] / "examples" / "deploy" / "flower-app" / "pyproject.toml"
    assert example.read_text() == app_description()


def test_the_place_that_is_guarded_still_exists_in_flower():
    import inspect

    from flwr.supernode import start_client_internal

    source = inspect.getsource(start_client_internal.start_client_internal)
    assert "with _init_connection(" in source
    for line in ("node_id,", "receive,", "send,", "get_run,", "get_fab,"):
        assert line in source


# --- The process ---


@pytest.fixture
def timers(monkeypatch):
    """Timers that were started, instead of starting them."""
    started = []

    class Timer:
        def __init__(self, *arguments):
            self.arguments, self.daemon = arguments, False

        def start(self):
            started.append((*self.arguments, self.daemon))

    monkeypatch.setattr(supernode.threading, "Timer", Timer)
    return started


def test_a_supernode_guards_its_connection_and_ends_soon_after_it(monkeypatch, timers):
    from flwr.supernode import start_client_internal

    done, strange = [], Fab("hash", b"not a zip", {})

    @contextmanager
    def connect(*arguments, **options):
        done.append((arguments, options))
        yield 1, "receive", "send", "get_run", lambda: strange, "a", "b"

    def run():
        with start_client_internal._init_connection("here", retries=2) as (node, *middle, get_fab, a, b):
            assert (node, middle, a, b) == (1, ["receive", "send", "get_run"], "a", "b")
            assert timers == []
            with pytest.raises(RunNotRunningException):
                get_fab()
        done.append("ended")

    monkeypatch.setattr(start_client_internal, "_init_connection", connect)
    monkeypatch.setattr(start_client_internal, "time", start_client_internal.time)
    monkeypatch.setattr(importlib.import_module("flwr.supernode.cli.flower_supernode"), "flower_supernode", run)
    monkeypatch.setattr(processes, "end_with_parent", lambda: done.append("with its parent"))
    supernode.main()
    assert done == ["with its parent", (("here",), {"retries": 2}), "ended"]
    assert isinstance(start_client_internal.time, supernode.Clock)
    assert timers == [(5.0, os._exit, (1,), True)], "Flower would keep the process alive"
