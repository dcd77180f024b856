"""Names and files that must be refused before anything is opened or printed."""

import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from hand_made import write_folder, write_hdf5, write_minari, write_npz, write_parquet

from fova.algorithms import configure
from fova.commands.data import command as data_command
from fova.data.sources import load
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec, is_file, located
from fova.run.config import Config
from patience import PATIENCE

WRITERS = {"npz": write_npz, "hdf5": write_hdf5, "parquet": write_parquet}
NOT_UTF8 = "caf\udce9"  # how Python spells the Latin-1 name of a café


@pytest.fixture(autouse=True)
def no_waiting():
    """Opening a pipe waits for ever; a test that does ends some time."""

    def stop(*_):
        raise AssertionError("waited for a file that is no file")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(PATIENCE))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def listening(file: Path) -> None:
    file.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(file))  # the whole path may be too long for a socket


def device(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


# --- Special files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [*WRITERS, "h5"])
@pytest.mark.parametrize(("make", "kind"), [(pipe, "a named pipe"), (listening, "a socket"), (device, "a device")])
def test_a_special_file_is_refused_unopened(ending, make, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"log.{ending}"
    make(file)
    with pytest.raises(FovaError, match=rf"log\.{ending}: is {kind}, but a regular file is needed"):
        load(file)


@pytest.mark.parametrize("ending", WRITERS)
def test_a_pipe_among_the_files_of_a_folder_is_refused(ending, tmp_path):
    folder = write_folder(tmp_path / "logs")
    pipe(folder / f"late.{ending}")
    with pytest.raises(FovaError, match=rf"late\.{ending}: is a named pipe"):
        load(folder)


@pytest.mark.parametrize(
    ("data_format", "member"),
    [("hdf5", "main_data.hdf5"), ("hdf5", "notes"), ("arrow", "0/part-0.arrow"), ("parquet", "2/part-0.parquet")],
)
def test_a_pipe_in_a_minari_dataset_is_refused(data_format, member):
    folder = write_minari("piped/set-v0", data_format)
    pipe(folder / "data" / member)
    with pytest.raises(FovaError, match=rf"{member}: is a named pipe"):
        load(folder)


def test_a_pipe_for_the_metadata_makes_it_no_minari_dataset():
    folder = write_minari("piped/set-v0")
    pipe(folder / "data" / "metadata.json")
    with pytest.raises(FovaError, match="holds no data"):
        load(folder)


def test_a_link_to_a_folder_in_a_minari_dataset_is_refused():
    folder = write_minari("linked/set-v0", "arrow")
    (folder / "data" / "0").rename(folder / "elsewhere")
    (folder / "data" / "0").symlink_to(folder / "elsewhere")
    with pytest.raises(FovaError, match=r"data/0: is a link to another folder"):
        load(folder)


def test_a_folder_with_the_name_of_a_file_among_the_files_of_a_folder(tmp_path):
    folder = write_folder(tmp_path / "logs")
    (folder / "z.npz").mkdir()
    with pytest.raises(FovaError, match=r"z\.npz: is a folder"):
        load(folder)


@pytest.mark.parametrize("target", ["log.npz", "nowhere"])
def test_a_link_that_leads_nowhere_says_so(target, tmp_path):
    (tmp_path / "log.npz").symlink_to(tmp_path / target)
    with pytest.raises(FovaError, match=r"log\.npz: is a link that leads nowhere"):
        load(tmp_path / "log.npz")


# --- Names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", WRITERS)
def test_a_name_that_is_not_utf8_is_refused(ending, tmp_path):
    file = WRITERS[ending](tmp_path / f"cafe.{ending}")
    with pytest.raises(FovaError, match=rf"caf\\xe9\.{ending}: the name is not valid UTF-8. Rename it"):
        load(file.rename(tmp_path / f"{NOT_UTF8}.{ending}"))


def test_files_in_a_folder_whose_names_are_not_utf8(tmp_path, capsys):
    folder = write_folder(tmp_path / "logs")
    (folder / f"{NOT_UTF8}.txt").write_text("not data")
    data_command(["validate", str(folder)])  # prints the note
    assert r"Not read: caf\xe9.txt." in capsys.readouterr().out
    (folder / "episode_1.npz").rename(folder / f"{NOT_UTF8}.npz")
    with pytest.raises(FovaError, match=r"caf\\xe9\.npz: the name is not valid UTF-8"):
        load(folder)


@pytest.mark.parametrize("name", ["two\nlines.npz", "red\x1b[31m.npz", "a\0b.npz"])
def test_control_characters_are_refused_and_not_printed(name):
    with pytest.raises(FovaError, match="control characters") as error:
        load(name)
    assert str(error.value).isprintable()


def test_names_of_columns_are_printed_as_one_line(tmp_path, capsys):
    file = write_npz(tmp_path / "log.npz", **{"two\nlines": np.zeros(7), "red\x1b[31m": np.zeros(7)})
    for command in ("validate", "inspect"):
        data_command([command, str(file)])
        out = capsys.readouterr().out
        assert r"red\x1b[31m, two\nlines" in out
        assert "\x1b[31m" not in out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("~nosuchuser/x.npz", "there is no home folder for ~nosuchuser. Write the whole path"),
        ("", "is an empty name"),
        (f"{NOT_UTF8}.npz", r"caf\xe9.npz: the name is not valid UTF-8"),
        ("x" * 5000 + ".npz", "is longer than the name of a file can be"),
        ("a/" * 3000 + "x.npz", "is longer than the name of a file can be"),
        ("a\0b.npz", "control characters"),
    ],
)
def test_a_name_that_cannot_be_is_refused_for_a_client_too(name, words):
    for read in (
        load,
        lambda name: located(name, Path()),
        lambda name: Config(None, (ClientSpec(name),), configure("fova")),
    ):
        with pytest.raises(FovaError) as error:
            read(name)
        assert words in str(error.value)
        assert len(str(error.value)) < 300


def test_links_in_a_circle_above_a_client_are_no_traceback(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FovaError, match="There is no file"):
        load(located("loop/x.npz", tmp_path))


def test_a_long_word_is_no_file():
    assert not is_file("x" * 5000)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch, kind):
    file = tmp_path / f"ward.{kind}"
    WRITERS[kind](file)
    opened = Path.open

    def locked(path, *arguments, **options):
        if path.name == file.name:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", locked)
    with pytest.raises(FovaError, match="permission was denied"):
        load(str(file))
