"""The order of a table's rows and the ends of its episodes, with tables of a few rows."""

import datetime

import numpy as np
import pyarrow
import pytest

from fova.data.tables.arrow import open_table
from fova.data.tables.columns import Columns
from fova.data.tables.ordering import ordered
from fova.errors import FovaError

COLUMNS = {"episode": "who", "time": "hour", "observations": "hr", "action": "dose", "reward": "pay"}
ROWS = {"hr": [1.0] * 5, "dose": [0.5] * 5, "pay": [1.0] * 5}


def order_of(columns, **roles):
    table = open_table(ROWS | columns, "north")
    return ordered(table, Columns.of(COLUMNS | {"terminal": "none"} | roles).resolve(table.names, "north"))


def refusal(columns, **roles):
    with pytest.raises(FovaError) as refused:
        order_of(columns, **roles)
    return str(refused.value)


WHO = {"who": ["ann", "ann", "ann", "bob", "bob"], "hour": [0, 1, 2, 5, 6]}


# --- Order ---


def test_rows_in_order_stay_as_they_are():
    found = order_of(WHO)
    assert found.order is None
    assert found.notes == []
    assert found.starts.tolist() == [0, 3]
    assert found.ends.tolist() == [False, False, True, False, True]
    assert found.terminals.tolist() == [False] * 5
    assert found.sort(np.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_a_last_episode_of_one_row_starts_there():
    found = order_of({"who": ["ann", "ann", "ann", "ann", "bob"], "hour": [0, 1, 2, 3, 0]})
    assert found.starts.tolist() == [0, 4]
    assert found.ends.tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("who", "hour", "order"),
    [
        (["ann", "bob", "ann", "bob", "ann"], [0, 5, 1, 6, 2], [0, 2, 4, 1, 3]),
        (["ann", "ann", "ann", "bob", "bob"], [2, 0, 1, 5, 6], [1, 2, 0, 3, 4]),
        (["ann", "ann", "ann", "bob", "bob"], [0, 1, 2, 6, 5], [0, 1, 2, 4, 3]),
    ],
)
def test_rows_are_sorted_by_episode_and_time(who, hour, order):
    found = order_of({"who": who, "hour": hour})
    assert found.order.tolist() == order
    assert found.sort(np.array(hour)).tolist() == [0, 1, 2, 5, 6]
    assert found.starts.tolist() == [0, 3]
    assert found.notes == ["The rows were not in order and were sorted by who and hour."]


def test_without_a_time_the_rows_of_an_episode_keep_their_order():
    found = order_of({"who": ["ann", "bob", "ann", "bob", "bob"]}, time="none")
    assert found.order.tolist() == [0, 2, 1, 3, 4]
    assert found.notes == ["The rows were not in order and were sorted by who."]
    assert order_of({"who": WHO["who"]}, time="none").order is None


def test_flags_are_sorted_with_the_rows():
    columns = {"who": ["ann"] * 5, "hour": [4, 3, 2, 1, 0], "died": [1, 0, 0, 0, 0], "cut": [0, 0, 1, 0, 0]}
    found = order_of(columns, terminal="died", timeout="cut")
    assert found.terminals.tolist() == [False, False, False, False, True]
    assert found.ends.tolist() == [False, False, True, False, True]
    assert found.starts.tolist() == [0, 3]


def test_the_same_time_twice_names_the_rows_as_given():
    said = refusal({"who": ["bob", "bob", "ann", "ann", "ann"], "hour": [0, 1, 7, 9, 7]})
    assert "north: hour: rows 2 and 4 of episode 'ann' have the same time (1 such pair)" in said
    alone = refusal({"hour": [3, 1, 2, 3, 3], "cut": [0, 1, 0, 0, 1]}, episode="none", timeout="cut")
    assert "rows 0 and 3 have the same time (2 such pairs)" in alone


def test_the_same_time_in_two_episodes_is_fine():
    assert order_of({"who": WHO["who"], "hour": [0, 1, 2, 2, 3]}).notes == []


# --- Irregular times ---


def note(hours, who=None):
    notes = order_of({"who": who or ["ann"] * 5, "hour": hours}).notes
    return notes[0] if notes else None


def test_irregular_steps_are_counted_against_the_usual_one():
    assert note([0, 1, 2, 3, 7]) == (
        "hour: time steps are irregular. The usual one is 1, but 25.0% differ, from 1 to 4. "
        "Training counts every row as one step."
    )
    assert note([0.0, 1.0, 2.0, 3.0, 4.02]) is not None
    assert note([0.0, 1.0, 2.0, 3.0, 4.005]) is None  # within one percent
    assert note([0, 100, 200, 300, 401]) is None  # exactly one percent
    assert note([0, 1, 2, 90, 91], WHO["who"]) is None  # the gap is between two episodes
    assert note([0, 1, 2, 3, 4], ["a", "b", "c", "d", "e"]) is None  # no steps at all


@pytest.mark.parametrize(
    ("usual", "last", "usually", "span"),
    [
        ({"seconds": 30}, {"seconds": 45}, "30 seconds", "30 seconds to 45 seconds"),
        ({"minutes": 1}, {"minutes": 90}, "1 minutes", "1 minutes to 1.5 hours"),
        ({"hours": 1}, {"hours": 36}, "1 hours", "1 hours to 1.5 days"),
        ({"days": 1}, {"milliseconds": 500}, "1 days", "0.5 seconds to 1 days"),
    ],
)  # fmt: skip
def test_steps_of_time_stamps_have_a_unit(usual, last, usually, span):
    start, step = datetime.datetime(2026, 1, 13), datetime.timedelta(**usual)
    stamps = [start + i * step for i in range(4)]
    said = note([*stamps, stamps[-1] + datetime.timedelta(**last)])
    assert f"The usual one is {usually}, but 25.0% differ, from {span}." in said


# --- Ends ---


OUTCOME = WHO | {"Outcome": ["", None, "died", "", "alive"]}


def test_a_value_of_a_text_column_means_ended():
    for terminal in ("Outcome=died", "last:Outcome=died"):
        found = order_of(OUTCOME, terminal=terminal)
        assert found.terminals.tolist() == [False, False, True, False, False]
        assert found.notes == []
    whole = WHO | {"Outcome": ["died"] * 3 + ["alive"] * 2}
    assert order_of(whole, terminal="last:Outcome=died").terminals.tolist() == [False, False, True, False, False]
    assert "Write terminal=last:Outcome=died for that." in refusal(whole, terminal="Outcome=died")


@pytest.mark.parametrize(
    ("column", "value"),
    [([1, 1, 3, 1, 1], "3"), ([1.0, None, 3.0, 1.0, 1.0], "3.0"), ([False, None, True, False, False], "True")],
)
def test_a_value_of_a_column_that_is_no_text_means_ended(column, value):
    found = order_of(WHO | {"x": column}, terminal=f"x={value}")
    assert found.terminals.tolist() == [False, False, True, False, False]


def test_a_value_that_no_row_holds_is_noted():
    found = order_of(OUTCOME, terminal="last:Outcome=dead")
    assert found.notes == ["Outcome: no row holds 'dead'. It holds alive, died."]
    assert not found.terminals.any()
    empty = WHO | {"Outcome": pyarrow.array([None] * 5, pyarrow.string())}
    assert order_of(empty, terminal="Outcome=died").notes == ["Outcome: no row holds 'died'. It is empty."]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ([0, 0, 1, 0, 0], "yes", "cannot hold 'yes'. It holds 0, 1."),
        ([0.5, 0.0, 1.0, 0.0, 0.0], "died", "cannot hold 'died'. It holds 0, 0.5, 1."),
        ([False, False, True, False, False], "yes", "cannot hold 'yes'. It holds false, true."),
        (["no", "no", "Yes", "no", "no"], "yes", "holds 'Yes', but not 'yes'. It holds Yes, no."),
    ],
)
def test_a_value_that_a_column_cannot_hold_or_spells_otherwise_is_refused(column, value, said):
    """Otherwise nobody would ever have ended at this client."""
    assert said in refusal(WHO | {"x": column}, terminal=f"x={value}")


def test_the_value_that_means_ended_is_not_empty():
    for terminal in ("Outcome=", "last:Outcome= "):
        assert "without the value that means ended" in refusal(OUTCOME, terminal=terminal)


def test_one_and_zero_are_values_of_a_column_of_booleans():
    found = order_of(WHO | {"x": [False, False, True, False, False]}, terminal="x=1")
    assert found.terminals.tolist() == [False, False, True, False, False]
    assert order_of(WHO | {"x": [False, False, True, False, True]}, terminal="last:x=0").terminals.sum() == 0


def test_text_without_a_value_that_means_ended_is_asked_about():
    said = refusal(OUTCOME, terminal="last:Outcome")
    assert "Outcome: holds text ('alive', 'died'). Write the value that means" in said
    assert said.endswith("as in terminal=last:Outcome=died")
    assert refusal(OUTCOME, terminal="Outcome").endswith("as in terminal=Outcome=died")
    assert refusal(WHO | {"x": ["", "", "b", "", "a"]}, terminal="x").endswith("as in terminal=x=a")


def test_an_end_in_the_middle_of_an_episode_is_named_by_its_row():
    sorted_first = {"who": ["ann"] * 5, "hour": [4, 3, 2, 1, 0], "died": [0, 0, 1, 1, 0]}
    said = refusal(sorted_first, terminal="died")
    assert "died: row 3 of episode 'ann' is marked as the end, but the episode continues (2 such rows)" in said
    assert "Mark only the last row, or name the column that tells the parts of who apart." in said
    unordered = refusal({"who": ["ann"] * 5, "died": [0, 0, 1, 0, 0]}, terminal="died", time="none")
    assert "row 2 of episode 'ann'" in unordered
    assert "Are the rows out of order? Name the column that orders them (time=...)." in unordered


def test_an_outcome_in_every_row_is_recognised_even_beside_episodes_without():
    said = refusal(WHO | {"died": [1, 1, 1, 0, 0]}, terminal="died")
    assert "It is 1 in every row of those episodes" in said
    assert "terminal=last:died" in said
    partly = refusal(WHO | {"died": [0, 1, 1, 0, 0]}, terminal="died")
    assert "Mark only the last row" in partly


def test_last_marks_every_last_row_and_an_outcome_those_of_its_episodes():
    assert order_of(WHO, terminal="last").terminals.tolist() == [False, False, True, False, True]
    outcome = order_of(WHO | {"died": [1, 1, 1, 0, 0]}, terminal="last:died")
    assert outcome.terminals.tolist() == [False, False, True, False, False]


def test_timeouts_inside_of_episodes_are_noted():
    found = order_of(WHO | {"cut": [0, 1, 1, 0, 1]}, timeout="cut")
    assert found.ends.tolist() == [False, True, True, False, True]
    assert found.starts.tolist() == [0, 2, 3]
    assert found.notes == ["cut cuts episodes in 1 row after which who continues."]
    assert order_of(WHO | {"cut": [0, 0, 1, 0, 1]}, timeout="cut").notes == []


def test_one_long_record_is_cut_where_it_says():
    alone = {"hour": [0, 1, 2, 3, 4], "cut": [0, 1, 0, 0, 0]}
    found = order_of(alone, episode="none", timeout="cut")
    assert found.starts.tolist() == [0, 2]
    assert found.notes == []
    late = order_of(alone | {"cut": [0, 0, 0, 1, 0]}, episode="none", timeout="cut")
    assert late.starts.tolist() == [0, 4]
    terminals = order_of({"hour": [0, 1, 2, 3, 4], "died": [0, 0, 1, 0, 0]}, episode="none", terminal="died")
    assert terminals.terminals.tolist() == [False, False, True, False, False]
    assert terminals.starts.tolist() == [0, 3]


def test_one_long_record_without_ends_is_refused():
    said = refusal({"hour": [0, 1, 2, 3, 4], "cut": [0, 0, 0, 0, 1]}, episode="none", timeout="cut")
    assert "no ending is marked in 5 rows, so all of them would be one episode" in said


def test_a_table_without_rows_is_refused():
    empty = {name: [] for name in (*ROWS, *WHO)}
    assert "north: holds no rows. Leave it out." in refusal(empty)
