import time

import numpy as np
import pytest
from hand_made import assert_same, episodes, write_npz

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
