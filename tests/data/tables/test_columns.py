"""The mapping from roles to columns: what is read, what is refused, and which columns a pattern takes."""

import tomllib

import pytest
import tomli_w

from fova.data.tables.columns import Columns, quoted
from fova.errors import FovaError

GIVEN = {
    "episode": "who", "time": "hour", "observations": ["hr", "lab_*"], "action": "dose", "reward": "pay",
    "terminal": "died",
}  # fmt: skip
NAMES = ["who", "hour", "hr", "lab_10", "lab_9", "dose", "pay", "died", "Unnamed: 0", "cut"]


def of(**changes):
    return Columns.of(GIVEN | changes)


def refusal(call, *arguments, **changes):
    with pytest.raises(FovaError) as refused:
        call(*arguments, **changes)
    return str(refused.value)


# --- What a user writes ---


def test_texts_tables_and_mappings_say_the_same():
    texts = ["episode=who", "time=hour", "observations=hr,lab_*", "action=dose", "reward=pay", "terminal=died"]
    assert Columns.of(texts) == of()
    assert Columns.of(of()) == of()
    full = of(timeout="cut", categories={"hr": ["1", "2"], "lab_9": None}, numbers=["dose"], na="-999,?")
    full = Columns.of(full.to_table(), ["hr=carry"])
    assert Columns.of(full.to_table()) == full
    assert full.to_table()["categories"] == {"hr": ["1", "2"], "lab_9": "agreed"}
    assert (full.na, full.missing, full.timeout) == (("-999", "?"), {"hr": "carry"}, "cut")


def test_only_what_was_said_is_written():
    assert set(of().to_table()) == set(GIVEN)
    assert of(na="none").to_table()["na"] == "none"
    assert of(na="none").na == ()
    assert of().na is None


def test_further_ways_for_missing_values_join_those_of_the_mapping():
    mapping = GIVEN | {"missing": {"hr": "carry", "lab_9": "mean"}}
    assert Columns.of(mapping, ["hr=mean"]).missing == {"hr": "mean", "lab_9": "mean"}


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["episode"], "columns: 'episode' is not NAME=VALUE"),
        (["=who"], "is not NAME=VALUE"),
        (["episode="], "is not NAME=VALUE"),
        (["episode=a", "episode=b"], "columns: episode is given twice. Join its parts with commas."),
        (["colour=red"], "colour"),
        (["episode=who"], "The columns do not say everything that training must know"),
    ],
)
def test_texts_that_say_nothing_are_refused(texts, reason):
    assert reason in refusal(Columns.of, texts)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"episode": ""}, "columns: episode is"),
        ({"episode": 3}, "must be the name of one column"),
        ({"time": "who"}, "columns: episode and time are both 'who'. Give each its own column."),
        ({"observations": [3]}, "columns: observations is"),
        ({"observations": ["hr", ""]}, "must be names of columns"),
        ({"action": []}, "columns: action names no column. Name at least one, as in action=dose."),
        ({"categories": {"hr": []}}, "columns: the categories of hr are"),
        ({"categories": {"hr": [True]}}, "must be a list of values"),
        ({"categories": ["hr"], "numbers": ["hr"]}, "'hr' is in categories and in numbers"),
        ({"missing": "carry"}, "missing is"),
        ({"missing": {"hr": "guess"}}, "guess"),
        ({"missing": {"hr": "carry:3"}}, "missing: hr=carry:3 is not understood"),
        ({"missing": {"hr": "mean:x"}}, "A mean is given as hr=mean:1.8"),
        ({"na": [True]}, "columns: na is"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(changes, reason):
    assert reason in refusal(of, **changes)


def test_roles_that_a_proposal_left_open_are_named():
    texts = ["episode=who", "time=?", "observations=?", "action=dose", "reward=?", "terminal=?", "na=?"]
    said = refusal(Columns.of, texts)
    assert said.startswith(
        "Replace the ? of time, observations, reward, terminal in --columns:\n  time=  the column"
    )
    assert "\n  reward=  what the step was worth" in said
    assert "Replace the ? of action in" in refusal(of, action=["?"])
    assert of(observations=["?_rate"]).observations == ("?_rate",)


def test_the_time_may_be_none_and_so_may_the_episode():
    assert of(episode="none", time="none").episode == "none"


def test_values_of_categories_are_texts_without_repetitions():
    assert of(categories={"hr": [1, "1", 2.5]}).categories == {"hr": ("1", "2.5")}


def test_names_with_commas_are_quoted():
    assert quoted(["hr, bpm", "map"]) == '"hr, bpm",map'
    assert of(observations='"hr, bpm",map').observations == ("hr, bpm", "map")


# --- Applied to a table ---


def test_every_role_finds_its_column():
    found = of(timeout="cut").resolve(NAMES, "north")
    assert (found.episode, found.time, found.reward) == ("who", "hour", "pay")
    assert found.observations == ("hr", "lab_9", "lab_10")  # a pattern takes them in the order of their numbers
    assert found.actions == ("dose",)
    assert (found.terminal, found.terminal_is_outcome, found.all_ended) == ("died", False, False)
    assert found.timeout == "cut"
    assert not found.reward_is_cost
    assert found.used() == set(NAMES) - {"Unnamed: 0"}


def test_forms_of_the_terminal():
    def terminal(text):
        found = of(terminal=text).resolve(NAMES, "north")
        return found.terminal, found.terminal_is_outcome, found.all_ended

    assert terminal("none") == (None, False, False)
    assert terminal("last") == (None, False, True)
    assert terminal("last:died") == ("died", True, False)


def test_a_terminal_column_may_come_with_the_value_that_means_ended():
    def terminal(text, *more):
        found = of(terminal=text).resolve([*NAMES, *more], "north")
        return found.terminal, found.terminal_value, found.terminal_is_outcome

    assert terminal("died") == ("died", None, False)
    assert terminal("died=yes") == ("died", "yes", False)
    assert terminal("last:died=yes, at home") == ("died", "yes, at home", True)
    assert terminal("died=a=b") == ("died", "a=b", False)
    assert terminal("died=yes", "died=yes") == ("died=yes", None, False)  # a column of this name
    assert terminal("died=yes=1", "died=yes") == ("died=yes", "1", False)
    assert "Did you mean 'died'" in refusal(of(terminal="last:dyed=yes").resolve, NAMES, "north")


@pytest.mark.parametrize("terminal", ["died=yes", "last:died=yes, at home", "last:a=b=1"])
def test_the_value_that_means_ended_is_written_and_read_back(terminal):
    texts = [f"{role}={','.join(names) if isinstance(names, list) else names}" for role, names in GIVEN.items()]
    columns = Columns.of([*texts[:-1], f"terminal={terminal}"])
    assert columns == of(terminal=terminal)
    assert Columns.of(tomllib.loads(tomli_w.dumps(columns.to_table()))) == columns


def test_a_pattern_takes_what_has_no_other_role_and_no_index():
    found = of(observations=["*"]).resolve(NAMES, "north").observations
    assert found == ("cut", "hr", "lab_9", "lab_10")
    twice = of(observations=["lab_9", "lab_*", "hr", "hr"]).resolve(NAMES, "north").observations
    assert twice == ("lab_9", "lab_10", "hr")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reward": "pai"}, "Did you mean 'pay'"),
        ({"observations": ["nothing_*"]}, "nothing_*"),
        ({"observations": ["hr", "dose"]}, "dose: is an observation and also what was done or came of it"),
        ({"observations": ["hr", "died"]}, "died: is an observation and also what was done or came of it"),
        ({"observations": ["hr", "who"]}, "tells episodes apart and is also an observation"),
        ({"categories": ["pay"]}, "pay: is named in categories or numbers, but is no observation or action"),
        ({"numbers": ["hour"]}, "hour: is named in categories or numbers"),
    ],
)
def test_columns_that_do_not_fit_are_named(changes, reason):
    assert reason in refusal(of(**changes).resolve, NAMES, "north")


def test_the_time_and_the_reward_before_may_be_observed():
    assert of(observations=["hour", "pay"]).resolve(NAMES, "north").observations == ("hour", "pay")


def test_an_action_may_be_named_as_a_category():
    assert of(categories=["dose", "hr"]).resolve(NAMES, "north").actions == ("dose",)


def test_the_first_pattern_that_fits_treats_missing_values():
    columns = of(missing={"lab_*": "mean:1.5", "lab_9": "carry", "hr": "carry-mean"})
    assert columns.treatment("lab_9") == ("mean", 1.5)
    assert columns.treatment("hr") == ("carry-mean", None)
    assert columns.treatment("map") == ("refuse", None)
