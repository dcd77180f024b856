"""Arguments of the Python functions that are of the wrong kind: a FovaError that says what is taken."""

import re

import numpy as np
import pytest

import fova
from fova.errors import FovaError
from fova.policy import Policy
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
