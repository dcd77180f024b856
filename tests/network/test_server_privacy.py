"""Noise at a trusted server over the network."""

import json
from itertools import count

import jax
import numpy as np
import pytest
from test_rounds import assert_close, grid, new_run, settings, simulated, train, ward_files  # noqa: F401  fixtures

from fova.errors import FovaError
from fova.federation import rounds
from fova.network import engine
from fova.network.budget import BUDGET

PRIVATE = {
    **{"privacy": "server", "privacy_clip": 0.05, "privacy_noise": 0.5},
    **{"aggregation": "uniform", "normalise": False, "reward_unit": 1.0},
}


def test_the_same_noise_gives_the_same_run_as_the_simulation(grid, ward_files, tmp_path, monkeypatch):  # noqa: F811
    config, number = settings(rounds=2, **PRIVATE), count()
    root = jax.random.key(config.run.seed)
    monkeypatch.setattr(engine, "secret_key", lambda: rounds.publication_key(root, next(number)))
    run = new_run(tmp_path, config)
    state = train(grid, run)
    expected, _ = simulated(ward_files, config)
    assert_close(state.broadcast, expected.broadcast)
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["clients"] == {}
    assert lines[-1]["privacy"]["epsilon"] > lines[1]["privacy"]["epsilon"] > 0.0
    assert not list((tmp_path / "clients").rglob(BUDGET)), "the client adds no noise that it could account for"


def test_the_noise_is_secret_and_of_the_declared_size(grid, tmp_path):  # noqa: F811
    run = new_run(tmp_path, settings(rounds=1, **PRIVATE | {"privacy_clip": 100.0, "privacy_noise": 2.0}))
    state = train(grid, run)
    leaves = jax.tree.leaves(state.broadcast)
    # 200 of noise on the sum of three clients; the networks themselves are below 1
    spread = np.std(np.concatenate([np.ravel(leaf) for leaf in leaves]))
    assert spread == pytest.approx(200 / 3, rel=0.15)


def test_chance_does_not_count_over_a_network(tmp_path):
    with pytest.raises(FovaError, match="who is connected"):
        new_run(tmp_path, settings(**PRIVATE, participation=0.5))
