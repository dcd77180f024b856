"""A federation with discrete actions through Flower's apps and messages gives what the simulation gives."""

import numpy as np
import pytest
from in_process import InProcessGrid

from algorithms.discrete.corridor import SPACE, walks
from fova.algorithms import configure
from fova.data.npz import save_npz
from fova.errors import FovaError
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.network import server as flower_server
from fova.network.plan import Plan
from fova.network.server_config import ServerConfig, create_run, make_plan
from fova.policy import load_policy
from fova.progress import Quiet
from fova.run.config import Config, RunConfig
from fova.run.simulated import SimulatedEngine
from fova.spaces import Discrete

NAMES = ("left", "right")


def settings(algorithm="fova", **run):
    fields = {"rounds": 2, "local_steps": 4, "seed": 3, "action_names": NAMES, **run}
    chosen = configure(algorithm, hidden=(8,), batch_size=8)
    return Config(None, (), chosen, algorithm, RunConfig(**fields))


@pytest.fixture
def files(tmp_path):
    shares = {"good": 0.9, "aimless": 0.5}
    for name, right in shares.items():
        save_npz(walks(len(name), right), tmp_path / f"{name}.npz", action_names=NAMES)
    return {name: tmp_path / f"{name}.npz" for name in shares}


def grid_of(files, tmp_path):
    return InProcessGrid(
        {
            100 + i: {"name": name, "data": str(path), "state": str(tmp_path / "clients" / name)}
            for i, (name, path) in enumerate(files.items())
        }
    )


def test_network_and_simulation_train_the_same_policy(files, tmp_path):
    config = settings()
    run = create_run(tmp_path / "run", config, ServerConfig(min_clients=2, observation=5))
    flower_server.train(grid_of(files, tmp_path), run, Quiet(), lambda seconds: None)
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    engine = SimulatedEngine(config, federation)
    engine.prepare(None)
    state = engine.start()
    for _ in range(2):
        state, _ = engine.round(state)
    policy = load_policy(run.path)
    assert policy.space == federation.space == SPACE
    expected = state.broadcast.actor.net.last.weight
    np.testing.assert_allclose(policy.weights["last.weight"], expected, atol=2e-5, rtol=1e-4)


def test_a_plan_says_the_names_and_survives_its_way():
    plan = make_plan(settings(), ServerConfig(observation=5), "0" * 32)
    assert plan.space == SPACE
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert type(again.algorithm).__name__ == "DiscreteFova"
    assert make_plan(
        settings(action_names=()), ServerConfig(observation=5, discrete_actions=3), "0" * 32
    ).space.action == (Discrete.numbered(3))


def test_a_client_whose_actions_have_other_names_takes_no_part(files, tmp_path):
    save_npz(walks(0, 0.5), files["aimless"], action_names=("west", "east"))
    run = create_run(tmp_path / "run", settings(), ServerConfig(min_clients=1, observation=5))
    flower_server.train(grid_of(files, tmp_path), run, Quiet(), lambda seconds: None)
    journal = (tmp_path / "clients" / "aimless" / "journal.jsonl").read_text()
    assert "has the actions west, east, but" in journal


@pytest.mark.parametrize(
    ("run", "network", "words"),
    [
        ({}, {"observation": 5, "action": 1}, "Both continuous and discrete"),
        ({}, {"observation": 5, "discrete_actions": 3}, "2 action_names, but discrete_actions is 3"),
        ({"action_names": (), "actions": "discrete"}, {"observation": 5, "action": 1}, "--discrete-actions"),
    ],
)
def test_a_server_that_describes_its_actions_twice_or_not_is_refused(run, network, words):
    with pytest.raises(FovaError, match=words):
        make_plan(settings(**run), ServerConfig(**network), "0" * 32)
