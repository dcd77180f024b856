"""Names that a user gives, as paths that are safe to open."""

import os
import socket

import pytest

from fova.data import paths
from fova.data.paths import as_path, refuse_special, refuse_special_members, stamp
from fova.errors import FovaError


def test_a_name_is_a_path_and_a_tilde_is_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path("~/logs/a.npz") == tmp_path / "logs" / "a.npz"
    assert as_path(tmp_path / "b.npz") == tmp_path / "b.npz"


def test_a_part_of_255_bytes_and_a_path_of_4096_characters_are_the_longest():
    assert str(as_path("a" * 255 + "/b")) == "a" * 255 + "/b"
    assert len(str(as_path("ab/" * 1365 + "a"))) == 4096
    for name in ("a" * 256, "b/" + "a" * 256, "ä" * 128, "ab/" * 1365 + "ab"):  # ä has two bytes
        with pytest.raises(FovaError, match="is longer than the name of a file can be"):
            as_path(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is an empty name"),
        ("a\udcffb", "is not valid UTF-8"),
        ("a\nb", "control characters in the name"),
        ("~nosuchuser/a", "there is no home folder for ~nosuchuser"),
    ],
)
def test_names_that_stand_for_nothing_are_refused(name, words):
    with pytest.raises(FovaError, match=words):
        as_path(name)


def test_only_regular_files_are_opened(tmp_path):
    (tmp_path / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("a", "link"):
        assert refuse_special(tmp_path / name) is None
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)  # the path of a socket must be short
        server.bind("socket")
        for name, kind in {"pipe": "a named pipe", "socket": "a socket", ".": "a folder"}.items():
            with pytest.raises(FovaError, match=f"is {kind}, but a regular file is needed"):
                refuse_special(tmp_path / name)
    with pytest.raises(FovaError, match="is a device, but"):
        refuse_special(paths.Path("/dev/null"))
    with pytest.raises(FovaError, match="Check that the file, or the file that it links to, is there"):
        refuse_special(tmp_path / "nowhere")


def test_members_of_a_folder_are_regular_at_any_depth(tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "c").write_text("")
    assert refuse_special_members(tmp_path) is None
    (deep / "loop").symlink_to(tmp_path)
    with pytest.raises(FovaError, match="loop: is a link to another folder"):
        refuse_special_members(tmp_path)
    (deep / "loop").unlink()
    os.mkfifo(deep / "pipe")
    with pytest.raises(FovaError, match="pipe: is a named pipe"):
        refuse_special_members(tmp_path)


def test_a_stamp_changes_with_what_is_written(tmp_path):
    assert stamp(tmp_path / "nowhere") == ()
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "a"
    file.write_text("x")
    (name, changed, size, number), *others = first = stamp(file)
    assert others == []
    assert (name, size) == (str(file), 1)
    assert (changed, number) == (file.stat().st_mtime_ns, file.stat().st_ino)
    assert stamp(file) == first
    file.write_text("xy")
    assert stamp(file) != first
    assert [each[0] for each in stamp(file.parent)] == [str(file.parent), str(file)]
