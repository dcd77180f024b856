import runpy
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hand_made import assert_same, columns, episodes, parquet_columns, write_parquet

from fova.data import parquet
from fova.data.parquet import has_layout
from fova.data.sources import load
from fova.data.transitions import from_episodes
from fova.errors import FovaError

WHOSE = ["ann", "ann", "ann", "bob", "bob", "cy", "di"]
WHEN = [0, 1, 2, 0, 1, 0, 0]


def test_episode_names_mark_the_boundaries_where_no_flag_does(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", truncated=None, episode=WHOSE))
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes == ()


def test_episodes_stay_in_the_order_in_which_they_first_appear(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", truncated=None, episode=[9, 9, 9, 3, 3, 7, 1]))
    assert_same(source.transitions, from_episodes(episodes()))
    assert source.notes == ()


def test_interleaved_episodes_are_put_in_order_by_episode_and_step(tmp_path):
    order = np.array([2, 4, 0, 6, 3, 1, 5])  # ann first, then bob, di, cy
    shuffled = {name: np.asarray(values)[order] for name, values in parquet_columns().items()}
    shuffled |= {"episode": np.array(WHOSE)[order], "step": np.array(WHEN)[order]}
    source = load(write_parquet(tmp_path / "a.parquet", **shuffled))
    first, second, third, fourth = episodes()
    assert_same(source.transitions, from_episodes([first, second, fourth, third]))
    assert source.notes == ("The rows were not in order and were sorted by episode and step.",)


def test_a_missing_step_breaks_the_episode_off(tmp_path):
    keep = np.array([0, 2, 3, 4, 5, 6])  # ann's step 1 is lost
    rest = {name: np.asarray(values)[keep] for name, values in parquet_columns().items()}
    rest |= {f"next_observation_{n}": None for n in range(2)}
    file = write_parquet(
        tmp_path / "a.parquet", **rest, episode=np.array(WHOSE)[keep], step=np.array(WHEN)[keep].astype(float)
    )
    source = load(file)
    # ann's step 0 has no next observation now; her step 2 ended. bob's step 1 and di's step 0 broke off.
    assert source.transitions.rewards.tolist() == [2, 1, 2]
    assert source.notes[0] == "Steps are missing in 1 place: the episode is taken to break off there."
    assert "last step of 3 episodes that broke off" in source.notes[1]


def test_step_numbers_alone_mark_where_an_episode_starts_anew(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", truncated=None, step=WHEN))
    assert_same(source.transitions, from_episodes(episodes()))


def test_step_numbers_alone_that_skip_or_restart_in_the_middle_are_noted(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", step=[0, 1, 5, 0, 1, 3, 4]))
    assert source.notes == (
        "In 2 rows the step number neither continues nor starts again (first: row 2). The episode is taken to "
        "break off there. Add an episode column if the rows are not in order.",
    )
    assert source.transitions.episode_lengths().tolist() == [2, 1, 2, 1, 1]


def test_step_numbers_that_never_change_are_noted(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", step=[0] * 7))
    assert source.notes == ("step is 0 in every row, so every row is taken for an episode of one step.",)
    assert source.transitions.episode_lengths().tolist() == [1] * 7


def test_endings_within_an_episode_are_noted(tmp_path):
    # Row 2 is terminal and row 4 truncated, but by the column both episodes go on.
    source = load(write_parquet(tmp_path / "a.parquet", episode=["a"] * 4 + ["b"] * 3))
    assert source.notes == (
        "terminal marks an ending in 2 rows after which episode continues. The episode is cut there.",
        "truncated marks an ending in 1 row after which episode continues. The episode is cut there.",
    )


@pytest.mark.parametrize(
    "names",
    [
        pyarrow.array(WHOSE).dictionary_encode(),
        pyarrow.array(WHOSE, pyarrow.large_string()),
        pyarrow.array([name.encode() for name in WHOSE]),
        pyarrow.array([1, 1, 1, 2, 2, 3, 2**64 - 1], pyarrow.uint64()),
        pyarrow.array([1, 1, 1, 2, 2, 3, 4], pyarrow.timestamp("s")),
        pyarrow.array([1, 1, 1, 2, 2, 3, 4], pyarrow.date32()),
        pyarrow.array([1.0, 1.0, 1.0, 0.0, 0.0, 3.0, 4.0]),
    ],
    ids=str,
)
def test_episodes_may_be_named_in_any_simple_type(names, tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", truncated=None, episode=names))
    assert_same(source.transitions, from_episodes(episodes()))


def test_almost_numbered_columns_of_other_names_are_only_listed(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", reward_00=[0.0] * 7, observation_1_0=[0.0] * 7))
    assert source.notes == ("Not used: observation_1_0, reward_00.",)


def test_decimals_integers_and_fixed_lists_are_numbers(tmp_path):
    from decimal import Decimal

    flat = columns()
    gone = {f"{name}_{n}": None for name in ("observation", "next_observation") for n in range(2)}
    wide = {
        name: pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat[f"{name}s"].ravel()), 2)
        for name in ("observation", "next_observation")
    }
    money = pyarrow.array([Decimal(int(reward)) for reward in flat["rewards"]], pyarrow.decimal128(10, 2))
    source = load(
        write_parquet(tmp_path / "a.parquet", **gone, **wide, reward=money, terminal=flat["terminals"] * 1)
    )
    assert_same(source.transitions, from_episodes(episodes()))


def test_other_columns_are_left_alone_and_listed(tmp_path):
    source = load(write_parquet(tmp_path / "a.parquet", ward=["x"] * 7))
    assert source.notes == ("Not used: ward.",)


def test_without_pyarrow_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    file = write_parquet(tmp_path / "a.parquet")
    for name in ("pyarrow", "pyarrow.parquet", "pyarrow.csv"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FovaError, match=r"pip install 'fova\[tables\]'"):
        load(file)


def test_the_module_needs_no_pyarrow_to_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    runpy.run_path(parquet.__file__)


def test_memory_is_counted_by_the_width_of_the_values_that_are_read(tmp_path, monkeypatch):
    """7 rows in groups of 3: 1 byte a flag, 4 bytes a single-precision number or a short integer, 8 all others."""
    counted = []
    monkeypatch.setattr(parquet, "refuse_too_large", lambda file, size, values: counted.append((size, values)))
    single, double = pyarrow.float32(), pyarrow.float64()
    content = pyarrow.table(
        {
            "observations": pyarrow.array([[1.0, 2.0]] * 7, pyarrow.list_(single)),
            "action_0": pyarrow.array([0.5] * 7, double),
            "rewards": pyarrow.array([1] * 7, pyarrow.int32()),
            "terminals": [False] * 7,
            "steps": pyarrow.array(range(7), pyarrow.int64()),
            "ward": ["not used"] * 7,
        }
    )
    pyarrow.parquet.write_table(content, tmp_path / "a.parquet", row_group_size=3)
    load(tmp_path / "a.parquet")
    assert counted == [(7 * (2 * 4 + 8 + 4 + 1 + 8), 7 * 6)]


def test_an_empty_value_in_a_list_is_found_in_its_row(tmp_path):
    gone = {f"observation_{n}": None for n in range(2)}
    lists = [[1.0, 2.0], [3.0, 4.0], [5.0, None], [7.0, 8.0], [9.0, None], [1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(FovaError, match=r"observation: row 2 is empty \(2 such values\)"):
        load(write_parquet(tmp_path / "a.parquet", **gone, observation=lists))


@pytest.mark.parametrize(("field", "what"), [("action_names", "texts"), ("action_low", "numbers")])
def test_what_the_metadata_declares_is_a_list_of_texts_or_numbers(field, what, tmp_path):
    with pytest.raises(FovaError, match=rf"{field}: cannot be read .* JSON list of {what}"):
        load(write_parquet(tmp_path / "a.parquet", {field: "[1,"}))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["observation_0", "action_0"], True),
        (["observations", "reward"], True),
        (["observation_00", "rewards"], True),  # to be told what is wrong with 00
        (["observations", "terminals"], False),
        (["actions", "rewards"], False),
        (["hr", "dose"], False),
    ],
)
def test_which_names_are_meant_as_our_own_layout(names, expected):
    assert has_layout(names) is expected
