import numpy as np
import pandas
import polars
import pyarrow
import pytest

from fova.errors import FovaError
from fova.recipe import Input, Recipe

RECIPE = Recipe(
    (
        Input("hr"),
        Input("lactate", "mean", 1.5),
        Input("ward", "unknown", None, ("A", "B")),
        Input("age", "carry"),
    )
)
RECORD = {"hr": 80, "lactate": 2.0, "ward": "B", "age": 60}


def test_a_record_becomes_the_numbers_worked_out_by_hand():
    assert RECIPE.places() == ["hr", "lactate", "lactate missing", "ward=A", "ward=B", "ward=other", "age"]
    assert RECIPE.observations(RECORD).tolist() == [80, 2, 0, 0, 1, 0, 60]
    assert RECIPE.observations(RECORD | {"lactate": None, "ward": "C"}).tolist() == [80, 1.5, 1, 0, 0, 1, 60]
    assert RECIPE.observations(RECORD | {"lactate": float("nan"), "ward": None}).tolist() == [
        80,
        1.5,
        1,
        0,
        0,
        1,
        60,
    ]


def test_lists_of_records_and_tables_give_the_same_rows():
    records = [RECORD, RECORD | {"lactate": None, "ward": "A"}]
    rows = RECIPE.observations(records)
    assert rows.tolist() == [[80, 2, 0, 0, 1, 0, 60], [80, 1.5, 1, 1, 0, 0, 60]]
    for table in (pandas.DataFrame(records), polars.DataFrame(records), pyarrow.Table.from_pylist(records)):
        np.testing.assert_array_equal(RECIPE.observations(table), rows)


def test_other_columns_of_a_table_are_not_looked_at():
    log = pandas.DataFrame([RECORD | {"patient_id": 7, "hour": 3}])
    assert RECIPE.observations(log).tolist() == RECIPE.observations([RECORD]).tolist()
    with pytest.raises(FovaError, match="The table lacks 'ward' and has 'patient_id', 'hour', which"):
        RECIPE.observations(log.drop(columns="ward"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hr": None}, "hr is missing in record 0. The policy was trained without missing values of it"),
        ({"age": None}, "the last known value of the episode was carried forward"),
        ({"hr": "fast"}, "hr is 'fast' in record 0, but must be a number"),
        ({"hr": float("inf")}, "must be a finite number"),
        ({"pulse": 3}, "The record has 'pulse', which the policy does not know"),
    ],
)
def test_what_cannot_be_encoded_is_refused_in_words(change, words):
    with pytest.raises(FovaError) as refused:
        RECIPE.observations(RECORD | change)
    assert words in str(refused.value)


def test_missing_fields_are_named():
    with pytest.raises(FovaError, match="The record lacks 'lactate', 'age' and has 'agee'"):
        RECIPE.observations({"hr": 80, "ward": "A", "agee": 3})


def test_categories_may_be_numbers_or_texts():
    recipe = Recipe((Input("ward", "refuse", None, ("3", "true")),))
    for value in (3, 3.0, np.int64(3), "3"):
        assert recipe.observations({"ward": value}).tolist() == [1, 0, 0]
    assert recipe.observations({"ward": True}).tolist() == [0, 1, 0]


def test_a_recipe_survives_json_and_anything_else_is_refused():
    assert Recipe.from_json(RECIPE.to_json()) == RECIPE
    for content in (None, [], [{"name": 3, "missing": "refuse"}], [{"name": "a", "missing": "refuse", "x": 1}]):
        with pytest.raises(FovaError):
            Recipe.from_json(content)
    with pytest.raises(FovaError, match="categories have no mean"):
        Recipe.from_json([{"name": "a", "missing": "mean", "mean": 1.0, "categories": ["x"]}])
