"""One set of episodes, written by each format's own library, must load to the same transitions."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hand_made import (
    HIGH,
    LOW,
    assert_same,
    columns,
    episodes,
    write_folder,
    write_hdf5,
    write_minari,
    write_npz,
    write_parquet,
)

from fova.data.action_kind import LoggedActions
from fova.data.sources import MADE, Source, load, needs_columns
from fova.data.transitions import from_episodes
from fova.errors import FovaError


def list_column_parquet(file):
    flat = columns()
    lists = {name: list(flat[f"{name}s"]) for name in ("observation", "action", "next_observation")}
    gone = {f"{name}_{n}": None for name in lists for n in range(2)}
    return write_parquet(file, **lists, **gone)


def parquet_folder(folder):
    whole = pyarrow.parquet.read_table(write_parquet(folder.with_suffix(".parquet")))
    folder.mkdir()
    for number, (start, stop) in enumerate([(0, 3), (3, 5), (5, 6), (6, 7)]):
        pyarrow.parquet.write_table(whole.slice(start, stop - start), folder / f"{number}.parquet")
    return folder


WAYS = {
    "npz": ("NPZ", lambda tmp: write_npz(tmp / "a.npz")),
    "npz, singular names": (
        "NPZ",
        lambda tmp: write_npz(
            tmp / "a.NPZ.npz",
            terminals=None,
            terminated=columns()["terminals"],
            timeouts=None,
            truncations=columns()["timeouts"].astype(np.int8),
        ),
    ),
    "hdf5": ("D4RL HDF5", lambda tmp: write_hdf5(tmp / "a.hdf5")),
    "hdf5, one column each": (
        "D4RL HDF5",
        lambda tmp: write_hdf5(
            tmp / "a.h5", rewards=columns()["rewards"][:, None], terminals=columns()["terminals"][:, None] * 1.0
        ),
    ),
    "parquet": ("Parquet", lambda tmp: write_parquet(tmp / "a.parquet")),
    "parquet with lists": ("Parquet", lambda tmp: list_column_parquet(tmp / "a.parquet")),
    "minari": ("Minari", lambda tmp: write_minari("hand/made-v0")),
    "minari, data folder": ("Minari", lambda tmp: write_minari("hand/made-v0") / "data"),
    "minari by id": ("Minari", lambda tmp: write_minari("hand/made-v0") and "hand/made-v0"),
    "minari in parquet": ("Minari", lambda tmp: write_minari("hand/made-v0", "parquet")),
    "minari in arrow": ("Minari", lambda tmp: write_minari("hand/made-v0", "arrow")),
    "folder of npz": ("folder of episodes", lambda tmp: write_folder(tmp / "logs")),
    "folder of parquet": ("folder of episodes", lambda tmp: parquet_folder(tmp / "logs")),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_format_loads_to_the_same_transitions(way, tmp_path):
    kind, write = WAYS[way]
    name = write(tmp_path)
    source = load(name)
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes == ()
    assert (source.format, source.name) == (kind, str(name))


DECLARED = {
    "npz": lambda tmp: write_npz(tmp / "a.npz", action_low=np.array(-1.0), action_high=np.array([1.0, 1.0])),
    "hdf5": lambda tmp: write_hdf5(tmp / "a.hdf5", action_low=LOW, action_high=HIGH),
    "parquet": lambda tmp: write_parquet(
        tmp / "a.parquet", {"action_low": json.dumps(LOW), "action_high": json.dumps(HIGH)}
    ),
    "minari": lambda tmp: write_minari("hand/made-v0"),
}


@pytest.mark.parametrize("way", DECLARED)
def test_declared_bounds_are_reported_and_actions_left_as_they_are(way, tmp_path):
    source = load(DECLARED[way](tmp_path))
    assert source.action_low.tolist() == LOW
    assert source.action_high.tolist() == HIGH
    np.testing.assert_array_equal(source.transitions.actions, columns()["actions"])


def test_bounds_that_nobody_declared_are_none(tmp_path):
    source = load(write_npz(tmp_path / "a.npz"))
    assert source.action_low is None
    assert source.action_high is None


@pytest.mark.parametrize("write", [write_npz, write_hdf5])
def test_without_next_observations_the_last_step_of_what_broke_off_is_left_out(write, tmp_path):
    source = load(write(tmp_path / ("a.npz" if write is write_npz else "a.hdf5"), next_observations=None))
    data = source.transitions
    # Episode 0 whole, the first step of episode 1, episode 2 whole, nothing of episode 3.
    assert data.rewards.tolist() == [0, 1, 2, 1, 2]
    assert data.terminals.tolist() == [0, 0, 1, 0, 1]
    assert data.episode_ends.tolist() == [False, False, True, True, True]
    assert data.next_observations[:, 0].tolist() == [1, 2, 2, 11, 20]  # where a task ended: its own observation
    assert data.has_next_action.tolist() == [1, 1, 0, 0, 0]
    assert source.notes == (
        "Left out: the last step of 2 episodes that broke off, because the file holds no next observation for "
        "it. 1 episode had no other step and left no data.",
        "The last step of 2 episodes that ended has no next observation in the file; its own observation is used "
        "instead (no value is bootstrapped from it).",
    )


def test_with_neither_timeouts_nor_next_observations_only_terminals_end_an_episode_and_the_notes_say_so(tmp_path):
    source = load(write_npz(tmp_path / "a.npz", next_observations=None, timeouts=None))
    # Rows 3 to 5 look like one episode that ends in row 5; row 6 has nowhere to go.
    assert source.transitions.rewards.tolist() == [0, 1, 2, 1, 2, 2]
    assert source.transitions.episode_ends.tolist() == [False, False, True, False, False, True]
    assert source.transitions.next_observations[:, 0].tolist() == [1, 2, 2, 11, 20, 20]
    assert "neither timeouts nor next_observations" in source.notes[0]
    assert source.notes[1].startswith("Left out: the last step of 1 episode that broke off")


def test_next_observations_show_the_breaks_that_no_flag_marks(tmp_path):
    source = load(write_npz(tmp_path / "a.npz", timeouts=None))
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes == (
        "In 1 row the next observation is not the one in the following row, though no ending is marked "
        "(first: row 4). The episode is taken to break off there.",
    )


def test_rows_in_any_order_keep_their_own_next_observation(tmp_path):
    order = np.array([6, 2, 4, 0, 5, 3, 1])
    source = load(write_npz(tmp_path / "a.npz", **{name: values[order] for name, values in columns().items()}))
    data = source.transitions
    np.testing.assert_array_equal(data.next_observations, columns()["next_observations"][order])
    np.testing.assert_array_equal(data.observations, columns()["observations"][order])
    assert data.has_next_action.sum() == 0
    assert "In 2 rows" in source.notes[0]  # those of old rows 0 and 3, which no flag marks; the last needs none


def test_what_was_not_read_is_listed(tmp_path):
    source = load(write_npz(tmp_path / "a.npz", timeout_flags=columns()["timeouts"], ward=np.arange(7)))
    assert source.notes == ("Not used: timeout_flags, ward.",)


def test_files_of_a_folder_are_read_in_the_order_of_their_names_and_others_are_listed(tmp_path):
    folder = write_folder(tmp_path / "logs")
    (folder / "episode_0.npz").rename(folder / "z.npz")
    (folder / "README.txt").write_text("hello")
    (folder / ".hidden").write_text("hello")
    source = load(folder)
    assert source.transitions.episode_returns().tolist() == [3, 2, 3, 3]
    assert source.transitions.observations[0, 0] == 10
    assert source.notes == ("Not read: README.txt.",)


def test_a_path_may_be_given_as_a_path_or_as_text(tmp_path):
    file = write_npz(tmp_path / "a.npz")
    assert_same(load(file).transitions, load(str(file)).transitions)


@pytest.mark.parametrize("name", ["nowhere.npz", "nowhere", "~nobody-here/a.npz", "x" * 5000, "a\0b"])
def test_a_name_that_stands_for_nothing_is_an_error(name):
    with pytest.raises(FovaError) as error:
        load(name)
    assert name[:20].replace("\0", "\\x00") in str(error.value)


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, True),  # next observations
        ({"next_observations": None}, False),
        ({"next_observations": None, "steps": np.array([0, 1, 2, 0, 1, 0, 0])}, True),
        ({"steps": np.array([0, 1, 2, 0, 1, 0, 0])}, True),
    ],
)
def test_step_numbers_or_next_observations_tell_the_order_of_the_rows(changes, known, tmp_path):
    assert load(write_npz(tmp_path / "a.npz", **changes)).order_is_known is known


# --- What a file's name and columns tell ---


@pytest.mark.parametrize(
    ("ending", "words"), [(".xyz", "ends in '.xyz', so its format is not known"), ("", "has no ending, so its")]
)
def test_a_file_of_no_known_format_says_how_its_name_ends(ending, words, tmp_path):
    file = write_npz(tmp_path / "a.npz").rename(tmp_path / f"a{ending}")
    with pytest.raises(FovaError) as error:
        load(file)
    assert words in str(error.value)
    assert "Arrays end in .npz, .hdf5, .h5, .parquet." in str(error.value)


def test_capital_letters_in_an_ending_make_no_difference(tmp_path):
    source = load(write_npz(tmp_path / "a.npz").rename(tmp_path / "a.NPZ"))
    assert source.format == "NPZ"
    assert_same(source.transitions, from_episodes(episodes()))


def test_which_files_need_their_columns_explained(tmp_path):
    (tmp_path / "a.csv").write_text("pulse,dose\n1,2\n")
    own, other = write_parquet(tmp_path / "own.parquet"), tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"pulse": [1.0, 2.0], "dose": [0.5, 0.5]}), other)
    explained = {file: needs_columns(file) for file in (tmp_path / "a.csv", own, write_npz(tmp_path / "a.npz"))}
    assert explained == {tmp_path / "a.csv": True, own: False, tmp_path / "a.npz": False}
    assert not needs_columns(tmp_path / "nowhere.csv")
    assert needs_columns(other)
    for file in (tmp_path / "a.csv", other):
        with pytest.raises(FovaError, match="Say what the columns of"):
            load(file)


def test_what_a_source_tells_about_its_actions(tmp_path):
    plain = load(write_npz(tmp_path / "a.npz")).logged_actions
    np.testing.assert_array_equal(plain.values, columns()["actions"])
    assert plain == LoggedActions(plain.values)
    bounds = {"action_low": np.array([-9.0]), "action_high": np.array([9.0])}
    codes = {"actions": np.arange(7)[:, None] % 3}
    integers = load(write_npz(tmp_path / "b.npz", **codes)).logged_actions
    assert integers == LoggedActions(integers.values, integers=True)
    bounded = load(write_npz(tmp_path / "c.npz", actions=codes["actions"] / 2, **bounds)).logged_actions
    assert bounded == LoggedActions(bounded.values, bounded=True)
    minari = load(write_minari("hand/made-v0")).logged_actions
    assert minari == LoggedActions(minari.values, bounded=True, quantities=True)
    named = Source("a", MADE, from_episodes(episodes()), (), action_names=("rest", "walk")).logged_actions
    assert named == LoggedActions(named.values, names=("rest", "walk"))
