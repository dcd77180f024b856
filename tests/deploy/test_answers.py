"""The service's answers without HTTP: what is a request, what is refused, what is warned about."""

import json

import numpy as np
import pytest

from deploy.made_policies import CHOICE, MEAN, STD, make_policy, observations
from fova.deploy.answers import Answers, NotJSON
from fova.errors import FovaError


def act(request, **options):
    return Answers(make_policy(), **options).act(
        request if isinstance(request, bytes) else json.dumps(request).encode()
    )


def test_one_observation_and_many_have_the_policys_actions():
    rows = observations(3)
    expected = make_policy()(rows)
    np.testing.assert_allclose(act({"observation": rows[1].tolist()})["action"], expected[1], rtol=1e-5)
    answers = act({"observations": rows.tolist()})["answers"]
    np.testing.assert_allclose([answer["action"] for answer in answers], expected, rtol=1e-5)
    assert act({"observations": []}) == {"answers": []}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (None, "with one entry, 'observation' or 'observations'. It is None"),
        ([1, 2, 3], "It is [1, 2, 3]"),
        ({}, "It has none"),
        ({"observation": [1, 2, 3], "seed": 1}, "It has 'observation', 'seed'"),
        ({"observation": [1, 2]}, "Observation 0 must be a list of 3 numbers, but is a list of 2"),
        ({"observation": "1, 2, 3"}, "but is '1, 2, 3'"),
        ({"observation": {"hr": 80}}, "Observation 0 must be a list"),
        ({"observations": {"0": [1, 2, 3]}}, "'observations' must be a list"),
        ({"observations": [1, 2, 3]}, "Observation 0 must be a list of 3 numbers, but is 1"),
        (
            {"observations": [[1, 2, 3], [1, 2, 3, 4]]},
            "Observation 1 must be a list of 3 numbers, but is a list of 4",
        ),
        ({"observation": [1, "2", 3]}, "Column 1 of observation 0 is '2', but must be a number"),
        ({"observation": [True, 2, 3]}, "Column 0 of observation 0 is True, but must be a number"),
        ({"observation": [1, 2, [3]]}, "Column 2 of observation 0 is [3], but must be a number"),
        ({"observations": [[1, 2, 3], [1, 2, None]]}, "Column 2 of observation 1 is missing"),
        ({"observation": [1, 2, 10**400]}, "too large"),
        ({"observation": [1, 2, 1e300]}, "finite numbers, but column 2 of observation 0 is inf"),
        ({"observation": [1, 2, 1e30]}, "Column 2 of observation 0 is 1e+30, too large"),
        (b'{"observation": [1, 2, 1e999]}', "column 2 of observation 0 is inf"),
    ],
)
def test_what_is_no_observation_is_refused_with_its_place(request_, words):
    with pytest.raises(FovaError) as refused:
        act(request_)
    assert words in str(refused.value)
    assert not isinstance(refused.value, NotJSON)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"observation=1", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"observation": [1, 2, NaN]}', "holds NaN"),
        (b'{"observation": [1, -Infinity, 2]}', "holds -Infinity"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b'{"observation": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b'{"observation": [1, 2, 3], "observation": [4, 5, 6]}', "names 'observation' twice"),
    ],
)
def test_what_is_no_json_is_refused(body, words):
    with pytest.raises(NotJSON, match=words):
        act(body)


def test_discrete_actions_have_their_names_and_probabilities():
    policy, rows = make_policy("categorical"), observations(5)
    answers = Answers(policy)
    replies = answers.act(json.dumps({"observations": rows.tolist()}).encode())["answers"]
    assert [reply["code"] for reply in replies] == policy(rows).tolist()
    assert [reply["action"] for reply in replies] == [CHOICE.action.names[code] for code in policy(rows)]
    given = [[reply["probabilities"][name] for name in CHOICE.action.names] for reply in replies]
    np.testing.assert_allclose(given, policy.probabilities(rows), rtol=1e-5)
    answer = answers.schema()["$defs"]["answer"]["properties"]
    assert answer["action"] == {"enum": ["nothing", "fluids", "vasopressor"]}
    assert answer["code"]["maximum"] == 2
    assert set(replies[0]) == set(answer)


def test_warnings_name_the_columns_far_from_the_training_data():
    far, near = MEAN + STD * [0, 0, 6.04], MEAN + STD * [-4.9, 4.9, 4.9]
    first, second = act({"observations": [far.tolist(), near.tolist()]})["answers"]
    assert first["warnings"] == ["column 2 is 150.6, 6.0 standard deviations from the mean of the training data"]
    assert second["warnings"] == []
    assert len(act({"observation": near.tolist()}, warn_beyond=4.8)["warnings"]) == 3
    assert act({"observation": far.tolist()}, warn_beyond=0)["warnings"] == []


def test_a_policy_without_a_normaliser_knows_no_training_data():
    answers = Answers(make_policy(normaliser=False))
    assert answers.act(b'{"observation": [1e6, 0, 0]}')["warnings"] == []
    assert answers.health()["warns_beyond_standard_deviations"] is None
    assert Answers(make_policy()).health()["warns_beyond_standard_deviations"] == 5.0


def test_the_schema_bounds_what_comes_and_goes():
    schema = Answers(make_policy()).schema()
    observation, answer = schema["$defs"]["observation"], schema["$defs"]["answer"]
    assert (observation["minItems"], observation["maxItems"]) == (3, 3)
    columns = answer["properties"]["action"]["prefixItems"]
    assert [(column["minimum"], column["maximum"]) for column in columns] == [(-1, 3), (0, 10)]
    assert [set(each["properties"]) for each in schema["request"]["oneOf"]] == [{"observation"}, {"observations"}]
