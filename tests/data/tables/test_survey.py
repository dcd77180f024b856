"""What clients tell about their columns and what they agree on, with numbers worked out by hand."""

import numpy as np
import pytest

from fova.data.tables.columns import Columns
from fova.data.tables.logged import read
from fova.data.tables.survey import Agreement, Survey, Told, agree, for_task, stated, survey
from fova.errors import FovaError
from fova.spaces import Box, Discrete

COLUMNS = {
    "episode": "who", "time": "hour", "observations": ["hr", "ward"], "action": "dose", "reward": "pay",
    "terminal": "none",
}  # fmt: skip
ROWS = {
    "who": ["a", "a", "a"], "hour": [0, 1, 2], "hr": [80.0, None, 85.0], "ward": ["B", "A", "B"],
    "dose": [0.5, 0.25, 0.75], "pay": [1.0, 2.0, 3.0],
}  # fmt: skip
MEAN = {"missing": {"hr": "mean"}}


def told(columns=None, **changes):
    mapping = Columns.of(COLUMNS | MEAN | changes)
    return survey(read(ROWS | (columns or {}), mapping, "north"), mapping)


def refusal(call, *arguments):
    with pytest.raises(FovaError) as refused:
        call(*arguments)
    return str(refused.value)


def test_a_client_tells_sums_and_vocabularies_and_nothing_else():
    found = told()
    assert found.inputs == {"hr": Told("number", (), 2, 165.0), "ward": Told("category", ("A", "B"))}
    assert found.actions == {"dose": Told("number")}
    given = told(missing={"hr": "mean:80"}, categories={"ward": ["A", "B"]})
    assert given.inputs == {"hr": Told("number"), "ward": Told("category")}  # nobody asks for what is given
    assert told({"hr": np.full(3, np.nan)}).inputs["hr"] == Told("empty")
    assert told({"dose": ["x", "y", "x"]}).actions == {"dose": Told("category", ("x", "y"))}


def test_a_survey_survives_a_message():
    found = told()
    assert Survey.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "lie",
    [
        {"kind": "secret"},
        {"values": [1]},
        {"count": -1},
        {"total": float("nan")},
        {"values": [str(i) for i in range(1001)]},
        {"count": None},
    ],
)
def test_a_survey_that_cannot_be_is_refused(lie):
    content = told().to_json()
    content["inputs"]["hr"] |= lie
    assert refusal(Survey.from_json, content) == "its survey of columns cannot be read"


def test_the_most_that_a_survey_may_tell():
    content = told().to_json()
    content["inputs"]["ward"] |= {"values": [str(i) for i in range(1000)], "count": 0}
    assert len(Survey.from_json(content).inputs["ward"].values) == 1000


# --- The agreement ---


def agreed(*surveys, **changes):
    return agree({f"client {i}": each for i, each in enumerate(surveys)}, Columns.of(COLUMNS | MEAN | changes))


def test_the_mean_is_that_of_all_rows_and_the_vocabulary_that_of_all_clients():
    other = told({"hr": [70.0, 71.0, None], "ward": ["10", "b", "A"]})
    found = agreed(told(), other)
    hr, ward = found.recipe.inputs
    assert hr.mean == pytest.approx((165 + 141) / 4)
    assert ward.categories == ("10", "A", "B", "b")
    assert (found.actions, found.choices) == (("dose",), None)
    assert Agreement.from_json(found.to_json()) == found


def test_a_given_mean_and_vocabulary_are_kept():
    given = {"missing": {"hr": "mean:80"}, "categories": {"ward": ["C", "A"]}}
    hr, ward = agreed(told(**given), **given).recipe.inputs
    assert hr.mean == 80.0
    assert ward.categories == ("C", "A")


def test_marks_of_missing_values_that_are_no_numbers_concern_categories_only():
    hr, ward = agreed(told(na="-999,?"), na="-999,?").recipe.inputs
    assert (hr.na, ward.na) == (("-999",), ("-999", "?"))


def test_choices_are_those_of_all_clients():
    first, second = told({"dose": ["x", "y", "x"]}), told({"dose": ["z", "y", "z"]})
    found = agreed(first, second)
    assert (found.actions, found.choices) == (("dose",), ("x", "y", "z"))
    assert Agreement.from_json(found.to_json()) == found


def test_clients_that_do_not_fit_are_named():
    nothing = told({"hr": np.full(3, np.nan)})
    columns = Columns.of(COLUMNS | MEAN)
    assert "hr: no client has a single value of it" in refusal(agree, {"a": nothing, "b": nothing}, columns)
    assert agreed(nothing, told()).recipe.inputs[0].mean == pytest.approx(82.5)
    choice = told({"dose": ["x", "y", "x"]})
    assert "a choice at one of the clients 'a' and 'b'" in refusal(agree, {"b": choice, "a": told()}, columns)
    wards = told({"ward": [1.0, 2.0, 1.0]})
    assert "ward: it holds numbers at client 'b' and text at client 'a'" in refusal(
        agree, {"a": told(), "b": wards}, columns
    )
    less = told(observations=["hr"])
    assert "Client 'a' has the column 'ward', but client 'b' does not" in refusal(
        agree, {"a": told(), "b": less}, columns
    )
    assert "Client 'b' has the column 'ward', but client 'a' does not" in refusal(
        agree, {"a": less, "b": told()}, columns
    )


# --- Where clients tell nothing ---


def test_a_mapping_that_says_everything_needs_no_client():
    given = {"missing": {"hr": "mean:80"}, "categories": {"ward": ["A", "B"], "dose": ["x", "y"]}}
    found = stated(Columns.of(COLUMNS | given))
    assert [each.name for each in found.recipe.inputs] == ["hr", "ward"]
    assert found.choices == ("x", "y")


def test_what_a_mapping_leaves_open_is_asked_for():
    assert "'lab_*' is a pattern" in refusal(stated, Columns.of(COLUMNS | {"observations": ["lab_*"]}))
    assert "ward: under privacy clients tell nothing" in refusal(
        stated, Columns.of(COLUMNS | {"categories": ["ward"]})
    )
    assert "give its mean, as in hr = mean:1.8" in refusal(stated, Columns.of(COLUMNS | MEAN))
    both = {"action": ["dose", "drug"], "categories": {"drug": ["x", "y"]}}
    assert "Several choices at once are not supported" in refusal(stated, Columns.of(COLUMNS | both))


# --- Actions of a task ---


def choosing(*choices):
    return agreed(told({"dose": list(choices)}))


def test_choices_take_the_order_of_the_tasks_actions():
    action = Discrete(("up", "down", "stay"))
    assert for_task(choosing("down", "up", "up"), "maze", action).choices == ("up", "down", "stay")
    assert for_task(choosing(0, 2, 2), "maze", action).choices == ("0", "1", "2")
    said = refusal(for_task, choosing("up", "left", "up"), "maze", action)
    assert "dose: it holds 'left', which is no action of maze. Its 3 actions are up, down, stay." in said
    assert "or their codes 0 to 2 in this order" in said
    assert "it holds '3'" in refusal(for_task, choosing(0, 3, 0), "maze", action)
    box = Box(np.array([-1.0]), np.array([1.0]))
    assert "dose: it is read as a choice among 2 actions (x, y), but maze has" in refusal(
        for_task, choosing("x", "y", "x"), "maze", box
    )
    numbers = agreed(told())
    assert for_task(numbers, "maze", action) is numbers


def test_long_lists_of_actions_are_cut():
    def said(count):
        return refusal(for_task, choosing("?", "!", "?"), "maze", Discrete(tuple(f"a{i:02}" for i in range(count))))

    assert "a24. Use these names" in said(25)
    assert "a24, .... Use these names" in said(26)
