import io
import json

import numpy as np
import pytest
from rich.console import Console

from fova.evaluation.rollouts import Rollouts
from fova.policy import Policy
from fova.reports.tables import result_table, rollouts_table
from fova.run.training import Result


def rollouts(*returns):
    return Rollouts(np.array(returns), np.full(len(returns), 10), None, [])


def drawn(table):
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "config.toml").touch()
    described = {name: {"behaviour_return": value} for name, value in (("a", 4.0), ("b", 8.0))}
    (tmp_path / "clients.json").write_text(json.dumps(described))
    return tmp_path


def rows_of(text):
    return {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}


@pytest.mark.parametrize(("policy", "first"), [(Policy("clipped", {}), "server"), (None, "all clients")])
def test_without_a_server_no_row_is_called_so(directory, policy, first):
    played = {"a": rollouts(1.0, 2.0), "b": rollouts(3.0, 4.0)}
    rows = rows_of(drawn(result_table(Result(directory, policy, rollouts(1.0, 2.0, 3.0, 4.0), played))))
    assert list(rows) == [first, "a", "b"]
    assert "6.0 (average)" in rows[first]
    assert "8.0" in rows["b"]


def test_the_policy_of_pooled_data_has_no_data_of_its_own(directory):
    text = drawn(result_table(Result(directory, Policy("clipped", {}), rollouts(1.0), {"pooled": rollouts(1.0)})))
    assert "pooled" in text


def test_one_episode_is_one():
    assert rollouts_table({"server": rollouts(2.0)}).title == "mean return of 1 episode"
    assert rollouts_table({"server": rollouts(2.0, 3.0)}).title == "mean return of 2 episodes"
