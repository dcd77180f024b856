"""A policy is judged over the network: the same figures as in the simulation, and no row leaves a client."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MetricRecord
from in_process import InProcessGrid

import fova
from fova.algorithms import configure
from fova.data.sources import load
from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings
from fova.evaluation.judging.verdict import Figures
from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.network import server
from fova.network.judging import Judging
from fova.network.server_config import ServerConfig, create_run, read_server, write_server
from fova.progress import Quiet
from fova.run.config import Config, RunConfig
from fova.run.directory import RunDirectory
from tiny import make_transitions, save_npz

NAMES = ("east", "north", "south", "west")
HOLD_OUT, SEED = 0.4, 5
ROUNDS = 3
TINY = JudgeSettings(rounds=ROUNDS, steps=5, critics=2, hidden=(8,), batch_size=8)


@pytest.fixture(scope="module", autouse=True)
def small_fits():
    """The server's judge with tiny networks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(server, "JudgeSettings", lambda rounds: replace(TINY, rounds=rounds))
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wards")
    found = {name: folder / f"{name}.npz" for name in NAMES}
    for i, path in enumerate(found.values()):
        save_npz(path, make_transitions(i, episodes=6 + i))
    return found


def grid_of(files, folder):
    return InProcessGrid({
        100 + i: {"name": name, "data": str(path), "state": str(folder / "clients" / name)}
        for i, (name, path) in enumerate(files.items())
    })  # fmt: skip


def new_run(folder, run=(), **network):
    settings = RunConfig(rounds=2, local_steps=3, seed=SEED, hold_out=HOLD_OUT, checkpoint_seconds=0.0, **dict(run))
    config = Config(None, (), configure("fed-bc", hidden=(8,), batch_size=8), "fed-bc", settings)
    about = {"min_clients": 4, "observation": 3, "action": 2, "judge": True, "judge_rounds": ROUNDS}
    return create_run(folder / "run", config, ServerConfig(**about | network))


def train(grid, run):
    server.train(grid, run, Quiet(), lambda seconds: None)


@pytest.fixture(scope="module")
def judged(files, tmp_path_factory):
    """A run that was trained and judged over the network: its directory and the grid."""
    folder = tmp_path_factory.mktemp("judged")
    grid, run = grid_of(files, folder), new_run(folder)
    train(grid, run)
    return run, grid


def verdict_of(run):
    return json.loads((run.path / "judge.json").read_text())


def test_the_same_seed_gives_the_same_figures_as_the_simulation(judged, files):
    run, _ = judged
    federation = Federation.build([ClientSpec(str(path), name=name) for name, path in files.items()])
    simulated = fova.judge(run.path, federation.holding_out(HOLD_OUT, SEED), settings=TINY).to_json()
    found = verdict_of(run)
    assert found["sentence"] == simulated["sentence"]
    assert (found["held_out"], simulated["held_out"]) == (True, True)
    assert found["settings"] == simulated["settings"]
    assert list(found["clients"]) == list(NAMES)
    for name in NAMES:
        for figure, value in simulated["clients"][name].items():
            expected = None if value is None else pytest.approx(value, rel=1e-3, abs=1e-3)
            assert found["clients"][name][figure] == expected, (name, figure)
    assert found["federation"]["value"] == pytest.approx(simulated["federation"]["value"], rel=1e-3, abs=1e-3)


def test_only_sums_critics_and_single_figures_leave_a_client(judged):
    _, grid = judged
    up = [message.content for direction, _, message in grid.log if direction == "up"]
    about_policy = [content for content in up if "figures" in content]
    assert len(about_policy) == len(NAMES)
    for content in about_policy:
        assert set(content) == {"about", "figures"}
        assert set(content["about"]) == {"version", "run", "client", "fingerprint"}
        assert set(content["figures"]) <= {field.name for field in fields(Figures)}
        assert all(isinstance(value, int | float) for value in content["figures"].values())
    fitted = [c for c in up if "parameters" in c and not any(n.startswith("actor/") for n in c["parameters"])]
    assert len(fitted) == len(NAMES) * ROUNDS
    assert all(name.startswith("critic/") for content in fitted for name in content["parameters"])
    ranges = [c["statistics"]["reward_range"].numpy() for c in up if "reward_range" in c.get("statistics", {})]
    assert len(ranges) == len(NAMES)
    assert all(np.log2(np.abs(end)).is_integer() for ends in ranges for end in ends if end)


def test_no_row_is_in_any_byte_that_leaves_a_client(judged, files):
    _, grid = judged
    everything = b"".join(grid.bytes)
    for path in files.values():
        data = load(path).transitions
        for values in (data.observations, data.actions, data.next_observations, data.rewards[:, None]):
            for row in values:
                assert not any(row.astype(kind).tobytes() in everything for kind in (np.float32, np.float64))


def test_what_the_fit_left_at_a_client_is_deleted(judged):
    _, grid = judged
    for node in grid.nodes.values():
        kept = [path for path in Path(node["state"]).iterdir() if re.fullmatch("[0-9a-f]{32}", path.name)]
        assert len(kept) == 1, "that of the training"


def test_a_finished_run_is_judged_later(files, tmp_path):
    grid, run = grid_of(files, tmp_path), new_run(tmp_path, judge=False)
    train(grid, run)
    assert not (run.path / "judge.json").exists()
    run_id, network = read_server(run)
    write_server(run, run_id, replace(network, judge=True))
    train(grid, RunDirectory.open(run.path))
    assert list(verdict_of(run)["clients"]) == list(NAMES)


def lies(**changes):
    def change(reply):
        if "figures" in reply.content:
            reply.content["figures"] = MetricRecord(dict(reply.content["figures"]) | changes)
        return reply

    return change


def test_figures_that_were_not_asked_for_are_left_out(files, tmp_path):
    grid, run = grid_of(files, tmp_path), new_run(tmp_path)
    grid.tamper = {100: lies(rows=10**6), 101: lies(secret=1.0), 102: lies(value=[1.0, 2.0])}
    train(grid, run)
    assert list(verdict_of(run)["clients"]) == ["west"]
    grid.tamper[103] = lies(value=float("inf"))
    with pytest.raises(FovaError, match="No client reported"):
        train(grid, RunDirectory.open(run.path))


def test_a_plan_keeps_the_policy(judged):
    run, _ = judged
    policy = fova.load_policy(run.path)
    sent = json.loads(json.dumps(Judging(policy, 0.9, TINY).to_json()))
    again = Judging.from_json(sent, policy.space)
    observations = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(again.policy(observations), policy(observations))
    assert (again.discount, again.settings, again.scale) == (0.9, TINY, None)
    sent["policy"]["weights"] = sent["policy"]["weights"][:100]
    with pytest.raises(FovaError, match="safetensors"):
        Judging.from_json(sent, policy.space)


def test_the_default_is_that_of_the_judge():
    assert ServerConfig().judge_rounds == JudgeSettings().rounds
