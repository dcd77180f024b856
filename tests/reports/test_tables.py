import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from fova.evaluation.rollouts import Rollouts
from fova.policy import load_policy
from fova.reports.tables import result_table, rollouts_table
from fova.run.result import Result
from made_runs import described, make_run


def rollouts(*returns):
    return Rollouts(np.array(returns), np.full(len(returns), 10), None, [])


def drawn(table):
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    return console.file.getvalue()


@pytest.fixture
def directory(tmp_path):
    return make_run(tmp_path / "run")


def rows_of(text):
    return {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}


@pytest.mark.parametrize(("policy", "first"), [(load_policy, "server"), (lambda directory: None, "all clients")])
def test_without_a_server_no_row_is_called_so(directory, policy, first):
    played = {"expert-1": rollouts(1.0, 2.0), "random-1": rollouts(3.0, 4.0)}
    rows = rows_of(drawn(result_table(Result(directory, policy(directory), rollouts(1.0, 2.0, 3.0, 4.0), played))))
    assert list(rows) == [first, "expert-1", "random-1"]
    data = {name: facts["behaviour_return"] for name, facts in described(directory).items()}
    assert f"{np.mean(list(data.values())):.1f} (average)" in rows[first]
    assert f"{data['expert-1']:.1f}" in rows["expert-1"]


def test_the_policy_of_pooled_data_has_no_data_of_its_own(directory):
    text = drawn(result_table(Result(directory, load_policy(directory), rollouts(1.0), {"pooled": rollouts(1.0)})))
    assert "pooled" in text


def test_one_episode_is_one():
    assert rollouts_table({"server": rollouts(2.0)}).title == "mean return of 1 episode"
    assert rollouts_table({"server": rollouts(2.0, 3.0)}).title == "mean return of 2 episodes"


def test_the_figures_of_a_task_are_columns():
    measured = {
        name: replace(rollouts(1.0), measures={"time in range": share}) for name, share in (("a", 0.5), ("b", 0.25))
    }
    text = drawn(rollouts_table(measured))
    assert "time in range" in text
    assert "normalised score" not in text  # nobody has one
    assert "0.500" in rows_of(text)["a"]
    assert "0.250" in rows_of(text)["b"]
