import json

import pytest

from fova.reports import series
from fova.reports.records import read_groups
from made_runs import make_run


def test_a_curve_over_seeds_has_the_mean_and_the_interval(tmp_path):
    (group,) = read_groups([make_run(tmp_path / str(seed), seed, shift=3.0 * seed) for seed in range(3)])
    curve = series.learning_curve(group)
    assert curve.steps == [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
    assert curve.mean == pytest.approx([3.0, 9.0, 15.0, 21.0, 27.0, 33.0])
    assert (curve.low[0], curve.high[0]) == pytest.approx((0.0, 6.0))


def test_one_seed_has_no_interval_and_an_unplayed_run_no_curve(tmp_path):
    (group,) = read_groups([make_run(tmp_path / "one")])
    assert series.learning_curve(group).low is None
    (group,) = read_groups([make_run(tmp_path / "wards", task=None)])
    assert series.learning_curve(group) is None


def test_only_evaluations_that_all_seeds_had_are_averaged(tmp_path):
    runs = [make_run(tmp_path / "short", 0, rounds=4, finished=False), make_run(tmp_path / "long", 1, rounds=10)]
    (runs[0] / "config.toml").write_text((runs[1] / "config.toml").read_text().replace("seed = 1", "seed = 0"))
    (group,) = read_groups(runs)
    assert series.learning_curve(group).steps == [0.0, 200.0, 400.0]


def test_votes_are_averaged_over_seeds_and_long_runs_are_thinned(tmp_path):
    (group,) = read_groups([make_run(tmp_path / str(seed), seed, rounds=250) for seed in range(2)])
    expert, random = series.votes(group)
    assert len(expert.steps) == series.MOST_POINTS
    assert expert.steps[0] == pytest.approx(200.0)  # rounds 1, 2 and 3 of 100 steps each
    assert expert.shares["behaviour"][0] == pytest.approx(0.5 + 0.4 * 2 / 250)
    for client in (expert, random):
        assert [sum(parts) for parts in zip(*client.shares.values())] == pytest.approx([1.0] * series.MOST_POINTS)
    assert expert.late_weight == pytest.approx(0.5)


def test_clients_played_along_training(tmp_path):
    run = make_run(tmp_path / "one", rounds=2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[2]["client_play"] = {"expert-1": {"return": 8.0}, "random-1": {"return": 2.0}}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (group,) = read_groups([run])
    assert series.mean_client_curve(group).mean == [5.0]
    assert [(curve.label, curve.mean) for curve in series.client_curves(group)] == [
        ("expert-1", [8.0]),
        ("random-1", [2.0]),
    ]


def test_the_servers_weights_need_a_rule_that_the_log_tells(tmp_path):
    (plain,) = read_groups([make_run(tmp_path / "plain")])
    assert series.server_shares(plain.first) is None
    by_value = make_run(tmp_path / "value")
    (by_value / "config.toml").write_text(
        (by_value / "config.toml").read_text().replace("rounds = 10", 'rounds = 10\naggregation = "value"')
    )
    shares = series.server_shares(read_groups([by_value])[0].first)
    assert shares == pytest.approx({"expert-1": 0.6457, "random-1": 0.3543}, abs=1e-4)
    logged = make_run(tmp_path / "logged", rounds=1)
    text = (logged / "metrics.jsonl").read_text().replace('"weight": 0.5', '"log_weight": -1.0', 1)
    (logged / "metrics.jsonl").write_text(text.replace('"weight": 0.5', '"log_weight": 0.0', 1))
    shares = series.server_shares(read_groups([logged])[0].first)
    assert shares == pytest.approx({"expert-1": 0.2689, "random-1": 0.7311}, abs=1e-4)
