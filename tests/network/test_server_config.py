"""What a server is told before there is a run: ranges, one description of the space, the file beside the run."""

from dataclasses import replace

import pytest

from fova.algorithms import configure
from fova.data.tables.columns import Columns
from fova.data.tables.survey import stated
from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings
from fova.federation import accountant
from fova.network.server_config import (
    ServerConfig,
    create_run,
    insist_on_default_rounds,
    make_plan,
    read_server,
    write_server,
)
from fova.run.config import Config, RunConfig
from fova.run.directory import RunDirectory
from fova.spaces import Box, Discrete, Space

WIDTH = ServerConfig(observation=3, action=2)
RUN_ID = "0" * 32
TABLE = {
    "episode": "p",
    "time": "h",
    "observations": "a,b,ward",
    "action": "d,e",
    "reward": "r",
    "terminal": "t",
    "categories": {"ward": ["A", "B"]},
    "numbers": "d,e",
}
PRIVATE = {"privacy": "client", "privacy_clip": 1.0, "privacy_noise": 1.0, "aggregation": "uniform"}
PRIVATE |= {"normalise": False, "reward_unit": 1.0}
BOUNDS = {"action_low": (0.0, -2.0), "action_high": (1.0, 2.0)}


def config(task=None, columns=None, **run):
    settings = RunConfig(**{"rounds": 1, "local_steps": 2} | run)
    mapping = None if columns is None else Columns.of(columns)
    return Config(task, (), configure("fed-bc", hidden=(4,)), "fed-bc", settings, mapping)


def space(network=WIDTH, agreed=None, **settings):
    return make_plan(config(**settings), network, RUN_ID, agreed).space


# --- Ranges ---


def test_what_a_server_does_unless_it_is_told():
    usual = ServerConfig()
    assert (usual.min_clients, usual.deadline, usual.eject_after, usual.port) == (2, 600.0, 10, 8443)
    assert usual.judge_rounds == JudgeSettings().rounds == 60
    assert (usual.judge, usual.secure_aggregation, usual.control_hosts) == (False, False, ())
    assert (usual.observation, usual.action, usual.discrete_actions) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("min_clients", 1, 1_000_000),
        ("eject_after", 0, 1_000_000),
        ("judge_rounds", 1, 100_000),
        ("observation", 1, 100_000),
        ("action", 1, 100_000),
        ("discrete_actions", 2, 10_000),
        ("port", 1, 65_535),
    ],
)
def test_settings_have_ranges(name, least, most):
    for value in (least, most):
        assert getattr(ServerConfig(**{name: value}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(FovaError, match=f"{name} is"):
            ServerConfig(**{name: value})


def test_a_deadline_is_above_0_and_at_most_a_year():
    assert ServerConfig(deadline=365 * 24 * 3600.0).deadline == 31_536_000
    for value in (0.0, 31_536_001.0):
        with pytest.raises(FovaError, match="deadline is"):
            ServerConfig(deadline=value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": ""}, "host is empty"),
        ({"certificates": ""}, "certificates is empty"),
        ({"host": "here:80"}, "without a port"),
        ({"control_hosts": ("10.0.0.7", "here")}, "control_hosts has 'here', but must be addresses"),
    ],
)
def test_addresses_that_nobody_could_use_are_refused(given, words):
    with pytest.raises(FovaError, match=words):
        ServerConfig(**given)


def test_other_machines_may_be_named_by_their_addresses():
    assert ServerConfig(control_hosts=("10.0.0.7", "::1")).control_hosts == ("10.0.0.7", "::1")


# --- The space ---


def test_a_space_is_that_of_the_task_or_the_columns_or_as_described():
    assert space() == Space.unit(3, 2)
    assert space(**BOUNDS) == Space(3, Box((0.0, -2.0), (1.0, 2.0)))
    assert space(ServerConfig(observation=4, discrete_actions=3)) == Space(4, Discrete.numbered(3))
    named = space(ServerConfig(observation=4, discrete_actions=2), action_names=("low", "high"))
    assert named == Space(4, Discrete(("low", "high")))
    assert space(ServerConfig(observation=4), action_names=("low", "high")) == named
    assert space(ServerConfig(), task="hopper").observation == 11
    asked_later = space(ServerConfig(), columns=TABLE, **BOUNDS)
    assert asked_later == Space(1, Box((0.0, -2.0), (1.0, 2.0)))
    agreed = stated(Columns.of(TABLE))
    assert space(ServerConfig(), agreed, columns=TABLE, **BOUNDS) == Space(5, Box((0.0, -2.0), (1.0, 2.0)))


@pytest.mark.parametrize(
    ("network", "run", "words"),
    [
        ({}, {}, "Without a task the server cannot know how wide the data is"),
        ({"action": 2}, {}, "cannot know how wide"),
        ({"observation": 3}, {}, "cannot know how wide"),
        ({"discrete_actions": 2}, {}, "cannot know how wide"),
        ({"observation": 3, "action": 2}, {"actions": "discrete"}, "cannot know how wide"),
        ({"observation": 3, "action": 2, "discrete_actions": 2}, {}, "Both continuous and discrete"),
        ({"observation": 3, "discrete_actions": 2}, {"actions": "continuous"}, "Both continuous and discrete"),
        ({"observation": 3, "discrete_actions": 3}, {"action_names": ("a", "b")}, "There are 2 action_names"),
    ],
)
def test_half_a_space_and_two_spaces_are_refused(network, run, words):
    with pytest.raises(FovaError, match=words):
        space(ServerConfig(**network), **run)


def test_columns_must_be_as_wide_as_the_task():
    agreed = stated(Columns.of(TABLE))
    with pytest.raises(FovaError, match="The columns make observations of 5 numbers, but those of hopper have 11"):
        space(ServerConfig(), agreed, task="hopper", columns=TABLE)


# --- The run's directory ---


@pytest.mark.parametrize(
    ("network", "settings", "words"),
    [
        ({"observation": 3, "action": 2}, {"task": "hopper"}, "observation is 3, but the task says it already"),
        (
            {"action": 2},
            {"columns": TABLE, **BOUNDS},
            "action is 2, but the columns say it already. Leave --action",
        ),
        ({"discrete_actions": 2}, {"task": "hopper"}, "Leave --discrete-actions out"),
        ({}, {"task": "hopper", "actions": "discrete"}, "discrete actions are asked for"),
        ({"observation": 3, "action": 2}, {"mode": "local"}, "clients of a real federation can only be federated"),
    ],
)
def test_a_run_that_makes_no_sense_leaves_no_directory(tmp_path, network, settings, words):
    with pytest.raises(FovaError, match=words):
        create_run(tmp_path / "run", config(**settings), ServerConfig(**network))
    assert not (tmp_path / "run").exists()


def test_a_run_of_a_task_or_of_columns_needs_no_width(tmp_path):
    create_run(tmp_path / "task", config("hopper"), ServerConfig())
    create_run(tmp_path / "columns", config(columns=TABLE, **BOUNDS), ServerConfig())


def test_only_under_privacy_must_the_mapping_say_everything(tmp_path):
    """Clients tell nothing about their columns then, so a pattern cannot be resolved."""
    pattern = TABLE | {"observations": "lab_*"}
    create_run(tmp_path / "asked", config(columns=pattern, **BOUNDS), ServerConfig())
    create_run(tmp_path / "stated", config(columns=TABLE, **BOUNDS, **PRIVATE), ServerConfig())
    create_run(tmp_path / "files", config(**PRIVATE), WIDTH)
    with pytest.raises(FovaError, match=r"'lab_\*' is a pattern, but under privacy clients tell nothing"):
        create_run(tmp_path / "refused", config(columns=pattern, **BOUNDS, **PRIVATE), ServerConfig())


def test_a_fit_that_exceeds_the_privacy_budget_is_refused_before_the_training(tmp_path):
    spent = accountant.epsilon(0.5, 1.0, 1, 1e-5)  # of the one round of training
    private = PRIVATE | {"privacy_epsilon": 1.01 * spent}
    create_run(tmp_path / "training", config(**private), WIDTH)
    with pytest.raises(FovaError, match=r"judging \(60 rounds\): 61 rounds would spend epsilon"):
        create_run(tmp_path / "judged", config(**private), replace(WIDTH, judge=True))


def test_a_server_finds_its_settings_again(tmp_path):
    network = replace(WIDTH, min_clients=5, deadline=30.0, control_hosts=("10.0.0.7",))
    run = create_run(tmp_path / "run", config(), network)
    run_id, again = read_server(run)
    assert (len(run_id), again) == (32, network)
    assert read_server(create_run(tmp_path / "another", config(), network))[0] != run_id
    write_server(run, run_id, replace(network, port=9000))
    assert read_server(RunDirectory(tmp_path / "run")) == (run_id, replace(network, port=9000))


def test_rounds_of_a_fit_that_does_not_take_place_are_refused():
    insist_on_default_rounds(ServerConfig())
    with pytest.raises(FovaError, match="Add --judge"):
        insist_on_default_rounds(ServerConfig(judge_rounds=59))
