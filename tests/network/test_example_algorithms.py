"""The example algorithms on both engines: the same seed gives the same server, whatever it keeps."""

from pathlib import Path

import jax
import numpy as np
import pytest

from fova import algorithms
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.network import server
from fova.network.server_config import ServerConfig, create_run
from fova.progress import Quiet
from fova.run.config import Config, RunConfig
from fova.run.simulated import SimulatedEngine
from network.in_process import InProcessGrid
from tiny import make_transitions, save_npz

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDS = 3


@pytest.fixture
def files(tmp_path):
    found = {name: tmp_path / f"{name}.npz" for name in ("east", "north", "south")}
    for i, path in enumerate(found.values()):
        save_npz(path, make_transitions(i))
    return found


def config_of(name):
    algorithm = algorithms.configure(name, hidden=(8,), batch_size=8)
    return Config(None, (), algorithm, name, RunConfig(rounds=ROUNDS, local_steps=3, seed=2))


def simulated(config, files):
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    engine = SimulatedEngine(config, federation)
    engine.prepare(None)
    first = state = engine.start()
    for _ in range(ROUNDS):
        state, _ = engine.round(state)
    return first, state


def networked(config, files, folder):
    nodes = {
        100 + i: {"name": name, "data": str(path), "state": str(folder / "clients" / name)}
        for i, (name, path) in enumerate(files.items())
    }
    network = ServerConfig(min_clients=3, observation=3, action=2)
    run = create_run(folder / "run", config, network)
    return server.train(InProcessGrid(nodes), run, Quiet(), lambda seconds: None).state


@pytest.mark.parametrize("example", ["fed_awac", "fed_adam", "scaffold"])
def test_an_example_runs_alike_in_simulation_and_over_the_network(example, files, tmp_path, monkeypatch):
    kind = algorithms.get(str(EXAMPLES / f"{example}.py"))
    monkeypatch.setitem(algorithms.installed(), kind.name, kind)  # over a network only installed algorithms run
    config = config_of(kind.name)
    first, one = simulated(config, files)
    other = networked(config, files, tmp_path)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5), one.server, other.server)
    moved = [
        float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(*map(jax.tree.leaves, (one, first)))
    ]
    assert max(moved) > 1e-4, "something was learned"


def test_the_server_optimiser_keeps_its_moments(files):
    kind = algorithms.get(str(EXAMPLES / "fed_adam.py"))
    config = Config(
        None, (), kind(hidden=(8,), batch_size=8), str(EXAMPLES / "fed_adam.py"), RunConfig(rounds=ROUNDS)
    )
    first, state = simulated(config, files)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(first.server.kept.m))
    assert any((np.asarray(leaf) != 0).any() for leaf in jax.tree.leaves(state.server.kept.m))


def test_control_variates_travel_in_both_directions(files):
    kind = algorithms.get(str(EXAMPLES / "scaffold.py"))
    config = Config(
        None, (), kind(hidden=(8,), batch_size=8), str(EXAMPLES / "scaffold.py"), RunConfig(rounds=ROUNDS)
    )
    _, state = simulated(config, files)
    clients = jax.tree.leaves(state.learners.extra.control)
    mean = [leaf.mean(axis=0) for leaf in clients]
    for control, expected in zip(jax.tree.leaves(state.broadcast.extra), mean, strict=True):
        np.testing.assert_allclose(control, expected, atol=1e-5)  # with all clients, c is the mean of the c_k
    assert max(float(np.abs(leaf).max()) for leaf in mean) > 1e-3
