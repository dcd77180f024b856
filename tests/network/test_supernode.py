"""A client runs fova and nothing else that a server sends."""

import io
import zipfile
from pathlib import Path

import pytest
from flwr.supercore.fab import Fab
from flwr.supercore.run import RunNotRunningException

from fova.errors import FovaError
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
