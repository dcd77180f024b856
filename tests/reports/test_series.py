from dataclasses import replace

import numpy as np
import pytest

from fova.reports import series
from fova.reports.groups import Group, read_groups
from fova.run.records import RoundRecord
from made_runs import described, entries, interrupt, make_run, result


@pytest.fixture
def seeds(tmp_path):
    return [make_run(tmp_path / str(seed), seed) for seed in range(3)]


def returns(run):
    """The server's return by gradient steps; after the last round it is that of the final evaluation."""
    along = {2 * line["round"]: line["server"]["return"] for line in entries(run) if "server" in line}
    return along | {8: result(run)["server"]}


def test_a_curve_over_seeds_has_the_mean_and_the_interval(seeds):
    (group,) = read_groups(seeds)
    curve = series.learning_curve(group)
    assert curve.steps == [0.0, 4.0, 8.0]
    table = np.array([[returns(run)[step] for step in curve.steps] for run in seeds])
    assert curve.mean == pytest.approx(table.mean(axis=0))
    # three seeds have no interval: the band is from the lowest to the highest
    assert curve.low == pytest.approx(table.min(axis=0))
    assert curve.high == pytest.approx(table.max(axis=0))


def test_one_seed_has_no_interval_and_an_unplayed_run_no_curve(tmp_path, seeds):
    (group,) = read_groups(seeds[:1])
    assert series.learning_curve(group).low is None
    (group,) = read_groups([make_run(tmp_path / "files", task=None)])
    assert series.learning_curve(group) is None


def test_only_evaluations_that_all_seeds_had_are_averaged(seeds):
    for run, rounds in zip(seeds, (4, 3, 2)):
        interrupt(run, after=rounds)
    (group,) = read_groups(seeds)
    assert series.learning_curve(group).steps == [0.0, 4.0]


def test_a_curve_ends_at_the_headline_also_beside_a_run_under_way(seeds):
    interrupt(seeds[0], after=3)
    (group,) = read_groups(seeds)
    curve = series.learning_curve(group)
    assert curve.steps[-1] == 8.0
    assert curve.mean[-1] == pytest.approx(np.mean(group.finals))
    assert curve.mean[-1] == pytest.approx(np.mean([result(run)["server"] for run in seeds[1:]]))


def logged_means(seeds, client, metric):
    return np.mean([[line["clients"][client][metric] for line in entries(run)[1:]] for run in seeds], axis=0)


def test_votes_are_means_over_seeds(seeds):
    (group,) = read_groups(seeds)
    for votes in series.votes(group):
        assert votes.steps == [2.0, 4.0, 6.0, 8.0]
        for voter, shares in votes.shares.items():
            assert shares == pytest.approx(logged_means(seeds, votes.client, f"vote_{voter}"))
        assert [sum(parts) for parts in zip(*votes.shares.values())] == pytest.approx([1.0] * 4)
        assert votes.weight == pytest.approx(logged_means(seeds, votes.client, "weight"))


def test_long_runs_are_thinned(seeds):
    (group,) = read_groups(seeds[:1])
    rounds = tuple(
        RoundRecord(n, {"a": {"vote_local": 0.5 - n / 1000, "vote_behaviour": 0.5, "vote_global": n / 1000}})
        for n in range(1, 251)
    )
    (votes,) = series.votes(Group("long", (replace(group.first, rounds=rounds),)))
    assert len(votes.steps) == series.MOST_POINTS
    assert votes.steps[0] == pytest.approx(4.0)  # rounds 1, 2 and 3 of 2 steps each
    assert votes.shares["global"][0] == pytest.approx(0.002)
    assert votes.late("global") == pytest.approx(0.2305)  # rounds 211 to 250
    assert votes.late_weight is None


def test_clients_played_along_training(tmp_path):
    run = make_run(tmp_path / "one", evaluate_clients=True)
    played = [line["client_play"] for line in entries(run) if "client_play" in line]
    (group,) = read_groups([run])
    names = ("expert-1", "random-1")
    along = {name: [*(clients[name]["return"] for clients in played), result(run)[name]] for name in names}
    assert {curve.label: curve.mean for curve in series.client_curves(group)} == along
    means = np.mean(list(along.values()), axis=0)
    assert series.mean_client_curve(group).mean == pytest.approx(means)


def test_the_data_and_the_policy_of_every_client(seeds):
    (group,) = read_groups(seeds)
    for row in series.client_returns(group):
        assert row.data == pytest.approx(np.mean([described(run)[row.client]["behaviour_return"] for run in seeds]))
        assert row.policy == pytest.approx(np.mean([result(run)[row.client] for run in seeds]))
    assert series.data_returns(group) == [row.data for row in series.client_returns(group)]
