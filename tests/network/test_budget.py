"""A client that protects itself: its floor, its account, and one answer for one question."""

import json

import numpy as np
import pytest
from in_process import InProcessGrid
from test_rounds import LAST, NAMES, Notes, new_run, settings, train

from fova.errors import FovaError
from fova.federation import accountant
from fova.federation.privacy import Privacy, Private
from fova.network.budget import BUDGET, Budget, Floor, keep_answer, kept_answer, question_digest
from fova.network.intake import Refused
from tiny import make_transitions, save_npz

FLOOR = "clip=1,noise=2,epsilon=8"
PRIVATE = {"privacy": "client", "privacy_clip": 0.1, "privacy_noise": 4.0, "aggregation": "uniform"}


def private(noise_at="client", clip=1.0, noise=2.0):
    return Privacy(noise_at, clip, noise, 1e-5, 3)


# --- The floor ---


def test_a_floor_is_read_from_text():
    assert Floor.parse(FLOOR) == Floor(1.0, 2.0, 8.0, 1e-5)
    assert Floor.parse(" clip=0.5, noise=3,epsilon=1,delta=1e-6").delta == 1e-6
    assert Floor.parse("clip=1,noise=0.2,epsilon=8").noise == 0.2, "half of it is the least that is accounted for"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "clip=1,noise=2,epsilon=8"),
        ("clip=1", "clip=1,noise=2,epsilon=8"),
        ("clip=1,noise=two,epsilon=8", "clip=1,noise=2,epsilon=8"),
        ("clip=1,noise=2,epsilon=8,colour=3", "clip=1,noise=2,epsilon=8"),
        ("clip=0,noise=2,epsilon=8", "clip=0, but it must be a number above 0"),
        ("clip=1,noise=2,epsilon=nan", "epsilon=nan"),
        ("clip=1,noise=0.19,epsilon=8", "noise multiplier"),
        ("clip=1,noise=2,epsilon=8,delta=2", "delta is 2"),
    ],
)
def test_a_floor_without_meaning_is_refused(text, words):
    with pytest.raises(FovaError, match=words):
        Floor.parse(text)


def test_plans_below_the_floor_are_refused_and_others_taken():
    floor = Floor.parse(FLOOR)
    floor.check(private())
    floor.check(private(clip=0.5, noise=9.0))
    for plan, words in (
        (None, "this run has none at the client"),
        (private("server"), "this run has none at the client"),
        (private(clip=1.1), "--privacy-clip 1 or less, and this run has 1.1"),
        (private(noise=1.9), "--privacy-noise 2 or more, and this run has 1.9"),
    ):
        with pytest.raises(Refused, match=words):
            floor.check(plan)


# --- The account ---


def test_the_account_adds_up_rounds_of_different_noise(tmp_path):
    budget = Budget(tmp_path / "new" / "state")
    assert budget.epsilon(1e-5) == 0.0
    for noise in (4.0, 4.0, 6.0):
        budget.spend(noise)
    assert Budget(tmp_path / "new" / "state").answers() == {4.0: 2, 6.0: 1}, "it is on disk"
    # the Gaussian mechanism moved by two norms: divergence a * 4 / (2 noise^2) at order a, added up over answers
    orders = accountant.ORDERS
    total = orders * (2 * 4 / (2 * 16) + 4 / (2 * 36))
    by_hand = (total + np.log1p(-1 / orders) - np.log(orders * 1e-5) / (orders - 1)).min()
    assert budget.epsilon(1e-5) == pytest.approx(by_hand)
    further = accountant.epsilon_of({2.0: 2, 3.0: 3, 4.0: 1}, 1e-5)
    assert budget.epsilon(1e-5, {6.0: 2, 8.0: 1}) == pytest.approx(further)
    assert accountant.epsilon_of({2.0: 7}, 1e-5) == pytest.approx(accountant.epsilon(2.0, 1.0, 7, 1e-5))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"answers": {"x": 1}}'])
def test_an_account_that_cannot_be_read_stops_the_client(tmp_path, content):
    (tmp_path / BUDGET).write_text(content)
    with pytest.raises(FovaError, match="Restore it"):
        Budget(tmp_path).epsilon(1e-5)


@pytest.mark.parametrize(("noise", "count"), [(0.0, 1), (0.19, 1), (4.0, 0), (4.0, -1), (float("nan"), 1)])
def test_an_account_that_no_client_writes_stops_it_too(tmp_path, noise, count):
    """The noise is at least 0.1 of the two norms that one client's data moves an answer by."""
    (tmp_path / BUDGET).write_text(json.dumps({"answers": {noise: count}}))
    with pytest.raises(FovaError, match=r"holds noise or counts that no client writes\. Restore it"):
        Budget(tmp_path).epsilon(1e-5)


def test_the_least_noise_and_the_least_count_can_be_read(tmp_path):
    Budget(tmp_path).spend(0.2)
    assert Budget(tmp_path).answers() == {0.2: 1}
    assert Budget(tmp_path).epsilon(1e-5) == pytest.approx(accountant.epsilon(0.1, 1.0, 1, 1e-5))


def test_an_answer_that_would_exceed_the_budget_is_refused(tmp_path):
    floor, budget = Floor(1.0, 2.0, epsilon=8.0), Budget(tmp_path)
    given = 0
    while accountant.epsilon_of({1.0: given + 1}, 1e-5) <= 8.0:
        budget.insist_on_room(floor, private())
        budget.spend(2.0)
        given += 1
    assert given >= 1
    with pytest.raises(Refused, match=r"budget is spent: one more answer makes epsilon .*, and it allows 8"):
        budget.insist_on_room(floor, private())


def test_the_last_answer_may_spend_all_that_is_left(tmp_path):
    one = accountant.epsilon_of({1.0: 1}, 1e-5)
    Budget(tmp_path).insist_on_room(Floor(1.0, 2.0, epsilon=one), private())
    with pytest.raises(Refused, match="budget is spent"):
        Budget(tmp_path).insist_on_room(Floor(1.0, 2.0, epsilon=one * 0.999), private())


def test_an_answer_comes_back_for_its_own_question_only(tmp_path):
    broadcast = {"w": np.array([1.0, 2.0], np.float32)}
    question = question_digest("0" * 32, 4, broadcast)
    assert kept_answer(tmp_path, question) is None
    keep_answer(tmp_path, question, {"a/b": np.arange(3.0)})
    np.testing.assert_array_equal(kept_answer(tmp_path, question)["a/b"], np.arange(3.0))
    for other in (
        question_digest("1" * 32, 4, broadcast),
        question_digest("0" * 32, 5, broadcast),
        question_digest("0" * 32, 4, {"w": np.array([1.0, 2.5], np.float32)}),
    ):
        assert kept_answer(tmp_path, other) is None


def test_an_answer_is_never_a_pickle(tmp_path):
    anything = np.array([{"a": 1}], dtype=object)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        keep_answer(tmp_path, "question", {"w": anything})
    np.savez(tmp_path / "last-answer.npz", question=np.array("question"), w=anything)
    with pytest.raises(FovaError, match=r"last-answer\.npz cannot be read: .* Delete it"):
        kept_answer(tmp_path, "question")


def test_the_server_shortens_what_no_honest_client_can_send():
    envelope, broadcast = Private(clip=1.0, deviation=2.0), {"w": np.zeros(4, np.float32)}
    from fova.algorithms.base import Submission

    sent = Submission({"w": np.full(4, 1e6, np.float32)}, np.zeros((), np.float32), {})
    received = envelope.decode(sent, broadcast).parameters["w"]
    assert np.linalg.norm(received) == pytest.approx(1.0 + 2.0 * (2.0 + 6.0), rel=1e-5)
    honest = Submission({"w": np.full(4, 2.5, np.float32)}, np.zeros((), np.float32), {})
    np.testing.assert_allclose(envelope.decode(honest, broadcast).parameters["w"], 2.5, rtol=1e-6)


# --- In a federation ---


@pytest.fixture
def grid(tmp_path):
    nodes = {}
    for i, name in enumerate(NAMES):
        save_npz(tmp_path / f"{name}.npz", make_transitions(i, episodes=2))
        nodes[100 + i] = {"name": name, "data": str(tmp_path / f"{name}.npz"), "state": str(tmp_path / "s" / name)}
    return InProcessGrid(nodes)


def run_settings(rounds=1, **changes):
    return settings(rounds=rounds, normalise=False, **PRIVATE | changes)


def sent_by(grid, node):
    return [
        message.content.array_records["parameters"][LAST].numpy()
        for way, who, message in grid.log
        if way == "up" and who == node and "parameters" in message.content
    ]


def test_a_client_refuses_a_run_below_its_floor_and_both_sides_say_so(grid, tmp_path):
    grid.nodes[100]["insist_privacy"] = "clip=0.1,noise=5,epsilon=80"
    notes = Notes()
    train(grid, new_run(tmp_path, run_settings(), min_clients=2), notes)
    assert "not admitted, node 100: refused: it insists on --privacy-noise 5 or more, and this run has 4" in notes
    assert sent_by(grid, 100) == []
    assert "insists on --privacy-noise 5" in (tmp_path / "s" / "east" / "journal.jsonl").read_text()


def test_a_client_that_has_spent_its_budget_stops_answering_for_good(grid, tmp_path):
    allowed = accountant.epsilon(2.0, 1.0, 2, 1e-5)  # two answers with noise 4
    grid.nodes[100]["insist_privacy"] = f"clip=0.1,noise=4,epsilon={allowed + 0.01:.3f}"
    train(grid, new_run(tmp_path, run_settings(rounds=4), min_clients=2))
    assert len(sent_by(grid, 100)) == 2
    assert json.loads((tmp_path / "s" / "east" / BUDGET).read_text()) == {"answers": {"4.0": 2}}
    grid.log.clear()
    train(grid, new_run(tmp_path / "another server", run_settings(rounds=1), min_clients=2))
    assert sent_by(grid, 100) == [], "another run, another server, the same account"


def test_a_round_that_is_asked_again_gets_the_same_bytes_and_spends_nothing(grid, tmp_path):
    """East answers the first time into the void: the others fail, and the round is asked again."""
    failures = iter([True] * 4)

    def fails_at_first(reply):
        if "parameters" in reply.content and next(failures, False):
            reply.content.pop("metrics")
        return reply

    grid.tamper = {101: fails_at_first, 102: fails_at_first}
    train(grid, new_run(tmp_path, run_settings(), min_clients=3))
    answers = sent_by(grid, 100)
    assert len(answers) == 3
    assert answers[0].tobytes() == answers[1].tobytes() == answers[2].tobytes()
    assert json.loads((tmp_path / "s" / "east" / BUDGET).read_text()) == {"answers": {"4.0": 1}}
    assert "was asked again" in (tmp_path / "s" / "east" / "journal.jsonl").read_text()


def test_a_private_client_whose_training_diverges_answers_like_any_other(grid, tmp_path, monkeypatch):
    import fova.network.client as flower_client

    work = flower_client.client_work

    def diverged(*arguments):
        learner, sent, _ = work(*arguments)
        return learner, sent, False

    monkeypatch.setattr(flower_client, "client_work", diverged)
    run = new_run(tmp_path, run_settings())
    train(grid, run)
    assert run.metrics()[1]["clients"] == {}
    assert all(len(sent_by(grid, node)) == 1 for node in grid.nodes)
    assert not any("diverged" in str(m.content.config_records) for way, _, m in grid.log if way == "up")
