"""The server asks clients about their tables until enough have told, and keeps what they agreed on."""

from types import SimpleNamespace

import pytest

from fova.data.tables.columns import Columns
from fova.data.tables.survey import Agreement, Survey, Told
from fova.errors import FovaError
from fova.network import messages, surveying
from fova.network.surveying import AGREED, SECONDS_TO_ASK_AGAIN, Surveyor, agreement, space_of
from fova.run.directory import RunDirectory
from fova.spaces import Discrete, Space

RUN = "0" * 32
MAPPING = {"episode": "who", "time": "hour", "observations": ["hr"], "action": "dose", "reward": "pay"}
COLUMNS = Columns.of(MAPPING | {"terminal": "died"})
NUMBERS = Survey({"hr": Told("number")}, {"dose": Told("number")})
CHOICES = Survey({"hr": Told("number")}, {"dose": Told("category", ("low", "high"))})


def config(columns=COLUMNS, privacy="off", action_low=(), task=None):
    return SimpleNamespace(columns=columns, task=task, run=SimpleNamespace(privacy=privacy, action_low=action_low))


# --- The agreement ---


def test_clients_are_asked_once_and_the_agreement_is_kept(tmp_path):
    asked = []

    def gather(columns):
        asked.append(columns)
        return {"east": CHOICES}

    run = RunDirectory(tmp_path)
    first = agreement(run, config(), gather)
    assert (first.actions, first.choices, first.recipe.width) == (("dose",), ("high", "low"), 1)
    assert (tmp_path / AGREED).exists()
    assert agreement(run, config(), gather) == first
    assert asked == [COLUMNS]


def test_without_tables_nobody_is_asked(tmp_path):
    assert agreement(RunDirectory(tmp_path), config(columns=None), None) is None
    assert not (tmp_path / AGREED).exists()


def test_under_privacy_the_mapping_says_everything_and_nobody_is_asked(tmp_path):
    stated = Columns.of(MAPPING | {"terminal": "died", "numbers": ["hr", "dose"]})
    agreed = agreement(RunDirectory(tmp_path), config(stated, privacy="client"), None)
    assert (agreed.actions, agreed.choices) == (("dose",), None)


def test_the_space_of_what_was_agreed():
    agreed = {
        kind: Agreement(recipe_of(NUMBERS), ("dose",), choices)
        for kind, choices in {"choices": ("high", "low"), "numbers": None}.items()
    }
    assert space_of(agreed["choices"], config()) == Space(1, Discrete(("high", "low")))
    assert space_of(agreed["numbers"], config(action_low=(0.0,))) == Space.unit(1, 1)
    with pytest.raises(FovaError, match="nobody has declared their bounds"):
        space_of(agreed["numbers"], config())


def recipe_of(survey):
    return surveying.agree({"east": survey}, COLUMNS).recipe


# --- Asking ---


class Asked:
    """In place of the grid: in each turn some nodes are there, and each answers in its own way."""

    def __init__(self, clock, turns):
        self.clock, self.turns = clock, list(turns)
        self.grid = SimpleNamespace(get_node_ids=lambda: list(self.turns[0]))
        self.progress = SimpleNamespace(status=self.said, note=self.said)
        self.asked, self.words, self.pauses = [], [], []

    def said(self, words):
        self.words.append(words)

    def patiently(self, call):
        return call()

    def ask(self, kind, questions, seconds):
        assert kind == messages.HELLO
        assert all(messages.read_survey_question(question) == COLUMNS for question in questions.values())
        self.asked.append((sorted(questions), seconds))
        for node in questions:
            answer = self.turns[0][node]
            if answer is not None:
                yield node, answer

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.clock.now += seconds
        self.turns.pop(0)


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(surveying, "time", clock)
    return clock


def told(name, survey=NUMBERS, run=RUN):
    return SimpleNamespace(has_error=lambda: False, content=messages.survey_answer(run, name, survey))


def failed(reason):
    return SimpleNamespace(has_error=lambda: True, error=SimpleNamespace(reason=reason))


def test_clients_are_waited_for_until_enough_have_told(clock):
    asking = Asked(clock, [{}, {1: told("east")}, {1: None}, {1: None, 2: told("west", CHOICES)}])
    found = Surveyor(asking, RUN, 2).gather(COLUMNS, 30.0, 2.0)
    assert found == {"east": NUMBERS, "west": CHOICES}
    assert asking.asked == [([], 30.0), ([1], 30.0), ([], 30.0), ([2], 30.0)]  # nobody twice within a minute
    assert asking.pauses == [2.0, 2.0, 2.0]
    assert asking.words == [  # only news
        "waiting for clients: 0 of 2 told about their columns",
        "waiting for clients: 1 of 2 told about their columns",
    ]


def test_a_client_that_did_not_answer_is_asked_again_after_a_minute(clock):
    asking = Asked(clock, [{1: None}, {1: told("east")}, {1: told("east")}])
    Surveyor(asking, RUN, 1).gather(COLUMNS, 30.0, SECONDS_TO_ASK_AGAIN / 2)
    assert [nodes for nodes, _ in asking.asked] == [[1], [], [1]]
    assert SECONDS_TO_ASK_AGAIN == 60.0


def test_a_new_client_is_asked_at_once_on_a_machine_that_has_just_started(clock):
    clock.now = 0.0
    assert list(Surveyor(Asked(clock, [{1: told("east")}]), RUN, 1).gather(COLUMNS, 30.0, 2.0)) == ["east"]


def test_what_cannot_be_admitted_is_noted_and_costs_no_other_client(clock):
    nodes = {
        1: told("north", run="1" * 32),
        2: failed("out of memory"),
        3: ValueError("no such object"),
        4: told("east"),
    }
    asking = Asked(clock, [nodes])
    assert Surveyor(asking, RUN, 1).gather(COLUMNS, 30.0, 2.0) == {"east": NUMBERS}
    assert [words.partition(":")[0] for words in asking.words] == [f"not admitted, node {n}" for n in (1, 2, 3)]
    assert "stale: it answers run 1" in asking.words[0]
    assert "it failed: out of memory" in asking.words[1]
    assert "its message cannot be read (no such object)" in asking.words[2]
