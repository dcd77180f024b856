"""The ServerApp: what it hands to the training loop and what it leaves behind, with a loop that trains nothing."""

import json
import threading
from types import SimpleNamespace

import pytest
from in_process import InProcessGrid
from test_rounds import new_run, settings

from fova.errors import FovaError
from fova.machine.interrupts import Interrupted
from fova.network import server
from fova.network.engine import FlowerEngine
from fova.network.secure_engine import SecureEngine
from fova.progress import Quiet

SUMS = {"aggregation": "uniform", "normalise": False, "reward_unit": 1.0}


@pytest.fixture
def loops(monkeypatch):
    """The loops that were started."""
    started = []

    class Loop:
        def __init__(self, config, run, engine, task, progress, privacy, command):
            self.config, self.run, self.engine, self.task = config, run, engine, task
            started.append(self)

        def what_is_kept(self):
            return "Two rounds are kept."

        def train(self, stop):
            assert stop.compute(threading.get_ident) == threading.get_ident(), "this thread does the work"
            if self.engine.network.judge:
                return "trained"
            (self.run.path / "answers").mkdir()
            (self.run.path / server.STOP_REQUEST).touch()
            assert stop.wanted, "the file asks to stop"
            with pytest.raises(Interrupted, match="Two rounds are kept"):
                self.engine.pause(3.0)
            return "trained"

        def finish(self, trained):
            return SimpleNamespace(state=trained)

    monkeypatch.setattr(server, "Loop", Loop)
    return started


def left_behind(run):
    return {path.name for path in run.path.iterdir()} & {"answers", server.STOP_REQUEST}


@pytest.mark.parametrize(("secure", "kind"), [(False, FlowerEngine), (True, SecureEngine)])
def test_every_round_is_saved_and_nothing_of_a_round_is_left(loops, monkeypatch, tmp_path, secure, kind):
    monkeypatch.setattr(server, "judge_policy", lambda *_: pytest.fail("nobody asked for it"))
    run = new_run(tmp_path, settings("fed-bc", **SUMS if secure else {}), secure_aggregation=secure)
    (run.path / server.STOP_REQUEST).touch()  # of an earlier start
    pauses = []
    assert server.train(InProcessGrid({}), run, Quiet(), pauses.append).state == "trained"
    (loop,) = loops
    assert type(loop.engine) is kind
    assert loop.config.run.checkpoint_seconds == 0.0
    assert loop.task is None
    assert left_behind(run) == set()
    loop.engine.pause(3.0)  # nobody wants to stop any more
    assert pauses == [3.0]


def test_a_trained_policy_is_judged_if_that_was_asked_for(loops, monkeypatch, tmp_path):
    judged = []
    monkeypatch.setattr(server, "judge_policy", lambda plan, run, network, start: judged.append(start(plan)))
    server.train(InProcessGrid({}), new_run(tmp_path, settings("fed-bc"), judge=True), Quiet())
    assert [type(engine) for engine in judged] == [FlowerEngine]


@pytest.mark.parametrize("kept", [False, True])
def test_a_verdict_is_written_unless_the_clients_keep_it(monkeypatch, tmp_path, kept):
    run = new_run(tmp_path, settings("fed-bc"), judge=True, judge_rounds=7)
    verdict = None if kept else SimpleNamespace(to_json=lambda: {"sentence": "good"})
    monkeypatch.setattr(server.judging_server, "judge", lambda plan, run, settings, start: verdict)
    server.judge_policy(None, run, server.read_server(run)[1], None)
    assert (run.path / "judge.json").exists() is not kept


# --- As Flower calls it ---


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (None, None, None),
        (Interrupted("Stopped after round 2."), None, "Stopped after round 2."),
        (FovaError("The plan is wrong."), FovaError, "The plan is wrong."),
        (OSError(28, "No space left on device"), OSError, "No space left on device"),
    ],
)
def test_how_a_training_ended_is_in_the_journal(monkeypatch, tmp_path, error, raised, words):
    run = new_run(tmp_path, settings("fed-bc"))

    def train(grid, directory, journal):
        assert directory.path == run.path
        journal.note("it began")
        if error is not None:
            raise error

    monkeypatch.setattr(server, "train", train)
    context = SimpleNamespace(run_config={"directory": str(run.path)})
    if raised:
        with pytest.raises(raised, match=words):
            server.main("grid", context)
    else:
        server.main("grid", context)
    said = [json.loads(line) for line in (run.path / "journal.jsonl").read_text().splitlines()]
    assert [event["event"] for event in said] == ["note", *(["failed"] if error else [])]
    assert words is None or words in said[-1]["text"]
