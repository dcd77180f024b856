"""Asking nodes and waiting for their answers, with a grid and a clock of our own."""

from types import SimpleNamespace

import httpx
import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fova.network import asking
from fova.network.asking import LONGEST_PAUSE, MOST_PUSHED, SECONDS_TO_RETRY, SHORTEST_PAUSE, Asking


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self):
        self.now, self.slept, self.sleeps = 100.0, 0.0, []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept += seconds
        self.sleeps.append(seconds)


class Notes:
    def __init__(self):
        self.said = []

    def status(self, words):
        self.said.append(words)


def reply(node):
    return SimpleNamespace(metadata=SimpleNamespace(src_node_id=node))


class SlowGrid:
    """A node answers after the given seconds. Where an error is given in their place, it is raised."""

    def __init__(self, clock, after, lost=()):
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as a ServerApp's process has it
        self.clock, self.after, self.lost = clock, dict(after), set(lost)
        self.pushed, self.ttl = [], set()

    def push_messages(self, messages):
        self.pushed.append(len(messages))
        self.ttl |= {message.metadata.ttl for message in messages}
        nodes = [message.metadata.dst_node_id for message in messages]
        return [None if node in self.lost else str(node) for node in nodes]

    def pull_messages(self, numbers):
        (number,) = numbers
        after = self.after[int(number)]
        if isinstance(after, Exception):
            raise after
        return [reply(int(number))] if self.clock.slept >= after else []


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(asking, "time", clock)
    return clock


def question():
    return RecordDict({"about": ConfigRecord({"x": 1})})


def ask(clock, grid, nodes, seconds=10.0):
    asker = Asking(grid, Notes(), pause=clock.sleep, sleep=clock.sleep)
    return list(asker.ask("query", {node: question() for node in nodes}, seconds)), asker


def test_answers_come_as_they_arrive_and_the_questions_expire(clock):
    grid = SlowGrid(clock, {1: 2.0, 2: 0.0, 3: 0.5})
    answers, _ = ask(clock, grid, [1, 2, 3])
    assert [node for node, _ in answers] == [2, 3, 1]
    assert all(answer.metadata.src_node_id == node for node, answer in answers)
    assert grid.ttl == {10.0}
    assert 2.0 <= clock.slept < 2.0 + LONGEST_PAUSE


def test_nobody_is_asked_without_a_question(clock):
    grid = SlowGrid(clock, {})
    assert ask(clock, grid, [])[0] == []
    assert grid.pushed == []


def test_pauses_start_short_and_stay_below_the_longest(clock):
    ask(clock, SlowGrid(clock, {1: 60.0}), [1], seconds=40.0)
    assert clock.sleeps[0] == SHORTEST_PAUSE == 0.1
    assert max(clock.sleeps) == LONGEST_PAUSE == 3.0
    assert clock.sleeps == sorted(clock.sleeps)


def test_who_does_not_answer_in_time_is_not_waited_for(clock):
    answers, _ = ask(clock, SlowGrid(clock, {1: 1.0, 2: 99.0}), [1, 2], seconds=10.0)
    assert [node for node, _ in answers] == [1]
    assert 10.0 <= clock.slept < 10.0 + LONGEST_PAUSE


def test_waiting_ends_by_the_pauses_too_if_the_clock_stands_still(clock, monkeypatch):
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    ask(clock, SlowGrid(clock, {1: 99.0}), [1], seconds=10.0)
    assert 10.0 <= clock.slept < 10.0 + LONGEST_PAUSE


def test_time_spent_with_answers_counts_as_waiting(clock):
    grid = SlowGrid(clock, {1: 0.0, 2: 99.0})
    asker = Asking(grid, Notes(), pause=clock.sleep, sleep=clock.sleep)
    for _ in asker.ask("query", {1: question(), 2: question()}, 10.0):
        clock.now += 60.0  # reading the answer of node 1 takes a minute
    assert clock.slept == 0.0


def test_many_questions_are_sent_in_parts(clock):
    nodes = list(range(1, 2 * MOST_PUSHED + 2))
    grid = SlowGrid(clock, dict.fromkeys(nodes, 0.0))
    answers, _ = ask(clock, grid, nodes)
    assert grid.pushed == [MOST_PUSHED, MOST_PUSHED, 1] == [64, 64, 1]
    assert [node for node, _ in answers] == nodes
    assert clock.slept == 0.0


def test_a_node_that_cannot_be_asked_is_left_out(clock):
    answers, _ = ask(clock, SlowGrid(clock, {1: 0.0, 3: 0.0}, lost=[2]), [1, 2, 3])
    assert [node for node, _ in answers] == [1, 3]
    assert clock.slept == 0.0


def test_an_answer_that_flower_cannot_read_costs_no_other(clock):
    broken = ValueError("no such object")
    answers, _ = ask(clock, SlowGrid(clock, {1: broken, 2: 0.0}), [1, 2])
    assert answers[0] == (1, broken)
    assert [node for node, _ in answers] == [1, 2]


def test_flowers_word_that_a_node_is_gone_is_no_answer(clock, monkeypatch):
    grid = SlowGrid(clock, {1: 0.0, 2: 0.0})
    monkeypatch.setattr(grid, "pull_messages", lambda numbers: [reply(0 if numbers == ["1"] else 2)])
    assert [node for node, _ in ask(clock, grid, [1, 2])[0]] == [2]
    assert clock.slept == 0.0


def test_a_superlink_that_does_not_answer_is_asked_again_later(clock):
    grid = SlowGrid(clock, {1: httpx.ConnectError("no route")})
    answers, asker = ask(clock, grid, [1], seconds=5.0)
    assert answers == []
    assert set(asker.progress.said) == {"the SuperLink does not answer: no route"}


def test_a_call_to_our_own_superlink_is_repeated_until_it_works(clock):
    asker = Asking(SlowGrid(clock, {}), Notes(), pause=clock.sleep, sleep=None)
    failures = [httpx.ConnectError("no\nroute"), httpx.ReadTimeout("slow")]

    def call():
        if failures:
            raise failures.pop(0)
        return "done"

    assert asker.patiently(call) == "done"
    assert clock.sleeps == [SECONDS_TO_RETRY, SECONDS_TO_RETRY] == [5.0, 5.0]
    assert asker.progress.said[0] == "the SuperLink does not answer (no\\nroute); asking again"
    with pytest.raises(ValueError, match="ours"):
        asker.patiently(lambda: (_ for _ in ()).throw(ValueError("ours")))
