import io
import json
import sys

from fova.network.journal import Journal, Reader
from fova.progress import Failed, Finished, Note, Round, Started, Status, to_json


def test_what_one_process_writes_another_reads(tmp_path):
    journal = Journal(tmp_path / "new" / "folder" / "journal.jsonl")
    reader = Reader(journal.path)
    journal.status("compiling")
    journal.note("north joined")
    journal.start(2, 10)
    assert list(reader.new()) == [Status("compiling"), Note("north joined"), Started(2, 10)]
    journal.round({"round": 3})
    journal.fail("no space")
    journal.finish()
    assert list(reader.new()) == [Round({"round": 3}), Failed("no space"), Finished(None)]


def test_a_reader_starts_at_the_end_and_leaves_half_a_line_for_later(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.status("long ago")
    reader = Reader(journal.path)
    line = json.dumps(to_json(Status("now")))
    with journal.path.open("a") as file:
        file.write(line[:10])
        file.flush()
        assert list(reader.new()) == []
        file.write(line[10:] + "\n")
    assert list(reader.new()) == [Status("now")]


def test_a_journal_that_cannot_be_written_does_not_stop_what_it_reports_on(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    Journal(tmp_path / "file" / "journal.jsonl").status("trained")
    assert "cannot be written" in capsys.readouterr().out


def test_that_a_journal_cannot_be_written_is_said_at_once(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        shown = ""

        def flush(self):
            self.shown = self.getvalue()

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    (tmp_path / "file").write_text("")
    Journal(tmp_path / "file" / "journal.jsonl").status("trained")
    assert "cannot be written" in terminal.shown
