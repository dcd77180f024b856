"""Files that are whole or not there, and what a kill leaves of them."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fova.errors import FovaError
from fova.machine import files
from fova.machine.files import is_scratch, remove_scratch, write_atomically


def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_file_is_replaced_whole_and_leaves_no_scratch(tmp_path: Path):
    path = tmp_path / "deep" / "file.json"
    for content in (b"one", b"two"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_device_is_not_replaced_by_a_file(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FovaError, match="is a device, pipe or socket"):
        write_atomically(pipe, b"content")
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_directories_that_cannot_be_opened_are_no_obstacle(tmp_path: Path, monkeypatch):
    """As on Windows."""

    def refuse(path, flags):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files.os, "open", refuse)
    write_atomically(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize(("number", "raises"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_a_file_system_that_cannot_sync_directories_is_excused(tmp_path: Path, monkeypatch, number, raises):
    real = os.fsync

    def sync(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs Linux to tell a directory's descriptor")
    monkeypatch.setattr(os, "fsync", sync)
    if raises:
        with pytest.raises(OSError, match=os.strerror(number)):
            write_atomically(tmp_path / "file", b"content")
    else:
        write_atomically(tmp_path / "file", b"content")


def test_scratch_of_dead_processes_is_removed_and_nothing_else(tmp_path: Path):
    dead, inner = dead_process(), tmp_path / "checkpoints"
    inner.mkdir()
    left = [tmp_path / f".config.toml.{dead}.part", inner / f".round-3.safetensors.{dead}.part"]
    ours = tmp_path / f".left-by-an-earlier-container.{os.getpid()}.part"
    alive = tmp_path / f".file.{os.getppid()}.part"
    others = [tmp_path / ".notes.part", tmp_path / f"file.{dead}.part", tmp_path / f".file.{dead}.parts"]
    for path in (*left, ours, alive, *others):
        path.write_bytes(b"half")
    assert sorted(remove_scratch(tmp_path)) == sorted([*left, ours])
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {alive, *others}
    assert all(is_scratch(path) for path in (*left, ours, alive))


def test_what_this_process_is_writing_stays(tmp_path: Path, monkeypatch):
    real, removed = os.fsync, []

    def sync(descriptor):
        removed.extend(remove_scratch(tmp_path))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    write_atomically(tmp_path / "file", b"content")
    assert removed == []
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_killed_writer_leaves_scratch_that_can_be_removed(tmp_path: Path):
    code = """
import os, signal, sys
from pathlib import Path
from fova.machine import files
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
files.write_atomically(Path(sys.argv[1]), b"content")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    (left,) = tmp_path.iterdir()
    assert is_scratch(left)
    assert remove_scratch(tmp_path) == [left]
    assert remove_scratch(tmp_path / "nowhere") == []


def test_a_folder_is_no_file_to_write_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), Path("/"), tmp_path):
        with pytest.raises(FovaError, match="is a folder, not a file"):
            write_atomically(folder, b"")
    assert list(tmp_path.iterdir()) == []
