"""Federations whose data is replaced on the way."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import fova
from federation.test_clients import TASK
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.run import training
from fova.run.config import RunConfig
from fova.run.directory import RunDirectory
from run.test_training import contents
from tiny import make_transitions

TINY = {"hidden": (8,), "batch_size": 8, "rounds": 3, "local_steps": 2, "checkpoint_seconds": 0.0}


def three_turns():
    first, *later = (
        Federation.of({name: make_transitions(10 * turn + i) for i, name in enumerate("ab")}) for turn in range(3)
    )
    return replace(first, later=tuple(later))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "finished"
    fova.train(clients=three_turns(), directory=directory, continual=1000.0, **TINY)
    return directory


def test_a_source_that_comes_again_goes_on_where_it_ended():
    specs = [ClientSpec("good", 10, name="a"), ClientSpec("good", 10, name="b")]
    turns = Federation.in_sequence(specs, ("good", "bad", "good"), task=TASK).turns()
    rewards = [{name: list(data.rewards[[0, -1]]) for name, data in turn.clients.items()} for turn in turns]
    assert rewards == [
        {"a": [0, 9], "b": [10, 19]}, {"a": [0, 9], "b": [10, 19]}, {"a": [20, 29], "b": [30, 39]},
    ]  # fmt: skip
    held = Federation.in_sequence(specs, ("good", "good"), task=TASK).whole_clients()
    np.testing.assert_array_equal(held["b"].rewards, [*range(10, 20), *range(30, 40)])


def test_a_run_that_stopped_where_the_data_changes_ends_with_the_same_bytes(finished, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(finished, again)
    (again / "result.json").unlink()
    (again / "checkpoints/round-000003.safetensors").unlink()  # the third turn begins after round 2
    training.resume(again, federation=three_turns())
    assert contents(again) == contents(finished)


def test_the_memory_of_the_critics_begins_when_the_data_changes(finished, tmp_path):
    fova.train(clients=three_turns(), directory=tmp_path / "without", continual=0.0, **TINY)
    losses = [
        [entry["clients"]["a"]["critic_loss"] for entry in RunDirectory(path).metrics()[1:]]
        for path in (finished, tmp_path / "without")
    ]
    assert losses[0][0] == losses[1][0]
    assert losses[0][1] != losses[1][1]
    assert RunDirectory(finished).read_json("clients.json")["a"]["rows"] == sum(
        len(turn.clients["a"]) for turn in three_turns().turns()
    )


def test_each_source_needs_a_round():
    with pytest.raises(FovaError, match="3 sources for 2 rounds"):
        RunConfig(rounds=2, data_sequence=("random", "expert", "random"))
