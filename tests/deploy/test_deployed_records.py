"""Policies that were trained on tables take raw records, as an ONNX file and over HTTP as in Python."""

import json
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from deploy.made_policies import make_policy
from fova.deploy.answers import Answers
from fova.deploy.export import export_onnx
from fova.deploy.graph import REFUSED, policy_model
from fova.errors import FovaError
from fova.policy import load_policy
from fova.recipe import Input, Recipe, label
from fova.spaces import Space

RECIPE = Recipe(
    (
        Input("hr"),
        Input("lactate", "mean", mean=1.5),
        Input("ward", "unknown", categories=("north", "south", "3")),
        Input("mean", "carry"),  # a name that the graph uses inside
        Input("sex", categories=("f", "m")),
    )
)
MEAN = np.float32([80, 1.5, 0.1, 0.4, 0.4, 0.1, 0.1, 65, 0.5, 0.45, 0.05])
STD = np.float32([15, 0.5, 0.3, 0.5, 0.5, 0.3, 0.3, 10, 0.5, 0.5, 0.2])
RECORDS = [
    {"hr": 80.0, "lactate": 1.2, "ward": "north", "mean": 65.0, "sex": "f"},
    {"hr": 95.0, "lactate": None, "ward": "south", "mean": 50.0, "sex": "m"},
    {"hr": 60.0, "lactate": 4.0, "ward": "3", "mean": 71.0, "sex": "m"},
    {"hr": 60.5, "lactate": 4.0, "ward": "west", "mean": 71.0, "sex": "x"},
    {"hr": 101.0, "lactate": None, "ward": None, "mean": 80.0, "sex": "f"},
]


def table_policy(kind="clipped", recipe=RECIPE):
    """A policy whose first layer takes the encoded record."""
    policy = make_policy(kind, seed=4)
    first = np.random.default_rng(0).normal(size=(recipe.width, 8)).astype(np.float32)
    normaliser = {"observation_mean": MEAN[: recipe.width], "observation_std": STD[: recipe.width]}
    weights = policy.weights | normaliser | {"layers.0.weight": first}
    return replace(policy, weights=weights, space=Space(recipe.width, policy.space.action), inputs=recipe)


def feed(records):
    """Records as inputs of the ONNX graph."""
    given = {}
    for each in RECIPE.inputs:
        values = [record[each.name] for record in records]
        if each.categories is None:
            given[each.name] = np.array([np.nan if value is None else value for value in values], np.float32)
        else:
            given[each.name] = np.array([value or "" for value in values], object)
    return given


def session(content):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # failures are expected
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("kind", ["clipped", "categorical"])
def test_onnxruntime_takes_the_records_that_the_saved_policy_takes(tmp_path, kind):
    table_policy(kind).save(tmp_path / "policy.safetensors")
    policy = load_policy(tmp_path)
    assert export_onnx(policy, tmp_path / "policy.onnx") < 1e-5
    running = session(str(tmp_path / "policy.onnx"))
    assert [each.name for each in running.get_inputs()] == ["hr", "lactate", "ward", "mean", "sex"]
    for records in (RECORDS, RECORDS[1:2]):
        action, valid = running.run(["action", "valid"], feed(records))
        np.testing.assert_allclose(action, policy(records), rtol=1e-5, atol=1e-5)
        assert valid.all()
    assert running.run(["valid"], feed([]))[0].shape == (0,)
    assert json.loads(running.get_modelmeta().custom_metadata_map["inputs"]) == RECIPE.to_json()


@pytest.mark.parametrize(
    ("name", "bad"),
    [("hr", None), ("hr", np.inf), ("hr", 1e30), ("mean", None), ("lactate", np.inf), ("sex", None), ("sex", "")],
)
def test_values_that_the_recipe_does_not_replace_are_refused(name, bad):
    policy = table_policy()
    records = [*RECORDS[:2], RECORDS[2] | {name: bad}]
    with pytest.raises(FovaError):
        policy(records)
    with pytest.raises(Exception, match=REFUSED):
        session(policy_model(policy).SerializeToString()).run(["action"], feed(records))
    flagged = session(policy_model(policy, "flag").SerializeToString())
    action, valid = flagged.run(["action", "valid"], feed(records))
    assert valid.tolist() == [True, True, False]
    assert np.isnan(action[2]).all()
    np.testing.assert_allclose(action[:2], policy(records[:2]), rtol=1e-5, atol=1e-5)


# Each of these stands for no value in a column of categories; -9 because the recipe declares it.
NO_CATEGORY = (None, float("nan"), "", " ", "          ", "nan", "-9", -9, -9.0)


def marked(missing):
    """A recipe whose columns have a mark of missing values: a category, and a number that is treated likewise."""
    number = Input("lactate", "mean", mean=1.5, na=("-9", "?")) if missing == "unknown" else Input("hr", na=("-9",))
    return Recipe((number, Input("ward", missing, categories=("north", "3", "-9"), na=("-9",)), Input("bmi")))


def three_answers(policy, record):
    """The action of a record in Python, over HTTP and by ONNX Runtime; None where it is refused."""
    given = {}
    for each in policy.inputs.inputs:
        value = record[each.name]
        if each.categories is None:
            given[each.name] = np.array([np.nan if value is None else value], np.float32)
        else:
            given[each.name] = np.array([label(value) if isinstance(value, int | float) else value or ""], object)
    for name, value in record.items():  # JSON has no NaN
        record = record | {name: None if value != value else value}
    running = session(policy_model(policy).SerializeToString())
    ways = (
        lambda: policy(record),
        lambda: Answers(policy).act(json.dumps({"observation": record}).encode())["action"],
        lambda: running.run(["action"], given)[0][0],
    )
    answers = []
    for way in ways:
        try:
            answers.append(np.array(way(), np.float32))
        except (FovaError, InvalidArgument):  # the latter is ONNX Runtime's
            answers.append(None)
    return answers


@pytest.mark.parametrize("missing", ["refuse", "carry", "unknown"])
@pytest.mark.parametrize("value", NO_CATEGORY, ids=repr)
def test_a_category_without_a_value_is_an_error_or_the_unknown_place_everywhere(missing, value):
    policy = table_policy(recipe=marked(missing))
    first = policy.inputs.inputs[0].name
    answers = three_answers(policy, {first: 1.0, "ward": value, "bmi": 25.0})
    if missing != "unknown":
        assert answers == [None, None, None]
        return
    unknown_place = policy({first: 1.0, "ward": "a ward that no client had", "bmi": 25.0})
    for answer in answers:
        np.testing.assert_allclose(answer, unknown_place, rtol=1e-5, atol=1e-6)


def test_a_number_that_marks_a_missing_one_is_replaced_or_refused_everywhere():
    policy = table_policy(recipe=marked("unknown"))
    record = {"lactate": -9, "ward": "north", "bmi": 25.0}
    by_the_mean = policy(record | {"lactate": None})
    for answer in three_answers(policy, record):
        np.testing.assert_allclose(answer, by_the_mean, rtol=1e-5, atol=1e-6)
    assert not np.allclose(by_the_mean, policy(record | {"lactate": -9.5}), atol=1e-6)
    refusing = table_policy(recipe=marked("refuse"))
    record = {"hr": -9, "ward": "north", "bmi": 25.0}
    assert three_answers(refusing, record) == [None, None, None]
    with pytest.raises(FovaError, match="hr is -9 in record 0, which stands for a missing value"):
        refusing(record)
    assert all(answer is not None for answer in three_answers(refusing, record | {"hr": 80}))


def test_the_marks_of_missing_values_travel_with_the_policy(tmp_path):
    policy = table_policy(recipe=marked("refuse"))
    policy.save(tmp_path / "policy.safetensors")
    assert load_policy(tmp_path).inputs == policy.inputs
    assert all("na" not in each for each in RECIPE.to_json())


def test_a_column_with_the_name_of_an_output_is_refused():
    for name in ("action", "valid", "/mean"):
        with pytest.raises(FovaError, match="cannot be the name of an input"):
            policy_model(table_policy(recipe=Recipe((Input(name), *RECIPE.inputs[1:]))))


def test_the_command_names_the_columns(tmp_path, fova_command):
    table_policy().save(tmp_path / "policy.safetensors")
    code, out, err = fova_command("export", tmp_path)
    assert (code, err) == (0, "")
    assert "takes    hr, lactate, ward, mean, sex\n" in out


# --- The service ---


def act(request, **options):
    return Answers(table_policy(), **options).act(json.dumps(request).encode())


def test_the_service_answers_records():
    answers = act({"observations": RECORDS})["answers"]
    np.testing.assert_allclose([each["action"] for each in answers], table_policy()(RECORDS), rtol=1e-5)
    assert act({"observation": RECORDS[0]}) == answers[0]
    assert [each["warnings"] for each in answers[:3]] == [[], [], []]
    assert answers[3]["warnings"] == [
        "ward is 'west', which is in no client's data",
        "sex is 'x', which is in no client's data",
    ]
    assert answers[4]["warnings"] == []
    far = act({"observation": RECORDS[0] | {"hr": 800}})
    assert far["warnings"] == ["hr is 800, 48.0 standard deviations from the mean of the training data"]
    assert act({"observation": RECORDS[3] | {"hr": 800}}, warn_beyond=0)["warnings"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hr": None}, "hr is missing in record 0"),
        ({"hr": "80"}, "hr of observation 0 is '80', but must be a number"),
        ({"hr": True}, "hr of observation 0 is True, but must be a number"),
        ({"hr": [80]}, "hr of observation 0 is [80], but must be a number"),
        ({"hr": 10**400}, "hr of observation 0 is too large"),
        ({"hr": 1e300}, "finite"),
        ({"ward": ["north"]}, "ward of observation 0 is ['north'], but must be a text or a number"),
        ({"ward": {"a": 1}}, "but must be a text or a number"),
        ({"sex": None}, "sex is missing in record 0"),
        ({"sex": ""}, "sex is '' in record 0, which stands for a missing value"),
        ({"age": 3}, "'age', which the policy does not know"),
    ],
)
def test_records_that_are_wrong_are_refused_by_name(change, words):
    with pytest.raises(FovaError) as refused:
        act({"observation": RECORDS[0] | change})
    assert words in str(refused.value)


def test_a_column_that_is_left_out_and_a_list_are_refused():
    with pytest.raises(FovaError, match="lacks 'hr'"):
        act({"observation": {name: value for name, value in RECORDS[0].items() if name != "hr"}})
    with pytest.raises(FovaError, match="must be an object with hr, lactate, ward, mean, sex"):
        act({"observation": [1, 2, 3]})


def test_the_schema_names_the_columns():
    observation = Answers(table_policy()).schema()["$defs"]["observation"]
    assert observation["required"] == ["hr", "lactate", "ward", "mean", "sex"]
    assert observation["properties"]["hr"] == {"type": ["number"]}
    assert observation["properties"]["lactate"] == {"type": ["number", "null"]}
    assert observation["properties"]["ward"]["examples"] == ["north", "south", "3"]
