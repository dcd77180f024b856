"""A function of the user's is called after every round, and may end the training; the run can then be resumed."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import fova
from fova.errors import FovaError
from fova.evaluation.rollouts import Rollouts
from fova.progress import Live, Plain, Progress, Quiet, by_default
from fova.run.checkpoint import checkpoints
from fova.run.records import read_record
from made_runs import NETWORKS
from tiny import make_transitions

TINY = NETWORKS | {"rounds": 6, "local_steps": 2, "checkpoint_seconds": 1e6}


def federation():
    return fova.Federation.of({name: make_transitions(i) for i, name in enumerate("ab")})


def train(directory, **settings):
    return fova.train(clients=federation(), directory=directory, **TINY | settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "whole")


def test_every_round_is_reported_with_its_metrics_and_policy(tmp_path, whole):
    reports = []
    result = train(tmp_path / "run", on_round=reports.append)
    assert [(report.round, report.rounds) for report in reports] == [(i, 6) for i in range(1, 7)]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [report.entry for report in reports] == lines[1:]
    assert reports[0].clients.keys() == {"a", "b"}
    assert reports[0].server is None  # there is no task
    for name, weights in reports[-1].policy.weights.items():
        np.testing.assert_array_equal(weights, result.policy.weights[name])
    assert (reports[0].policy.weights["last.weight"] != result.policy.weights["last.weight"]).any()
    assert checkpoints(tmp_path / "run/checkpoints")[-1].read_bytes() == (
        checkpoints(whole.directory / "checkpoints")[-1].read_bytes()
    )


def returns_true(report):
    return report.round == 3


def raises(report):
    if report.round == 3:
        raise fova.StopTraining


@pytest.mark.parametrize("on_round", [returns_true, raises])
def test_a_run_that_is_stopped_early_is_complete_and_goes_on_to_the_same_bytes(tmp_path, whole, on_round):
    directory = tmp_path / "run"
    result = train(directory, on_round=on_round)
    assert result.policy.facts["rounds"] == 3
    assert (directory / "result.json").is_file()
    assert json.loads((directory / "stopped_early.json").read_text()) == {"round": 3}
    record = read_record(directory)
    assert (record.complete, record.rounds_done) == (True, 3)
    again = fova.resume(directory, federation=federation())
    assert again.policy.facts["rounds"] == 6
    assert not (directory / "stopped_early.json").exists()
    for name in ("metrics.jsonl", "policy.safetensors", "result.json"):
        assert (directory / name).read_bytes() == (whole.directory / name).read_bytes()


def test_a_run_that_is_stopped_early_has_a_final_evaluation_and_says_so(tmp_path, fova_command):
    settings = TINY | {"rounds": 5, "evaluate_every": 2, "episodes": 1, "final_episodes": 2}
    seen = []

    def on_round(report):
        seen.append(report.server)
        return report.server is not None  # the evaluation after round 2

    result = fova.train("maze2d-umaze", ["expert", "random"], 400, directory="run", on_round=on_round, **settings)
    assert [server is None for server in seen] == [True, False]
    assert len(result.server.returns) == 2
    record = read_record(tmp_path / "run")
    assert (record.final.round, record.rounds_done) == (2, 2)
    code, _, err = fova_command("report", "run", "--no-pictures")
    assert (code, err) == (0, "")
    assert "was stopped early, after 2 of 5 rounds" in (tmp_path / "run/report.html").read_text()
    shutil.copytree("run", "again")
    code, _, err = fova_command("train", "--resume", "again", "--quiet")
    assert (code, err) == (0, "")
    assert read_record(tmp_path / "again").final.round == 5


def test_other_answers_and_the_last_round_stop_nothing(tmp_path):
    result = train(tmp_path / "run", rounds=2, on_round=lambda report: 1 if report.round == 1 else True)
    assert result.policy.facts["rounds"] == 2
    assert not (tmp_path / "run/stopped_early.json").exists()


def test_an_error_in_the_function_is_the_users_and_the_run_can_be_resumed(tmp_path, whole):
    def on_round(report):
        if report.round == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        train(tmp_path / "run", on_round=on_round)
    fova.resume(tmp_path / "run", federation=federation())
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (whole.directory / "metrics.jsonl").read_bytes()


# --- Settings ---


@pytest.mark.parametrize(
    ("given", "meant"), [("ruonds", "rounds"), ("hiden", "hidden"), ("lamb", "lam"), ("algorthm", "algorithm")]
)
def test_a_misspelt_setting_gets_a_suggestion_from_all_settings(tmp_path, given, meant):
    with pytest.raises(FovaError, match=f"called '{given}'") as refused:
        fova.train(clients=federation(), directory=tmp_path / "run", **{given: 3})
    assert f"Did you mean '{meant}'" in str(refused.value)
    with pytest.raises(FovaError, match="lambda of fova is 'much', but must be a number"):
        fova.train(clients=federation(), directory=tmp_path / "run", **{"lambda": "much"})
    assert not (tmp_path / "run").exists()


# --- Progress ---


class Stream:
    def __init__(self, terminal):
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        return len(text)

    def flush(self):
        pass


class ZMQInteractiveShell:
    """Named as the shell of a notebook."""


@pytest.mark.parametrize(
    ("terminal", "notebook", "given", "shown"),
    [
        (True, False, None, Live),
        (False, False, None, Quiet),
        (False, True, None, Plain),
        (True, False, False, Quiet),
        (False, False, True, Plain),
        (False, True, False, Quiet),
    ],
)
def test_progress_is_shown_where_a_person_looks(monkeypatch, terminal, notebook, given, shown):
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdout", Stream(terminal))
    if notebook:
        shell = type("IPython", (), {"get_ipython": staticmethod(ZMQInteractiveShell)})
        monkeypatch.setitem(__import__("sys").modules, "IPython", shell)
    display = by_default(given)
    display.finish()
    assert type(display) is shown


def test_a_given_display_is_taken_as_it_is():
    class Mine(Progress):
        def handle(self, event):
            pass

    mine = Mine()
    assert by_default(mine) is mine


# --- Results ---


def test_a_result_prints_as_a_table(tmp_path, whole):
    assert repr(whole).splitlines()[0] == f"run      {whole.directory}"
    assert "3 observation columns and 2 action columns" in repr(whole)
    played = {"server": (7.25, 1.0), "<north>": (-12.0, 0.5)}
    made = {
        name: Rollouts(np.array([mean - 1, mean + 1]), np.array([5, 5]), score, [])
        for name, (mean, score) in played.items()
    }
    result = fova.Result(tmp_path / "run", whole.policy, made.pop("server"), made)
    assert repr(result).splitlines()[:3] == [
        "policy   return  spread  score  episodes",
        "server      7.2     1.0    1.0         2",
        "<north>   -12.0     1.0    0.5         2",
    ]
    page = result._repr_html_()
    assert "<td>&lt;north&gt;</td><td>-12.0</td><td>1.0</td><td>0.5</td><td>2</td>" in page
    assert str(tmp_path / "run") in page
    assert "<table>" not in whole._repr_html_()
    noted = replace(result, notes=("<north>: Not used: lab_ph.",))
    assert repr(noted).splitlines()[-1] == "note     <north>: Not used: lab_ph."
    assert "<div>note: <code>&lt;north&gt;: Not used: lab_ph.</code></div>" in noted._repr_html_()
