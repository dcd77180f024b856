"""Where episodes end in logged rows, with rows small enough to know by heart."""

import numpy as np
import pytest

from fova.data import cutting
from fova.data.cutting import cut
from fova.data.rows import Table
from fova.errors import FovaError


def rows(observations, terminals=(), timeouts=None, following=None, notes=()):
    """Row i has the reward i and the action 10 i; `terminals` and `timeouts` are numbers of rows."""
    count = len(observations)

    def column(values):
        return np.asarray(values, np.float32)[:, None]

    def marked(places):
        return np.isin(np.arange(count), list(places))

    return Table(
        observations=column(observations),
        actions=column(10 * np.arange(count)),
        rewards=np.arange(count, dtype=np.float32),
        terminals=marked(terminals),
        timeouts=None if timeouts is None else marked(timeouts),
        next_observations=None if following is None else column(following),
        notes=notes,
    )


def flat(data):
    return {
        "seen": data.observations[:, 0].tolist(),
        "then": data.next_observations[:, 0].tolist(),
        "did": data.actions[:, 0].tolist(),
        "next": data.next_actions[:, 0].tolist(),
        "paid": data.rewards.tolist(),
        "terminal": data.terminals.tolist(),
        "goes_on": data.has_next_action.tolist(),
        "ends": data.episode_ends.tolist(),
    }


@pytest.fixture(params=[1, 2, 3, 1 << 16], autouse=True)
def rows_at_once(request, monkeypatch):
    """Rows are moved in chunks. Their size changes nothing."""
    monkeypatch.setattr(cutting, "CHUNK", request.param)


def test_flags_end_episodes_and_next_observations_are_kept_at_the_ends():
    data, notes = cut(rows([0, 1, 2, 5, 6, 7], [2], [5], following=[1, 2, 3, 6, 7, 8]), "a")
    assert flat(data) == {
        "seen": [0, 1, 2, 5, 6, 7],
        "then": [1, 2, 3, 6, 7, 8],
        "did": [0, 10, 20, 30, 40, 50],
        "next": [10, 20, 0, 40, 50, 0],
        "paid": [0, 1, 2, 3, 4, 5],
        "terminal": [0, 0, 1, 0, 0, 0],
        "goes_on": [1, 1, 0, 1, 1, 0],
        "ends": [False, False, True, False, False, True],
    }
    assert notes == ()


def test_without_next_observations_the_last_step_of_what_broke_off_is_left_out():
    data, notes = cut(rows([0, 1, 2, 5, 6, 7, 9], [2], [5, 6], notes=("first",)), "a")
    # Row 2 ended: its own observation stands in. Rows 5 and 6 broke off; row 6 was a whole episode.
    assert flat(data) == {
        "seen": [0, 1, 2, 5, 6],
        "then": [1, 2, 2, 6, 7],
        "did": [0, 10, 20, 30, 40],
        "next": [10, 20, 0, 40, 0],
        "paid": [0, 1, 2, 3, 4],
        "terminal": [0, 0, 1, 0, 0],
        "goes_on": [1, 1, 0, 1, 0],
        "ends": [False, False, True, False, True],
    }
    assert notes == (
        "first",
        "Left out: the last step of 2 episodes that broke off, because the file holds no next observation for it. "
        "1 episode had no other step and left no data.",
        "The last step of 1 episode that ended has no next observation in the file; its own observation is used "
        "instead (no value is bootstrapped from it).",
    )


def test_a_single_row_that_broke_off_first_leaves_no_data_of_its_own():
    data, notes = cut(rows([4, 0, 1], [], [0, 2]), "a")
    assert (flat(data)["seen"], flat(data)["then"], flat(data)["ends"]) == ([0], [1], [True])
    assert "the last step of 2 episodes that broke off" in notes[0]
    assert "1 episode had no other step" in notes[0]


def test_what_did_not_happen_is_not_noted():
    ended = cut(rows([0, 1, 2], [0, 2], [1]), "a")[1]
    assert [note[:9] for note in ended] == ["Left out:", "The last "]
    assert [note[:9] for note in cut(rows([0, 1, 2, 3], [1, 3], [1]), "a")[1]] == ["The last "]
    assert "no other step" not in cut(rows([0, 1, 2, 3], [], [1, 3]), "a")[1][0]


def test_a_terminal_that_is_also_a_time_out_is_a_terminal():
    data, _ = cut(rows([0, 1, 2, 3], [1, 3], [1]), "a")
    assert flat(data)["terminal"] == [0, 1, 0, 1]
    assert flat(data)["then"] == [1, 1, 3, 3]


def test_next_observations_show_breaks_that_no_flag_marks():
    data, notes = cut(rows([0, 1, 5, 6, 9], [], None, following=[1, 2, 6, 7, 10]), "a")
    assert flat(data)["ends"] == [False, True, False, True, True]
    assert flat(data)["then"] == [1, 2, 6, 7, 10]
    assert flat(data)["next"] == [10, 0, 30, 0, 0]
    assert notes == (
        "In 2 rows the next observation is not the one in the following row, though no ending is marked (first: "
        "row 1). The episode is taken to break off there.",
    )


def test_a_marked_ending_is_no_break():
    assert cut(rows([0, 1, 5, 6], [1], [3], following=[1, 2, 6, 7]), "a")[1] == ()


@pytest.mark.parametrize(
    ("observation", "following", "same"),
    [
        (100.0, 100.009, True),  # one part in ten thousand is rounding,
        (100.0, 100.02, False),  # two parts are not
        (0.0, 9e-6, True),  # near 0 a hundred-thousandth is,
        (0.0, 3e-5, False),  # three are not
        (-5.0, -5.0, True),
    ],
)
def test_a_next_observation_may_differ_by_rounding(observation, following, same):
    data, _ = cut(rows([1, observation, 3], [], [2], following=[following, 3, 4]), "a")
    assert data.episode_ends.tolist() == [not same, False, True]


def test_every_column_must_continue():
    table = rows([0, 1, 2], [], [2], following=[1, 2, 3])
    two = Table(
        **vars(table)
        | {
            "observations": np.hstack([table.observations, [[7], [7], [7]]]).astype(np.float32),
            "next_observations": np.hstack([table.next_observations, [[8], [7], [7]]]).astype(np.float32),
        }
    )
    assert cut(two, "a")[0].episode_ends.tolist() == [True, False, True]


def test_where_no_row_is_marked_as_cut_off_the_notes_say_what_that_means():
    neither = cut(rows([0, 1, 2], [2], None), "a")[1]
    assert neither[0].startswith("The file has neither timeouts nor next_observations")
    never = cut(rows([0, 1, 2], [2], []), "a")[1]
    assert never[0].startswith("No row is marked as cut off")
    last_only = cut(rows([0, 1, 2, 3], [1], [3]), "a")[1]  # the end of the file ends an episode in any case
    assert last_only[0].startswith("No row is marked as cut off")
    for told in (cut(rows([0, 1, 2, 3], [3], [1]), "a")[1], cut(rows([0, 1], [], [], following=[1, 2]), "a")[1]):
        assert not any("marked as cut off" in note or "neither" in note for note in told)


def test_rows_that_all_broke_off_alone_are_no_data():
    with pytest.raises(
        FovaError, match="a: next_observations: is missing, and without it no complete step is left"
    ):
        cut(rows([0, 1], [], [0, 1]), "a")
    assert len(cut(rows([0], [], [0], following=[1]), "a")[0]) == 1
