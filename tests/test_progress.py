import io
import json

import pytest
from rich.console import Console

from fova.progress import (
    EVENTS,
    Failed,
    Finished,
    Live,
    Note,
    Plain,
    Progress,
    Quiet,
    Round,
    Started,
    Status,
    from_json,
    summary,
    to_json,
)

ENTRY = {"round": 1, "server": {"return": 12.34, "score": 56.0}, "clients": {}}


def shown(make, *, terminal):
    """What is left on the screen after a run with a note in the middle of it."""
    stream = io.StringIO()
    progress = make(Console(file=stream, width=60, force_terminal=terminal))
    progress.status("making [odd] data")
    progress.start(0, 3)
    progress.note("[north]: 3 rows were left out, because they have no number")
    progress.round(ENTRY)
    progress.finish()
    return stream.getvalue()


@pytest.mark.parametrize(("make", "terminal"), [(Live, True), (Plain, False)])
def test_notes_stay_on_the_screen_as_they_were_written(make, terminal):
    assert "[north]: 3 rows were left out" in shown(make, terminal=terminal)


def test_a_note_stands_above_the_bar():
    text = shown(Live, terminal=True)
    note = text.index("3 rows were left out")
    assert "\x1b[2K" in text[:note], "the bar is taken away before the note is printed"
    assert "1/3" in text[note:], "and drawn again below it"


def test_a_status_is_never_taken_for_markup():
    assert "... making [odd] data" in shown(Plain, terminal=False)


def test_a_plain_log_does_not_repeat_a_status_for_every_round():
    console = Console(file=io.StringIO(), width=200)
    plain = Plain(console)
    for number in range(1, 61):
        plain.status(f"fitting the policy's value: round {number} of 60, about {60 - number} s left")
    plain.status("reading east.csv")
    plain.status("reading west.csv")
    lines = console.file.getvalue().splitlines()
    assert [line.split(",")[0] for line in (lines[0], lines[-3])] == [
        "... fitting the policy's value: round 1 of 60",
        "... fitting the policy's value: round 60 of 60",
    ]
    assert lines[-2:] == ["... reading east.csv", "... reading west.csv"]
    assert len(lines) < 60


def test_quiet_says_nothing(capsys):
    quiet = Quiet()
    quiet.note("something")
    quiet.round(ENTRY)
    assert capsys.readouterr().out == ""


def test_the_figures_of_a_round():
    assert summary(ENTRY) == ["return 12.3 (score 56)"]
    votes = {"vote_local": 0.5, "vote_behaviour": 0.25, "vote_global": 0.25}
    assert summary({"round": 1, "clients": {"a": votes}}) == ["vote local 50% behaviour 25% global 25%"]


ALL = [
    Status("compiling"),
    Note("north joined"),
    Started(2, 10),
    Round(ENTRY),
    Finished(),
    Finished({"return": 1.0, "score": None}),
    Failed("no space"),
]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_an_event_travels_as_json(event):
    assert from_json(json.loads(json.dumps(to_json(event) | {"time": 5.0}))) == event


def test_every_kind_of_event_has_a_name():
    assert {type(event) for event in ALL} == set(EVENTS.values())


@pytest.mark.parametrize("content", [None, [], "status", {}, {"event": "status"}, {"event": "stat", "text": "x"}])
def test_what_is_not_an_event_is_refused(content):
    with pytest.raises(ValueError, match="is not an event"):
        from_json(content)


def test_methods_report_events():
    seen = []

    class Seen(Progress):
        def handle(self, event):
            seen.append(event)

    progress = Seen()
    progress.status("compiling")
    progress.note("north joined")
    progress.start(2, 10)
    progress.round(ENTRY)
    progress.finish()
    progress(Finished({"return": 1.0, "score": None}))
    progress.fail("no space")
    assert seen == ALL
