"""Federations whose data is replaced on the way."""

import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest

import fova
from federation.test_clients import TASK
from fova import algorithms
from fova.errors import FovaError
from fova.evaluation.rollouts import play_from
from fova.evaluation.stages import STEPS, Stages
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.machine.interrupts import Interrupted
from fova.progress import Quiet
from fova.run import training
from fova.run.config import Config, RunConfig, load_config
from fova.run.directory import RunDirectory
from fova.run.records import read_record
from fova.tasks import registry
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


# --- Played from the states of every stage ---

SEQUENCE = ("random", "expert", "random")
PLAYED = TINY | {"rounds": 4, "evaluate_every": 4, "episodes": 1, "final_episodes": 3, "final_clients": False}


def trained(directory, **changes):
    clients = [ClientSpec("random", 40, name=name) for name in "ab"]
    fova.train("hopper", clients, directory=directory, data_sequence=SEQUENCE, **PLAYED | changes)
    return directory


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "played")


def test_after_every_stage_the_policy_is_played_from_the_states_of_all_stages(played):
    rows = {entry["round"]: entry["stages"] for entry in RunDirectory(played).metrics() if "stages" in entry}
    assert list(rows) == [2, 3, 4]  # four rounds, three stages
    assert all(len(row) == 3 and row[0] == row[2] != row[1] for row in rows.values())  # random comes again
    turns = training.trained_on(load_config(played / "config.toml")).turns()
    states = np.concatenate([turns[1].clients[name].observations for name in "ab"])
    drawn = Stages.drawn(registry.get("hopper"), SEQUENCE, [turn.clients for turn in turns], 3, 0).starts["expert"]
    assert all((states == start).all(axis=1).any() for start in drawn)
    again = play_from({"server": fova.load_policy(played)}, registry.get("hopper"), drawn, STEPS)["server"]
    assert rows[4][1] == pytest.approx(again.mean_return)
    assert again.lengths.max() <= STEPS
    record = read_record(played)
    assert [line.stages for line in record.rounds if line.stages] == [tuple(row) for row in rows.values()]


@pytest.mark.parametrize("saved", [1, 3])
def test_an_interrupted_run_is_played_from_the_same_states(played, tmp_path, saved):
    """The second stage begins after round 2, the third after round 3."""
    again = tmp_path / "again"
    with pytest.raises(Interrupted):
        trained(again, on_round=lambda report: report.round == saved and signal.raise_signal(signal.SIGINT))
    assert len(RunDirectory(again).metrics()) < 5
    training.resume(again)
    assert contents(again) == contents(played)


def test_in_the_background_it_is_the_same(played, tmp_path):
    assert contents(trained(tmp_path / "b", evaluate_in_background=True)) == contents(played)


PRIVATE = {"privacy": "server", "privacy_clip": 1.0, "privacy_noise": 1.0, "aggregation": "uniform"}


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("hopper", {"evaluate_every": 0}),
        (
            "hopper",
            PRIVATE | {"normalise": False, "reward_unit": 1.0},
        ),  # the metrics must not depend on single rows
        ("maze2d-umaze", {}),  # its episodes cannot start from an observation
    ],
    ids=["never evaluated", "private", "maze"],
)
def test_runs_that_play_from_no_states_of_the_data(tmp_path, task, settings):
    config = Config(
        task,
        (ClientSpec("random", 40, name="a"), ClientSpec("random", 40, name="b")),
        algorithms.configure("fova", hidden=(8,), batch_size=8),
        run=RunConfig(data_sequence=SEQUENCE, **settings),
    )
    loop = training.loop_of(config, RunDirectory(tmp_path), training.trained_on(config), Quiet())
    assert loop.stages is None


def test_each_source_needs_a_round():
    with pytest.raises(FovaError, match="3 sources for 2 rounds"):
        RunConfig(rounds=2, data_sequence=("random", "expert", "random"))
