"""The proposal for --columns: which role each column gets, and what a person is asked to check."""

import datetime

import pyarrow
import pyarrow.parquet
import pytest

from fova.data.tables.arrow import open_table
from fova.data.tables.columns import REQUIRED
from fova.data.tables.guess import columns_wanted, propose

WARD = {
    "stay_id": [1, 1, 1, 2, 2, 2],
    "charttime": [datetime.datetime(2026, 1, 13, hour) for hour in (8, 9, 10, 8, 9, 11)],
    "hr": [80.0, None, 82.5, 90.0, 91.0, 92.0],
    "ward": ["A", "B", None, "A", "B", "A"],
    "dose": [0.5, 0.25, 0.75, 1.5, 0.1, 0.5],
    "score": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "died": [0, 0, 1, 0, 0, 0],
    "truncated": [False, False, False, False, False, True],
}


def proposal(columns, *others, name="ward.csv"):
    tables = [open_table(each, f"{name} {i}" if i else name) for i, each in enumerate((columns, *others))]
    return propose(tables)


def roles(**columns):
    """The guessed role of each column."""
    return {about.name: about.role for about in proposal(columns).columns}


# --- The whole proposal ---


def test_every_column_of_a_ward_gets_its_role():
    found = proposal(WARD)
    assert found.roles == {
        "episode": ["stay_id"],
        "time": ["charttime"],
        "observations": ["hr", "ward"],
        "action": ["dose"],
        "reward": ["score"],
        "terminal": ["died"],
        "timeout": ["truncated"],
        "categories": [],
        "na": [],
    }
    assert found.flags() == (
        "--columns episode=stay_id time=charttime observations=hr,ward action=dose reward=score terminal=died "
        "timeout=truncated --missing hr=carry-mean ward=unknown --action-low 0.1 --action-high 1.5"
    )
    assert found.open == [
        "--action-low, --action-high: the range in the data. Give the true bounds if they are wider."
    ]


def test_the_columns_are_described():
    found = {about.name: about for about in proposal(WARD | {"constant": [None] * 6}).columns}
    shown = {name: (about.kind, about.missing, about.values, about.role) for name, about in found.items()}
    assert shown["hr"] == ("double", 1, "80 to 92", "observations")
    assert shown["charttime"][2:] == ("2026-01-13 08:00:00 to 2026-01-13 11:00:00", "time")
    assert shown["ward"] == ("string", 1, "A, B", "observations")
    assert shown["truncated"] == ("bool", 0, "0 to 1", "timeout")
    assert shown["constant"] == ("null", 6, "", "not used")


def test_five_values_of_a_text_are_shown_and_the_rest_counted():
    def shown(names):
        return proposal({"ward": names * 2}).columns[0].values

    assert shown(list("ABCDE")) == "A, B, C, D, E"
    assert shown(list("ABCDEF")) == "A, B, C, D, E, ... (6)"


def test_the_first_200_000_rows_are_looked_at():
    rows = 200_001
    values = pyarrow.array([1.0, None] + [2.0] * (rows - 3) + [None])
    about = proposal(pyarrow.table({"hr": values})).columns[0]
    assert about.missing == 1  # the second is in the row that is not looked at
    last = pyarrow.array([None] + [2.0] * (rows - 3) + [None, 3.0])
    assert proposal(pyarrow.table({"hr": last})).columns[0].missing == 2


# --- Roles ---


RESULT = "is this known before the action? Its name says that it is a result, so it is left out."
TWO = {"patient": ["a", "a", "b", "b"], "hour": [0, 1, 0, 1]}


def test_a_column_of_costs_is_the_reward_with_a_minus():
    found = proposal(TWO | {"Cost €": [1.5, 2.5, 1.5, 2.5], "Penalty": [1, 2, 1, 2]})
    assert found.roles["reward"] == ["-Cost €"]
    assert "'reward=-Cost €'" in found.flags()
    assert [about.role for about in found.columns[2:]] == ["reward", "not used"]
    assert "reward: Cost € is read as costs, so less is better. If not, leave the minus out." in found.open
    assert f"Penalty: {RESULT}" in found.open
    other = proposal(TWO | {"cost": [1.5, 2.5, 1.5, 2.5], "score": [1, 2, 1, 2]})
    assert other.roles["reward"] == ["score"]
    assert f"cost: {RESULT}" in other.open


@pytest.mark.parametrize(
    ("column", "terminal"),
    [
        ({"Outcome": [None, "alive", None, "died"]}, "last:Outcome=died"),
        ({"Alive": ["yes", "yes", "yes", "no"]}, "last:Alive=no"),
        ({"alive": [1, 1, 1, 0]}, "last:alive=0"),
        ({"survived": [True, True, True, False]}, "last:survived=false"),
        ({"survived": [True] * 4}, "?"),
        ({"died": [None, 0, None, 1]}, "last:died=1"),
        ({"died": [None, None, None, 0]}, "?"),
        ({"mortality": [0.25, 1.0, 0.5, 0.5]}, "?"),
        ({"outcome": ["good", "bad", "good", "bad"]}, "?"),
        ({"outcome": [0, 0, 0, 1]}, "?"),
    ],
)
def test_an_outcome_is_no_observation(column, terminal):
    found = proposal(TWO | column)
    assert found.roles["terminal"] == [terminal]
    (name,) = column
    assert name not in found.roles["observations"]
    expected = f"{name}: {RESULT}" if terminal == "?" else f"terminal: {terminal} means that all other episodes"
    assert any(question.startswith(expected) for question in found.open)


def test_endings_that_clients_write_in_different_ways_are_asked_about():
    words, flags = ({"died": column} for column in (["no", "no", "no", "yes"], [0, 0, 0, 1]))
    endings = "last:died=yes in ward.csv, died in ward.csv 1"
    assert (
        f"terminal: {endings}. Store the column in the same way at all clients."
        in proposal(TWO | words, TWO | flags).open
    )
    nobody = {"died": ["no"] * 4}
    assert not [asked for asked in proposal(TWO | words, TWO | nobody).open if "same way" in asked]


def test_text_among_costs_is_asked_about():
    found = proposal(TWO | {"cost": [1.5, 2.5, 1.5, 2.5]}, TWO | {"cost": ["1.5", "2", "x", "2.5"]})
    assert found.roles["reward"] == ["-cost"]
    assert any("'x'" in question for question in found.open)


def test_a_column_with_values_in_last_rows_only_is_no_observation():
    late = {"diagnosis": [None, "x", None, None], "lactate": [1.5, None, None, 2.5], "empty": [None] * 4}
    found = proposal(TWO | late)
    assert found.roles["observations"] == ["lactate"]
    assert any(question.startswith("diagnosis: is this known before the action?") for question in found.open)
    single = {"patient": list("abcd"), "x": [1.5, None, 2.5, 2.5]}  # one row each: every row is the last one
    assert "x" in proposal(single).roles["observations"]


def test_dates_are_no_observations_and_births_order_nothing():
    day = datetime.date(1950, 2, 7)
    born = {"Born on": [day, day, day, day]}
    texts = {"Measured at": ["07.02.2023 09:00", "07.02.2023 10:00", "08.02.2023 09:00", "08.02.2023 10:00"]}
    found = proposal({"patient": TWO["patient"]} | born | texts)
    assert found.roles["time"] == ["Measured at"]
    assert found.roles["observations"] == ["?"]
    assert "Born on: a date or time is no observation, so it is left out. Store" in " ".join(found.open)
    admitted = {"patient": TWO["patient"], "admitted": ["2023-01-01"] * 2 + ["2023-01-02"] * 2}
    assert proposal(admitted | texts).roles["time"] == ["Measured at"]
    assert proposal(admitted).roles["time"] == ["?"]  # constant within episodes
    several = admitted | {"drawn": [datetime.datetime(2023, 1, 1, hour) for hour in range(4)]}
    assert proposal(several | texts).roles["time"] == ["Measured at"]  # by its name
    assert proposal(several).roles["time"] == ["drawn"]


def test_a_time_of_the_day_orders_rather_than_a_date():
    geburt, zeit = ["07.02.1950", "08.02.1950"], ["07.02.2023 09:00", "07.02.2023 10:00"]
    assert proposal({"Geburt": geburt, "Messung": zeit}).roles["time"] == ["Messung"]
    born = [datetime.date(1950, 2, 7), datetime.date(1950, 2, 8)]
    measured = [datetime.datetime(2023, 2, 7, hour) for hour in (9, 10)]
    assert proposal({"Geburt": born, "Messung": measured}).roles["time"] == ["Messung"]
    assert proposal({"Geburt": born}).roles["time"] == ["Geburt"]


def test_an_empty_column_has_no_role():
    table = pyarrow.table({"patient": ["a", "a", "b"], "hour": pyarrow.nulls(3)})
    assert [about.role for about in proposal(table).columns] == ["episode", "not used"]


def test_columns_of_a_parquet_file_are_looked_at_in_the_same_way(tmp_path):
    late = TWO | {"born": ["1950-02-07"] * 4, "diagnosis": [None, "x", None, None], "ward": ["A", "B", "A", "A"]}
    pyarrow.parquet.write_table(pyarrow.table(late), tmp_path / "ward.parquet")
    found = propose([open_table(tmp_path / "ward.parquet")])
    assert found.roles == proposal(late).roles
    assert found.roles["observations"] == ["ward"]


def test_actions_of_one_kind_are_proposed():
    insulin, drug, dose = {"Insulin": [0.5, 1.5]}, {"Drug": ["a", "b"]}, {"dose": [0.25, 0.75]}
    found = proposal(insulin | drug | dose)
    assert found.roles["action"] == ["Insulin", "dose"]
    assert [about.role for about in found.columns] == ["action", "not used", "action"]
    assert any(question.startswith("Drug: left out of the action") for question in found.open)
    assert proposal(drug | insulin).roles["action"] == ["Drug"]


def test_a_second_reward_and_a_second_key_are_left_out():
    found = proposal(
        {"patient": ["a", "a", "b"], "visit": [1, 2, 3], "score": [0.5, 1.0, 1.5], "utility": [1.0] * 3}
    )
    assert found.roles["episode"] == ["patient"]
    assert found.roles["reward"] == ["score"]
    assert found.roles["observations"] == ["?"]  # visit is different in every row
    assert f"utility: {RESULT}" in found.open


def test_words_count_only_where_the_values_fit():
    assert roles(died=[0.0, 2.0, 0.0]) == {"died": "not used"}  # no flag
    assert roles(died=[True, False, True]) == {"died": "terminal"}
    assert roles(timeout=[0, 1, 1]) == {"timeout": "timeout"}
    assert roles(reward=["good", "bad", "good"]) == {"reward": "not used"}  # no number
    assert roles(patient=[1.5, 2.5, 1.5]) == {"patient": "observations"}  # a measured number names nobody
    assert roles(patient=["x", "y", "x"]) == {"patient": "episode"}
    assert roles(dose=["high", "low", "high"]) == {"dose": "action"}


def test_a_name_that_ends_in_id_tells_episodes_apart_where_values_repeat():
    assert roles(caseid=[1, 1, 2]) == {"caseid": "episode"}
    assert roles(caseid=["x", "x", "y"]) == {"caseid": "episode"}
    assert roles(caseid=[1, 2, 3]) == {"caseid": "not used"}  # another one in each row
    assert roles(caseid=[1, 1, 1]) == {"caseid": "observations"}  # the same one in all
    assert roles(caseid=[1.5, 1.5, 2.5]) == {"caseid": "observations"}


def test_what_only_numbers_the_rows_is_not_used():
    assert roles(index=[5.0, 5.0]) == {"index": "not used"}
    assert roles(**{"Unnamed: 0": [0.5, 0.5]}) == {"Unnamed: 0": "not used"}
    assert roles(note=["x", "y"]) == {"note": "not used"}
    assert roles(count=[1, 2]) == {"count": "not used"}
    assert roles(hr=[1.0, 2.0]) == {"hr": "observations"}  # measured numbers may all differ
    assert roles(note=["x", "x"]) == {"note": "observations"}
    assert roles(note=["x"]) == {"note": "observations"}  # a single row says nothing


def test_a_list_in_a_cell_is_not_used():
    found = proposal({"hr": [1.0, 2.0], "wave": [[1.0, 2.0], [3.0]]})
    assert found.roles["observations"] == ["hr"]
    assert found.columns[1].values == ""


# --- Questions for a person ---


def test_roles_that_were_not_found_are_asked_for():
    found = proposal({"hr": [1.5, 2.5]})
    open_roles = ["episode", "time", "action", "reward", "terminal"]
    assert found.open == [f"{role}: {REQUIRED[role]}" for role in open_roles]
    assert found.flags() == "--columns episode=? time=? observations=hr action=? reward=? terminal=?"


def test_done_is_asked_about():
    assert any("'done' often marks time limits" in question for question in proposal({"done": [0, 1]}).open)
    assert not any("often marks" in question for question in proposal({"died": [0, 1]}).open)


def test_actions_are_choices_codes_or_quantities():
    choice = proposal({"drug": ["a", "b", "a"]})
    assert "action: drug is read as a choice among 2 named actions." in choice.open[-1]
    assert "--action-low" not in choice.flags()
    whole = proposal({"dose": [1, 2, 3, 3]})
    assert "a choice among 3 named actions" in whole.open[-1]
    codes = proposal({"dose": [1.0, 2.0, 2.0]})
    assert codes.roles["categories"] == ["dose"]
    assert "categories=dose: the action holds whole numbers only." in codes.open[-1]
    assert "categories=dose" in codes.flags()
    assert proposal({"dose": [1.0]}).roles["categories"] == ["dose"]
    two = proposal({"dose": [1.0, 2.0], "insulin": [-0.5, 4.0]})
    assert two.roles["categories"] == []
    assert two.options == ["--action-low", "1 -0.5", "--action-high", "2 4"]


@pytest.mark.parametrize(("different", "codes"), [(50, True), (51, False)])
def test_many_different_whole_numbers_are_quantities(different, codes):
    found = proposal({"dose": [float(i) for i in range(different)]})
    assert found.roles["categories"] == (["dose"] if codes else [])
    assert ("--action-low" in found.options) is not codes


def test_an_action_without_values_has_no_bounds():
    empty = proposal({"dose": pyarrow.array([None, None], pyarrow.float64())})
    assert empty.roles["categories"] == []
    assert empty.options == []
    assert empty.open[-1] == "action: dose holds no values. Name the column of what was done."


def test_a_number_that_marks_missing_values_is_proposed_once():
    found = proposal({"hr": [80.0, -999.0, 82.0], "map": [60.0, 61.0, -999.0], "age": [30.0, 31.0, 32.0]})
    assert found.roles["na"] == ["-999"]
    assert "na=-999" in found.flags()


# --- Several files ---


def test_the_range_of_actions_is_that_of_all_files():
    north, south = {"dose": [0.5, 1.5]}, {"dose": [0.25, None, 1.0]}
    assert proposal(north, south).options == ["--action-low", "0.25", "--action-high", "1.5"]
    unknown = {"dose": pyarrow.array([None], pyarrow.float64())}
    assert proposal(north, unknown).options == ["--action-low", "0.5", "--action-high", "1.5"]


def test_a_column_that_a_file_lacks_is_left_out_and_named():
    with_map, without = {"hr": [1.5, 2.5], "map": [None, 2.5]}, {"hr": [1.5, 2.5]}
    found = proposal(with_map, without)
    assert found.roles["observations"] == ["hr"]
    assert found.options == []
    left_out = (
        "All clients need the same columns, so it is left out for all of them. If other files have it under "
        "another name, rename it there first."
    )
    assert f"map: only in ward.csv. {left_out}" in found.open
    most = proposal(with_map, with_map, without).open
    assert f"map: not in ward.csv 2. {left_out}" in most
    names = ", ".join(f"ward.csv {i}" for i in range(8, 13))
    assert f"map: not in {names}. {left_out}" in proposal(*[with_map] * 8, *[without] * 5).open
    names = ", ".join(f"ward.csv {i}" for i in range(8, 13))
    assert f"map: not in {names} and 2 more. {left_out}" in proposal(*[with_map] * 8, *[without] * 7).open


def test_text_at_one_client_and_numbers_at_another_is_asked_about():
    numbers, words = {"hr": [1.5, 2.5]}, {"hr": ["low", "high"]}
    asked = "hr: numbers in ward.csv, but text in ward.csv 1. Store it in the same way at all clients, "
    assert any(question.startswith(asked) for question in proposal(numbers, words).open)
    assert not any("but text in" in question for question in proposal(words, words).open)
    assert not any("but text in" in question for question in proposal(numbers, numbers).open)


def test_times_at_one_client_and_text_at_another_are_no_codes():
    stamps, words = {"drawn": [datetime.datetime(2023, 1, 1, hour) for hour in (8, 9)]}, {"drawn": ["soon", "soon"]}
    found = proposal(words, stamps)
    assert any(question.startswith("drawn: times in ward.csv 1, but not in ward.csv.") for question in found.open)
    assert not any("categories=" in question for question in found.open)
    assert any("holds text ('soon') that is not a time" in question for question in proposal(stamps, words).open)
    slashes = {"Measured at": ["02/07/2023 09:00", "02/07/2023 10:00"]}
    found = proposal(slashes)
    assert found.roles["time"] == ["Measured at"]
    assert any("holds text ('02/07/2023 09:00') that is not a time" in question for question in found.open)


def test_numbers_stored_as_text_are_no_names():
    text = proposal({"hr": ["1.5", "2.5", "3.5"], "dose": ["0.5", "0.7", "0.9"]})
    assert text.roles["observations"] == ["hr"]  # although no value occurs twice
    assert not any("named actions" in question for question in text.open)
    mistaken = proposal({"hr": ["1.5", "2.5", "err"]})
    assert any("hr: row 2 holds 'err', not a number" in question for question in mistaken.open)


def test_choices_are_counted_over_all_files():
    found = proposal({"drug": ["a", "b"]}, {"drug": ["b", "c"]})
    assert "action: drug is read as a choice among 3 named actions." in found.open[-1]


def test_a_mark_of_missing_values_in_any_file_is_proposed():
    assert proposal({"hr": [80.0, 81.0]}, {"hr": [80.0, -999.0]}).roles["na"] == ["-999"]


def test_the_error_names_the_file_and_asks_the_questions():
    one = str(columns_wanted([open_table({"hr": [1.5, 2.5]}, "north.csv")]))
    assert one.startswith("Say what the columns of north.csv mean. A proposal, guessed from their names")
    assert "\n  --columns episode=? time=? observations=hr" in one
    assert f"\n  - reward: {REQUIRED['reward']}" in one
    assert one.endswith("See the columns with: fova data inspect north.csv")
    two = str(columns_wanted([open_table({"hr": [1.5]}, name) for name in ("north.csv", "south.csv")]))
    assert two.startswith("Say what the columns of north.csv and the others mean.")
