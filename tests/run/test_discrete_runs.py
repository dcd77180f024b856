"""Whole runs on discrete actions: the clients walk a corridor, one of them well and one aimlessly."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fova
from algorithms.discrete.corridor import EVERY_PLACE, SPACE, walks
from fova.errors import FovaError
from fova.federation.action_spaces import bounded
from fova.federation.clients import Federation
from fova.run.training import resume
from fova.spaces import Discrete

QUICK = {"rounds": 2, "local_steps": 4, "hidden": (8,), "batch_size": 16}


@pytest.fixture
def corridor():
    clients = {"good": walks(0, right=0.9), "aimless": walks(1, right=0.5)}
    return Federation.of(clients, action=SPACE.action)


def run(tmp_path, corridor, name="run", **settings):
    return fova.train(clients=corridor, directory=tmp_path / name, **(QUICK | settings))


def test_a_federation_of_codes_has_a_discrete_space(corridor):
    assert corridor.space == SPACE
    prepared = corridor.prepared(fova.data.normalise.Normaliser.identity(5))
    np.testing.assert_array_equal(prepared["good"].actions, corridor.clients["good"].actions)
    bad = replace(walks(0, right=0.9), actions=walks(0, right=0.9).actions + 0.5)
    with pytest.raises(FovaError, match=r"'bad'.*\n.*whole numbers from 0 to 1"):
        Federation.of({"bad": bad}, action=SPACE.action)
    with pytest.raises(FovaError, match="bounds are given, but actions are discrete"):
        bounded(SPACE.action, (0.0, 1.0))


@pytest.mark.parametrize("algorithm", ["fova", "cql-fl", "fed-bc", "fed-iql", "fedora"])
def test_the_policy_of_a_run_is_categorical_and_knows_the_names(tmp_path, corridor, algorithm):
    result = run(tmp_path, corridor, algorithm=algorithm)
    policy = fova.load_policy(result.directory)
    assert policy.kind == "categorical"
    assert policy.space.action == Discrete(("left", "right"))
    np.testing.assert_allclose(policy.probabilities(EVERY_PLACE).sum(axis=-1), 1.0, rtol=1e-5)


def test_two_parts_of_a_run_are_the_whole_run(tmp_path, corridor):
    whole = run(tmp_path, corridor, "whole")
    part = run(tmp_path, corridor, "part", rounds=1)
    config = part.directory / "config.toml"
    config.write_text(config.read_text().replace("rounds = 1", "rounds = 2"))
    resume(part.directory, federation=corridor)
    one, other = (fova.load_policy(it.directory) for it in (whole, part))
    for name, values in one.weights.items():
        np.testing.assert_array_equal(values, other.weights[name])


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "local"},
        {"mode": "centralised"},
        {"aggregation": "value"},
        {"aggregation": "median"},
        {"compress": "float16"},
        {
            "privacy": "client",
            "privacy_clip": 1.0,
            "privacy_noise": 1.0,
            "aggregation": "uniform",
            "reward_unit": 1.0,
            "normalise": False,
        },
    ],
    ids=str,
)
def test_every_way_to_train_serves_discrete_actions(tmp_path, corridor, settings):
    result = run(tmp_path, corridor, rounds=1, **settings)
    assert (result.directory / "metrics.jsonl").read_text().count("\n") >= 1


@pytest.mark.parametrize("algorithm", ["fova", "cql-fl", "fed-iql", "fedora"])
def test_fedoras_weights_by_value_serve_every_algorithm_with_critics(tmp_path, corridor, algorithm):
    result = run(tmp_path, corridor, rounds=1, algorithm=algorithm, aggregation="value")
    clients = json.loads((result.directory / "metrics.jsonl").read_text().splitlines()[-1])["clients"].values()
    weights = np.exp([0.1 * client["value"] for client in clients])
    np.testing.assert_allclose([one["server_weight"] for one in clients], weights / weights.sum(), rtol=1e-5)


def test_fedora_learns_the_way_from_clients_who_walk_badly(tmp_path):
    clients = Federation.of({name: walks(i, right=0.45) for i, name in enumerate("ab")}, action=SPACE.action)
    learning = {
        "hidden": (16,),
        "batch_size": 64,
        "discount": 0.9,
        "actor_lr": 3e-3,
        "critic_lr": 3e-3,
        "tau": 0.02,
    }
    result = run(tmp_path, clients, algorithm="fedora", rounds=12, local_steps=60, **learning)
    np.testing.assert_array_equal(result.policy(EVERY_PLACE), 1)


def test_weights_by_value_without_critics_are_refused_with_what_to_use_instead(tmp_path, corridor):
    with pytest.raises(FovaError, match=r"makes none\. Choose returns"):
        run(tmp_path, corridor, rounds=1, algorithm="fed-bc", aggregation="value")


def test_an_algorithm_for_continuous_actions_is_refused_before_anything_is_written(tmp_path, corridor):
    with pytest.raises(FovaError, match=r"drpo serves continuous actions only, .*; choose one of cql-fl, fed-bc"):
        run(tmp_path, corridor, algorithm="drpo")
    assert not (tmp_path / "run").exists()
