import json

from fova.network.journal import Journal, Reader, show
from fova.progress import Quiet


class Display(Quiet):
    def __init__(self):
        self.calls = []

    def status(self, message):
        self.calls.append(("status", message))

    def note(self, message):
        self.calls.append(("note", message))

    def start(self, first, rounds):
        self.calls.append(("start", first, rounds))

    def round(self, entry):
        self.calls.append(("round", entry))


def test_what_one_process_says_another_shows(tmp_path):
    journal, display = Journal(tmp_path / "new" / "journal.jsonl"), Display()
    reader = Reader(journal.path)
    journal.status("compiling")
    journal.note("north joined")
    journal.start(2, 10)
    for event in reader.new():
        show(*event, display)
    journal.round({"round": 3})
    journal.failed("no space")
    rest = list(reader.new())
    for event in rest:
        show(*event, display)
    assert display.calls == [
        ("status", "compiling"),
        ("note", "north joined"),
        ("start", 2, 10),
        ("round", {"round": 3}),
    ]
    assert rest[-1] == ("failed", "no space")


def test_a_reader_starts_at_the_end_and_leaves_half_a_line_for_later(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.status("long ago")
    reader = Reader(journal.path)
    line = json.dumps({"event": "status", "value": "now"})
    with journal.path.open("a") as file:
        file.write(line[:10])
        file.flush()
        assert list(reader.new()) == []
        file.write(line[10:] + "\n")
    assert list(reader.new()) == [("status", "now")]


def test_a_journal_that_cannot_be_written_does_not_stop_what_it_reports_on(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    Journal(tmp_path / "file" / "journal.jsonl").status("trained")
    assert "cannot be written" in capsys.readouterr().out
