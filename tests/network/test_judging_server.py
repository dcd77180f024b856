"""The server's part of judging a policy, with an engine that trains nothing."""

import json
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, RecordDict
from test_plan import PRIVATE, SUMS, plan, policy  # noqa: F401  `policy` is a fixture

from fova.errors import FovaError
from fova.evaluation.judging.judge import JudgeSettings
from fova.federation import accountant
from fova.network import judging_server, messages
from fova.network.engine import FlowerEngine
from fova.network.judging_server import enter_account
from fova.progress import Note, Quiet, Status
from fova.run.directory import RunDirectory


class Heard(Quiet):
    def __init__(self):
        self.events = []

    def handle(self, event):
        self.events.append(event)

    def all(self, kind):
        return [event.text for event in self.events if isinstance(event, kind)]


# --- The account ---


def account_of(folder):
    file = folder / "judging.json"
    return json.loads(file.read_text()) if file.exists() else None


def test_the_rounds_of_all_fits_are_added_to_those_of_the_training(tmp_path):
    trained, run = (
        plan(PRIVATE),
        RunDirectory(tmp_path),
    )  # three rounds with noise 4, which is 2 for a client's data
    promise = enter_account(trained, run, 5)
    assert (promise.reward_unit, promise.privacy) == (2.0, trained.privacy)
    assert account_of(tmp_path)["rounds"] == 5
    assert account_of(tmp_path)["epsilon"] == pytest.approx(accountant.epsilon(2.0, 1.0, 3 + 5, 1e-5))
    enter_account(trained, run, 4)
    assert account_of(tmp_path)["rounds"] == 9
    assert account_of(tmp_path)["epsilon"] == pytest.approx(accountant.epsilon(2.0, 1.0, 3 + 9, 1e-5))


def test_without_privacy_there_is_nothing_to_account_for(tmp_path):
    assert enter_account(plan(), RunDirectory(tmp_path), 5) is None
    promise = enter_account(plan(SUMS, secure=True), RunDirectory(tmp_path), 5)
    assert (promise.reward_unit, promise.privacy) == (2.0, None)
    assert account_of(tmp_path) is None


def test_a_fit_beyond_the_budget_is_refused_and_not_accounted_for(tmp_path):
    spent = accountant.epsilon(2.0, 1.0, 8, 1e-5)
    trained = plan(PRIVATE | {"privacy_epsilon": spent})
    enter_account(trained, RunDirectory(tmp_path), 5)
    with pytest.raises(FovaError, match="9 rounds would spend epsilon"):
        enter_account(trained, RunDirectory(tmp_path), 1)
    assert account_of(tmp_path)["rounds"] == 5


# --- The fit and its questions ---


def test_a_fit_has_the_rounds_that_it_was_told(monkeypatch):
    asked, clock = [], iter(range(100))
    monkeypatch.setattr(judging_server.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(judging_server, "in_progress", lambda *words: words)

    def round_of(state):
        return SimpleNamespace(broadcast=state.broadcast + 1), None

    engine = SimpleNamespace(
        start=lambda: SimpleNamespace(broadcast=0), round=round_of, progress=SimpleNamespace(status=asked.append)
    )
    assert judging_server._fit(engine, 3) == 3
    # The clock starts anew after the first round, in which programs are compiled: 0; 1, (2), 3, 4.
    assert asked == [(0, 3, 1), (1, 3, 1), (2, 3, 2)]


class Asked:
    """An engine whose clients answer so: name -> reply, or nothing at all."""

    read = FlowerEngine.read

    def __init__(self, answers):
        self.plan, self.progress, self.network = plan(), Heard(), SimpleNamespace(deadline=9.0)
        self.nodes = {name: 100 + i for i, name in enumerate(answers)}
        self.answers = {self.nodes[name]: reply for name, reply in answers.items() if reply is not None}
        self.asking = self

    def wait_for_clients(self):
        return self.nodes

    def ask(self, kind, questions, seconds):
        assert (kind, seconds) == (messages.FIGURES, 9.0)
        assert list(questions) == list(self.nodes.values())
        return self.answers.items()


def reply(value):
    content = RecordDict({"about": ConfigRecord({"value": value})})
    return SimpleNamespace(content=content, has_error=lambda: False)


def told(name, content):
    value = content["about"]["value"]
    if value == "rubbish":
        raise messages.Refused("it sends rubbish")
    return f"{name} {value}"


def test_who_does_not_report_is_named_and_left_out(monkeypatch):
    monkeypatch.setattr(messages, "figures_question", lambda plan, broadcast: broadcast)
    engine = Asked({"west": reply("w"), "north": reply("rubbish"), "south": None, "east": reply("e")})
    found = judging_server._ask(engine, "critics", told)
    assert list(found.items()) == [("east", "east e"), ("west", "west w")]
    assert engine.progress.all(Note) == [
        "north does not report on the policy: it sends rubbish",
        "south does not report on the policy: no answer in time",
    ]
    assert engine.progress.all(Status) == ["every client judges the policy on its own episodes"]


def test_without_a_single_report_there_is_no_verdict(monkeypatch):
    monkeypatch.setattr(messages, "figures_question", lambda plan, broadcast: broadcast)
    with pytest.raises(FovaError, match="No client reported on the policy"):
        judging_server._ask(Asked({"north": reply("rubbish"), "south": None}), "critics", told)


@pytest.mark.parametrize("read", [judging_server._figures, judging_server._nothing])
def test_a_client_reports_in_its_own_name(monkeypatch, read):
    content = messages.no_figures_answer(plan(), "north")
    monkeypatch.setattr(messages, "read_figures", lambda content, plan, told: f"figures of {told}")
    engine = SimpleNamespace(plan=plan(), told={"north": "twelve rows"})
    expected = "figures of twelve rows" if read is judging_server._figures else None
    assert read(engine, "north", content) == expected
    with pytest.raises(messages.Refused, match="another client's name"):
        read(engine, "south", content)


# --- The whole of it ---


@pytest.fixture
def judged(monkeypatch, policy, tmp_path):  # noqa: F811
    """Judge the policy of a run; what was done, and what came of it."""
    policy.save(tmp_path / "policy.safetensors")
    done = []
    monkeypatch.setattr(judging_server, "_agree_on_scale", lambda engine, *_: done.append("agreed"))
    monkeypatch.setattr(judging_server, "_fit", lambda engine, rounds: f"critics after {rounds}")
    monkeypatch.setattr(judging_server, "_ask", lambda engine, critics, read: {"east": critics, "west": critics})
    monkeypatch.setattr(judging_server, "verdict", lambda policy, *words: words)

    def judge(run=(), **fields):
        engines = []

        def start(plan):
            engines.append(SimpleNamespace(plan=plan, progress=Heard(), statistics=None))
            return engines[0]

        trained = plan(run, **fields)
        found = judging_server.judge(trained, RunDirectory(tmp_path), JudgeSettings(rounds=4), start)
        return trained, engines[0], found, list(done)

    return judge


@pytest.mark.parametrize(("share", "held_out"), [(0.0, False), (0.5, True)])
def test_a_plain_run_gets_the_verdict_of_its_clients(judged, share, held_out):
    trained, engine, found, done = judged({"hold_out": share})
    figures, discount, held, settings = found
    assert figures == {"east": "critics after 4", "west": "critics after 4"}
    assert (discount, held, settings["rounds"]) == (trained.algorithm.discount, held_out, 4)
    assert done == ["agreed"]
    assert engine.plan.judge.scale is None, "clients have to tell about their data first"
    assert (engine.plan.algorithm_name, engine.plan.run.rounds) == ("fqe", 4)
    assert engine.plan.run_id != trained.run_id


@pytest.mark.parametrize(("run", "fields"), [(PRIVATE, {}), (SUMS, {"secure": True})])
def test_where_figures_stay_with_the_clients_the_server_gets_none(judged, run, fields):
    _, engine, found, done = judged(run, **fields)
    assert (found, done) == (None, [])
    assert engine.plan.judge.scale.unit == engine.statistics.reward_unit == 2.0
    assert engine.progress.all(Note) == ["each of east, west keeps its verdict in judge.json of its state folder"]
