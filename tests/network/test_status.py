"""What `fova server status` says, from the files of a run."""

import json

from fova.network.status import Member, Status, status_of, table
from fova.run.directory import RunDirectory


def write(path, *entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_members_rounds_refusals_and_ejections_by_hand(tmp_path):
    write(
        tmp_path / "metrics.jsonl",
        {"round": 0},
        {
            "round": 1,
            "clients": {"east": {}, "north": {}},
            "rejected_because": {"south": "its numbers are not finite"},
        },
        {"round": 2, "clients": {"east": {}}, "missing": ["north"], "rejected_because": {"south": "stale"}},
    )
    write(
        tmp_path / "journal.jsonl",
        *({"event": "note", "text": f"{name} joined"} for name in ("east", "north", "south")),
        {"event": "note", "text": "not admitted, node 7: it does not say who it is"},
        {"event": "note", "text": "south is out of the run after 2 offences, the last: stale"},
        {"event": "status", "text": "ghost joined"},
    )
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"event": "no')
    status = status_of(RunDirectory(tmp_path))
    assert (status.rounds, status.complete) == (2, False)
    assert set(status.members) == {"east", "north", "south", "node 7"}
    east, north, south, stranger = (status.members[name] for name in ("east", "north", "south", "node 7"))
    assert (east.joined, east.counted, east.last, east.out) == (True, 2, 2, False)
    assert (north.counted, north.last, north.missing) == (1, 1, 1)
    assert (south.counted, south.rejected, south.reason, south.out) == (0, 2, "stale", True)
    assert (stranger.joined, stranger.reason) == (False, "it does not say who it is")


def test_the_command_shows_them(tmp_path, fova_command):
    write(tmp_path / "metrics.jsonl", {"round": 0}, {"round": 1, "clients": {"east": {}}})
    write(tmp_path / "journal.jsonl", {"event": "note", "text": "east joined"})
    (tmp_path / "config.toml").write_text("")
    code, out, errors = fova_command("server", "status", tmp_path)
    assert code == 0, errors
    assert "round 1" in out
    assert "east" in out
    assert fova_command("server", "status", tmp_path / "nowhere")[0] == 2


def test_the_table_has_a_row_for_each_member():
    members = {
        "west": Member(joined=True, counted=3, last=4, missing=1),
        "east": Member(joined=True, out=True, rejected=2, reason="stale"),
        "node 7": Member(reason="who?"),
    }
    shown = table(Status(False, 4, members))
    rows = list(zip(*(list(column.cells) for column in shown.columns), strict=True))
    assert rows == [
        ("east", "out", "0", "-", "0", "2", "stale"),
        ("node 7", "not admitted", "0", "-", "0", "0", "who?"),
        ("west", "joined", "3", "4", "1", "0", ""),
    ]


def test_a_complete_run_and_one_without_files(tmp_path):
    assert status_of(RunDirectory(tmp_path)) == Status(complete=False, rounds=0, members={})
    (tmp_path / "result.json").write_text("{}")
    assert status_of(RunDirectory(tmp_path)).complete
