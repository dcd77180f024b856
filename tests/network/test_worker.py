"""A client's worker answers in one process, keeps what can be made again, and may be killed at any time."""

import importlib
import inspect
import os
import re
import signal
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResultStatus
from flwr.supercore.task_identity import TaskIdentity
from place import Place, free_port

from fova.network import client, processes, supernode, worker
from fova.network.pace import Pace
from tiny import make_transitions, save_npz


def test_pauses_grow_by_thirty_percent_and_start_again():
    pace = Pace(0.2, 0.3)
    assert [round(pace.next(), 3) for _ in range(4)] == [0.2, 0.26, 0.3, 0.3]
    pace.restart()
    assert pace.next() == 0.2


def test_a_supernode_asks_often_after_an_answer_and_seldom_later(monkeypatch):
    slept = []
    monkeypatch.setattr(supernode.time, "sleep", slept.append)
    clock = supernode.Clock()
    for _ in range(20):
        clock.sleep(3)
    clock.sleep(0.5)
    clock.sleep(3)
    assert slept[0] == 0.2
    assert slept[19] == 3.0
    assert slept[20:] == [0.05, 0.2]


def test_a_worker_looks_often_after_a_message_and_seldom_later(monkeypatch, runtime):
    slept, executor = [], worker.InThisProcess()
    monkeypatch.setattr(worker.time, "sleep", slept.append)
    monkeypatch.setattr(worker, "app", lambda message, _: Message(RecordDict(), reply_to=message))
    for _ in range(20):
        executor.reconcile()
    executor.launch(task())
    executor.reconcile()
    assert (slept[0], slept[19], slept[20]) == (0.02, 0.5, 0.02)


def test_the_places_that_are_replaced_still_exist_in_flower():
    from flwr.supercore.superexec import run_superexec
    from flwr.supernode import start_client_internal

    loop = inspect.getsource(run_superexec.run_superexec)
    for call in ("get_executor(", "executor.reconcile()", "executor.get_eligible_capacity("):
        assert call in loop
    assert next(iter(worker.POLL_INTERVAL)) == run_superexec._TASK_POLL_INTERVAL_ENV
    source = inspect.getsource(start_client_internal)
    assert re.findall(r"\btime\.\w+\(", source) == ["time.sleep("] * 3, "the clock stands in for sleep only"


# --- One message ---


@pytest.fixture
def runtime(monkeypatch):
    """The SuperNode's side: what a worker pushed to it."""
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    question = Message(RecordDict({"about": ConfigRecord({"run": "r"})}), 1, "train")
    question.metadata.__dict__["_message_id"] = "question"
    context = Context(1, 1, {}, RecordDict(), {})
    pushed = SimpleNamespace(replies=[], outputs=[], beats=[])
    beating = SimpleNamespace(start=lambda: pushed.beats.append(1), stop=lambda: pushed.beats.append(0))
    monkeypatch.setattr(worker, "HeartbeatSender", lambda _: beating)
    monkeypatch.setattr(worker, "pull_task_input", lambda _: (question, context, None, None))
    monkeypatch.setattr(worker, "push_message", lambda _, reply, __: pushed.replies.append(reply))
    monkeypatch.setattr(worker, "push_task_output", lambda *output: pushed.outputs.append(output[2]))
    return pushed


def task():
    return ExecutionSpec(TaskType.CLIENT_APP, "127.0.0.1:1", "token", True, None, False, None, False, 1)


def test_a_message_is_answered_in_this_process(monkeypatch, runtime):
    monkeypatch.setattr(worker, "app", lambda message, _: Message(RecordDict(), reply_to=message))
    executor = worker.InThisProcess()
    assert executor.get_eligible_capacity(set(TaskType)) == ({TaskType.CLIENT_APP}, set())
    assert executor.launch(task()).status == LaunchResultStatus.ACCEPTED
    assert [reply.has_error() for reply in runtime.replies] == [False]
    assert (runtime.outputs, runtime.beats) == (["completed"], [1, 0])


def test_an_app_that_raises_sends_an_error_and_the_worker_lives_on(monkeypatch, runtime):
    def broken(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(worker, "app", broken)
    monkeypatch.setattr(client, "_kept", ("key", "client"))
    assert worker.InThisProcess().launch(task()).status == LaunchResultStatus.ACCEPTED
    (reply,) = runtime.replies
    assert "no room" in reply.error.reason
    assert client._kept is None


def test_a_message_that_cannot_be_fetched_ends_nothing(monkeypatch, runtime):
    def gone(_):
        raise RuntimeError("No messages received")

    monkeypatch.setattr(worker, "pull_task_input", gone)
    result = worker.InThisProcess().launch(task())
    assert (result.status, result.message) == (LaunchResultStatus.FAILED, "No messages received")
    assert runtime.beats == [1, 0]


def test_a_worker_is_flowers_superexec_with_our_executor(monkeypatch):
    from flwr.supercore.superexec import run_superexec

    done = []

    def run():
        done.append(type(run_superexec.get_executor("a", b=1)))
        done.append(os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"])

    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "3")
    monkeypatch.setattr(run_superexec, "get_executor", None)
    monkeypatch.setattr(importlib.import_module("flwr.supercore.cli.flower_superexec"), "flower_superexec", run)
    monkeypatch.setattr(processes, "end_with_parent", lambda: done.append("with its parent"))
    worker.main()
    assert done == ["with its parent", worker.InThisProcess, "0.01"]


# --- What is kept between messages ---


def test_data_is_kept_until_its_file_or_the_plan_changes(monkeypatch, tmp_path):
    monkeypatch.setattr(client, "_kind", lambda _: lambda config, plan: SimpleNamespace(config=config, plan=plan))
    client.forget()
    path = tmp_path / "north.npz"
    save_npz(path, make_transitions(0))
    config = client.ClientConfig("north", str(path), str(tmp_path))
    plan = SimpleNamespace(to_json=lambda: "a plan")
    first = client.client_of(config, plan)
    assert client.client_of(config, plan) is first
    other_plan = client.client_of(config, SimpleNamespace(to_json=lambda: "another"))
    assert other_plan is not first
    save_npz(path, make_transitions(1))
    other_data = client.client_of(config, SimpleNamespace(to_json=lambda: "another"))
    assert other_data is not other_plan
    unknown = client.ClientConfig("north", "somewhere/in-minari-v0", str(tmp_path))
    assert client.client_of(unknown, plan) is not client.client_of(unknown, plan), "it may change unnoticed"
    client.forget()


# --- Real processes ---


@pytest.mark.slow
@pytest.mark.skipif(not processes.PROCESSES.exists(), reason="needs /proc")
def test_a_killed_worker_is_replaced_and_none_outlives_its_client(tmp_path):
    place, port = Place(tmp_path), free_port()
    run = tmp_path / "runs" / "wards"
    for seed, name in enumerate(("north", "south")):
        save_npz(tmp_path / f"{name}.npz", make_transitions(seed))
    marks = {name: processes.mark_of(tmp_path / "fova-client" / name) for name in ("north", "south")}

    def workers(name):
        found = [pid for pid in processes.marked(marks[name]) if b"network.worker" in command(pid)]
        assert len(found) <= 1
        return found

    def rounds():
        metrics = run / "metrics.jsonl"
        return metrics.read_text().count("\n") - 1 if metrics.exists() else -1

    try:
        place.start(
            *(
                "server",
                "server",
                "--insecure",
                "--host",
                "127.0.0.1",
                "--port",
                port,
                "--name",
                "wards",
                "--plain",
            ),
            *("--rounds", 12, "--local-steps", 2, "--hidden", 8, "--batch-size", 8, "--observation", 3),
            *("--action", 2, "--min-clients", 2),
        )
        for name in ("north", "south"):
            place.start(name, "client", "--insecure", "--server", f"127.0.0.1:{port}", "--data", f"{name}.npz")
        place.wait("two rounds", lambda: rounds() >= 2)
        (first,) = workers("north")
        os.kill(first, signal.SIGKILL)
        place.wait("another worker", lambda: workers("north") not in ([], [first]))
        place.wait("the end", lambda: rounds() == 12)
        assert "The process that trains has ended" in place.said("north")
        north = place.running.pop("north")
        north.kill()
        north.wait()
        place.wait("the end of the orphans", lambda: not processes.marked(marks["north"]))
        assert place.stop("south") == 0
        assert not processes.marked(marks["south"])
    finally:
        for name in list(place.running):
            place.kill(name)


def command(pid):
    try:
        return (processes.PROCESSES / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
