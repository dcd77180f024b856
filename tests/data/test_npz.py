import io
import math
import time
import zipfile

import numpy as np
import pytest
from hand_made import assert_same, columns, episodes, write_npz

from fova.data import npz
from fova.data.npz import save_npz
from fova.data.sources import load
from fova.data.transitions import from_episodes
from fova.errors import FovaError


def test_episodes_and_transitions_come_back_as_they_were(tmp_path):
    data = from_episodes(episodes())
    save_npz(episodes(), tmp_path / "a.npz")
    save_npz(data, tmp_path / "b.npz", action_low=-1.0, action_high=[1.0, 2.0])
    assert_same(load(tmp_path / "a.npz").transitions, data)
    source = load(tmp_path / "b.npz")
    assert_same(source.transitions, data)
    assert source.action_low.tolist() == [-1, -1]
    assert source.action_high.tolist() == [1, 2]
    assert source.notes == ()


@pytest.mark.parametrize(("given", "other"), [("action_low", "action_high"), ("action_high", "action_low")])
def test_one_bound_of_the_actions_alone_is_refused(tmp_path, given, other):
    with pytest.raises(FovaError, match=f"{given} is given without {other}"):
        save_npz(episodes(), tmp_path / "a.npz", **{given: 0.0})
    assert not (tmp_path / "a.npz").exists()


def test_episode_numbers_mark_the_boundaries_and_keep_their_order(tmp_path):
    file = write_npz(tmp_path / "a.npz", timeouts=None, episode=np.array(["z", "z", "z", "y", "y", "x", "w"]))
    source = load(file)
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes == ()


def test_numpy_reads_what_was_written(tmp_path):
    save_npz(episodes(), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["terminals"].tolist() == [False, False, True, False, False, True, False]
        assert arrays["timeouts"].tolist() == [False, False, False, False, True, False, True]


def test_the_same_data_gives_the_same_bytes_whenever_it_is_written(tmp_path, monkeypatch):
    save_npz(episodes(), tmp_path / "a.npz")
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(2_000_000_000))
    save_npz(episodes(), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "a.npz"
    save_npz(episodes(), file)
    before = file.read_bytes()

    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(FovaError, match=r"a\.npz: cannot be written \(No space left on device\)"):
        save_npz(episodes()[:1], file)
    assert file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "minari"] == ["a.npz"]


# --- What headers declare ---


def write_versions(file, version, rewards=None):
    """The hand-made episodes with headers of a version of NumPy's format; `rewards` replaces the stored bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in columns().items():
            stored = io.BytesIO()
            np.lib.format.write_array(stored, array, version=version)
            replaced = rewards if name == "rewards" and rewards else stored.getvalue()
            archive.writestr(f"{name}.npy", replaced)
    return file


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format_is_read(version, tmp_path):
    file = write_versions(tmp_path / "a.npz", version)
    assert_same(load(file).transitions, from_episodes(episodes()))


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_a_header_that_declares_more_than_is_there_is_refused_before_reading(version, tmp_path):
    header = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == (1, 0) else np.lib.format.write_array_header_2_0
    write(header, {"descr": "<f4", "fortran_order": False, "shape": (8,)})
    held = len(header.getvalue())
    file = write_versions(tmp_path / "a.npz", version, header.getvalue() + bytes(28))  # 7 numbers
    with pytest.raises(FovaError, match=r"rewards: cannot be read"):  # the header fits into its own bytes
        load(file)
    rows = held // 4 + 8
    header = io.BytesIO()
    write(header, {"descr": "<f4", "fortran_order": False, "shape": (rows,)})
    file = write_versions(tmp_path / "b.npz", version, header.getvalue() + bytes(28))
    with pytest.raises(FovaError, match=rf"rewards: declares {4 * rows} bytes, but holds {held + 28}\."):
        load(file)


def test_memory_is_measured_by_what_the_headers_declare(tmp_path, monkeypatch):
    measured = []
    monkeypatch.setattr(npz, "refuse_too_large", lambda file, size, numbers: measured.append((size, numbers)))
    arrays = columns()
    load(write_npz(tmp_path / "a.npz", wards=np.zeros(9)))  # an array that is not read does not count
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        stored = sum(each.file_size for each in archive.infolist() if each.filename != "wards.npy")
    assert measured == [(stored, sum(math.prod(array.shape) for array in arrays.values()))]


def test_objects_are_refused_as_such_however_small_they_are_packed(tmp_path):
    file = write_npz(tmp_path / "a.npz", rewards=np.array([None] * 1000, object))
    with pytest.raises(FovaError, match=r"rewards: .*pickled objects are never read"):
        load(file)


def test_two_archives_in_one_file_and_names_that_are_there_twice_are_refused(tmp_path):
    one = write_npz(tmp_path / "a.npz").read_bytes()
    (tmp_path / "b.npz").write_bytes(one + one)
    with pytest.raises(FovaError, match="holds other data before its arrays"):
        load(tmp_path / "b.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("rewards.npy", archive.read("rewards.npy"))
    with pytest.raises(FovaError, match="rewards: is there twice"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("names", [("none", "some"), np.array(["none", "some"], object)], ids=["tuple", "pandas"])
def test_names_make_codes_of_the_actions(names, tmp_path):
    save_npz(from_episodes(episodes()), tmp_path / "a.npz", action_names=names)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["actions"].dtype == np.int64
        assert arrays["action_names"].tolist() == ["none", "some"]
