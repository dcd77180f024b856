"""A client that judges a policy by itself, without a server."""

import json

import numpy as np
import pytest
from test_plan import PRIVATE, judging, plan, policy  # noqa: F401  `policy` is a fixture

from fova.evaluation.judging import client as own_figures
from fova.evaluation.judging.client import Fit
from fova.federation.statistics import Statistics
from fova.network import messages
from fova.network.client import ClientConfig, _kind
from fova.network.intake import Refused
from fova.network.judging_client import JudgingClient
from tiny import make_transitions, save_npz


@pytest.fixture
def client(policy, tmp_path):  # noqa: F811
    """Make the client of a plan that judges a policy."""
    save_npz(tmp_path / "east.npz", make_transitions(0, episodes=6))
    config = ClientConfig("east", str(tmp_path / "east.npz"), str(tmp_path / "state"))

    def make(run=(), **changes):
        asked = judging(policy, **changes)
        settings = {"hold_out": 0.5} | dict(run)
        return JudgingClient(config, plan(settings, algorithm=asked.algorithm(), judge=asked))

    return make


def broadcast(own):
    return own.plan.start()[1].broadcast


def test_the_plan_says_which_kind_of_client_answers(client):
    assert _kind(client().plan) is JudgingClient
    assert _kind(plan()) is not JudgingClient


def test_a_client_reports_what_its_episodes_say_and_keeps_its_verdict(client, tmp_path):
    own = client()
    own.checkpoints.mkdir(parents=True)
    answer = own.figures(messages.figures_question(own.plan, broadcast(own)))
    expected = own_figures.figures(Fit(own.asked.policy, broadcast(own).critic, own.asked.scale), own.evidence)
    assert answer["figures"]["value"] == pytest.approx(expected.value, rel=1e-5)
    assert answer["figures"]["episodes"] == expected.episodes == 3
    assert not own.checkpoints.exists(), "what the fit left is deleted"
    file = tmp_path / "state" / "judge.json"
    assert file.read_text().endswith("}\n")
    kept = json.loads(file.read_text())
    assert (list(kept["clients"]), kept["held_out"]) == (["east"], True)
    assert kept["clients"]["east"]["value"] == pytest.approx(expected.value, rel=1e-5)
    journal = (tmp_path / "state" / "journal.jsonl").read_text()
    assert "judged a policy on 3 episodes" in journal


def test_where_nothing_may_leave_only_the_verdict_is_kept(client, tmp_path):
    own = client(PRIVATE | {"hold_out": 0.0})
    answer = own.figures(messages.figures_question(own.plan, broadcast(own)))
    assert set(answer) == {"about"}
    assert json.loads((tmp_path / "state" / "judge.json").read_text())["held_out"] is False
    assert own._told() is None


def test_a_client_tells_about_the_episodes_that_it_judges_on(client):
    own = client()
    told = own._told()
    assert (told.rows, told.episodes) == (len(own.evidence.judged), 3)
    assert told.rows < len(make_transitions(0, episodes=6))


def test_rows_are_fitted_in_the_scale_of_the_plan_whatever_the_statistics_say(client):
    own = client()
    first = own._data(Statistics(own.asked.scale.normaliser, 1.0))
    assert own._data(Statistics(own.asked.scale.normaliser, 7.0)) is first
    judged = own.evidence.judged
    expected = own.asked.scale.rewards(judged.rewards, judged.terminals)
    assert first.batch(np.arange(2)).rewards.tolist() == pytest.approx(expected[:2].tolist(), rel=1e-5)


def test_a_round_without_a_scale_is_refused(client):
    own = client(scale=None)
    with pytest.raises(Refused, match="without the federation's scale"):
        own._data(None)


def test_a_policy_that_is_judged_does_not_change(client, tmp_path):
    own = client()
    own._keep_policy(None, None, 3)
    assert not list((tmp_path / "state").rglob("policy.safetensors"))
