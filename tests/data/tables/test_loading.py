"""Clients that read their own tables by what the server derived for all, as over a network."""

import numpy as np
import pytest

from fova.data.tables.columns import Columns
from fova.data.tables.loading import TableReader, Trained
from fova.errors import FovaError

WARD = {
    "who": ["ann", "ann", "bob", "bob"],
    "hr": [80.0, 81.0, 90.0, 91.0],
    "sex": ["f", "f", "m", "m"],
    "drug": ["b", "a", "b", "b"],
    "pay": [1.0, 2.0, 3.0, 4.0],
    "died": [0, 1, 0, 1],
}
MAPPING = {
    "episode": "who",
    "time": "none",
    "observations": ["hr", "sex"],
    "action": "drug",
    "reward": "pay",
    "terminal": "died",
}
COLUMNS = Columns.of(MAPPING)


@pytest.fixture
def agreed():
    """Hr is a number, sex one of f and m, drug one of a and b."""
    return TableReader(COLUMNS).load({"ward": WARD})[0]


def by(agreed, table, **mapping):
    return TableReader(Columns.of(MAPPING | mapping), agreed=agreed).load({"north": table})[1]["north"]


def refusal(agreed, table, **mapping):
    with pytest.raises(FovaError) as refused:
        by(agreed, table, **mapping)
    return str(refused.value)


def test_progress_names_each_table():
    said = []
    TableReader(COLUMNS).load({"east": WARD, "west": WARD}, said.append)
    assert said == ["reading east", "reading west"]


def test_an_agreement_is_kept_whatever_the_client_has_itself(agreed):
    # This client has only m and b. By its own table alone, m and b would have the code 0.
    own = WARD | {"sex": ["m"] * 4, "drug": ["b"] * 4}
    source = by(agreed, own)
    assert source.transitions.actions.tolist() == [[1], [1], [1], [1]]
    assert source.action_names == ("a", "b")
    assert source.observation_columns == by(agreed, WARD).observation_columns
    men, women = by(agreed, own).transitions.observations, by(agreed, WARD).transitions.observations
    assert men[2:].tolist() == women[2:].tolist()
    assert men[0].tolist() != women[0].tolist()


def test_a_trained_policy_says_how_records_are_seen(agreed):
    trained = Trained(agreed.recipe, ("b", "a"))
    again, sources = TableReader(COLUMNS, trained=trained).load({"new": WARD})
    assert (again.recipe, again.actions, again.choices) == (agreed.recipe, ("drug",), ("b", "a"))
    assert sources["new"].transitions.actions.tolist() == [[0], [1], [0], [0]]


def test_columns_of_another_kind_are_refused_in_the_right_words(agreed):
    said = refusal(agreed, WARD | {"sex": [0.5, 0.5, 1.5, 1.5]}, numbers=["sex"])
    assert "north: sex: holds numbers, but all clients agreed on categories." in said
    said = refusal(agreed, WARD | {"hr": ["low", "high", "low", "low"]})
    assert "north: hr: holds categories, but all clients agreed on numbers." in said


def test_a_column_without_any_value_has_any_kind():
    unknown = Columns.of(MAPPING, ["sex=unknown"])
    agreed = TableReader(unknown).load({"ward": WARD})[0]
    for nothing in ([None] * 4, np.full(4, np.nan)):
        _, sources = TableReader(unknown, agreed=agreed).load({"north": WARD | {"sex": nothing}})
        rows = sources["north"].transitions.observations
        assert sources["north"].observation_columns == ("hr", "sex=f", "sex=m", "sex=other")
        assert rows.tolist() == [[hr, 0, 0, 1] for hr in (80, 81, 90, 91)]


def test_columns_too_few_and_too_many_are_named(agreed):
    less = refusal(agreed, WARD, observations=["hr"])
    assert "north: sex: is missing, but all clients agreed on this column." in less
    more = refusal(agreed, WARD | {"age": [30.0, 30.0, 60.0, 60.0]}, observations=["hr", "sex", "age"])
    assert "north: age: is a column that the clients did not agree on." in more


def test_actions_of_another_kind_are_refused(agreed):
    numbers = WARD | {"drug": [0.5, 1.5, 2.5, 3.5]}
    assert "north: drug: holds numbers, but all clients agreed on choices." in refusal(
        agreed, numbers, numbers=["drug"]
    )
    said = refusal(agreed, WARD | {"drug": ["b", "c", "b", "b"]})
    assert "north: drug: holds 'c', which is none of the actions: a, b." in said


def test_continuous_actions_are_those_agreed_on():
    dosed = WARD | {"drug": [0.5, 1.5, 2.5, 3.5], "oxygen": [1.5, 2.5, 3.5, 4.5]}
    agreed = TableReader(COLUMNS).load({"ward": dosed})[0]
    assert agreed.choices is None
    assert by(agreed, dosed).transitions.actions.tolist() == [[0.5], [1.5], [2.5], [3.5]]
    other = "is not the action that all clients agreed on."
    assert f"north: drug: {other}" in refusal(agreed, WARD)
    assert f"north: oxygen: {other}" in refusal(agreed, dosed, action="oxygen")


def test_a_table_of_single_rows_that_were_cut_off_holds_no_step(agreed):
    said = refusal(agreed, WARD | {"who": ["a", "b", "c", "d"], "died": [0, 0, 0, 0]})
    assert "every episode is a single row that was cut off" in said
