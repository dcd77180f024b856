"""Arguments of the Python functions that are of the wrong kind: a FovaError that says what is taken."""

import re
from dataclasses import replace

import numpy as np
import pytest

import fova
from fova.errors import FovaError
from fova.machine.listener import Limits
from fova.policy import Policy, stack
from fova.spaces import Space
from hospitals import hospital
from tiny import make_transitions, save_npz

COLUMNS = {
    "episode": "patient_id",
    "time": "hour",
    "observations": ["hr", "map"],
    "action": "dose",
    "reward": "score",
    "terminal": "died",
}
WARD = ["ward.npz"]


def small_policy():
    weights = {"last.weight": np.ones((3, 2), np.float32), "last.bias": np.zeros(2, np.float32)}
    return Policy("deterministic", weights, Space.unit(3, 2))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_npz(tmp_path / "ward.npz", make_transitions(0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"clients": 3}, "clients is a int, but must be a list"),
        ({"clients": {"ward.npz"}}, "clients is a set, but must be a list"),  # its order is not fixed
        ({"clients": hospital(0), "columns": COLUMNS}, "clients is a DataFrame, but must be a list"),
        ({"clients": [hospital(0)], "columns": COLUMNS}, "Data in memory is given by name"),
        ({"clients": [1, 2]}, "A client is a int, but must be a file"),
        ({"clients": [None]}, "A client is a NoneType, but must be a file"),
        ({"clients": {1: "ward.npz", "1": "ward.npz"}}, "Two clients are called '1'"),
        ({"clients": {1: make_transitions(0), "1": make_transitions(0)}}, "Two clients have the same name as text"),
        ({"clients": {"a": make_transitions(0)}, "columns": COLUMNS}, "but these clients hold transitions"),
        ({"clients": {"a": hospital(0).hr}, "columns": COLUMNS}, "is a Series, but must be a file, a pandas"),
        ({"clients": {"a": hospital(0).assign(hr=1j)}, "columns": COLUMNS}, "hr"),
        ({"clients": {"a": hospital(0)}, "columns": 3}, "columns is 3, but must be a table of roles"),
        ({"clients": {"a": hospital(0)}, "columns": "episode=a"}, "columns is 'episode=a', but must be a table"),
        ({"clients": WARD, "task": 3}, "There is no task called 3."),
        ({"clients": WARD, "algorithm": None}, "There is no algorithm called None."),
        ({"clients": WARD, "algorithm": int}, "There is no algorithm called <class 'int'>."),
        ({"clients": WARD, "preset": 3}, "There is no preset of fova called 3."),
        ({"clients": WARD, "size": 5.5}, "size of a client is 5.5, but must be a whole number"),
        ({"clients": WARD, "size": "10"}, "size of a client is '10', but must be a whole number"),
        ({"clients": WARD, "size": True}, "size of a client is True"),
        ({"clients": WARD, "directory": 3}, "directory is 3, but must be the path of a folder"),
        ({"clients": WARD, "directory": ""}, "directory is '', but must be the path of a folder"),
        ({"clients": WARD, "directory": "a\0b"}, "but must be the path of a folder"),
        ({"clients": WARD, "progress": "yes"}, "progress is 'yes', but must be True, False, None"),
        ({"clients": WARD, "on_round": "print"}, "on_round is 'print', but must be a function"),
    ],
)
def test_an_argument_of_train_of_the_wrong_kind(tmp_path, given, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        fova.train(**given)
    assert not (tmp_path / "runs").exists()


def test_a_number_of_numpy_is_a_number():
    assert fova.ClientSpec("ward.npz", np.int64(10)).size == 10
    assert type(fova.ClientSpec("ward.npz", np.int64(10)).size) is int


@pytest.mark.parametrize("given", [{"data": 3}, {"data": "a.npz", "offset": "1"}, {"data": "a.npz", "name": 3}])
def test_a_client_of_the_wrong_kind(given):
    with pytest.raises(FovaError, match="of a client is"):
        fova.ClientSpec(**given)


@pytest.mark.parametrize("given", [{"rounds": "1"}, {"rounds": 1.5}, {"hidden": 8}, {"seed": None}])
def test_settings_of_the_judge_of_the_wrong_kind(given):
    with pytest.raises(FovaError, match="of the judge is"):
        fova.JudgeSettings(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"directory": None}, "directory is None, but must be the path of a folder"),
        ({"directory": "run", "federation": 3}, "federation is a int, but must be a Federation."),
        ({"directory": "run", "on_round": 3}, "on_round is 3, but must be a function"),
    ],
)
def test_an_argument_of_resume_of_the_wrong_kind(given, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        fova.resume(**given)


@pytest.mark.parametrize("path", [None, 3, b"run", "a\0b"])
def test_what_is_no_path_of_a_policy(path):
    with pytest.raises(FovaError, match="must be the path of a run directory"):
        fova.load_policy(path)


@pytest.mark.parametrize(
    "observation",
    [
        ["1", "2", "3"],
        np.zeros(3, "M8[s]"),
        [1j, 1, 1],
        np.ma.masked_array(np.zeros(3), [1, 0, 0]),
    ],
)
def test_what_is_no_observation(observation):
    with pytest.raises(FovaError, match="Observations"):
        small_policy()(observation)


def test_whole_numbers_and_a_mask_that_hides_nothing_are_observations():
    expected = small_policy()(np.array([1.0, 0.0, 1.0]))
    for same in ([1, 0, 1], [True, False, True], np.ma.masked_array([1.0, 0.0, 1.0], [0, 0, 0])):
        np.testing.assert_array_equal(small_policy()(same), expected)


# --- The other functions ---


def federation():
    return fova.Federation.of({"a": make_transitions(0), "b": make_transitions(1)})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"federation": None}, "Say on which data the policy is to be judged"),
        ({"federation": None, "policy": "runs/none", "discount": 0.9}, "judged with its own discount"),
        ({"data": ["a.npz"]}, "Give a federation or data, not both."),
        ({"policy": 3}, "policy is 3, but must be"),
        ({"policy": None}, "policy is None, but must be"),
        ({"federation": {"a": make_transitions(0)}}, "but must be a Federation."),
        ({"discount": 1}, "discount is 1, but must be at least 0 and below 1."),
        ({"discount": -1.0}, "discount is -1.0, but must be at least 0"),
        ({"discount": float("nan")}, "discount is nan"),
        ({"discount": "0.9"}, "discount is '0.9', but must be a number."),
        ({"discount": 10**400}, "discount is 1000"),
        ({"settings": {"rounds": 1}}, "settings is {'rounds': 1}, but must be a JudgeSettings."),
        ({"tell": "x"}, "tell is 'x', but must be a function."),
    ],
)
def test_an_argument_of_judge_of_the_wrong_kind(given, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        fova.judge(**{"policy": small_policy(), "federation": federation()} | given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("run", "x.onnx"), "policy is 'run', but must be a Policy."),
        ((small_policy(), None), "path is None, but must be the path of a file."),
        ((small_policy(), b"x.onnx"), "path is b'x.onnx', but must be the path of a file."),
        ((small_policy(), "a\0.onnx"), "must be the path of a file."),
        ((small_policy(), "x.onnx", "ignore"), "on_invalid is 'ignore', but must be one of 'error', 'flag'."),
        ((small_policy(), "x.onnx", None), "on_invalid is None"),
    ],
)
def test_an_argument_of_export_of_the_wrong_kind(tmp_path, given, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        fova.export_onnx(*given)
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": None}, "host is None, but must be a text."),
        ({"host": b"127.0.0.1"}, "but must be a text."),
        ({"host": ""}, "must be a name or an address"),  # to the system it would be all addresses
        ({"host": "a\0b"}, "must be a name or an address"),
        ({"host": "a" * 300}, "cannot listen on"),
        ({"port": "8000"}, "port is '8000', but must be a whole number."),
        ({"port": True}, "port is True, but must be a whole number."),
        ({"port": 70_000}, "port is 70000, but must be at least 0 and at most 65,535."),
        ({"warn_beyond": -1}, "warn_beyond is -1, but must be at least 0."),
        ({"warn_beyond": float("nan")}, "warn_beyond is nan"),
        ({"warn_beyond": None}, "warn_beyond is None, but must be a number."),
        ({"limits": {"bytes": 3}}, "limits is {'bytes': 3}, but must be a Limits."),
        ({"started": None}, "started is None, but must be a function."),
    ],
)
def test_an_argument_of_serve_of_the_wrong_kind(given, words):
    def begun(address):
        pytest.fail("it serves")

    with pytest.raises(FovaError, match=re.escape(words)):
        fova.serve(**{"policy": small_policy(), "port": 0, "started": begun} | given)


@pytest.mark.parametrize(
    "given", [{"bytes": -1}, {"bytes": 1.5}, {"seconds": 0}, {"seconds": float("nan")}, {"connections": 0}]
)
def test_limits_out_of_range(given):
    with pytest.raises(FovaError, match=next(iter(given))):
        Limits(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"clients": [make_transitions(0)]}, "clients is a list, but must be a mapping"),
        ({"clients": {"a": None}}, "The data of client 'a' is a NoneType, but must be Transitions."),
        ({"clients": {3: make_transitions(0)}}, "A client is called 3, but a name must be a text."),
        ({"clients": {"a": replace(make_transitions(0), actions=None)}}, "actions: holds NoneType, not numbers."),
        ({"clients": {"a": replace(make_transitions(0), actions=np.full((54, 2), "x"))}}, "actions: holds <U1"),
        ({"bounds": 1.0}, "bounds is 1.0, but must be a pair"),
        ({"bounds": (-1, 0, 1)}, "bounds is (-1, 0, 1), but must be a pair"),
        ({"bounds": ("-1", "1")}, "An action bound is '-1', but must be numbers"),
        ({"bounds": (-(10**400), 1)}, "but must be numbers"),
        ({"task": "hopper"}, "task is 'hopper', but must be a Task."),
        ({"action": (-1, 1)}, "action is (-1, 1), but must be a Box or a Discrete."),
        ({"actions": "both"}, "actions is 'both', but must be one of 'auto', 'discrete', 'continuous'."),
    ],
)
def test_an_argument_of_a_federation_of_the_wrong_kind(given, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        fova.Federation.of(**{"clients": {"a": make_transitions(0)}} | given)


@pytest.mark.parametrize(
    "given",
    [
        *({"share": share} for share in (-1, 0.9, float("nan"), None, "0.1", True)),
        *({"share": 0.1, "seed": seed} for seed in ("x", -1, 1.5, 10**400)),
    ],
)
def test_what_cannot_be_held_out(given):
    with pytest.raises(FovaError, match=r"share is|seed is"):
        federation().holding_out(**given)


def test_a_share_of_numpy_is_a_share():
    assert federation().holding_out(np.float64(0.2), np.int64(3)).held_out


@pytest.mark.parametrize("rng", [None, 3, "x", np.random.RandomState(0)])
def test_samples_need_a_generator(rng):
    weights = {"last.weight": np.ones((3, 4), np.float32), "last.bias": np.zeros(4, np.float32)}
    with pytest.raises(FovaError, match=r"numpy.random.default_rng\(0\)"):
        Policy("squashed", weights, Space.unit(3, 2)).sample(np.ones(3), rng)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"weights": None}, "weights of a policy is None, but must be a table."),
        ({"weights": {}}, "last.bias, last.weight are missing or unknown"),
        ({"weights": {"last.weight": [[1.0]], "last.bias": [0.0]}}, "must be an array of numbers"),
        ({"space": (3, 2)}, "space of a policy is (3, 2), but must be a Space."),
        ({"facts": [1]}, "facts of a policy is [1], but must be a table."),
    ],
)
def test_a_policy_of_wrong_parts(given, words):
    with pytest.raises(FovaError, match=re.escape(words)):
        replace(small_policy(), **given)


@pytest.mark.parametrize("path", [None, 3, b"x.safetensors", "", "a\0.safetensors", "policy", "policy.json"])
def test_where_no_policy_can_be_saved(tmp_path, path):
    with pytest.raises(FovaError, match=r"must be the path of a file|must end in"):
        small_policy().save(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ward.npz"]


@pytest.mark.parametrize("fact", [object(), float("nan"), np.int64(3)])
def test_facts_that_are_no_json_leave_no_half_policy(tmp_path, fact):
    with pytest.raises(FovaError, match="cannot be written as JSON"):
        replace(small_policy(), facts={"rounds": fact}).save(tmp_path / "policy.safetensors")
    assert not list(tmp_path.glob("policy*"))


@pytest.mark.parametrize("columns", [0, -1, "3", 3.0, None, True])
def test_a_space_needs_columns(columns):
    with pytest.raises(FovaError, match="observation"):
        Space.unit(columns, 2)


@pytest.mark.parametrize("policies", [None, 3, "x", [], [None]])
def test_what_cannot_be_stacked(policies):
    with pytest.raises(FovaError, match="must be a list of policies"):
        stack(policies)
