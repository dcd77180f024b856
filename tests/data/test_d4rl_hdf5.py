"""maze2d's files, built row by row as D4RL's recording script builds them."""

import h5py
import numpy as np
import pytest
from hand_made import assert_same, columns, episodes, write_hdf5

from fova.data.sources import load
from fova.data.transitions import from_episodes

# The ball is pushed along x. After row 2 a new goal is drawn and the script forgets to take up the observation:
# row 3 repeats row 2's, while the ball was really at 3. It never ends; the record stops after row 6.
POSITIONS = np.array([0.0, 1.0, 2.0, 2.0, 4.0, 5.0, 6.0], np.float32)
NEW_GOAL = np.array([0, 0, 1, 0, 0, 0, 0], bool)


def write_maze2d(file, **flags):
    rows = len(POSITIONS)
    observations = np.zeros((rows, 4), np.float32)
    observations[:, 0] = POSITIONS
    with h5py.File(file, "w") as store:
        store["observations"] = observations
        store["actions"] = np.stack([np.arange(rows) / 10, np.zeros(rows)], axis=1).astype(np.float32)
        store["rewards"] = np.arange(rows, dtype=np.float32)
        store["infos/goal"] = np.zeros((rows, 2), np.float32)
        store["infos/qpos"] = np.zeros((rows, 2), np.float32)
        for name, values in flags.items():
            store[name] = values
    return file


@pytest.mark.parametrize(
    "flags",
    [
        {"terminals": np.zeros(7, bool), "timeouts": NEW_GOAL},  # as published
        {"terminals": NEW_GOAL},  # as the script writes it
    ],
    ids=["published", "script"],
)
def test_a_new_goal_breaks_off_the_episode_and_the_repeated_row_is_left_out(flags, tmp_path):
    source = load(write_maze2d(tmp_path / "maze2d-umaze-v1.hdf5", **flags))
    data = source.transitions
    assert data.observations[:, 0].tolist() == [0, 1, 4, 5]
    assert data.next_observations[:, 0].tolist() == [1, 2, 5, 6]
    assert data.rewards.tolist() == [0, 1, 4, 5]
    assert data.terminals.tolist() == [0, 0, 0, 0]
    assert data.has_next_action.tolist() == [1, 0, 1, 0]
    said = " ".join(source.notes)
    assert "left out 1 first step after a new goal" in said
    assert "last step of 2 episodes that broke off" in said
    assert "rewards belong to the observation before the action" in said
    assert ("read as timeouts" in said) == ("timeouts" not in flags)


def test_a_maze_file_with_next_observations_keeps_every_row(tmp_path):
    following = np.zeros((7, 4), np.float32)
    following[:, 0] = [1, 2, 3, 4, 5, 6, 7]
    file = write_maze2d(
        tmp_path / "a.hdf5", terminals=np.zeros(7, bool), timeouts=NEW_GOAL, next_observations=following
    )
    data = load(file).transitions
    assert data.next_observations[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert data.episode_ends.tolist() == [False, False, True, False, False, False, True]


def test_terminals_of_other_tasks_end_them_even_with_goals_in_the_file(tmp_path):
    rows = 3
    with h5py.File(tmp_path / "a.hdf5", "w") as store:
        store["observations"] = np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)
        store["actions"] = np.zeros((rows, 2), np.float32)
        store["rewards"] = np.zeros(rows, np.float32)
        store["terminals"] = np.array([0, 1, 1], bool)
        store["infos/goal"] = np.zeros((rows, 2), np.float32)
    assert load(tmp_path / "a.hdf5").transitions.terminals.tolist() == [0, 1, 1]


def test_compressed_and_half_precision_arrays_are_read(tmp_path):
    rows = 1000
    with h5py.File(tmp_path / "a.hdf5", "w") as store:
        for name, values in {
            "observations": np.arange(rows)[:, None].astype(np.float16),
            "actions": np.zeros((rows, 1)),
            "rewards": np.ones(rows, np.int8),
            "terminals": np.zeros(rows, np.uint8),
            "timeouts": np.zeros(rows, bool),
        }.items():
            store.create_dataset(name, data=values, compression="gzip", chunks=True)
        store["metadata/algorithm"] = "SAC"
    source = load(tmp_path / "a.hdf5")
    assert len(source.transitions) == rows - 1
    assert len(source.notes) == 2  # on endings and the last step; metadata is known and goes without saying


def test_a_part_that_was_never_written_is_noted(tmp_path):
    with h5py.File(write_hdf5(tmp_path / "a.hdf5", rewards=None), "a") as store:
        store.create_dataset("rewards", (7,), "f4", chunks=(2,))[:3] = 1.0  # two pieces of four
    source = load(tmp_path / "a.hdf5")
    assert source.notes == ("rewards: 2 pieces of the array never written, read as 0.0.",)
    assert source.transitions.rewards.tolist() == [1, 1, 1, 0, 0, 0, 0]


def test_flags_may_be_declared_and_left_at_zero(tmp_path):
    with h5py.File(write_hdf5(tmp_path / "a.hdf5", terminals=None), "a") as store:
        store.create_dataset("terminals", (7,), bool)
    assert load(tmp_path / "a.hdf5").transitions.terminals.tolist() == [0] * 7


def test_links_within_the_file_and_names_that_are_not_utf8_are_read(tmp_path):
    with h5py.File(write_hdf5(tmp_path / "a.hdf5", rewards=None), "a") as store:
        store["earned"] = columns()["rewards"]
        store["rewards"] = h5py.SoftLink("/earned")
        h5py.h5g.create(store.id, b"caf\xe9")
    source = load(tmp_path / "a.hdf5")
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes[0].startswith("Not used: caf")
