import json
from pathlib import Path

import pytest

from fova import algorithms
from fova.paper import catalogue, cost
from fova.paper import experiments as paper

ROOT = Path(__file__).parents[2]
MEASURED = cost.Speeds(
    processor="an abacus",
    cores=2,
    client_steps={"fova": [312.0, 43.8], "cql-fl": [75.1, 8.11]},
    environment_steps=9_240.0,
    maze_steps=16_600.0,
    compiling=24.4,
    compiled=7.5,
)


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    monkeypatch.setattr(cost, "speeds", lambda: MEASURED)


def test_the_estimate_by_hand():
    run = catalogue.get("server-or-clients").runs(paper.SMALL)[0]
    training = 40 * 100 * 4 / (312.0 / 2)  # rounds, local steps, clients; one of two cores
    # before training and after 10, 20 and 30 of 40 rounds 5 episodes of server and 4 clients; 20 of each at the end
    playing = (4 * 5 * 5 + 20 * 5) * 1000 / 9_240.0
    assert cost.core_seconds(run) == pytest.approx(24.4 + training + playing)
    later = next(r for r in catalogue.get("server-or-clients").runs(paper.SMALL) if r.config.run.seed == 1)
    assert cost.core_seconds(later) == pytest.approx(7.5 + training + playing)


def test_the_estimate_counts_the_episodes_from_the_data_of_every_stage():
    run = catalogue.get("continual").runs(catalogue.get("continual").scale("small"))[0]
    training = 80 * 100 * 4 / (312.0 / 2)
    # 8 evaluations of 5 episodes and 20 of server and 4 clients; after 8 stages 20 from the states of 4 sources
    steps = (8 * 5 + 20 * 5) * 1000 + 8 * 20 * 4 * 200
    assert cost.core_seconds(run) == pytest.approx(24.4 + training + steps / 9_240.0)


def test_minibatch_samples_and_width_count():
    def speed(name, **settings):
        return cost.client_steps(name, algorithms.configure(name, **settings))

    small = {"hidden": (128, 128), "batch_size": 128}
    assert speed("fova", **small) == pytest.approx(156.0)
    assert speed("fova") == pytest.approx(21.9)
    assert speed("fova", batch_size=64) == pytest.approx(4 * 21.9)
    assert speed("cql-fl", **small, samples=10) == pytest.approx(37.55)
    assert speed("cql-fl", **small, samples=5) == pytest.approx(75.1)


def test_the_speeds_are_those_of_the_committed_measurement():
    measured = json.loads((ROOT / "results/bench.json").read_text())
    committed = cost.Speeds(**json.loads(cost.SPEEDS.read_text()))
    assert committed == cost.Speeds.of(measured), "make them anew: python benchmarks/performance_page.py"
    assert set(committed.client_steps) == set(algorithms.by_name())
    assert committed.client_steps["fova"] == [
        measured["algorithms"]["figures"][size]["fova"]["median"]
        for size in ("2x128, batch 128", "3x256, batch 256")
    ]
