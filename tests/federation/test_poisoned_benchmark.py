"""The lies of benchmarks/poisoned_clients.py arrive: with honest liars every defence would look good."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fova.federation.client_specs import ClientSpec
from fova.federation.clients import Federation
from fova.run.config import Config, RunConfig
from tiny import make_transitions, save_npz

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import poisoned_clients as benchmark  # noqa: E402
from federation_scores import with_table  # noqa: E402

LIAR = "client-4"


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    specs = []
    for i in range(5):
        save_npz(folder / f"{i}.npz", make_transitions(i))
        specs.append(ClientSpec(str(folder / f"{i}.npz"), name=f"client-{i}"))
    return Federation.build(specs)


def engine_of(members, name):
    config = Config(None, (), benchmark.fova(hidden=(8,), batch_size=8), "fova", RunConfig(rounds=1, local_steps=2))
    object.__setattr__(config, "algorithm", benchmark.WithLiars(config.algorithm, name))
    return benchmark.EngineWithLiars(config, members, benchmark.ATTACKS[name])


@pytest.fixture(scope="module")
def honest(members):
    return engine_of(members, benchmark.HONEST)


def told_by(engine):
    return {name: told.to_json() for name, told in engine._told[0].items()}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, attack in benchmark.ATTACKS.items()
        if attack.clients == 5 and attack.statistics is not benchmark.HONESTLY
    ],
)
def test_false_statistics_reach_the_server(members, honest, name):
    told, true = told_by(engine_of(members, name)), told_by(honest)
    assert [client for client in true if told[client] != true[client]] == [LIAR]


def test_noisy_labels_are_trained_on(members):
    engine = engine_of(members, "label noise")
    for client, data in members.clients.items():
        same = np.array_equal(engine.federation.clients[client].actions, data.actions)
        assert same == (client != LIAR)


def after_a_round(engine, liars):
    state = engine.start()
    state.learners.lies[len(state.learners.lies) - liars :] = 1
    return engine.round(state)[1].clients


@pytest.mark.slow
def test_false_updates_and_claims_reach_the_server(members, honest):
    true = after_a_round(honest, 0)
    nine_times = after_a_round(engine_of(members, "its update x 9"), 1)
    claimed = after_a_round(engine_of(members, benchmark.CLAIMS_WEIGHT), 1)
    assert nine_times[LIAR]["update_norm"] == pytest.approx(9 * true[LIAR]["update_norm"], rel=1e-3)
    assert nine_times["client-0"]["update_norm"] == pytest.approx(true["client-0"]["update_norm"], rel=1e-3)
    assert claimed[LIAR]["value"] == pytest.approx(1e9)
    assert claimed["client-0"]["value"] == pytest.approx(true["client-0"]["value"], rel=1e-3)


def test_the_pages_show_what_was_measured():
    lines = json.loads((ROOT / "results" / "poisoned_clients.json").read_text())["lines"]
    for path, (marker, rows, columns) in benchmark.tables(lines).items():
        page = path.read_text()
        assert with_table(page, marker, rows, columns) == page, "run benchmarks/poisoned_clients.py"


def test_one_liar_of_five_leaves_nine_tenths_of_the_score():
    """One row is below, and the page names it."""
    lines = json.loads((ROOT / "results" / "poisoned_clients.json").read_text())["lines"]
    honest = np.mean(lines[f"{benchmark.HONEST} / default"]["scores"])
    kept = {
        name: np.mean(lines[f"{name} / default"]["scores"]) / honest
        for name, attack in benchmark.ATTACKS.items()
        if attack.clients == 5
    }
    below = "label noise, claims rewards a million times as high"
    assert {name for name, share in kept.items() if share < 0.9} == {below}
    assert kept[below] > 0.85
