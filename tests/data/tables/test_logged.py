"""The rows of a table, checked and in order: gaps, choices, and numbers that mark missing values."""

import numpy as np
import pytest

from fova.data.tables.columns import Columns
from fova.data.tables.logged import read, sentinel_in
from fova.data.tables.values import Coded
from fova.errors import FovaError
from fova.recipe import Input

COLUMNS = {
    "episode": "who", "time": "hour", "observations": ["hr"], "action": "dose", "reward": "pay", "terminal": "none",
}  # fmt: skip
ROWS = {
    "who": ["a", "a", "a", "b", "b"], "hour": [0, 1, 2, 0, 1], "hr": [80.0, 81.0, 82.0, 90.0, 91.0],
    "dose": [0.5, 0.25, 0.75, 1.5, 0.1], "pay": [1.0, 2.0, 3.0, 4.0, 5.0],
}  # fmt: skip


def logged(columns=None, **changes):
    return read(ROWS | (columns or {}), Columns.of(COLUMNS | changes), "north")


def refusal(columns=None, **changes):
    with pytest.raises(FovaError) as refused:
        logged(columns, **changes)
    return str(refused.value)


def test_observations_are_encoded_by_the_agreed_recipe():
    found = logged({"ward": ["B", "A", "B", "C", "A"]}, observations=["hr", "ward"])
    inputs = [Input("hr", "refuse", None), Input("ward", "refuse", None, ("A", "B"))]
    # the heart rate, A, B, any other ward
    assert found.encode(inputs).tolist() == [
        [80, 0, 1, 0], [81, 1, 0, 0], [82, 0, 1, 0], [90, 0, 0, 1], [91, 1, 0, 0],
    ]  # fmt: skip
    assert found.notes[-1] == "ward: not in the vocabulary, counted as unknown: 'C'."


# --- Gaps ---


def test_values_are_carried_forward_inside_of_an_episode_only():
    gaps = {"hr": [80.0, None, None, None, 91.0]}
    said = refusal(gaps, missing={"hr": "carry"})
    assert "hr: 1 at the start of episodes, with nothing to carry forward. Fill them in, or use the mean" in said
    found = logged(gaps, missing={"hr": "carry-mean"}).inputs["hr"]
    np.testing.assert_array_equal(found, np.array([80, 80, 80, np.nan, 91], np.float32))
    inner = logged({"hr": [80.0, None, None, 90.0, None]}, missing={"hr": "carry"}).inputs["hr"]
    assert inner.tolist() == [80, 80, 80, 90, 90]
    as_given = logged(gaps, missing={"hr": "mean"}).inputs["hr"]
    np.testing.assert_array_equal(as_given, np.array([80, np.nan, np.nan, np.nan, 91], np.float32))


def test_categories_are_carried_forward_too():
    wards = {"ward": ["B", None, "A", None, "B"]}
    said = refusal(wards, observations=["ward"], missing={"ward": "carry"})
    assert "ward: 1 at the start of episodes, with nothing to carry forward. Fill them in" in said
    assert "the mean" not in said
    found = logged({"ward": ["B", None, "A", "A", None]}, observations=["ward"], missing={"ward": "carry"})
    assert found.inputs["ward"].codes.tolist() == [1, 1, 0, 0, 0]
    assert "ward: 2 missing. Say what to do: --missing ward=... (carry or unknown)" in refusal(
        wards, observations=["ward"]
    )


def test_gaps_are_counted_by_column():
    said = refusal({"hr": [80.0, None, None, 90.0, 91.0]})
    assert "north: values are missing in 1 column (5 rows):" in said
    assert "  - hr: 2 missing. Say what to do: --missing hr=... (carry, mean or carry-mean)" in said


def test_rewards_and_actions_have_no_gaps():
    assert "pay: row 1 has no value (1 of 5 rows). Write 0 where a step earned nothing." in refusal(
        {"pay": [1.0, None, 3.0, 4.0, 5.0]}
    )
    for doses in ([0.5, None, 0.75, 1.5, 0.1], ["x", None, "y", "x", "y"]):
        assert "dose: row 1 has no value (1 of 5 rows). An unknown action cannot" in refusal({"dose": doses})


def test_a_mark_of_missing_values_among_decimal_commas_is_read_as_one(tmp_path):
    file = tmp_path / "north.csv"
    file.write_text("who;hour;hr;dose;pay\na;1;1,5;0,5;1\na;2;n/v;0,75;0\na;3;n/v;0,5;0\n")
    found = read(file, Columns.of(COLUMNS | {"na": ["n/v"], "missing": {"hr": "carry"}}))
    assert found.inputs["hr"].tolist() == [1.5, 1.5, 1.5]
    assert "Numbers are written with a decimal comma." in found.notes
    assert not any("n/v" in note for note in found.notes)


# --- Actions ---


def test_whole_numbers_and_texts_are_choices():
    for doses in ([3, 1, 3, 1, 3], ["b", "a", "b", "a", "b"], [True, False, True, False, True]):
        actions = logged({"dose": doses}).actions
        assert isinstance(actions, Coded)
        assert actions.codes.tolist() == [1, 0, 1, 0, 1]
    assert logged({"dose": [3, 1, 3, 1, 3]}, numbers=["dose"]).actions[:, 0].tolist() == [3, 1, 3, 1, 3]
    assert logged({"dose": ["0.5", "1", "2", "1", "3.5"]}).actions[:, 0].tolist() == [0.5, 1, 2, 1, 3.5]


def test_decimal_numbers_that_may_be_codes_are_asked_about():
    whole = {"dose": [1.0, 2.0, 1.0, 2.0, 1.0]}
    assert "holds only whole numbers (2 different ones)" in refusal(whole)
    assert logged(whole, numbers=["dose"]).actions.shape == (5, 1)
    assert logged(whole, categories=["dose"]).actions.names == ("1", "2")

    def many(count):
        rows = {"who": ["a"] * count, "hour": range(count), "hr": [80.0] * count, "pay": [1.0] * count}
        return rows | {"dose": [float(i) for i in range(count)]}

    assert "50 different ones" in refusal(many(50))
    assert logged(many(51)).actions.shape == (51, 1)


def test_several_actions_are_columns_of_numbers():
    two = {"drug": [1.5, 2.5, 3.5, 4.5, 5.5]}
    assert logged(two, action=["dose", "drug"]).actions[1].tolist() == [0.25, 2.5]
    assert "is a choice among values, and there are 2 action columns" in refusal(
        {"drug": ["x", "y", "x", "y", "x"]}, action=["dose", "drug"]
    )


def test_actions_are_sorted_with_their_rows():
    turned = {name: values[::-1] for name, values in ROWS.items()}
    found = logged(turned)
    assert found.rewards.tolist() == [4, 5, 1, 2, 3]  # b comes first
    assert found.actions[:, 0].tolist() == pytest.approx([1.5, 0.1, 0.5, 0.25, 0.75])
    assert found.inputs["hr"].tolist() == [90, 91, 80, 81, 82]
    assert len(found) == 5


# --- Notes ---


def test_what_is_not_used_is_said():
    extra = {f"lab{i}": [1.5] * 5 for i in range(9)}
    assert logged().notes == []
    assert logged({"lab0": [1.5] * 5}).notes == ["Not used: lab0."]
    eight = ", ".join(f"lab{i}" for i in range(8))
    assert logged({name: extra[name] for name in list(extra)[:8]}).notes == [f"Not used: {eight}."]
    assert logged(extra).notes == [f"Not used: {eight} and 1 more."]


def test_a_reward_among_the_observations_is_noted():
    notes = logged(observations=["hr", "pay"]).notes
    assert "pay is the reward and also an observation. It must be known before the action." in notes


def test_the_first_six_names_of_a_category_are_listed():
    def note(count):
        wards = [f"w{i}" for i in range(count)] * 2
        rows = {"who": ["a"] * len(wards), "hour": range(len(wards)), "ward": wards}
        rows |= {name: [0.5] * len(wards) for name in ("dose", "pay")}
        return read(rows, Columns.of(COLUMNS | {"observations": ["ward"]}), "north").notes[0]

    assert note(6) == "ward is text, read as a category: w0, w1, w2, w3, w4, w5."
    assert note(7) == "ward is text, read as a category: w0, w1, w2, w3, w4, w5, ...."


# --- Numbers that mark missing values ---


def sentinel(*values):
    return sentinel_in(np.array(values, np.float32))


def test_a_number_far_from_all_others_may_mark_missing_values():
    assert sentinel(80, -999, 85, -999, np.nan) == (-999.0, 2, 80.0, 85.0)
    assert sentinel(80, 9999, 85) == (9999.0, 1, 80.0, 85.0)
    assert sentinel(-999, -999) is None  # there are no others
    assert sentinel(80, -998, 85) is None  # nobody marks anything with it
    assert sentinel(-999, -500, 900) is None  # the others are spread as widely
    assert sentinel(np.nan) is None


def test_the_gap_must_be_wider_than_the_values_and_than_ten():
    assert sentinel(99, 89, 88.5) is None  # 10 away
    assert sentinel(99, 88.5, 88) == (99.0, 1, 88.0, 88.5)
    assert sentinel(-99, -89, -88.5) is None
    assert sentinel(-99, -50, -1) is None  # 49 away from values that are 49 apart
    assert sentinel(-99, -49, -1) == (-99.0, 1, -49.0, -1.0)


@pytest.mark.parametrize("mark", [-99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0])
def test_numbers_that_people_use_as_marks(mark):
    assert sentinel(0.5, mark, 0.25) == (mark, 1, 0.25, 0.5)


def test_marks_are_asked_about_unless_the_mapping_says_what_they_are():
    marked = {"hr": [80.0, -999.0, 82.0, 90.0, 91.0]}
    assert "hr: holds -999 in 1 row, far from its other values (80 to 91)." in refusal(marked)
    assert logged(marked, na="none").inputs["hr"].min() == -999
    rewards = {"pay": [1.0, -999.0, 3.0, 4.0, 5.0]}
    assert "pay: holds -999 in 1 row" in refusal(rewards)
