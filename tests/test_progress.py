import io

import pytest
from rich.console import Console

from fova.progress import Live, Plain, Quiet, summary

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


def test_quiet_says_nothing(capsys):
    quiet = Quiet()
    quiet.note("something")
    quiet.round(ENTRY)
    assert capsys.readouterr().out == ""


def test_the_figures_of_a_round():
    assert summary(ENTRY) == ["return 12.3 (score 56)"]
    votes = {"vote_local": 0.5, "vote_behaviour": 0.25, "vote_global": 0.25}
    assert summary({"round": 1, "clients": {"a": votes}}) == ["vote local 50% behaviour 25% global 25%"]
