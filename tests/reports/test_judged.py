"""The verdict and the training diagnostics on the page of a run without a task."""

import html
import json
from dataclasses import replace

import pytest

from fova.errors import FovaError
from fova.reports.page import write_report
from fova.reports.verdicts import ranking_sentence
from fova.run.records import read_record
from made_runs import make_run


def verdict(run, value=7.0):
    """A verdict on a run's own clients, as judge.json holds it."""
    figures = {
        "episodes": 20, "rows": 400, "data_value": 5.0, "data_return": 9.0, "value": value, "low": value - 1,
        "high": value + 1, "difference": value - 5, "difference_low": value - 6, "difference_high": value - 4,
        "bellman_error": 0.1, "bias": 0.2, "episode_error": 0.3, "fit_error": 0.1, "difference_error": 0.3,
        "inside": 0.9, "effective_episodes": None, "importance_sampling": None, "importance_low": None,
        "importance_high": None, "doubly_robust": None, "doubly_robust_low": None, "doubly_robust_high": None,
    }  # fmt: skip
    clients = json.loads((run / "clients.json").read_text())
    content = {"format": 1, "policy": "fova", "discount": 0.99, "held_out": True, "sentence": "",
               "clients": dict.fromkeys(clients, figures), "federation": figures, "settings": {}}  # fmt: skip
    (run / "judge.json").write_text(json.dumps(content))


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", task=None)


def test_a_judged_run_answers_whether_it_would_be_better(run, tmp_path):
    before = write_report([run], tmp_path / "before.html", {}).read_text()
    assert "Would this be better" not in before
    assert f"To estimate it: fova judge {run}" in before
    assert "Server against clients" not in before
    assert "data earned" in before
    verdict(run)
    page = write_report([run], tmp_path / "page.html", {}).read_text()
    assert "Would this be better than what was done?" in page
    assert "Better than current practice at 2 of 2 clients." in page
    assert "7.00 (90 % interval 6.00 to 8.00)" in page
    assert "the policy: 7.00 [6.00, 8.00]" in page
    assert "in 90 % of the states" in page
    assert "The judge estimates: Better than current practice at 2 of 2 clients." in page


def test_every_return_says_which_one_it_is(tmp_path):
    run = make_run(tmp_path / "run", task=None, hold_out=0.5)
    before = write_report([run], tmp_path / "before.html", {}).read_text()
    assert (
        "One seed. Undiscounted returns, for the data those of the episodes that the clients train on.<" in before
    )
    verdict(run)
    page = html.unescape(write_report([run], tmp_path / "page.html", {}).read_text())
    assert "train on; the judge's figures are discounted returns of held-out episodes." in page
    assert ">undiscounted return of an episode<" in page
    assert ">discounted return from the first state<" in page
    assert (
        "the logged episodes earned 5.00. These are discounted returns from the first state of an episode "
        "(discount 0.99); the estimate is worth 0.07 a step. An episode that was cut off counts as going on: in "
        "the logged returns the mean value of the data is added for the rest of it."
    ) in page
    assert "The undiscounted return of the same logged episodes, with nothing added, is 9.00 on average." in page
    assert "; returns are undiscounted" in page


def test_runs_with_a_task_are_judged_too(tmp_path):
    run = make_run(tmp_path / "run")
    verdict(run)
    page = write_report([run], tmp_path / "page.html", {}).read_text()
    assert "Would this be better than what was done?" in page
    assert "How training went" not in page  # it shows returns instead


def test_a_run_without_a_task_shows_its_diagnostics(run, tmp_path):
    page = write_report([run], tmp_path / "page.html", {}).read_text()
    assert "How training went" in page
    for title in ("Loss of the critics", "Q of the logged actions", "TD error", "Distance from the global policy"):
        assert title in page


def test_federated_against_local(tmp_path):
    federated = make_run(tmp_path / "federated", task=None)
    local = make_run(tmp_path / "local", task=None, mode="local")
    verdict(federated, value=9.0)
    verdict(local, value=6.0)
    page = write_report([federated, local], tmp_path / "page.html", {}).read_text()
    assert "fova: By the judge, taking part pays at 2 of 2 clients." in page
    assert "fova: does taking part pay?" in page
    # Both fits have an error of 0.1 and a bias of 0.2: 1.645 * sqrt(0.1^2 + 0.1^2) + 0.2 + 0.2 = 0.63.
    assert page.count("+3.00 ± 0.63") == 2


def test_a_damaged_verdict_is_named(run):
    (run / "judge.json").write_text("{}")
    with pytest.raises(FovaError, match=r"judge\.json"):
        read_record(run)


@pytest.mark.parametrize(
    ("value", "change", "words"),
    [
        (7.0, {}, "b has the highest estimate. It is clearly above a."),
        (5.3, {}, "b has the highest estimate. No clear difference from a."),
        (7.0, {"inside": 0.5}, "b has the highest estimate, but the policy acts outside its data in 50 % of "
         "states: not enough evidence to choose it."),
    ],
)  # fmt: skip
def test_a_ranking_in_words(run, value, change, words):
    # Both fits have an error of 0.1 and a bias of 0.2, so a difference below 1.645 * 0.1 * sqrt(2) + 0.4 = 0.63 is
    # not clear.
    verdict(run, 5.0)
    lower = read_record(run).verdict
    verdict(run, value)
    higher = read_record(run).verdict
    higher = replace(higher, federation=replace(higher.federation, **change))
    assert ranking_sentence([("b", higher), ("a", lower)]) == words
