"""A folder of files: which are read, in which order, and what is noted about them."""

import numpy as np
import pytest

from fova.data.episode_folder import read_table
from fova.data.rows import Table
from fova.errors import FovaError


def read_one(file):
    """A reader of files that hold the number of their steps as text."""
    steps = int(file.read_text())
    return Table(
        observations=np.full((steps, 1), steps, np.float32),
        actions=np.zeros((steps, 1), np.float32),
        rewards=np.zeros(steps, np.float32),
        terminals=np.zeros(steps, bool),
        timeouts=None,
        next_observations=None,
    )


READERS = {".log": read_one, ".txt": read_one}


@pytest.fixture
def folder(tmp_path):
    """Files of 2, 3 and 1 steps. No two have the same number of bytes."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in {"b.LOG": "3", "a.txt": "02", "c.log": "001", ".hidden.log": "9"}.items():
        (folder / name).write_text(text)
    return folder


def test_files_come_in_the_order_of_their_names_and_end_their_episodes(folder):
    rows = read_table(folder, READERS)
    assert rows.observations[:, 0].tolist() == [2, 2, 3, 3, 3, 1]
    assert rows.timeouts.tolist() == [False, True, False, False, True, True]
    assert rows.notes == ()


def test_one_file_is_enough(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("2")
    assert read_table(tmp_path / "logs", READERS).observations[:, 0].tolist() == [2, 2]


def test_other_files_are_listed(folder):
    (folder / "read\nme.md").write_text("x")
    (folder / "notes").write_text("1")
    assert read_table(folder, READERS).notes == ("Not read: notes, read\\nme.md.",)


def test_files_of_the_same_content_are_noted_three_of_them_by_name(folder):
    (folder / "d.log").write_text("001")
    same = "d.log has the same content as c.log, and both count."
    assert read_table(folder, READERS).notes == (same,)
    (folder / "e.log").write_text("002")  # as long, but other content
    assert read_table(folder, READERS).notes == (same,)
    for name in ("f.log", "g.log"):
        (folder / name).write_text("001")
    assert len(read_table(folder, READERS).notes) == 3
    for name in ("h.log", "i.log"):
        (folder / name).write_text("002")
    notes = read_table(folder, READERS).notes
    assert notes[:3] == tuple(f"{name}.log has the same content as c.log, and both count." for name in "dfg")
    assert notes[3:] == ("Further files like these: 2.",)


def test_a_folder_without_data_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("1")
    with pytest.raises(FovaError, match=r"holds no data. Put files in it that end in .log, .txt, one per episode"):
        read_table(tmp_path, READERS)
    with pytest.raises(FovaError, match="Check that it is a folder you may read"):
        read_table(tmp_path / "nowhere", READERS)
