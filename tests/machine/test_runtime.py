import sys
from pathlib import Path

import jax
import pytest

from fova.machine.runtime import cache_directory, peak_memory_mb, prepare, processors


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FOVA_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/fova"),
        ({"FOVA_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/fova"),
    ],
)
def test_the_cache_is_where_the_user_says(monkeypatch, environment, expected):
    for name in ("FOVA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)


@pytest.mark.skipif(sys.platform != "linux", reason="each system has a place of its own")
def test_the_cache_is_in_the_home_directory_unless_told_otherwise(monkeypatch):
    for name in ("FOVA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_directory() == Path("/home/somebody/.cache/fova")


def test_processors_and_memory_are_counted(monkeypatch):
    assert peak_memory_mb() > 10 or sys.platform == "win32"
    assert processors() >= 1
    monkeypatch.setenv("NPROC", "3")
    assert processors() == 3


def test_arrays_are_computed_where_they_are_asked_for():
    """Asynchronous dispatch on CPUs once waited for ever at the start of a federation."""
    prepare()
    assert jax.config.values["jax_cpu_enable_async_dispatch"] is False
