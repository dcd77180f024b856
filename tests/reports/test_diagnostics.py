"""Diagnostics of a run without a task, with figures that are made up: no run is trained here."""

import math
from types import SimpleNamespace

from fova.reports.diagnostics import diagnostics
from fova.run.records import RoundRecord


def group(values, task=None):
    """`values`: client -> its critic's loss, round by round; None where it took no part. Rounds have two steps."""
    rounds = [RoundRecord(0, {})]
    for i in range(max(map(len, values.values()))):
        here = {name: {"critic_loss": each[i]} for name, each in values.items() if each[i] is not None}
        rounds.append(RoundRecord(i + 1, here))
    record = SimpleNamespace(rounds=tuple(rounds), run=SimpleNamespace(local_steps=2))
    return SimpleNamespace(first=record, client_names=list(values), task=task)


def chart(values):
    (found,) = diagnostics(group(values))
    return found


def test_the_mean_of_the_clients_is_described():
    found = chart({"north": [1.0, 2.0, 3.0], "south": [3.0, 4.0, 9.0]})
    assert found.caption.startswith("mean of the clients: from 2 to 6. A loss that keeps growing")
    assert found.note == ""


def test_the_mean_is_over_the_steps_that_all_clients_have():
    found = chart({"north": [1.0, 2.0, 3.0, 4.0], "south": [None, 4.0, 9.0, math.nan]})
    assert found.caption.startswith("mean of the clients: from 3 to 6.")


def test_clients_that_share_no_two_steps_have_no_mean():
    found = chart({"north": [1.0, 2.0, 3.0, None], "south": [None, None, 4.0, 8.0]})
    assert found.caption.startswith("south: from 4 to 8.")
    both = chart({"north": [1.0, 2.0, 3.0, None], "south": [None, 4.0, 9.0, 8.0]})
    assert both.caption.startswith("mean of the clients: from 3 to 6."), "two are enough"


def test_a_single_point_is_no_curve():
    assert diagnostics(group({"north": [1.0, math.nan, None]})) == []
    found = chart({"north": [1.0, math.nan, None], "south": [4.0, 5.0, 6.0]})
    assert found.caption.startswith("mean of the clients: from 4 to 6.")


def test_runs_with_a_task_show_returns_instead():
    assert diagnostics(group({"north": [1.0, 2.0]}, task="hopper")) == []


def test_more_than_twelve_clients_are_in_the_mean_only():
    twelve = {f"c{i}": [float(i), 2.0 * i] for i in range(12)}
    assert chart(twelve).note == ""
    found = chart(twelve | {"c12": [12.0, 24.0]})
    assert found.note == "1 more client is in the mean."
    assert chart(twelve | {"c12": [12.0, 24.0], "c13": [1.0, 2.0]}).note == "2 more clients are in the mean."
    assert found.caption.startswith("mean of the clients: from 6 to 12.")


def test_a_long_run_has_at_most_a_hundred_points():
    """Of 251 lines every third is taken: rounds 0, 3, ..., 249."""
    found = chart({"north": [float(i + 1) for i in range(250)]})
    assert found.caption.startswith("mean of the clients: from 3 to 249.")
    found = chart({"north": [float(i + 1) for i in range(99)]})
    assert found.caption.startswith("mean of the clients: from 1 to 99."), "a hundred lines are all taken"
